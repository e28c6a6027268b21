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
    /// Plain words that a reader of YAML takes for true, false or a number, as they stand in the text, by their path.
    pub words: BTreeMap<String, String>,
}

/// What the aliases of a text may stand for together, in nodes and bytes of words: some lines of aliases of aliases stand for more than any memory holds.
const EXPANDED: usize = 2_000_000;
/// Lists and mappings inside of each other. What walks through values does so by recursion.
const DEEP: usize = 200;

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
    /// With the size of each, as [`EXPANDED`] counts it.
    anchors: HashMap<usize, (Value, usize)>,
    root: Option<Value>,
    words: BTreeMap<String, String>,
    expanded: usize,
}

/// The documents of a text; those that hold only comments are none.
pub fn load(text: &str) -> Result<Vec<Document>, BadYaml> {
    let (mut documents, mut index) = (Vec::new(), 0);
    let (mut loader, mut line) = (Loader::default(), None);
    for event in parse(text) {
        let (event, span) = event?;
        match event {
            // The documents of a text are kept together: what aliases stand for is counted over all of them.
            Event::DocumentStart(..) => (loader, line) = (Loader { expanded: loader.expanded, ..Loader::default() }, None),
            Event::DocumentEnd => {
                let (root, words) = (loader.root.take(), std::mem::take(&mut loader.words));
                if let Some(value) = root.filter(|value| !value.is_null()) {
                    documents.push(Document { value, index, line: line.unwrap_or(1), words });
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
        if self.open.len() > DEEP {
            return Err(bad(span, format!("more than {DEEP} lists and mappings inside of each other")));
        }
        match event {
            Event::SequenceStart(_, anchor, _) => self.open.push(Open::List { items: Vec::new(), anchor }),
            Event::MappingStart(_, anchor, _) => self.open.push(Open::Map { map: Map::new(), key: None, merged: Vec::new(), anchor }),
            Event::SequenceEnd | Event::MappingEnd => self.close(span)?,
            Event::Alias(id) => {
                let (value, size) = self.anchors.get(&id).ok_or_else(|| bad(span, "an alias inside of its own anchor"))?;
                self.expanded = self.expanded.saturating_add(*size);
                if self.expanded > EXPANDED {
                    return Err(bad(span, format!("with this alias (*) the aliases of the file stand for more than {EXPANDED} nodes and letters: write out what is meant")));
                }
                let value = value.clone();
                self.put(value, span)?;
            }
            Event::Scalar(text, style, anchor, tag) => {
                let string = style != ScalarStyle::Plain || tag.as_ref().is_some_and(|tag| tag.core_suffix() == Some("str"));
                if let Some(Open::Map { key: key @ None, .. }) = self.open.last_mut() {
                    *key = Some(text.into_owned());
                    return Ok(());
                }
                let value = if string { Value::String(text.clone().into_owned()) } else { plain(&text) };
                if !string && (value.is_boolean() || value.is_number() || number_elsewhere(&text)) {
                    self.words.insert(self.path(), text.into_owned());
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
            self.anchors.insert(anchor, (value.clone(), size(value)));
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

/// Nodes, and bytes of words.
fn size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len().saturating_add(1),
        Value::Array(items) => items.iter().map(size).fold(1, usize::saturating_add),
        Value::Object(map) => map.iter().map(|(key, value)| key.len().saturating_add(size(value))).fold(1, usize::saturating_add),
        _ => 1,
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

/// A word that kubectl takes for a number, and YAML 1.2 for a string: `1_000`, `0b11`, `.inf`.
fn number_elsewhere(text: &str) -> bool {
    let digits = text.trim_start_matches(['-', '+']);
    let binary = |digits: &str| digits.strip_prefix("0b").is_some_and(|bits| !bits.is_empty() && bits.chars().all(|bit| matches!(bit, '0' | '1')));
    let number = |text: &str| binary(text.trim_start_matches(['-', '+'])) || plain(text).is_number();
    match digits {
        ".inf" | ".Inf" | ".INF" | ".nan" | ".NaN" | ".NAN" => true,
        _ => digits.starts_with(|c: char| c.is_ascii_digit()) && number(&text.replace('_', "")),
    }
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
    fn words_that_become_another_type_are_noted_as_they_stand() {
        let text = "a: [--a, 8192, y, \"y\", no, 1e3, yes-sir, True, 0777, 1_000, 0b11, .inf, 1_a, 0b12, 1.6.1, ~, !!str 8]\nb: {c: on, d: '1', e: word}\n";
        let [document] = &load(text).unwrap()[..] else { panic!() };
        let mut words: Vec<_> = document.words.values().map(String::as_str).collect();
        words.sort_unstable();
        assert_eq!(words, [".inf", "0777", "0b11", "1_000", "1e3", "8192", "True", "no", "on", "y"]);
        assert_eq!((document.words["a[1]"].as_str(), document.words["b.c"].as_str()), ("8192", "on"));
    }

    #[test]
    fn aliases_of_aliases_and_depth_have_an_end() {
        let level = |n: usize| format!("l{n}: &l{n} [{}]\n", vec![format!("*l{}", n - 1); 10].join(", "));
        let bomb = |levels: usize| format!("l0: &l0 [a, a]\n{}", (1..=levels).map(level).collect::<String>());
        assert_eq!(load(&bomb(3)).unwrap().len(), 1);
        let words = format!("a: &a {}\nb: [{}]\n", "x".repeat(1_000_000), ["*a"; 3].join(", "));
        let documents = "---\na: &a {0}\nb: *a\n".replace("{0}", &"x".repeat(1_000_000)).repeat(3);
        let merged = format!("a: &a {{b: {}}}\n{}", "x".repeat(1_000_000), (0..3).map(|n| format!("k{n}: {{<<: *a}}\n")).collect::<String>());
        for (text, line) in [(bomb(8), 6), (bomb(60), 6), (words, 2), (documents, 6), (merged, 3)] {
            let error = load(&text).unwrap_err();
            assert!(error.what.contains("aliases") && error.line.abs_diff(line) <= 1, "{error}");
        }
        let error = load(&format!("{}{}", "[".repeat(1000), "]".repeat(1000))).unwrap_err();
        assert_eq!(error.line, 1, "{error}");
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
