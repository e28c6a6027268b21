//! Settings from where they are written: each with its origin, unknown ones and wrong ones with file, line, key and value.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use toml::de::{DeTable, DeValue};

use super::files::DEFAULTS;
use super::nearest::did_you_mean;
use super::rules::rule;

/// Where a setting's value is from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(tag = "layer", rename_all = "kebab-case")]
pub enum Origin {
    /// `configs/defaults.toml`.
    Default,
    /// `[settings]` of an instance type's or a model's file.
    Catalogue {
        file: String,
    },
    File {
        file: PathBuf,
        line: usize,
    },
    Environment {
        variable: String,
    },
    Flag {
        flag: String,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Catalogue { file } => f.write_str(file),
            Self::File { file, line } => write!(f, "{}:{line}", file.display()),
            Self::Environment { variable } => f.write_str(variable),
            Self::Flag { flag } => f.write_str(flag),
        }
    }
}

/// One setting as it is in force.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Setting {
    /// `gpu.nodes`
    pub key: String,
    #[schemars(with = "serde_json::Value")]
    pub value: toml::Value,
    pub origin: Origin,
    /// From the comment in `configs/defaults.toml`.
    pub description: String,
}

/// All settings in force, in the order of `configs/defaults.toml`.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
#[serde(transparent)]
pub struct Layers(Vec<Setting>);

impl Layers {
    /// The lowest layer.
    pub(super) fn defaults() -> Self {
        let mut settings = Vec::new();
        let mut table = String::new();
        let values: toml::Table = toml::from_str(DEFAULTS).unwrap_or_default();
        for line in DEFAULTS.lines() {
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                table = format!("{name}.");
            } else if let Some((name, rest)) = line.split_once(" = ") {
                let key = format!("{table}{name}");
                let description = rest.split_once('#').map(|(_, comment)| comment.trim().to_owned()).unwrap_or_default();
                if let Some(value) = at(&values, &key) {
                    settings.push(Setting { value: value.clone(), key, origin: Origin::Default, description });
                }
            }
        }
        Self(settings)
    }

    /// Each setting, in the order of `configs/defaults.toml`.
    pub fn iter(&self) -> impl Iterator<Item = &Setting> {
        self.0.iter()
    }

    /// The setting of that key.
    pub fn get(&self, key: &str) -> Option<&Setting> {
        self.0.iter().find(|setting| setting.key == key)
    }

    /// The text of a setting that is text.
    pub(super) fn text(&self, key: &str) -> &str {
        self.get(key).and_then(|setting| setting.value.as_str()).unwrap_or_default()
    }

    /// Where a setting is from and what it is, for the head of an error: `nemo.toml:3: instance = "p5"`.
    pub(super) fn place(&self, key: &str) -> String {
        self.get(key).map_or_else(|| key.to_owned(), |setting| format!("{}: {key} = {}", setting.origin, setting.value))
    }

    /// The variable that sets a key: `NEMO_GPU_NODES` for `gpu.nodes`.
    pub(super) fn variable(key: &str) -> String {
        format!("NEMO_{}", key.replace('.', "_").to_uppercase())
    }

    /// All settings as the table that they came from.
    pub(super) fn table(&self) -> toml::Table {
        let mut root = toml::Table::new();
        for setting in &self.0 {
            let mut parts: Vec<_> = setting.key.split('.').collect();
            let last = parts.pop().unwrap_or_default();
            let mut table = &mut root;
            for part in parts {
                let entry = table.entry(part).or_insert_with(|| toml::Value::Table(toml::Table::new()));
                match entry {
                    toml::Value::Table(inner) => table = inner,
                    _ => return root,
                }
            }
            table.insert(last.to_owned(), setting.value.clone());
        }
        root
    }

    /// Lays a value over what is there; the error says what is wrong with it.
    pub(super) fn set(&mut self, key: &str, value: toml::Value, origin: Origin) -> Result<(), String> {
        let Some(setting) = self.0.iter_mut().find(|setting| setting.key == key) else {
            return Err(format!("{origin}: unknown setting {key} = {value}{}", did_you_mean(key, &self.keys())));
        };
        let value = match (&setting.value, value) {
            (toml::Value::Float(_), toml::Value::Integer(whole)) => toml::Value::Float(whole as f64),
            (_, value) => value,
        };
        let rule = rule(key);
        if !setting.value.same_type(&value) || !rule.takes(&value) {
            return Err(format!("{origin}: {key} = {value}: must be {}", rule.allowed()));
        }
        *setting = Setting { key: key.into(), value, origin, description: std::mem::take(&mut setting.description) };
        Ok(())
    }

    /// As [`Layers::set`], from text: a variable's or a flag's.
    pub(super) fn set_text(&mut self, key: &str, text: &str, origin: Origin) -> Result<(), String> {
        let value = match self.get(key).map(|setting| &setting.value) {
            Some(toml::Value::Integer(_)) => text.parse().map(toml::Value::Integer).ok(),
            Some(toml::Value::Float(_)) => text.parse().map(toml::Value::Float).ok(),
            _ => None,
        };
        self.set(key, value.unwrap_or_else(|| toml::Value::String(text.into())), origin)
    }

    /// Lays a file over what is there; all that is wrong with it comes back.
    pub(super) fn lay_file(&mut self, path: &Path, text: &str) -> Vec<String> {
        let (Ok(values), Ok(places)) = (toml::from_str::<toml::Table>(text), DeTable::parse(text)) else {
            return vec![syntax(path, text)];
        };
        let mut wrong = Vec::new();
        self.lay_table("", &values, places.get_ref(), &|span| Origin::File { file: path.into(), line: line_of(text, span) }, &mut wrong);
        wrong
    }

    fn lay_table(&mut self, prefix: &str, values: &toml::Table, places: &DeTable<'_>, origin: &dyn Fn(usize) -> Origin, wrong: &mut Vec<String>) {
        // In the order of the file, so that what is wrong is told in that order.
        let mut entries: Vec<_> = places.iter().collect();
        entries.sort_by_key(|(name, _)| name.span().start);
        for (name, place) in entries {
            let key = format!("{prefix}{}", name.get_ref());
            let (Some(value), origin_here) = (values.get(name.get_ref().as_ref()), origin(name.span().start)) else { continue };
            let is_table = self.0.iter().any(|setting| setting.key.starts_with(&format!("{key}.")));
            match (value, place.get_ref()) {
                (toml::Value::Table(inner), DeValue::Table(inner_places)) if is_table => self.lay_table(&format!("{key}."), inner, inner_places, origin, wrong),
                (toml::Value::Table(inner), _) if self.get(&key).is_none() => {
                    let tables = self.tables();
                    wrong.push(format!(
                        "{origin_here}: unknown table [{key}] with {}{}",
                        keys_of(inner),
                        did_you_mean(&key, &tables.iter().map(String::as_str).collect::<Vec<_>>())
                    ));
                }
                (value, _) if is_table => wrong.push(format!("{origin_here}: {key} = {value}: must be a table: [{key}] with {}", self.members(&key))),
                (value, _) => wrong.extend(self.set(&key, value.clone(), origin_here).err()),
            }
        }
    }

    /// Lays `[settings]` of a catalogue file over what is there.
    pub(super) fn lay_catalogue(&mut self, file: &str, values: &toml::Table) -> Vec<String> {
        let mut flat = BTreeMap::new();
        flatten("", values, &mut flat);
        flat.into_iter().filter_map(|(key, value)| self.set(&key, value, Origin::Catalogue { file: file.into() }).err()).collect()
    }

    pub(super) fn keys(&self) -> Vec<&str> {
        self.0.iter().map(|setting| setting.key.as_str()).collect()
    }

    fn tables(&self) -> Vec<String> {
        let mut tables: Vec<_> = self.0.iter().filter_map(|setting| setting.key.rsplit_once('.')).map(|(table, _)| table.to_owned()).collect();
        tables.dedup();
        tables
    }

    fn members(&self, table: &str) -> String {
        let prefix = format!("{table}.");
        self.0.iter().filter_map(|setting| setting.key.strip_prefix(&prefix)).collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for Layers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |of: fn(&Setting) -> usize| self.0.iter().map(of).max().unwrap_or(0);
        let (keys, values) = (width(|setting| setting.key.len()), width(|setting| setting.value.to_string().len()));
        for setting in &self.0 {
            writeln!(f, "{:keys$}  {:values$}  {}", setting.key, setting.value.to_string(), setting.origin)?;
        }
        Ok(())
    }
}

