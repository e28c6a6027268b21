//! `nemo plan`: the check, then what `up` would do; changes nothing.

use std::fmt;

use serde::Serialize;

use super::up::{Checked, Selection, checked_plan};
use super::{Access, Global, Session, Settings};
use crate::engine::plan::Planned;
use crate::engine::step::StepId;
use crate::error::{Failure, Kind};
use crate::ui;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  nemo plan --instance p5en.48xlarge\n  nemo plan --check   # in a pipeline: 20 when there is something to do")]
pub struct Args {
    #[command(flatten)]
    settings: Settings,
    /// Plan only as far as this step and what it needs
    #[arg(long, value_name = "STEP")]
    to: Option<StepId>,
    /// Exit with 20 when there is something to do
    #[arg(long)]
    check: bool,
}

/// The plan as an answer.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct Answer {
    kind: &'static str,
    deployment: String,
    plan: Vec<Planned>,
    /// US dollars of everything in the plan; null where no price is known.
    usd_per_hour: Option<f64>,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&ui::plan(&self.plan))
    }
}

pub async fn run(args: Args, global: &Global) -> Result<(), Failure> {
    let session = Session::open(global, &args.settings, Access::Read).await?;
    let selection = args.to.map_or(Selection::All, Selection::UpTo);
    let Checked { report, walk, plan } = checked_plan(&session, &selection).await?;
    report.iter().for_each(|report| ui::say(session.manner, report));
    let acts = plan.acts();
    let refusal = plan.refusal();
    let answer = Answer { kind: "plan", deployment: session.spec.name.clone(), usd_per_hour: plan.usd_per_hour(), plan: plan.planned };
    drop(walk);
    session.finish().await;
    ui::answer(global.manner(), &answer);
    match refusal {
        Some(refusal) => Err(refusal),
        None if args.check && acts => Err(Failure::new(Kind::PlanHasChanges, "the plan has changes").hint("nemo up")),
        None => Ok(()),
    }
}
