//! The rules: what each is about, and how it looks at a manifest. A rule's id is `N` and the number of the story that people went through, or a word.

use serde_json::Value;

use super::finding::{Finding, Severity};
use super::known::Known;
use super::rules::{engine, fabric, live, placement, text, time, transfer, versions};
use super::workload::{Container, Pod};
use super::yaml::Document;

/// One rule.
#[derive(Debug)]
pub struct Rule {
    pub id: &'static str,
    pub title: &'static str,
    pub severity: Severity,
    /// Why it goes wrong, and how one notices.
    pub cause: &'static str,
    /// What to do.
    pub fix: &'static str,
    pub(super) check: Check,
}

/// How a rule looks.
#[derive(Debug)]
pub(super) enum Check {
    Document(fn(&Document, &mut Found<'_>)),
    Pod(fn(&Seen<'_>, &mut Found<'_>)),
    Container(fn(&Seen<'_>, &Container<'_>, &mut Found<'_>)),
    /// Over all documents together, once the last has been seen: `Linter::end` does it.
    Set,
    /// Nothing in a manifest shows it: `nemo explain` knows it by what the cluster says.
    Live,
}

/// A pod, and what it is part of.
#[derive(Debug)]
pub(super) struct Seen<'a> {
    pub(super) document: &'a Value,
    pub(super) pod: &'a Pod<'a>,
}

/// Takes the findings of one rule about one document.
pub(super) struct Found<'a> {
    pub(super) known: &'a Known,
    pub(super) rule: &'static Rule,
    pub(super) document: &'a str,
    pub(super) index: usize,
    pub(super) findings: &'a mut Vec<Finding>,
}

impl Found<'_> {
    /// A finding of the rule's own severity.
    pub(super) fn add(&mut self, path: impl Into<String>, found: impl Into<String>, right: impl Into<String>) -> &mut Finding {
        self.push(self.rule.severity, path, found, right)
    }

    /// A finding that is only a warning here.
    pub(super) fn warn(&mut self, path: impl Into<String>, found: impl Into<String>, right: impl Into<String>) -> &mut Finding {
        self.push(Severity::Warning, path, found, right)
    }

    fn push(&mut self, severity: Severity, path: impl Into<String>, found: impl Into<String>, right: impl Into<String>) -> &mut Finding {
        let at = self.findings.len();
        self.findings.push(Finding {
            rule: self.rule.id.to_owned(),
            severity,
            title: self.rule.title.to_owned(),
            file: String::new(),
            line: None,
            column: None,
            document: self.document.to_owned(),
            path: path.into(),
            found: found.into(),
            right: right.into(),
            fixable: false,
            index: self.index,
            edit: None,
        });
        &mut self.findings[at]
    }
}

/// All rules, stories first.
pub(super) static RULES: &[&[Rule]] = &[fabric::RULES, transfer::RULES, placement::RULES, versions::RULES, time::RULES, engine::RULES, text::RULES, live::RULES];

/// The rule of this id, however it is written: `N16`, `n16`, `16`.
pub fn rule(id: &str) -> Option<&'static Rule> {
    let id = if id.starts_with(|c: char| c.is_ascii_digit()) { format!("N{id}") } else { id.to_owned() };
    all().find(|rule| rule.id.eq_ignore_ascii_case(&id))
}

/// Every rule.
pub fn all() -> impl Iterator<Item = &'static Rule> {
    RULES.iter().copied().flatten()
}
