//! Runs the rules over documents, one after the other, and over what they say together.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::finding::{Finding, Severity};
use super::known::Known;
use super::rule::{self, Check, Found, Rule, Seen};
use super::rules::{placement, transfer};
use super::workload;
use super::yaml::{self, BadYaml, Document};

/// The lint at work. It keeps no document: of each only what has to be compared with others.
pub struct Linter {
    known: Arc<Known>,
    gathered: Gathered,
    findings: Vec<Finding>,
    files: usize,
    documents: usize,
}

/// What has to be compared across documents.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    pub(super) leases: Vec<(transfer::Lease, At)>,
    pub(super) wanted_classes: Vec<(placement::WantedClass, At)>,
    pub(super) classes: Vec<String>,
}

/// Where something was gathered.
#[derive(Debug, Clone)]
pub(super) struct At {
    file: String,
    document: String,
    index: usize,
    line: usize,
}

/// A finding over several documents.
pub(super) struct Together {
    pub(super) at: At,
    pub(super) path: String,
    pub(super) found: String,
    pub(super) right: String,
}

/// What was looked at and what was found.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Answer {
    pub kind: &'static str,
    pub files: usize,
    pub documents: usize,
    pub errors: usize,
    pub warnings: usize,
    pub findings: Vec<Finding>,
}

impl Linter {
    pub fn new() -> anyhow::Result<Self> {
        Ok(Self::with(Arc::new(Known::load()?)))
    }

    fn with(known: Arc<Known>) -> Self {
        Self { known, gathered: Gathered::default(), findings: Vec::new(), files: 0, documents: 0 }
    }

    /// One more that knows the same and has seen nothing, to look at a part of the files beside this one.
    pub fn another(&self) -> Self {
        Self::with(self.known.clone())
    }

    /// Takes over what another has seen, behind its own.
    pub fn join(&mut self, other: Self) {
        self.files += other.files;
        self.documents += other.documents;
        self.findings.extend(other.findings);
        self.gathered.leases.extend(other.gathered.leases);
        self.gathered.wanted_classes.extend(other.gathered.wanted_classes);
        self.gathered.classes.extend(other.gathered.classes);
    }

    /// Looks at every document of a text.
    pub fn text(&mut self, file: &str, text: &str) -> Result<(), BadYaml> {
        self.files += 1;
        let begun = self.findings.len();
        for document in yaml::load(text)? {
            self.document(file, &document);
        }
        if self.findings.len() > begun {
            let places = yaml::places(text);
            for finding in &mut self.findings[begun..] {
                if let Some(places) = places.get(finding.index) {
                    finding.locate(places);
                }
            }
        }
        Ok(())
    }

    /// Looks at an object that was read from the cluster, or rendered.
    pub fn value(&mut self, file: &str, value: serde_json::Value) {
        self.document(file, &Document { value, index: 0, line: 1, words: BTreeMap::new() });
    }

    fn document(&mut self, file: &str, document: &Document) {
        if document.value["kind"].as_str().is_some_and(|kind| kind.ends_with("List"))
            && let Some(items) = document.value["items"].as_array()
        {
            for (index, value) in items.iter().enumerate() {
                let within = format!("items[{index}].");
                let words = document.words.range(within.clone()..).map_while(|(path, word)| Some((path.strip_prefix(&within)?.to_owned(), word.clone()))).collect();
                self.document(file, &Document { value: value.clone(), words, ..*document });
            }
            return;
        }
        self.documents += 1;
        let title = title(document);
        let begun = self.findings.len();
        let pods = workload::pods(&document.value);
        for rule in rule::all() {
            let mut found = Found { known: &self.known, rule, document: &title, index: document.index, findings: &mut self.findings };
            check(rule, document, &pods, &mut found);
        }
        let at = At { file: file.to_owned(), document: title.clone(), index: document.index, line: document.line };
        transfer::gather(&document.value, &pods, &mut self.gathered, &at);
        placement::gather(&document.value, &pods, &mut self.gathered, &at);
        for finding in &mut self.findings[begun..] {
            finding.file = file.to_owned();
            finding.line = (!file.is_empty()).then_some(document.line);
        }
    }

    /// The answer, once everything has been looked at.
    pub fn end(mut self) -> Answer {
        let known = &self.known;
        let leases = transfer::together(&self.gathered, known).into_iter().map(|wrong| ("N30", wrong));
        let classes = placement::together(&self.gathered, known).into_iter().map(|wrong| ("N36", wrong));
        for (id, Together { at, path, found, right }) in leases.chain(classes).collect::<Vec<_>>() {
            let Some(rule) = rule::rule(id) else { continue };
            let finding = Found { known, rule, document: &at.document, index: at.index, findings: &mut self.findings }.add(path, found, right).clone();
            let last = self.findings.len() - 1;
            self.findings[last] = Finding { line: (!at.file.is_empty()).then_some(at.line), file: at.file, ..finding };
        }
        self.in_order();
        let count = |severity| self.findings.iter().filter(|finding| finding.severity == severity).count();
        let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
        Answer { kind: "linted", files: self.files, documents: self.documents, errors, warnings, findings: self.findings }
    }
}

impl Linter {
    /// As a person reads: the files as they came, in each from the first line to the last.
    fn in_order(&mut self) {
        let mut files: Vec<String> = Vec::new();
        for finding in &self.findings {
            if !files.contains(&finding.file) {
                files.push(finding.file.clone());
            }
        }
        self.findings.sort_by_key(|finding| (files.iter().position(|file| *file == finding.file), finding.line));
    }
}

fn check(rule: &'static Rule, document: &Document, pods: &[workload::Pod<'_>], found: &mut Found<'_>) {
    match rule.check {
        Check::Document(check) => check(document, found),
        Check::Pod(check) => pods.iter().for_each(|pod| check(&Seen { document: &document.value, pod }, found)),
        Check::Container(check) => {
            for pod in pods {
                pod.containers.iter().for_each(|container| check(&Seen { document: &document.value, pod }, container, found));
            }
        }
        Check::Set | Check::Live => {}
    }
}

/// Kind, namespace and name.
fn title(document: &Document) -> String {
    let (value, metadata) = (&document.value, &document.value["metadata"]);
    // A word that became no string is said as it stands in the text.
    let text = |value: &serde_json::Value, path: &str| value.as_str().map(str::to_owned).or_else(|| document.words.get(path).cloned());
    let (kind, name) = (value["kind"].as_str().unwrap_or_default(), text(&metadata["name"], "metadata.name").unwrap_or_default());
    match text(&metadata["namespace"], "metadata.namespace") {
        Some(namespace) => format!("{kind} {namespace}/{name}"),
        None => format!("{kind} {name}"),
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        let plural = |n: usize, word: &str| if n == 1 { format!("1 {word}") } else { format!("{n} {word}s") };
        write!(f, "{} looked at: {}, {}", plural(self.documents, "document"), plural(self.errors, "error"), plural(self.warnings, "warning"))
    }
}
