//! What a rule has to say about a manifest.

use std::fmt;

use serde::Serialize;

use super::path;
use super::yaml::Place;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// It works as long as something that the manifest does not say is so.
    Warning,
    /// It does not serve, or it serves and is silently wrong.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Finding {
    /// Id of the rule: `nemo explain N16` tells more.
    pub rule: String,
    pub severity: Severity,
    pub title: String,
    /// Empty for an object of the cluster.
    pub file: String,
    pub line: Option<usize>,
    pub column: Option<usize>,
    /// Kind, namespace and name: `Deployment nemo/vllm-worker`.
    pub document: String,
    /// `spec.template.spec.containers[0].args[3]`.
    pub path: String,
    /// The value found.
    pub found: String,
    /// The right value.
    pub right: String,
    /// `nemo lint --fix` can write the right value.
    pub fixable: bool,
    /// Which document of the file.
    #[serde(skip)]
    pub index: usize,
    /// What `--fix` would write.
    #[serde(skip)]
    pub edit: Option<Edit>,
}

/// A word of the text that can be replaced without a change of anything else.
#[derive(Debug, Clone, PartialEq)]
pub struct Edit {
    /// As the word is read.
    pub old: String,
    pub new: String,
}

impl Finding {
    /// Says which word can be replaced by which.
    pub(super) fn replace(&mut self, old: impl Into<String>, new: impl Into<String>) {
        self.edit = Some(Edit { old: old.into(), new: new.into() });
    }

    /// Sets line and column from the field, or from the nearest that exists of those that hold it.
    pub fn locate(&mut self, places: &std::collections::BTreeMap<String, Place>) {
        // What stands in a script, behind an alias or over several lines is left to a person.
        self.fixable = self.edit.is_some() && places.get(&self.path).is_some_and(|place| place.scalar);
        let mut at = Some(self.path.as_str());
        while let Some(path) = at {
            if let Some(place) = places.get(path) {
                (self.line, self.column) = (Some(place.line), Some(place.column));
                return;
            }
            at = path::parent(path);
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, severity, rule, title, document, path, found, right, .. } = self;
        match (file.is_empty(), self.line) {
            (true, _) => write!(f, "{severity} {rule}: {title}")?,
            (false, Some(line)) => write!(f, "{file}:{line}: {severity} {rule}: {title}")?,
            (false, None) => write!(f, "{file}: {severity} {rule}: {title}")?,
        }
        write!(f, "\n    {document}, {path}\n    found {found}\n    right {right}")
    }
}
