//! `nemo up`: check, plan, ask, walk, and say what there is now.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;

use super::{Access, Global, Session, Settings, cluster, connect, hints};
use crate::check::Report;
use crate::config::Pins;
use crate::engine::event::EventKind;
use crate::engine::plan::Planned;
use crate::engine::step::StepId;
use crate::engine::walk::{Plan, Walk};
use crate::error::{Failure, Resource};
use crate::render::KEY_SECRET;
use crate::steps::facts::{BenchFacts, Exposed, ServeFacts};
use crate::ui;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  nemo up --instance p5en.48xlarge\n  nemo up --model nemotron-3-super --precision fp8 --to weights\n  nemo up --topology disaggregated --nodes 2 --yes --output json"
)]
pub struct Args {
    #[command(flatten)]
    pub settings: Settings,
    /// Go only as far as this step and what it needs
    #[arg(long, value_name = "STEP")]
    pub to: Option<StepId>,
    #[command(flatten)]
    pub go: Go,
}

/// Flags of every command that walks.
#[derive(Debug, Clone, clap::Args)]
pub struct Go {
    /// Do not ask
    #[arg(long, short)]
    pub yes: bool,
    /// Steps at work at once [default: as many as are ready]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub jobs: Option<u16>,
}

pub async fn run(args: Args, global: &Global) -> Result<(), Failure> {
    let selection = args.to.map_or(Selection::All, Selection::UpTo);
    go(global, &args.settings, &args.go, selection).await
}

/// Which steps a command walks over.
#[derive(Debug, Clone)]
pub enum Selection {
    All,
    /// A step and everything that it needs.
    UpTo(StepId),
    /// Just these: a need that is not met is refused.
    Only(Vec<StepId>),
}

impl Selection {
    fn steps(&self, walk: &Walk) -> BTreeSet<StepId> {
        match self {
            Self::All => StepId::ALL.into(),
            Self::UpTo(step) => walk.up_to(*step),
            Self::Only(steps) => steps.iter().copied().collect(),
        }
    }

    fn nothing_to_do(&self) -> &'static str {
        match self {
            Self::Only(steps) if *steps == [StepId::Bench] => {
                "measured before, and nothing that it was measured on has changed: nothing to do (--set bench.seed=43 measures with other prompts)"
            }
            _ => "everything is there: nothing to do",
        }
    }
}

/// Check, plan, ask, walk: what `up` and every subcommand that makes something does.
pub async fn go(global: &Global, settings: &Settings, go: &Go, selection: Selection) -> Result<(), Failure> {
    let session = Session::open(global, settings, Access::Write).await?;
    let result = walk(&session, go, &selection).await;
    session.finish().await;
    ui::answer(global.manner(), &result?);
    Ok(())
}

async fn walk(session: &Session, go: &Go, selection: &Selection) -> Result<Summary, Failure> {
    let Checked { report, mut walk, plan } = checked_plan(session, selection).await?;
    walk.jobs = go.jobs.map_or(usize::MAX, usize::from);
    session.events.send(None, EventKind::Planned { plan: plan.planned.clone() });
    // What has to come first is said in two lines: neither check nor plan has more to tell.
    if let Some(unmet) = walk.unmet(&plan, &selection.steps(&walk)) {
        return Err(unmet);
    }
    report.iter().for_each(|report| ui::say(session.manner, report));
    if let Some(refusal) = plan.refusal() {
        ui::say(session.manner, ui::plan(&plan.planned));
        return Err(refusal);
    }
    if plan.acts() {
        ui::say(session.manner, ui::plan(&plan.planned));
        if !go.yes {
            ui::confirm(session.manner, "Make this?", &session.stop).await?;
        }
    } else {
        ui::say(session.manner, selection.nothing_to_do());
    }
    let planned = plan.planned.clone();
    let exists = walk.run(plan).await;
    // Also when the walk failed later on: kubectl is what one looks with.
    if let Ok(cluster) = walk.facts.get(StepId::Cluster)
        && let Err(failure) = cluster::enter_kubeconfig(session, &cluster)
    {
        ui::say(session.manner, format!("the kubeconfig was not written: {failure}"));
    }
    let exists = exists?;
    Ok(Summary::new(&walk, &planned, exists))
}

/// What is known before anything is made.
pub struct Checked {
    /// The answers of the check, where they are new.
    pub report: Option<Report>,
    pub walk: Walk,
    pub plan: Plan,
}

/// Asks the check's questions and looks at the steps: both at once when what the looks need is pinned already.
pub async fn checked_plan(session: &Session, selection: &Selection) -> Result<Checked, Failure> {
    let look = async |report: Option<Report>, pins: Pins, account: &str| -> Result<Checked, Failure> {
        let (_, mut walk) = session.walk(pins, account)?;
        let steps = selection.steps(&walk);
        if steps.contains(&StepId::Serve) {
            session.usable()?;
        }
        let plan = walk.plan(&steps).await?;
        Ok(Checked { report, walk, plan })
    };
    let refuse = |report: &Report| -> Result<(), Failure> {
        match report.failure() {
            Some(failure) => {
                ui::say(session.manner, report);
                Err(failure)
            }
            None => Ok(()),
        }
    };
    if let (Some(noted), Some(state)) = (session.pins()?, &session.noted) {
        let (checked, looked) = tokio::join!(session.check(), look(None, noted.clone(), &state.account));
        let (report, pins) = checked?;
        refuse(&report)?;
        // Settings that changed since are resolved anew: then the look was at the wrong thing.
        return if pins == noted { looked } else { look(None, pins, &state.account).await };
    }
    let (report, pins) = session.check().await?;
    refuse(&report)?;
    let account = report.account.clone().unwrap_or_default();
    look(Some(report), pins, &account).await
}

