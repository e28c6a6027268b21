//! `nemo cleanup`: what goes, what stays, yes or no; then the walk backwards; then the proof by listing.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::{Access, Global, Session, Settings, cluster};
use crate::aws::tagging;
use crate::engine::step::StepId;
use crate::engine::walk::Walk;
use crate::error::{Failure, Kind, Resource};
use crate::ui;

/// How long the proof may list.
const LISTING_LIMIT: Duration = Duration::from_secs(120);

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  nemo cleanup\n  nemo cleanup --from serve --yes   # nodes, weights and images stay")]
pub struct Args {
    /// Remove only this step and what stands on it
    #[arg(long, value_name = "STEP")]
    pub from: Option<StepId>,
    /// Do not ask
    #[arg(long, short)]
    pub yes: bool,
}

/// The answer of `nemo cleanup`.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct Answer {
    kind: &'static str,
    deployment: String,
    removed: Vec<Resource>,
    /// What still exists of this deployment, by listing after the removal.
    left: Vec<Resource>,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} resources removed; ", self.removed.len())?;
        match self.left.len() {
            0 => write!(f, "listed again: nothing of {:?} is left", self.deployment),
            // They were shown before the question.
            kept => write!(f, "{kept} of {:?} stay (nemo status)", self.deployment),
        }
    }
}

pub async fn run(args: Args, global: &Global) -> Result<(), Failure> {
    let session = Session::open(global, &Settings::default(), Access::Write).await?;
    let result = clean(&session, &args).await;
    session.finish().await;
    ui::answer(global.manner(), &result?);
    Ok(())
}

async fn clean(session: &Session, args: &Args) -> Result<Answer, Failure> {
    let (_, mut walk) = session.noted_walk().await?;
    let selected: BTreeSet<StepId> = match args.from {
        None => StepId::ALL.into(),
        Some(step) => StepId::ALL.into_iter().filter(|other| walk.up_to(*other).contains(&step)).collect(),
    };
    // The looks find what the removal needs to know when the notes are lost.
    walk.plan(&StepId::ALL.into()).await?;
    let goes = walk.existing(selected.clone(), LISTING_LIMIT).await;
    let stays = walk.existing(StepId::ALL.into_iter().filter(|step| !selected.contains(step)).collect(), LISTING_LIMIT).await;
    if goes.is_empty() && walk.state.steps.is_empty() {
        prove(session, &walk, &selected, Vec::new()).await?;
        return Ok(Answer { kind: "result", deployment: session.spec.name.clone(), removed: goes, left: stays });
    }
    ui::say(session.manner, format!("this goes:\n{}", ui::resources(&goes)));
    match stays.len() {
        0 => ui::say(session.manner, "what does not carry the mark of this deployment stays"),
        _ => ui::say(session.manner, format!("this stays:\n{}", ui::resources(&stays))),
    }
    if !args.yes {
        ui::confirm(session.manner, "Remove it?", &session.stop).await?;
    }
    let mut failures = walk.remove(&selected).await;
    if selected.contains(&StepId::Cluster) && !walk.state.steps.contains_key(&StepId::Cluster) {
        failures.extend(cluster::leave_kubeconfig(session).err());
    }
    prove(session, &walk, &selected, failures).await?;
    if args.from.is_none() {
        session.place.remove()?;
    }
    Ok(Answer { kind: "result", deployment: session.spec.name.clone(), removed: goes, left: stays })
}

/// Lists again: each step what it knows how to find, and AWS's tagging API what carries our mark, whatever made it. A listing that fails proves nothing.
async fn prove(session: &Session, walk: &Walk, selected: &BTreeSet<StepId>, mut failures: Vec<Failure>) -> Result<(), Failure> {
    let mut left = match walk.listing(selected.clone(), LISTING_LIMIT).await {
        Ok(left) => left,
        Err(failure) => {
            failures.push(failure);
            walk.existing(selected.clone(), LISTING_LIMIT).await
        }
    };
    if selected.len() == StepId::ALL.len() && left.is_empty() {
        match tagging::leftovers(&session.aws, &session.spec.name).await {
            Ok(arns) => left.extend(arns.into_iter().map(|arn| Resource::new("with our tag:", arn))),
            Err(error) => failures.push(anyhow::Error::new(error).context("listing what carries our tag").into()),
        }
    }
    verdict(&session.spec.name, failures, left)
}

/// The failures as one, with what is left, or nothing to complain of.
fn verdict(name: &str, failures: Vec<Failure>, left: Vec<Resource>) -> Result<(), Failure> {
    let mut failures = failures.into_iter();
    let mut failure = match failures.next() {
        None if left.is_empty() => return Ok(()),
        None => Failure::new(Kind::Verification, format!("every step says that it is removed, and the listing still shows {} resources", left.len())),
        Some(mut first) => {
            for other in failures {
                first.kind = first.kind.min(other.kind);
                first.message = format!("{}; {other}", first.message);
                first.hints.extend(other.hints);
            }
            first
        }
    };
    failure.left = left;
    Err(failure.hint(format!("nemo cleanup --name {name} again: it goes on with what is left")))
}
