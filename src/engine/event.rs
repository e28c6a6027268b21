//! What steps say while they work; only `ui/` turns it into text. Also one line each of the run log.

use jiff::Timestamp;
use serde::Serialize;
use tokio::sync::mpsc;

use super::clock;
use super::plan::Planned;
use super::step::{StepId, Unit};
use crate::error::{Failure, Resource};

/// Something that happened, as `--output json` and the run log write it: one a line.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct Event {
    pub at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<StepId>,
    #[serde(flatten)]
    pub kind: EventKind,
}

/// What happened.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum EventKind {
    /// The plan, before anything is done.
    Planned { plan: Vec<Planned> },
    /// A step begins; `verdict` says what it will do.
    Started { verdict: String },
    /// What it waits for, and for how long already.
    Waiting { what: String, seconds: u64, limit_seconds: u64 },
    /// How far it is.
    Progress { what: String, done: u64, total: u64, unit: Unit },
    /// Something that a person should know.
    Note { text: String },
    /// A call failed and is tried again.
    Retrying { what: String, why: String, attempt: u32 },
    /// A part is there that other steps may wait for.
    Reached { part: String },
    /// The step is done; `changed` is false when it was there already.
    Finished { changed: bool, seconds: f64 },
    /// The step failed.
    Failed { failure: FailureShown },
    /// The walk is over. `exists` and `usd_per_hour`: what exists now because of us; no price where none is known.
    Ended { ok: bool, seconds: f64, exists: Vec<Resource>, usd_per_hour: Option<f64> },
}

/// A failure as JSON shows it.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct FailureShown {
    pub kind: crate::error::Kind,
    pub exit_code: u8,
    pub message: String,
    pub left: Vec<Resource>,
    pub hints: Vec<String>,
}

impl From<&Failure> for FailureShown {
    fn from(failure: &Failure) -> Self {
        Self { kind: failure.kind, exit_code: failure.kind.exit_code(), message: failure.to_string(), left: failure.left.clone(), hints: failure.hints.clone() }
    }
}

/// The sending end. Sending never fails: nobody listening is no reason to stop.
#[derive(Debug, Clone)]
pub struct Events(mpsc::UnboundedSender<Event>);

impl Events {
    /// A new pair.
    pub fn new() -> (Self, mpsc::UnboundedReceiver<Event>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self(sender), receiver)
    }

    /// Says it, with the time of now.
    pub fn send(&self, step: Option<StepId>, kind: EventKind) {
        let _ = self.0.send(Event { at: clock::now(), step, kind });
    }
}