fn keys_of(table: &toml::Table) -> String {
    if table.is_empty() { "nothing in it".into() } else { table.keys().map(String::as_str).collect::<Vec<_>>().join(", ") }
}

fn flatten(prefix: &str, table: &toml::Table, flat: &mut BTreeMap<String, toml::Value>) {
    for (name, value) in table {
        match value {
            toml::Value::Table(inner) => flatten(&format!("{prefix}{name}."), inner, flat),
            value => drop(flat.insert(format!("{prefix}{name}"), value.clone())),
        }
    }
}

fn at<'a>(table: &'a toml::Table, key: &str) -> Option<&'a toml::Value> {
    match key.split_once('.') {
        Some((first, rest)) => at(table.get(first)?.as_table()?, rest),
        None => table.get(key),
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}

/// What is wrong with the file as TOML: file, line, the line itself, and the parser's words.
fn syntax(path: &Path, text: &str) -> String {
    match toml::from_str::<toml::Table>(text) {
        Ok(_) => format!("{}: not TOML", path.display()),
        Err(e) => {
            let line = e.span().map_or(1, |span| line_of(text, span.start.min(text.len())));
            let words = e.message().lines().collect::<Vec<_>>().join(", ");
            format!("{}:{line}: {words}: {}", path.display(), text.lines().nth(line - 1).unwrap_or_default().trim())
        }
    }
}
