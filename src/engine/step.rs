//! What a step is: observe reads, apply acts, remove takes away. Only [`super::plan::decide`] chooses.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, RwLock};

use async_trait::async_trait;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sha2::{Digest as _, Sha256};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::event::{EventKind, Events};
use crate::error::{Kind, Resource, fail};

/// The steps of the walk, in the order in which people think of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StepId {
    Network,
    Cluster,
    SystemNodes,
    GpuNodes,
    Images,
    Filesystem,
    Platform,
    Storage,
    Weights,
    Serve,
    Test,
    Bench,
}

impl StepId {
    /// Every step.
    pub const ALL: [Self; 12] = [
        Self::Network,
        Self::Cluster,
        Self::SystemNodes,
        Self::GpuNodes,
        Self::Images,
        Self::Filesystem,
        Self::Platform,
        Self::Storage,
        Self::Weights,
        Self::Serve,
        Self::Test,
        Self::Bench,
    ];

    /// Its one name: in flags, in the state file, in events.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Cluster => "cluster",
            Self::SystemNodes => "system-nodes",
            Self::GpuNodes => "gpu-nodes",
            Self::Images => "images",
            Self::Filesystem => "filesystem",
            Self::Platform => "platform",
            Self::Storage => "storage",
            Self::Weights => "weights",
            Self::Serve => "serve",
            Self::Test => "test",
            Self::Bench => "bench",
        }
    }
}

impl fmt::Display for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for StepId {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|id| id.as_str() == word).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|id| id.as_str()).collect();
            format!("no step is called {word:?}; steps are {}", names.join(", "))
        })
    }
}

/// Something that has to be there before a step can start: a step, or a named part of one (an image, the subnets).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    pub step: StepId,
    pub part: Option<&'static str>,
}

/// The whole step is needed.
pub const fn all_of(step: StepId) -> Need {
    Need { step, part: None }
}

/// Only this part of the step is needed; the step says when it is there with [`Cx::reached`].
pub const fn part_of(step: StepId, part: &'static str) -> Need {
    Need { step, part: Some(part) }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.part {
            Some(part) => write!(f, "{} ({part})", self.step),
            None => write!(f, "{}", self.step),
        }
    }
}

/// SHA-256 over what a step was made from; kept in the state and as the tag `nemo:inputs`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Digest(pub String);

