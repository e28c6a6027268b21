//! YAML text to documents, and the place in the text of every field: what a finding points at and what a fix edits.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use serde_json::{Map, Number, Value};
use serde_saphyr::granit_parser::{Event, Options, Parser, ScalarStyle, ScanError, Span, options};

use super::path;

/// One document of a text.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    pub value: Value,
    /// Position among the documents of the text, those without content counted.
    pub index: usize,
    pub line: usize,
    /// Plain words where only strings may stand, which a reader of YAML takes for something else.
    pub mistyped: Vec<Mistyped>,
}

/// A plain word that is no string, or not for every reader.
#[derive(Debug, Clone, PartialEq)]
pub struct Mistyped {
    pub path: String,
    /// As it stands in the text.
    pub text: String,
}

/// What is wrong with a text that is no YAML.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct BadYaml {
    pub line: usize,
    pub what: String,
}

impl From<ScanError> for BadYaml {
    fn from(error: ScanError) -> Self {
        Self { line: error.marker().line(), what: error.info() }
    }
}

fn bad(span: Span, what: impl Into<String>) -> BadYaml {
    BadYaml { line: span.start.line(), what: what.into() }
}

fn parse(text: &str) -> impl Iterator<Item = Result<(Event<'_>, Span), ScanError>> {
    let options: Options = options! { emit_comments: false };
    Parser::new_from_str_with_options(text, options)
}

/// A list or a mapping that is not complete yet.
enum Open {
    List { items: Vec<Value>, anchor: usize },
    Map { map: Map<String, Value>, key: Option<String>, merged: Vec<Value>, anchor: usize },
}

#[derive(Default)]
struct Loader {
    open: Vec<Open>,
    anchors: HashMap<usize, Value>,
    root: Option<Value>,
    mistyped: Vec<Mistyped>,
}

/// The documents of a text; those that hold only comments are none.
pub fn load(text: &str) -> Result<Vec<Document>, BadYaml> {
    let (mut documents, mut index) = (Vec::new(), 0);
    let (mut loader, mut line) = (Loader::default(), None);
    for event in parse(text) {
        let (event, span) = event?;
        match event {
            Event::DocumentStart(..) => (loader, line) = (Loader::default(), None),
            Event::DocumentEnd => {
                let Loader { root, mistyped, .. } = std::mem::take(&mut loader);
                if let Some(value) = root.filter(|value| !value.is_null()) {
                    documents.push(Document { value, index, line: line.unwrap_or(1), mistyped });
                }
                index += 1;
            }
            event => {
                if line.is_none() && event.is_node() {
                    line = Some(span.start.line());
                }
                loader.take(event, span)?;
            }
        }
    }
    Ok(documents)
}

/// The same as plain values.
pub fn documents(text: &str) -> Result<Vec<Value>, BadYaml> {
    Ok(load(text)?.into_iter().map(|document| document.value).collect())
}

