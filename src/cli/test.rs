//! `nemo test`: asks the endpoint now, whatever was noted before, and notes what came.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::{Access, Global, Session, Settings};
use crate::endpoint::Outcome;
use crate::engine::clock;
use crate::engine::state::{Record, State, Status};
use crate::engine::step::{Step, StepId, table_of};
use crate::error::{Failure, Kind};
use crate::steps::Deps;
use crate::steps::facts::{ServeFacts, TestFacts};
use crate::steps::test::{Test, ask, hints, place};
use crate::ui;

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, after_help = "Examples:\n  nemo test\n  nemo test --output json\n  nemo test endpoint --junit results.xml")]
pub struct Args {
    #[command(flatten)]
    settings: Settings,
    #[command(subcommand)]
    what: Option<What>,
}

/// What else can be tested than what `nemo up` tests.
#[derive(Debug, clap::Subcommand)]
enum What {
    /// Everything that users of the API rely on: streams, tools, schemas, long texts, pictures, refusals
    Endpoint(Box<super::test_endpoint::Args>),
    /// Judge a run of nccl-tests: use on every GPU, traffic on every EFA adapter, the network that NCCL took, bandwidth
    Cluster(Box<super::test_cluster::Args>),
}

/// The answer of `nemo test`.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct Answer {
    pub(super) kind: &'static str,
    #[serde(flatten)]
    pub(super) outcome: Outcome,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.outcome.fmt(f)
    }
}

pub async fn run(args: Args, global: &Global) -> Result<(), Failure> {
    match args.what {
        Some(What::Endpoint(args)) => return super::test_endpoint::run(*args, global).await,
        Some(What::Cluster(args)) => return super::test_cluster::run(*args, global),
        None => {}
    }
    let session = Session::open(global, &args.settings, Access::Write).await?;
    let result = tested(&session).await;
    session.finish().await;
    told(&result?, global)
}

/// Shows the results; one that did not pass is a failure.
pub(super) fn told(answer: &Answer, global: &Global) -> Result<(), Failure> {
    let failures = answer.outcome.failures();
    ui::answer(global.manner(), answer);
    if failures.is_empty() {
        return Ok(());
    }
    let words = format!("{} of {} tests failed: {}", failures.len(), answer.outcome.tests.len(), failures.join("; "));
    let failure = hints(&answer.outcome).into_iter().fold(Failure::new(Kind::Verification, words), Failure::hint);
    Err(failure.hint("nemo status shows whether the pods are well"))
}

/// What serves and the way to it: by the notes, or where those are lost by looking.
pub(super) async fn serving(session: &Session) -> Result<(Arc<Deps>, kube::Client, ServeFacts), Failure> {
    let (deps, walk, client) = session.cluster().await?;
    let serve: ServeFacts = match walk.facts.get(StepId::Serve) {
        Ok(serve) => serve,
        Err(_) => place(&deps, &client).await?,
    };
    Ok((deps, client, serve))
}

async fn tested(session: &Session) -> Result<Answer, Failure> {
    let (deps, client, serve) = serving(session).await?;
    let started = clock::now();
    let asking = ask(&session.spec, &client, &serve, |test| ui::say(session.manner, format!("{} …", test.id)));
    let (outcome, of) = asking.await.map_err(anyhow::Error::new)?;
    let passed = outcome.failures().is_empty();
    let noted = if passed { table_of(&TestFacts { passed: outcome.passed(), of })? } else { toml::Table::new() };
    // Without notes there is nothing to note it in: the next `nemo up` tests again.
    if let Some(mut state) = session.noted.clone() {
        note(&mut state, &Test { deps }, started, noted, passed);
        session.place.write(&state)?;
    }
    Ok(Answer { kind: "test", outcome })
}

/// A failure takes the place of an earlier success: the next `nemo up` tests again.
fn note(state: &mut State, step: &Test, started: jiff::Timestamp, facts: toml::Table, passed: bool) {
    let status = if passed { Status::Done } else { Status::Failed };
    state.steps.insert(StepId::Test, Record { status, inputs: step.inputs(), started, finished: Some(clock::now()), parts: Vec::new(), facts });
}
