//! `nemo slo`: how much load a deployment carries within latency budgets, and how many a target takes. From files; asks nobody.

use std::path::PathBuf;

use super::{Global, Settings, session};
use crate::bench::measure::Metric;
use crate::bench::side;
use crate::config::{Part, Spec};
use crate::error::{Failure, Kind, fail};
use crate::slo::{Budget, Deployment, Limit, Target, answer, contradictions};
use crate::{config, ui};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  nemo slo artifacts/ --ttft p95=600ms --itl p95=100ms\n  nemo slo artifacts/ --ttft p99=2s --target 5000tok/s --instance p5en.48xlarge --price 63.30\n\nEach folder below that has a profile_export.jsonl is one level. A budget's percentiles count a request that failed as one that never came."
)]
pub struct Args {
    /// Folder of a run of aiperf, or one above several
    #[arg(required = true, value_name = "FOLDER")]
    folders: Vec<PathBuf>,
    #[command(flatten)]
    budgets: Budgets,
    /// What all deployments together shall deliver, such as 5000tok/s or 20req/s
    #[arg(long, value_name = "RATE")]
    target: Option<Target>,
    /// Share of the measured throughput that is kept for peaks, in per cent
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=90))]
    headroom: u8,
    #[command(flatten)]
    settings: Settings,
}

/// Latency budgets, as they are written on a command line.
#[derive(Debug, clap::Args)]
pub struct Budgets {
    /// Budget for the time to first token, such as p95=600ms; more than one may be given
    #[arg(long, value_name = "LIMIT")]
    ttft: Vec<Limit>,
    /// Budget for the inter-token latency
    #[arg(long, value_name = "LIMIT")]
    itl: Vec<Limit>,
    /// Budget for the whole answer
    #[arg(long, value_name = "LIMIT")]
    latency: Vec<Limit>,
}

impl Budgets {
    /// All of them, if they can be meant together.
    pub fn checked(&self) -> Result<Vec<Budget>, Failure> {
        let of = |metric, limits: &[Limit]| limits.iter().map(|limit| Budget { metric, statistic: limit.statistic, limit_ms: limit.ms }).collect::<Vec<_>>();
        let budgets = [of(Metric::Ttft, &self.ttft), of(Metric::Itl, &self.itl), of(Metric::Latency, &self.latency)].concat();
        match contradictions(&budgets) {
            Some(why) => Err(fail(Kind::Usage, why).hint("leave one of them out").into()),
            None => Ok(budgets),
        }
    }
}

pub async fn run(args: Args, global: &Global) -> Result<(), Failure> {
    let budgets = args.budgets.checked()?;
    if budgets.is_empty() {
        return Err(fail(Kind::Usage, "there is no budget to hold the runs against").hint("--ttft p95=600ms --itl p95=100ms").into());
    }
    let (spec, _) = config::resolve(&session::inputs(global, &args.settings)?)?;
    let levels = side::curve(&args.folders)?;
    let comparable = levels[0].comparable.clone();
    let wanted = args.target.map(|target| (target, f64::from(args.headroom) / 100.0));
    let answer = answer(&levels, comparable, &budgets, deployment(&spec), wanted);
    ui::answer(global.manner(), &answer);
    if answer.passing.is_none() {
        return Err(fail(Kind::Verification, "no level is within the budgets").hint("a lower concurrency, more GPUs, another topology, or a wider budget").into());
    }
    Ok(())
}

fn deployment(spec: &Spec) -> Deployment {
    let parts = spec.parts();
    let nodes: u32 = parts.iter().map(Part::pods).sum();
    let one = |part: &Part| format!("{} {}{}", part.replicas, part.role.title(), if part.replicas == 1 { "" } else { "s" });
    Deployment {
        workers: parts.iter().map(one).collect::<Vec<_>>().join(" and "),
        nodes,
        gpus: nodes * spec.gpus(),
        instance: spec.instance.type_name.clone(),
        usd_per_hour: spec.price_gpu_hour.map(|usd| usd * f64::from(nodes)),
    }
}
