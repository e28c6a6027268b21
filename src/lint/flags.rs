//! The flags that the real parsers take (`configs/engine-flags.tsv`), and what a parser would say to a command line.

use std::collections::HashMap;

use semver::Version;

use super::command::{Flag, Line, Program};
use super::known::Versions;
use crate::config::nearest;

const TABLE: &str = include_str!("../../configs/engine-flags.tsv");

/// One flag in one or several versions.
#[derive(Debug)]
struct Row {
    program: &'static str,
    versions: Vec<Version>,
    takes: &'static str,
    choices: &'static str,
}

/// The table by every spelling of every flag.
#[derive(Debug)]
pub struct Flags(HashMap<&'static str, Vec<Row>>);

/// What is wrong with a flag.
#[derive(Debug, PartialEq)]
pub struct Wrong {
    pub path: String,
    pub found: String,
    pub right: String,
}

impl Flags {
    pub fn load() -> Self {
        let mut all: HashMap<&'static str, Vec<Row>> = HashMap::new();
        for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
            let mut cells = line.split('\t');
            let mut cell = || cells.next().unwrap_or_default();
            let (program, versions, flag, takes, choices, also) = (cell(), cell(), cell(), cell(), cell(), cell());
            for name in std::iter::once(flag).chain(also.split(',').filter(|name| !name.is_empty())) {
                let versions = versions.split(',').filter_map(|version| version.parse().ok()).collect();
                all.entry(name).or_default().push(Row { program, versions, takes, choices });
            }
        }
        Self(all)
    }

    /// What the parser of this program would refuse. Where the version is not known, what every version in the table refuses.
    pub fn wrong(&self, line: &Line, versions: &Versions) -> Vec<Wrong> {
        let Some(program) = line.program else { return Vec::new() };
        // With vLLM's own chat processor the frontend takes flags of vLLM, too.
        let all = program == Program::Frontend && line.value(&["--dyn-chat-processor"]).is_some_and(|processor| processor != "dynamo");
        let groups: &[&str] = match program {
            Program::Frontend if all => &["dynamo.frontend", "vllm", "vllm-serve"],
            Program::Frontend => &["dynamo.frontend"],
            Program::Worker => &["dynamo.vllm", "vllm"],
            Program::Vllm => &["vllm", "vllm-serve"],
        };
        // `-O3` and its like are one flag with a value in the same word.
        line.flags.iter().filter(|flag| !flag.name.contains('$') && !flag.name.starts_with("-O")).filter_map(|flag| self.check(flag, program, groups, versions)).collect()
    }

    fn check(&self, flag: &Flag, program: Program, groups: &[&str], versions: &Versions) -> Option<Wrong> {
        // vLLM takes underscores for hyphens, dynamo.vllm in its own flags does not: full names in hyphens do everywhere.
        let hyphened = |name: &str| if program == Program::Vllm { name.replacen('_', "-", name.split('.').next().unwrap_or(name).matches('_').count()) } else { name.to_owned() };
        let name = hyphened(&flag.name);
        let rows: Vec<&Row> = self.rows(&name, groups).collect();
        let in_version: Vec<&&Row> = rows.iter().filter(|row| fits(row, versions)).collect();
        let named = |text: String| Some(Wrong { path: flag.path.clone(), found: text, right: self.instead(&flag.name, groups, versions) });
        if rows.is_empty() {
            // The inner keys of free-form JSON have no rows of their own.
            let free = name.split_once('.').is_some_and(|(outer, _)| self.rows(outer, groups).next().is_some()) && self.open(&name, groups);
            return if free { None } else { named(flag.name.clone()) };
        }
        if in_version.is_empty() {
            let versions = rows.iter().flat_map(|row| &row.versions).map(ToString::to_string).collect::<Vec<_>>().join(", ");
            return named(format!("{}, which is only in {versions}", flag.name));
        }
        let refusals: Vec<Wrong> = in_version.iter().map_while(|row| value(flag, row)).collect();
        let refused = (refusals.len() == in_version.len()).then(|| refusals.into_iter().next()).flatten();
        refused.or_else(|| self.inner(flag, groups))
    }

    /// A key in the JSON of a flag whose keys are listed, that is not one of them.
    fn inner(&self, flag: &Flag, groups: &[&str]) -> Option<Wrong> {
        let value: serde_json::Value = serde_json::from_str(flag.value.as_deref().filter(|text| text.starts_with('{'))?).ok()?;
        let listed = format!("{}.", flag.name);
        let keys: Vec<&str> = self.0.iter().filter(|(_, rows)| rows.iter().any(|row| groups.contains(&row.program))).filter_map(|(name, _)| name.strip_prefix(&listed)).collect();
        let unknown = value.as_object()?.keys().find(|key| !keys.is_empty() && !keys.contains(&key.as_str()))?;
        let mut known: Vec<_> = keys.iter().map(|key| key.split('.').next().unwrap_or(key)).collect();
        known.sort_unstable();
        known.dedup();
        Some(Wrong { path: flag.path.clone(), found: format!("{}: the key {unknown:?}", flag.name), right: format!("one of {}", known.join(", ")) })
    }

    fn rows(&self, name: &str, groups: &[&str]) -> impl Iterator<Item = &Row> {
        self.0.get(name).into_iter().flatten().filter(move |row| groups.contains(&row.program))
    }

    /// May the JSON that holds this key have keys that nobody lists?
    fn open(&self, name: &str, groups: &[&str]) -> bool {
        let mut outer = name;
        while let Some((above, _)) = outer.rsplit_once('.') {
            if self.rows(above, groups).any(|row| row.takes.contains("json")) {
                let listed = format!("{above}.");
                return !self.0.keys().any(|other| other.starts_with(&listed));
            }
            outer = above;
        }
        false
    }

    fn instead(&self, name: &str, groups: &[&str], versions: &Versions) -> String {
        let known: Vec<&str> = self.0.iter().filter(|(_, rows)| rows.iter().any(|row| groups.contains(&row.program) && fits(row, versions))).map(|(name, _)| *name).collect();
        match nearest(name, &known).as_slice() {
            [] => "none: the parser refuses what it does not know".to_owned(),
            others => format!("{}, or none: the parser refuses what it does not know", others.join(" or ")),
        }
    }
}

