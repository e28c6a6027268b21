//! `nemo weights`: the weights' part of the walk, and how far they are.

use std::fmt;

use serde::Serialize;

use super::up::{self, Go, Selection};
use super::{Access, Global, Session, Settings};
use crate::engine::step::StepId;
use crate::error::Failure;
use crate::steps::facts::WeightsFacts;
use crate::ui;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  nemo weights download\n  nemo weights status")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Fetch the model's files to the shared volume, inside the cluster; goes on where it was stopped
    Download {
        #[command(flatten)]
        settings: Settings,
        #[command(flatten)]
        go: Go,
    },
    /// Show which files are wanted, and whether they are there
    Status {
        #[command(flatten)]
        settings: Settings,
    },
}

pub async fn run(args: Args, global: &Global) -> Result<(), Failure> {
    match args.command {
        Command::Download { settings, go } => up::go(global, &settings, &go, Selection::Only(vec![StepId::Weights])).await,
        Command::Status { settings } => status(&settings, global).await,
    }
}

/// The answer of `nemo weights status`.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct Answer {
    kind: &'static str,
    repository: String,
    /// Empty until the deployment is planned.
    revision: String,
    files: u64,
    bytes: u64,
    /// `ready`, or what there is to do.
    state: String,
    /// Folder below the volume's root, once the files are there.
    path: Option<String>,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} at {}", self.repository, if self.revision.is_empty() { "no revision yet (nemo plan)" } else { &self.revision })?;
        if self.files > 0 {
            writeln!(f, "{} files, {}.{} GB", self.files, self.bytes / 1_000_000_000, self.bytes / 100_000_000 % 10)?;
        }
        write!(f, "{}", self.state)?;
        self.path.iter().try_for_each(|path| write!(f, ": {path} on the shared volume"))
    }
}

async fn status(settings: &Settings, global: &Global) -> Result<(), Failure> {
    let session = Session::open(global, settings, Access::Read).await?;
    let result = looked(&session).await;
    session.finish().await;
    ui::answer(global.manner(), &result?);
    Ok(())
}

async fn looked(session: &Session) -> Result<Answer, Failure> {
    let (deps, mut walk) = session.noted_walk().await?;
    let pin = deps.pins.weights.clone();
    let plan = walk.plan(&[StepId::Weights].into()).await?;
    let verdict = plan.planned.iter().find(|planned| planned.step == StepId::Weights).map(|planned| &planned.verdict);
    let ready = verdict.is_some_and(|verdict| verdict.word() == "keep");
    let state = match verdict {
        Some(verdict) if verdict.word() == "create" => format!("not there: {}", verdict.why()),
        Some(verdict) if !ready => format!("{}: {}", verdict.word(), verdict.why()),
        _ => "ready".to_owned(),
    };
    let there: Option<WeightsFacts> = if ready { walk.facts.get(StepId::Weights).ok() } else { None };
    let repository = if pin.repository.is_empty() { session.spec.precision.repository.clone() } else { pin.repository };
    Ok(Answer { kind: "weights", repository, revision: pin.revision, files: pin.files.len() as u64, bytes: pin.bytes, state, path: there.map(|facts| facts.path) })
}