/// The command that makes the first step that is not done: they are in the order in which people take them.
fn after(walk: &Walk) -> &'static str {
    let missing = StepId::ALL.into_iter().find(|step| walk.facts.table(*step).is_none());
    match missing {
        Some(StepId::Network | StepId::Cluster) => "nemo cluster create",
        Some(StepId::Images) => "nemo image push",
        Some(StepId::Weights) => "nemo weights download",
        Some(StepId::Serve) => "nemo apply",
        _ => "nemo up",
    }
}

/// What there is at the end of a walk.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct Summary {
    kind: &'static str,
    deployment: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoint: Option<Endpoint>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bench: Option<BenchFacts>,
    /// Steps that were acted on.
    changed: Vec<StepId>,
    exists: Vec<Resource>,
    /// US dollars of what exists; null where no price is known.
    usd_per_hour: Option<f64>,
    /// Commands to go on with.
    next: Vec<String>,
}

#[derive(Debug, Serialize, schemars::JsonSchema)]
struct Endpoint {
    model: String,
    service: String,
    namespace: String,
    /// Works while `nemo connect` runs in another terminal.
    curl: String,
    /// From outside the cluster, where it is exposed.
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway: Option<Gateway>,
}

#[derive(Debug, Serialize, schemars::JsonSchema)]
struct Gateway {
    #[serde(flatten)]
    exposed: Exposed,
    /// Prints the API key, which is nowhere else.
    show_key: String,
}

impl Gateway {
    fn new(exposed: &Exposed, namespace: &str) -> Self {
        Self { exposed: exposed.clone(), show_key: format!("kubectl get secret {KEY_SECRET} --namespace {namespace} --output jsonpath='{{.data.key}}' | base64 --decode") }
    }
}

impl fmt::Display for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Exposed { host, cidrs, .. } = &self.exposed;
        writeln!(f, "From {}: https://{host}/v1/, by API key (a name of the certificate has to lead there; AWS takes minutes until it answers)", cidrs.join(", "))?;
        writeln!(f, "  the key: {}", self.show_key)
    }
}

impl Summary {
    pub(super) fn new(walk: &Walk, planned: &[Planned], exists: Vec<Resource>) -> Self {
        let flag = hints::flag(&walk.state.deployment);
        let endpoint = walk.facts.get::<ServeFacts>(StepId::Serve).ok().map(|facts| Endpoint {
            curl: facts.curl(&format!("http://127.0.0.1:{}", connect::PORT)),
            gateway: facts.exposed.first().map(|exposed| Gateway::new(exposed, &facts.namespace)),
            model: facts.model,
            service: facts.service,
            namespace: facts.namespace,
        });
        let bench: Option<BenchFacts> = walk.facts.get(StepId::Bench).ok();
        // What was measured is measured again with other prompts only.
        let measure = if bench.is_some() { format!("nemo bench{flag} --set bench.seed=43") } else { format!("nemo up{flag}") };
        let next = match &endpoint {
            Some(_) => vec![format!("nemo connect{flag}"), format!("nemo status{flag}"), measure, format!("nemo cleanup{flag}")],
            None => vec![format!("{}{flag}", after(walk)), format!("nemo status{flag}"), format!("nemo cleanup{flag}")],
        };
        Self {
            kind: "result",
            deployment: walk.state.deployment.clone(),
            endpoint,
            bench,
            changed: planned.iter().filter(|planned| planned.verdict.acts()).map(|planned| planned.step).collect(),
            usd_per_hour: Resource::hourly_if_known(&exists),
            exists,
            next,
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(endpoint) = &self.endpoint {
            writeln!(f, "{} serves in namespace {}. Connect, then ask:\n\n  {}\n  {}\n", endpoint.model, endpoint.namespace, self.next[0], endpoint.curl)?;
            if let Some(gateway) = &endpoint.gateway {
                writeln!(f, "{gateway}")?;
            }
        }
        if let Some(bench) = &self.bench {
            writeln!(f, "aiperf {} at concurrency {}: {} requests, {} errors", bench.aiperf_version, bench.concurrency, bench.requests, bench.errors)?;
            writeln!(f, "  TTFT p50 {:.1} ms, p95 {:.1} ms", bench.ttft_ms_p50, bench.ttft_ms_p95)?;
            writeln!(f, "  ITL  p50 {:.1} ms, p95 {:.1} ms", bench.itl_ms_p50, bench.itl_ms_p95)?;
            writeln!(f, "  {:.1} output tokens/s\n", bench.output_tokens_per_second)?;
        }
        writeln!(f, "{} resources exist, together {}", self.exists.len(), Resource::hourly_words(&self.exists))?;
        write!(f, "next: {}", self.next.join(" | "))
    }
}