impl Loader {
    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), BadYaml> {
        match event {
            Event::SequenceStart(_, anchor, _) => self.open.push(Open::List { items: Vec::new(), anchor }),
            Event::MappingStart(_, anchor, _) => self.open.push(Open::Map { map: Map::new(), key: None, merged: Vec::new(), anchor }),
            Event::SequenceEnd | Event::MappingEnd => self.close(span)?,
            Event::Alias(id) => {
                let value = self.anchors.get(&id).cloned().ok_or_else(|| bad(span, "an alias inside of its own anchor"))?;
                self.put(value, span)?;
            }
            Event::Scalar(text, style, anchor, tag) => {
                let string = style != ScalarStyle::Plain || tag.as_ref().is_some_and(|tag| tag.core_suffix() == Some("str"));
                if let Some(Open::Map { key: key @ None, .. }) = self.open.last_mut() {
                    *key = Some(text.into_owned());
                    return Ok(());
                }
                let value = if string { Value::String(text.clone().into_owned()) } else { plain(&text) };
                if !string && self.only_strings() && (value.is_boolean() || value.is_number()) {
                    self.mistyped.push(Mistyped { path: self.path(), text: text.into_owned() });
                }
                self.keep(anchor, &value);
                self.put(value, span)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn close(&mut self, span: Span) -> Result<(), BadYaml> {
        let (value, anchor) = match self.open.pop() {
            Some(Open::List { items, anchor }) => (Value::Array(items), anchor),
            Some(Open::Map { mut map, merged, anchor, .. }) => {
                for (key, value) in merged.into_iter().flat_map(flat) {
                    map.entry(key).or_insert(value);
                }
                (Value::Object(map), anchor)
            }
            None => return Err(bad(span, "an end without a beginning")),
        };
        self.keep(anchor, &value);
        self.put(value, span)
    }

    fn keep(&mut self, anchor: usize, value: &Value) {
        if anchor != 0 {
            self.anchors.insert(anchor, value.clone());
        }
    }

    fn put(&mut self, value: Value, span: Span) -> Result<(), BadYaml> {
        match self.open.last_mut() {
            None => self.root = Some(value),
            Some(Open::List { items, .. }) => items.push(value),
            Some(Open::Map { map, key, merged, .. }) => match key.take() {
                Some(key) if key == "<<" && !value.is_string() => merged.push(value),
                Some(key) => {
                    if map.contains_key(&key) {
                        return Err(bad(span, format!("the key {key:?} stands twice in one mapping")));
                    }
                    map.insert(key, value);
                }
                None => return Err(bad(span, "a key that is no plain word: a {{ }} of a template that was not rendered?")),
            },
        }
        Ok(())
    }

    /// Is the value that comes next one of a command line, a variable, a label or an annotation?
    fn only_strings(&self) -> bool {
        let mut keys = self.open.iter().rev().map(|open| match open {
            Open::Map { key, .. } => key.as_deref(),
            Open::List { .. } => None,
        });
        match (keys.next().flatten(), keys.next()) {
            (None, Some(Some("args" | "command"))) => true,
            (Some("value"), Some(None)) => matches!(keys.next(), Some(Some("env" | "envs"))),
            (Some(_), Some(Some("labels" | "annotations" | "matchLabels" | "nodeSelector"))) => true,
            _ => false,
        }
    }

    fn path(&self) -> String {
        let mut text = String::new();
        for open in &self.open {
            text = match open {
                Open::List { items, .. } => path::item(&text, items.len()),
                Open::Map { key, .. } => path::field(&text, key.as_deref().unwrap_or_default()),
            };
        }
        text
    }
}

/// The entries that `<<` brings: of one mapping, or of several, the first of which counts.
fn flat(value: Value) -> Vec<(String, Value)> {
    match value {
        Value::Object(map) => map.into_iter().collect(),
        Value::Array(items) => items.into_iter().flat_map(flat).collect(),
        _ => Vec::new(),
    }
}

/// A plain word as kubectl and our own apply read it: numbers by YAML 1.2, true and false by YAML 1.1.
fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        _ if ambiguous(text) => return Value::Bool(matches!(text.to_ascii_lowercase().as_str(), "y" | "yes" | "on")),
        _ => {}
    }
    let digits = text.trim_start_matches(['-', '+']);
    let parsed = || {
        if let Some(hex) = digits.strip_prefix("0x") {
            return i64::from_str_radix(hex, 16).ok().map(Number::from);
        }
        if let Some(octal) = digits.strip_prefix("0o") {
            return i64::from_str_radix(octal, 8).ok().map(Number::from);
        }
        let whole = text.strip_prefix('+').unwrap_or(text);
        whole.parse::<i64>().map(Number::from).ok().or_else(|| whole.parse::<u64>().map(Number::from).ok()).or_else(|| Number::from_f64(whole.parse().ok()?))
    };
    // Rust's own float grammar also takes `inf` and `nan`.
    let numeric = digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') && digits.contains(|c: char| c.is_ascii_digit());
    numeric.then(parsed).flatten().map_or_else(|| Value::String(text.to_owned()), Value::Number)
}

/// A word that YAML 1.1 takes for true or false, and YAML 1.2 for a string.
fn ambiguous(text: &str) -> bool {
    text.len() <= 3 && matches!(text.to_ascii_lowercase().as_str(), "y" | "n" | "yes" | "no" | "on" | "off")
}

/// What a reader makes of one word of a text; none if it is more than a word.
pub fn word(text: &str) -> Option<String> {
    let mut scalars = parse(text).filter_map(Result::ok).filter(|(event, _)| event.is_node());
    match (scalars.next(), scalars.next()) {
        (Some((Event::Scalar(word, ..), _)), None) => Some(word.into_owned()),
        _ => None,
    }
}

/// Where a field stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    pub line: usize,
    /// 1 for the first.
    pub column: usize,
    /// Bytes of the value; of a list or mapping only where it begins.
    pub value: Range<usize>,
    /// A word in one place: no list, mapping, alias or block of lines.
    pub scalar: bool,
}

/// The places of all fields, for each document of the text by its index.
pub fn places(text: &str) -> Vec<BTreeMap<String, Place>> {
    let mut all = Vec::new();
    let mut walk = Walk::default();
    for event in parse(text) {
        let Ok((event, span)) = event else { break };
        match event {
            Event::DocumentStart(..) => walk = Walk::default(),
            Event::DocumentEnd => all.push(std::mem::take(&mut walk.found)),
            event => walk.take(&event, span),
        }
    }
    all
}

/// A frame of the walk: the path of the list or mapping, and what comes next in it.
enum Frame {
    List(String, usize),
    Map(String, Option<(String, Span)>),
}

