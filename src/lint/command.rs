//! The command line of a container: which program it runs, and with which flags. Also one that a shell is given.

use std::collections::BTreeMap;

use serde_json::Value;

use super::path;
use super::workload::{Variable, list};

/// What is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// `python3 -m dynamo.frontend`
    Frontend,
    /// `python3 -m dynamo.vllm`
    Worker,
    /// `vllm serve`, and the server's module.
    Vllm,
}

/// A word of the command line, and the field that has it.
#[derive(Debug, Clone, PartialEq)]
pub struct Word {
    pub text: String,
    pub path: String,
}

/// A flag with its value, if a word that can be one follows.
#[derive(Debug, Clone, PartialEq)]
pub struct Flag {
    pub name: String,
    pub value: Option<String>,
    /// Of the value, or of the flag where it has none.
    pub path: String,
    /// The value stands in the same word, as in `--flag=value`.
    pub joined: bool,
}

/// A command line, as far as it is known.
#[derive(Debug, Default)]
pub struct Line {
    pub program: Option<Program>,
    /// Words after the program, flags and others.
    pub words: Vec<Word>,
    pub flags: Vec<Flag>,
    /// All words of command and args.
    pub all: Vec<Word>,
}

impl Line {
    /// Of a container; variables that the manifest has values for are put in.
    pub fn of(container: &Value, at: &str, env: &BTreeMap<&str, Variable<'_>>) -> Self {
        let mut all = Vec::new();
        for part in ["command", "args"] {
            let at = path::field(at, part);
            for (index, word) in list(&container[part]).enumerate() {
                let text = word.as_str().map_or_else(|| word.to_string(), str::to_owned);
                let path = path::item(&at, index);
                // A script that a shell is given holds a command line of its own.
                match text.contains([' ', '\n']) && is_script(&text) {
                    true => all.extend(shell_words(&text).into_iter().map(|text| Word { text, path: path.clone() })),
                    false => all.push(Word { text, path }),
                }
            }
        }
        for word in &mut all {
            word.text = expanded(&word.text, env);
        }
        let Some((program, after)) = program(&all) else { return Self { all, ..Self::default() } };
        let words: Vec<_> = all[after..].iter().take_while(|word| !matches!(word.text.as_str(), ";" | "&&" | "||" | "|" | "&")).cloned().collect();
        Self { program: Some(program), flags: flags(&words), words, all }
    }

    pub fn frontend(&self) -> bool {
        self.program == Some(Program::Frontend)
    }

    /// An engine: vLLM alone or as Dynamo's worker.
    pub fn engine(&self) -> bool {
        matches!(self.program, Some(Program::Worker | Program::Vllm))
    }

    /// The last flag of one of these names.
    pub fn flag(&self, names: &[&str]) -> Option<&Flag> {
        self.flags.iter().rev().find(|flag| names.contains(&flag.name.as_str()))
    }

    /// The value of the last flag of one of these names.
    pub fn value(&self, names: &[&str]) -> Option<&str> {
        self.flag(names)?.value.as_deref()
    }

    /// The number behind a flag.
    pub fn number(&self, names: &[&str]) -> Option<u64> {
        self.value(names)?.parse().ok()
    }

    /// The model: what `--model` says, or the first word of `vllm serve`.
    pub fn model(&self) -> Option<&str> {
        let positional = || self.words.first().map(|word| word.text.as_str()).filter(|text| self.program == Some(Program::Vllm) && !text.starts_with('-'));
        self.value(&["--model", "--model-path"]).or_else(positional)
    }

    /// The JSON behind a flag, with the keys that were given as `--flag.key value`; an empty object where it is no JSON.
    pub fn json(&self, name: &str) -> Option<(Value, &Flag)> {
        let inner = format!("{name}.");
        let mut parts = self.flags.iter().filter(|flag| flag.name.starts_with(&inner));
        let whole = self.flag(&[name]);
        let flag = whole.or_else(|| parts.next())?;
        let mut value: Value = whole.and_then(|flag| serde_json::from_str(flag.value.as_deref()?).ok()).unwrap_or_else(|| serde_json::json!({}));
        for part in self.flags.iter().filter(|flag| flag.name.starts_with(&inner)) {
            let text = part.value.clone().unwrap_or_default();
            let inserted = serde_json::from_str(&text).unwrap_or(Value::String(text));
            let mut at = &mut value;
            for key in part.name[inner.len()..].split('.') {
                if !at.is_object() {
                    *at = serde_json::json!({});
                }
                at = &mut at[key];
            }
            *at = inserted;
        }
        Some((value, flag))
    }
}

