//! What the agent says while it works: one JSON object a line on its standard output, which the pod's log keeps.

use serde::{Deserialize, Serialize};

use super::result::RunResult;

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Said {
    /// Requests done, of those asked for.
    Progress {
        what: String,
        done: u64,
        total: u64,
    },
    Note {
        text: String,
    },
    /// The last line.
    Result {
        result: Box<RunResult>,
    },
}

/// Who is told.
pub type Say<'a> = &'a (dyn Fn(&Said) + Sync);

impl Said {
    /// A line of a log, if it is one of ours: the runtime image may say other things first.
    pub fn read(line: &str) -> Option<Self> {
        serde_json::from_str(line.trim()).ok()
    }

    /// The result in a whole log.
    pub fn result_in(log: &str) -> Option<RunResult> {
        log.lines().rev().find_map(|line| match Self::read(line) {
            Some(Self::Result { result }) => Some(*result),
            _ => None,
        })
    }
}