#[derive(Default)]
struct Walk {
    frames: Vec<Frame>,
    found: BTreeMap<String, Place>,
}

impl Walk {
    fn take(&mut self, event: &Event<'_>, span: Span) {
        match event {
            Event::SequenceEnd | Event::MappingEnd => {
                self.frames.pop();
            }
            Event::Scalar(text, style, ..) => {
                if let Some(Frame::Map(_, key @ None)) = self.frames.last_mut() {
                    *key = Some((text.to_string(), span));
                } else {
                    self.place(span, !matches!(style, ScalarStyle::Literal | ScalarStyle::Folded));
                }
            }
            Event::Alias(_) => {
                self.place(span, false);
            }
            Event::SequenceStart(..) => {
                let path = self.place(span, false);
                self.frames.push(Frame::List(path, 0));
            }
            Event::MappingStart(..) => {
                let path = self.place(span, false);
                self.frames.push(Frame::Map(path, None));
            }
            _ => {}
        }
    }

    /// Notes the value that begins here; its path.
    fn place(&mut self, span: Span, scalar: bool) -> String {
        let (path, at) = match self.frames.last_mut() {
            None => (String::new(), span),
            Some(Frame::List(parent, index)) => {
                *index += 1;
                (path::item(parent, *index - 1), span)
            }
            Some(Frame::Map(parent, key)) => match key.take() {
                Some((key, at)) => (path::field(parent, &key), at),
                None => (parent.clone(), span),
            },
        };
        let bytes = |marker: serde_saphyr::granit_parser::Marker| marker.byte_offset().unwrap_or(marker.index());
        let place = Place { line: at.start.line(), column: at.start.col() + 1, value: bytes(span.start)..bytes(span.end), scalar };
        self.found.insert(path.clone(), place);
        path
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn documents_are_as_the_reader_of_the_apply_sees_them() {
        let text = "# only words\n---\na: &x {b: [1, 2.5, \"3\", no, 0x10, 1e3, .5, -7], c: ~}\nd: *x\ne:\n  <<: *x\n  c: here\n---\nf: |\n  two\n  lines\n";
        let documents = load(text).unwrap();
        let theirs: Vec<Value> = serde_saphyr::from_multiple::<Value>(text).unwrap().into_iter().filter(|value| !value.is_null()).collect();
        assert_eq!(documents.iter().map(|document| document.value.clone()).collect::<Vec<_>>(), theirs);
        assert_eq!(documents[0].value["e"], json!({"c": "here", "b": [1, 2.5, "3", false, 16, 1000.0, 0.5, -7]}));
        assert_eq!((documents[0].line, documents[1].line), (3, 9));
    }

    #[test]
    fn words_that_become_another_type_are_noted_where_strings_must_stand() {
        let text = "spec:\n  args: [--a, 8192, y, \"y\", no, 1e3, yes-sir, true]\n  env:\n  - {name: A, value: on}\n  - name: B\n    value: '1'\n  replicas: 3\n  labels: {a: off, b: word}\n";
        let [document] = &load(text).unwrap()[..] else { panic!() };
        let mistyped: Vec<_> = document.mistyped.iter().map(|one| (one.path.as_str(), one.text.as_str())).collect();
        let expected = [
            ("spec.args[1]", "8192"),
            ("spec.args[2]", "y"),
            ("spec.args[4]", "no"),
            ("spec.args[5]", "1e3"),
            ("spec.args[7]", "true"),
            ("spec.env[0].value", "on"),
            ("spec.labels.a", "off"),
        ];
        assert_eq!(mistyped, expected);
    }

    #[test]
    fn bad_yaml_says_line_and_what() {
        for (text, line, words) in [("a: 1\nb: [1\nc: 2\n", 3, ""), ("a: 1\na: 2\n", 2, "twice"), ("a: {{ b }}\n", 1, "template"), ("a:\n\t- b\n", 2, "tab")] {
            let error = load(text).unwrap_err();
            assert!(error.line.abs_diff(line) <= 1 && error.what.contains(words), "{text:?}: {error}");
        }
    }

    #[test]
    fn places_lead_back_to_the_text() {
        let text = "a: 1\n---\nmetadata:\n  labels:\n    nvidia.com/x: \"ü\"\nspec:\n- name: one\n  args: [a, 'b c']\n";
        let places = places(text);
        let at = |path: &str| &text[places[1][path].value.clone()];
        assert_eq!(at("metadata.labels[\"nvidia.com/x\"]"), "\"ü\"");
        assert_eq!(at("spec[0].args[1]"), "'b c'");
        assert_eq!((places[1]["spec[0].args"].line, places[1]["spec[0].args[1]"].column), (8, 13));
    }
}