/// Is the row one of the version that runs? Of a version that is not in the table nobody knows.
fn fits(row: &Row, versions: &Versions) -> bool {
    let version = if row.program.starts_with("dynamo") { &versions.dynamo } else { &versions.vllm };
    let Some(version) = version else { return true };
    let same = |other: &Version| (other.major, other.minor) == (version.major, version.minor);
    const LISTED: [(u64, u64); 4] = [(1, 4), (1, 6), (0, 26), (0, 31)];
    !LISTED.contains(&(version.major, version.minor)) || row.versions.iter().any(same)
}

/// What is wrong with the value, for a flag that the parser knows.
fn value(flag: &Flag, row: &Row) -> Option<Wrong> {
    let wrong = |found: String, right: String| Some(Wrong { path: flag.path.clone(), found, right });
    match (&flag.value, row.takes) {
        (Some(text), "none") if flag.joined => wrong(format!("{}={text}", flag.name), format!("{} without a value", flag.name)),
        (None, "one" | "json" | "many") => wrong(format!("{} without a value", flag.name), format!("{} with one", flag.name)),
        (Some(text), _) if text.contains('$') => None,
        (Some(text), "json") => serde_json::from_str::<serde_json::Value>(text).err().and_then(|error| wrong(format!("{} {text}", flag.name), format!("JSON ({error})"))),
        (Some(text), "one") if !row.choices.is_empty() && !row.choices.ends_with('*') => {
            let known: Vec<&str> = row.choices.split(',').collect();
            (!known.contains(&text.as_str())).then(|| wrong(format!("{} {text}", flag.name), format!("one of {}", known.join(", ")))).flatten()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::lint::known::version;

    fn wrong(program: &str, args: &[&str], dynamo: Option<&str>, vllm: Option<&str>) -> Vec<String> {
        let container = json!({"command": program.split(' ').collect::<Vec<_>>(), "args": args});
        let versions = Versions { dynamo: dynamo.and_then(version), vllm: vllm.and_then(version) };
        Flags::load().wrong(&Line::of(&container, "c", &BTreeMap::new()), &versions).into_iter().map(|wrong| wrong.found).collect()
    }

    const WORKER: &str = "python3 -m dynamo.vllm";

    #[test]
    fn what_the_parsers_refuse_is_refused() {
        let none: [String; 0] = [];
        for (program, args, dynamo, vllm, found) in [
            (WORKER, &["--model", "m", "--tensor-paralel-size", "8"][..], Some("1.6.1"), Some("0.31.0"), &["--tensor-paralel-size"][..]),
            (WORKER, &["--model", "m", "--tensor-parallel-size", "8", "-tp=8"], Some("1.6.1"), Some("0.31.0"), &[]),
            (WORKER, &["--tool-call-parser", "qwen3_coder"], Some("1.6.1"), Some("0.31.0"), &["--tool-call-parser"]),
            ("vllm serve m", &["--enable-auto-tool-choice", "--tool-call-parser", "qwen3_coder"], None, Some("0.31.0"), &[]),
            (WORKER, &["--is-prefill-worker"], Some("1.4.0"), Some("0.26.0"), &["--is-prefill-worker"]),
            (WORKER, &["--disaggregation-mode", "prefil"], Some("1.6.1"), Some("0.31.0"), &["--disaggregation-mode prefil"]),
            ("python3 -m dynamo.frontend", &["--dyn-reasoning-parser", "nemotron3"], Some("1.6.1"), None, &["--dyn-reasoning-parser"]),
            (WORKER, &["--limit-mm-per-prompt", "image=8"], Some("1.6.1"), Some("0.31.0"), &["--limit-mm-per-prompt image=8"]),
            (WORKER, &["--limit-mm-per-prompt", "{\"image\":8}", "--kv-transfer-config.kv_connector", "NixlConnector"], Some("1.6.1"), Some("0.31.0"), &[]),
            (WORKER, &["--max-model-len", "--enforce-eager"], Some("1.6.1"), Some("0.31.0"), &["--max-model-len without a value"]),
        ] {
            assert_eq!(wrong(program, args, dynamo, vllm), found, "{program} {args:?}");
        }
        assert_eq!(wrong("python3 -m else", &["--nothing"], None, None), none);
    }

    #[test]
    fn a_flag_of_one_version_is_refused_in_the_other_and_taken_where_the_version_is_not_known() {
        let (only, program) = ("--aic-system", "python3 -m dynamo.frontend");
        assert_eq!(wrong(program, &[only, "h200"], Some("1.4.0"), None).len(), 0);
        assert_eq!(wrong(program, &["--ais-system", "h200"], Some("1.4.0"), None), ["--ais-system, which is only in 1.6.1"]);
        assert_eq!(wrong(program, &["--ais-system", "h200"], None, None).len(), 0);
        assert_eq!(wrong(program, &["--ais-system", "h200"], Some("1.5.0"), None).len(), 0);
    }
}
