//! `nemo diff`: what `nemo apply` would change in the cluster, object by object. Exit code 20 when there is something, as of `nemo plan --check`.

use std::fmt;

use serde::Serialize;

use super::{Access, Global, Session, Settings, render};
use crate::engine::step::StepId;
use crate::error::{Failure, Kind};
use crate::k8s::diff::{Change, Difference};
use crate::steps::serve::Serve;
use crate::ui;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    settings: Settings,
}

/// The answer of `nemo diff`.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct Answer {
    kind: &'static str,
    deployment: String,
    /// In the order in which they would be dealt with: what is removed goes first.
    differences: Vec<Difference>,
    /// Objects that would stay as they are.
    unchanged: usize,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Difference { object, change, diff, conflict, why } in &self.differences {
            f.write_str(diff)?;
            if let Some(conflict) = conflict {
                writeln!(f, "# {object}: refused: {conflict}")?;
            }
            if let Some(why) = why {
                writeln!(f, "# {object}: removed and made anew, since it cannot be changed to this: {why}")?;
            }
            if *change == Change::Remove {
                writeln!(f, "# {object}: removed, since it is rendered no more")?;
            }
        }
        match (self.differences.len(), self.unchanged) {
            (0, unchanged) => write!(f, "no difference in {unchanged} objects"),
            (1, unchanged) => write!(f, "1 object differs, {unchanged} do not"),
            (differ, unchanged) => write!(f, "{differ} objects differ, {unchanged} do not"),
        }
    }
}

pub async fn run(args: Args, global: &Global) -> Result<(), Failure> {
    let session = Session::open(global, &args.settings, Access::Read).await?;
    let answer = differences(&session).await;
    session.finish().await;
    let answer = answer?;
    ui::answer(global.manner(), &answer);
    let conflicts: Vec<_> = answer.differences.iter().filter_map(|one| Some(format!("{}: {}", one.object, one.conflict.as_ref()?))).collect();
    if !conflicts.is_empty() {
        return Err(
            Failure::new(Kind::Conflict, conflicts.join("; ")).hint("take the change to these fields back, or let the settings say the same: a patches file reaches every field")
        );
    }
    if answer.differences.is_empty() {
        Ok(())
    } else {
        Err(Failure::new(Kind::PlanHasChanges, answer.to_string().lines().last().unwrap_or_default()).hint("nemo apply, with the same flags"))
    }
}

async fn differences(session: &Session) -> Result<Answer, Failure> {
    session.usable()?;
    let (deps, facts, inputs) = render::inputs(session, &[StepId::Cluster]).await?;
    let client = deps.kube_of(&facts.get(StepId::Cluster)?)?;
    let (differences, unchanged) = Serve::new(deps).diff(&client, &inputs).await?;
    Ok(Answer { kind: "diff", deployment: session.spec.name.clone(), differences, unchanged })
}