/// The flags among these words.
fn flags(words: &[Word]) -> Vec<Flag> {
    let is_flag = |text: &str| text.starts_with("--") && text.len() > 2 || (text.starts_with('-') && text[1..].starts_with(|c: char| c.is_ascii_alphabetic()));
    let mut found = Vec::new();
    let mut words = words.iter().peekable();
    while let Some(word) = words.next() {
        if !is_flag(&word.text) {
            continue;
        }
        if let Some((name, value)) = word.text.split_once('=').filter(|(name, _)| !name.contains(['{', ' '])) {
            found.push(Flag { name: name.to_owned(), value: Some(value.to_owned()), path: word.path.clone(), joined: true });
            continue;
        }
        let value = words.next_if(|next| !is_flag(&next.text));
        let path = value.map_or(&word.path, |value| &value.path).clone();
        found.push(Flag { name: word.text.clone(), value: value.map(|value| value.text.clone()), path, joined: false });
    }
    found
}

/// Which program the words run, and the index of the first word after it.
fn program(words: &[Word]) -> Option<(Program, usize)> {
    let at = |index: usize| words.get(index).map(|word| word.text.as_str());
    (0..words.len()).find_map(|index| {
        let name = at(index)?.rsplit('/').next()?;
        match (name, at(index + 1)) {
            ("-m", Some("dynamo.frontend")) => Some((Program::Frontend, index + 2)),
            ("-m", Some("dynamo.vllm")) => Some((Program::Worker, index + 2)),
            ("-m", Some("vllm.entrypoints.openai.api_server")) => Some((Program::Vllm, index + 2)),
            ("vllm", Some("serve")) => Some((Program::Vllm, index + 2)),
            _ => None,
        }
    })
}

fn is_script(text: &str) -> bool {
    ["dynamo.frontend", "dynamo.vllm", "vllm serve", "vllm.entrypoints"].iter().any(|name| text.contains(name))
}

/// The words of a script as a shell takes them apart; `;`, `&&` and their like are words of their own.
fn shell_words(script: &str) -> Vec<String> {
    let (mut words, mut word) = (Vec::new(), None::<String>);
    let mut chars = script.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\'' => word.get_or_insert_default().extend(chars.by_ref().take_while(|c| *c != '\'')),
            '"' => {
                let word = word.get_or_insert_default();
                while let Some(c) = chars.next().filter(|c| *c != '"') {
                    word.push(if c == '\\' { chars.next().unwrap_or(c) } else { c });
                }
            }
            '\\' => match chars.next() {
                Some('\n') | None => words.extend(word.take()),
                Some(c) => word.get_or_insert_default().push(c),
            },
            '\n' | ';' | '&' | '|' => {
                words.extend(word.take());
                words.push(if c == '\n' { ";".to_owned() } else { chars.next_if_eq(&c).map_or_else(|| c.to_string(), |_| format!("{c}{c}")) });
            }
            '#' if word.is_none() => while chars.next_if(|c| *c != '\n').is_some() {},
            c if c.is_whitespace() => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// With `$(NAME)`, `${NAME}` and `$NAME` replaced by the values that the manifest has; others stay.
fn expanded(text: &str, env: &BTreeMap<&str, Variable<'_>>) -> String {
    if !text.contains('$') {
        return text.to_owned();
    }
    let mut text = text.to_owned();
    for (name, variable) in env.iter().rev() {
        if let Some(value) = variable.value {
            for form in [format!("$({name})"), format!("${{{name}}}")] {
                text = text.replace(&form, value);
            }
            if text == format!("${name}") {
                value.clone_into(&mut text);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn line(container: &Value) -> Line {
        Line::of(container, "c", &BTreeMap::from([("TP", Variable { path: "e".into(), value: Some("8") })]))
    }

    #[test]
    fn words_flags_and_json_are_read_from_args_and_from_a_script() {
        let args = json!({"command": ["python3", "-m", "dynamo.vllm"], "args": ["--model", "m", "-tp", "$(TP)", "--enforce-eager", "--kv-transfer-config", "{\"kv_connector\": \"NixlConnector\"}"]});
        let script = json!({"command": ["/bin/sh", "-c"], "args": ["set -e\nwait-for it && exec python3 -m dynamo.vllm \\\n  --model m -tp ${TP} \\\n  --enforce-eager --kv-transfer-config '{\"kv_connector\": \"NixlConnector\"}' # why\necho --done 1"]});
        for container in [args, script] {
            let line = line(&container);
            assert_eq!((line.program, line.model(), line.number(&["--tensor-parallel-size", "-tp"])), (Some(Program::Worker), Some("m"), Some(8)), "{container}");
            assert_eq!(line.flag(&["--enforce-eager"]).unwrap().value, None);
            assert_eq!(line.json("--kv-transfer-config").unwrap().0["kv_connector"], "NixlConnector");
            assert!(line.flag(&["--done"]).is_none());
        }
    }

    #[test]
    fn keys_of_a_json_flag_count_as_if_they_stood_in_it() {
        let line = line(
            &json!({"command": ["vllm", "serve", "m"], "args": ["--kv-transfer-config.kv_connector=NixlConnector", "--kv-transfer-config.kv_connector_extra_config.backends", "[\"UCX\"]"]}),
        );
        assert_eq!(line.model(), Some("m"));
        assert_eq!(line.json("--kv-transfer-config").unwrap().0, json!({"kv_connector": "NixlConnector", "kv_connector_extra_config": {"backends": ["UCX"]}}));
    }
}
