//! `nemo explain`: why it does not serve, what that costs so far, what to do; or what a rule is about.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::{Access, Global, Session, Settings};
use crate::engine::clock;
use crate::engine::state::Status;
use crate::engine::step::StepId;
use crate::error::{Failure, Kind, Resource, fail};
use crate::explain::{Behind, Cause, PodFacts, cause};
use crate::lint::{self, Severity};
use crate::steps;
use crate::ui;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// A pod or the beginning of its name, a step, or the id of a rule such as N16 [default: what serves]
    #[arg(value_name = "POD|STEP|ID")]
    what: Option<String>,
    #[command(flatten)]
    settings: Settings,
}

/// The answer about a rule.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct RuleAnswer {
    kind: &'static str,
    rule: &'static str,
    severity: Severity,
    title: &'static str,
    cause: &'static str,
    fix: &'static str,
}

impl fmt::Display for RuleAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}\n\nwhy: {}\ndo:  {}", self.rule, self.severity, self.title, self.cause, self.fix)
    }
}

/// The answer about a deployment.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct Answer {
    kind: &'static str,
    deployment: String,
    /// None: nothing is wrong with these pods.
    cause: Option<Cause>,
    /// How the step is noted, where one was named.
    noted: Option<String>,
    pods: Vec<Pod>,
    /// Null when no price is known.
    usd_per_hour: Option<f64>,
    /// Since the GPU nodes were asked for, as far as prices are known.
    usd_so_far: Option<f64>,
}

#[derive(Debug, Serialize, schemars::JsonSchema)]
struct Pod {
    name: String,
    node: Option<String>,
    phase: String,
    ready: bool,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(noted) = &self.noted {
            writeln!(f, "{noted}")?;
        }
        match &self.cause {
            Some(cause) => writeln!(f, "{}", cause.sentence)?,
            None if self.pods.is_empty() => writeln!(f, "there are no pods")?,
            None => writeln!(f, "nothing is wrong with {}", self.pods.iter().map(|pod| pod.name.as_str()).collect::<Vec<_>>().join(", "))?,
        }
        match (self.usd_so_far, self.usd_per_hour) {
            (Some(so_far), Some(hourly)) => write!(f, "cost: about ${so_far:.2} so far, ${hourly:.2} an hour")?,
            (None, Some(hourly)) => write!(f, "cost: about ${hourly:.2} an hour")?,
            (_, None) => write!(f, "cost: price unknown (nemo check finds the prices)")?,
        }
        let Some(cause) = &self.cause else { return Ok(()) };
        write!(f, "\ndo: {}", cause.next)?;
        if let Some(rule) = &cause.rule {
            write!(f, "\nmore: nemo explain {rule}")?;
        }
        Ok(())
    }
}

pub async fn run(args: Args, global: &Global) -> Result<(), Failure> {
    if let Some(rule) = args.what.as_deref().and_then(lint::rule) {
        let answer = RuleAnswer { kind: "rule", rule: rule.id, severity: rule.severity, title: rule.title, cause: rule.cause, fix: rule.fix };
        ui::answer(global.manner(), &answer);
        return Ok(());
    }
    let session = Session::open(global, &args.settings, Access::Read).await?;
    let answer = explained(&session, args.what.as_deref()).await;
    session.finish().await;
    ui::answer(global.manner(), &answer?);
    Ok(())
}

async fn explained(session: &Session, what: Option<&str>) -> Result<Answer, Failure> {
    let name = &session.spec.name;
    let (_, walk, client) = session.cluster().await?;
    // Without notes nobody knows when anything began.
    let record = |step: &StepId| session.noted.as_ref().and_then(|state| state.steps.get(step));
    let step = what.and_then(|what| what.parse::<StepId>().ok());
    let namespaces = steps::explain::namespaces(&session.spec, step);
    let serves = what.is_none() || step == Some(StepId::Serve);
    let behind = async { if serves { steps::explain::behind(&client, &session.spec).await } else { Ok(Behind::default()) } };
    let (pods, behind, exists) = tokio::join!(steps::explain::pods(&client, &namespaces), behind, walk.existing(StepId::ALL.into(), Duration::from_secs(30)));
    let (mut pods, behind) = (pods.map_err(anyhow::Error::new)?, behind.map_err(anyhow::Error::new)?);
    if let Some(pod) = what.filter(|_| step.is_none()) {
        let others: Vec<_> = pods.iter().map(|pod| pod.name.clone()).collect();
        pods.retain(|one| one.name.starts_with(pod));
        if pods.is_empty() {
            return Err(fail(Kind::Usage, format!("{pod:?} is no pod in {}, no step and no rule", namespaces.join(", "))).hint(format!("pods: {}", others.join(", "))).into());
        }
    }
    let usd_per_hour = Resource::hourly_if_known(&exists);
    let hours = record(&StepId::GpuNodes).map(|record| clock::now().duration_since(record.started).as_secs_f64() / 3600.0);
    let noted = step.map(|step| noted(step, record(&step)));
    let shown = |pod: &PodFacts| Pod { name: pod.name.clone(), node: pod.node.clone(), phase: pod.phase.clone(), ready: pod.ready };
    Ok(Answer {
        kind: "explained",
        deployment: name.clone(),
        cause: cause(&pods, &behind),
        noted,
        pods: pods.iter().map(shown).collect(),
        usd_per_hour,
        usd_so_far: hours.zip(usd_per_hour).map(|(hours, hourly)| hours * hourly),
    })
}

fn noted(step: StepId, record: Option<&crate::engine::state::Record>) -> String {
    let Some(record) = record else { return format!("{step} has not begun") };
    let word = match record.status {
        Status::Started => "has begun and not ended",
        Status::Done => "was done",
        Status::Failed => "failed",
    };
    format!("{step} {word}, begun {}", record.started.strftime("%Y-%m-%d %H:%M:%S UTC"))
}