impl Digest {
    /// Of anything that serialises: the settings and pins that the step depends on. 16 hex digits are enough to tell a change.
    pub fn of(inputs: &impl Serialize) -> Self {
        let json = serde_json::to_vec(inputs).unwrap_or_default();
        let hash = Sha256::digest(&json);
        Self(hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a step does when its inputs have changed since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnChange {
    /// `apply` brings it to the new inputs.
    InPlace,
    /// It cannot be changed without losing something: refused, with what to do.
    Refuse,
}

/// What `observe` found.
#[derive(Debug, Clone, PartialEq)]
pub enum Seen {
    /// It cannot be told, because what it lives in is not there (no cluster yet).
    Unreachable,
    /// Nothing of it is there.
    Absent,
    /// It is being made or changed; `apply` waits for it, or makes the rest.
    Pending { what: String },
    /// It is there and works. `inputs` is what the resource itself says it was made from, if it says so.
    Ready { inputs: Option<Digest>, facts: toml::Table },
    /// It is there and does not work; `apply` repairs it or makes it anew.
    Broken { why: String },
    /// It is there, and the settings ask for what it cannot be changed to: `node group system has disk 100, the settings say 200`.
    Fixed { why: String },
    /// What is asked for cannot be made here: what it needs is nothing that a step makes.
    Impossible { why: String, hint: String },
    /// Something of that name is there and does not carry our mark.
    Foreign { what: String },
}

/// What each step noted: typed at both ends, tables in the middle, so that an older binary keeps what it does not know.
#[derive(Debug, Default)]
pub struct Facts(RwLock<BTreeMap<StepId, toml::Table>>);

impl Facts {
    /// The facts of a step as a type; the step that is missing is named.
    pub fn get<T: DeserializeOwned>(&self, step: StepId) -> anyhow::Result<T> {
        let table = self.table(step).ok_or_else(|| fail(Kind::Usage, format!("{step} has not been made yet")).hint(format!("nemo up --to {step}")))?;
        toml::Value::Table(table).try_into().map_err(|e| {
            fail(Kind::Config, format!("the state file's facts of {step} are not as this version writes them: {e}"))
                .hint("move .nemo/<name>.toml away, or take the table out: `nemo status` finds the deployment again by its tags")
                .into()
        })
    }

    /// The facts of a step, if there are any.
    pub fn table(&self, step: StepId) -> Option<toml::Table> {
        self.0.read().unwrap_or_else(std::sync::PoisonError::into_inner).get(&step).cloned()
    }

    /// Adds to the facts of a step; keys that are already there are replaced.
    pub fn extend(&self, step: StepId, facts: toml::Table) {
        self.0.write().unwrap_or_else(std::sync::PoisonError::into_inner).entry(step).or_default().extend(facts);
    }

    /// Forgets the facts of a step that was removed.
    pub fn forget(&self, step: StepId) {
        self.0.write().unwrap_or_else(std::sync::PoisonError::into_inner).remove(&step);
    }
}

/// Facts as a table.
pub fn table_of(facts: &impl Serialize) -> anyhow::Result<toml::Table> {
    Ok(toml::Table::try_from(facts)?)
}

/// What a step may reach while it works: facts of others, events, whether to stop.
#[derive(Clone)]
pub struct Cx {
    pub step: StepId,
    pub facts: Arc<Facts>,
    pub events: Events,
    /// Set by the first Ctrl-C: finish the call in flight, then return.
    pub stop: CancellationToken,
    pub(super) reports: mpsc::UnboundedSender<Report>,
}

/// What a step at work tells the walk, which notes it in the state file.
pub(super) enum Report {
    /// It is about to change something; it goes on when the note is on disk (`true`).
    Starting { step: StepId, verdict: &'static str, noted: oneshot::Sender<bool> },
    /// A part of it is there.
    Reached { step: StepId, part: String, facts: toml::Table },
}

impl Cx {
    /// The facts of another step.
    pub fn facts_of<T: DeserializeOwned>(&self, step: StepId) -> anyhow::Result<T> {
        self.facts.get(step)
    }

    /// A part of this step is there: whoever needs only that may start. Its facts are noted at once.
    pub fn reached(&self, part: &str, facts: toml::Table) {
        let _ = self.reports.send(Report::Reached { step: self.step, part: part.to_owned(), facts });
    }

    /// Something that a person should know.
    pub fn note(&self, text: impl Into<String>) {
        self.events.send(Some(self.step), EventKind::Note { text: text.into() });
    }

    /// How far it is. `total` 0 means that it is not known.
    pub fn progress(&self, what: impl Into<String>, done: u64, total: u64, unit: Unit) {
        self.events.send(Some(self.step), EventKind::Progress { what: what.into(), done, total, unit });
    }
}

/// What a progress counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    Bytes,
    Items,
}

/// One step of the walk.
#[async_trait]
pub trait Step: Send + Sync {
    fn id(&self) -> StepId;

    /// What has to be there first.
    fn needs(&self) -> Vec<Need>;

    /// Of the part of the settings and pins that this step depends on.
    fn inputs(&self) -> Digest;

    fn on_change(&self) -> OnChange {
        OnChange::InPlace
    }

    /// What it makes, for the plan; with prices where known.
    fn makes(&self) -> Vec<Resource>;

    /// What a person should know of it before it is made: what was chosen, and why.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Reads, and changes nothing.
    async fn observe(&self, cx: &Cx) -> anyhow::Result<Seen>;

    /// Makes or completes it, then waits until it is ready. Called again after a crash, it goes on.
    async fn apply(&self, cx: &Cx) -> anyhow::Result<toml::Table>;

    /// Takes it away and waits until it is gone. Gone already is success.
    async fn remove(&self, cx: &Cx) -> anyhow::Result<()>;

    /// What of this step exists now and carries our mark, by listing. Used for `left`, for cleanup's plan and for its proof.
    async fn existing(&self, cx: &Cx) -> anyhow::Result<Vec<Resource>>;
}
