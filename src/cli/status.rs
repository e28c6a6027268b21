//! `nemo status`: what is there, found by its tags even when the notes are lost; what it costs; what has no price.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::{Access, Global, Session, Settings};
use crate::aws;
use crate::engine::plan::Planned;
use crate::engine::step::StepId;
use crate::error::{Failure, Resource};
use crate::ui;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  nemo status\n  nemo status --output json")]
pub struct Args {
    #[command(flatten)]
    settings: Settings,
}

/// The answer of `nemo status`.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct Answer {
    kind: &'static str,
    deployment: String,
    /// False when there are no notes here: what follows was found by tags.
    noted: bool,
    steps: Vec<Planned>,
    exists: Vec<Resource>,
    /// Null when no price is known: the prices are in the notes.
    usd_per_hour: Option<f64>,
    /// Other deployments of nemo in this account and region.
    others: Vec<String>,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.noted && !self.exists.is_empty() {
            writeln!(f, "there are no notes about {:?} here; this was found by its tags. `nemo up --name {}` takes it up again", self.deployment, self.deployment)?;
        }
        for step in &self.steps {
            let state = match step.verdict.word() {
                "keep" => "ready".to_owned(),
                "create" => "not there".to_owned(),
                word => format!("{word}: {}", step.verdict.why()),
            };
            writeln!(f, "{:<12} {state}", step.step)?;
        }
        if self.exists.is_empty() {
            writeln!(f, "nothing of {:?} exists", self.deployment)?;
        } else {
            writeln!(f, "\n{}", ui::resources(&self.exists))?;
        }
        if !self.others.is_empty() {
            writeln!(f, "other deployments here: {}", self.others.join(", "))?;
        }
        Ok(())
    }
}

pub async fn run(args: Args, global: &Global) -> Result<(), Failure> {
    show(global, &args.settings, &StepId::ALL).await
}

/// The state of these steps.
pub async fn show(global: &Global, settings: &Settings, steps: &[StepId]) -> Result<(), Failure> {
    let session = Session::open(global, settings, Access::Read).await?;
    let (_, mut walk) = session.noted_walk().await?;
    let all = steps.iter().copied().collect();
    let (plan, others) = tokio::join!(walk.plan(&all), aws::tagging::deployments(&session.aws));
    let (plan, others) = (plan?, others.map_err(anyhow::Error::new)?);
    let exists = walk.existing(all, Duration::from_secs(30)).await;
    let answer = Answer {
        kind: "status",
        deployment: session.spec.name.clone(),
        noted: session.noted.is_some(),
        steps: plan.planned,
        usd_per_hour: Resource::hourly_if_known(&exists),
        exists,
        others: others.into_keys().filter(|name| *name != session.spec.name).collect(),
    };
    drop(walk);
    session.finish().await;
    ui::answer(global.manner(), &answer);
    Ok(())
}
