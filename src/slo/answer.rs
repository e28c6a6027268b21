//! What `nemo slo` answers: each level against the budgets, the last that holds, what breaks next, and the size for a target.

use std::fmt;

use serde::Serialize;

use super::budget::{Budget, Held};
use super::size::{Deployment, Size, Target};
use crate::bench::level::{Comparable, Level};
use crate::bench::measure::Metric;

/// What `nemo slo` answers.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
#[serde(tag = "kind", rename = "slo")]
pub struct Answer {
    /// What is the same in all runs.
    pub comparable: Comparable,
    pub budgets: Vec<Budget>,
    /// By rising concurrency.
    pub levels: Vec<Row>,
    /// The last level that holds, as measured.
    pub passing: Option<Passing>,
    /// The first budget that breaks behind it.
    pub breaks: Option<Breaks>,
    /// Where nothing holds: the level that comes nearest.
    pub nearest_miss: Option<Miss>,
    /// What to add first for more load, and why; where nothing holds, what would help.
    pub scale: Option<String>,
    pub deployment: Deployment,
    pub size: Option<Size>,
}

/// One level.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Row {
    pub folder: String,
    pub concurrency: u32,
    pub answered: u64,
    pub failed: u64,
    pub output_tokens_per_second: f64,
    pub requests_per_second: f64,
    /// Output tokens a second that one user sees: 1000 ÷ median ITL.
    pub tokens_per_second_per_user: Option<f64>,
    pub held: Vec<Held>,
    /// All budgets.
    pub within: bool,
    /// All within, and another honest run might not be; or the reverse.
    pub close: bool,
    /// Why its numbers are not to be trusted.
    pub objections: Vec<String>,
}

/// What was measured at the last level that holds.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Passing {
    pub concurrency: u32,
    pub output_tokens_per_second: f64,
    pub requests_per_second: f64,
    pub close: bool,
    /// A level below it did not hold: the curve is not what one would expect.
    pub despite: Vec<u32>,
}

/// A budget that breaks at the next level.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Breaks {
    pub budget: Budget,
    /// The level at which it was measured beyond the limit.
    pub at: u32,
    /// Concurrency at which a straight line between the two levels meets the limit: interpolated, never measured.
    pub interpolated_concurrency: Option<f64>,
}

/// A level that holds nearly.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Miss {
    pub concurrency: u32,
    pub budget: Budget,
    pub measured_ms: Option<f64>,
    /// By how much of the limit it is too slow.
    pub over: Option<f64>,
}

/// Judges levels of the same load in rising order. There is at least one.
pub fn answer(levels: &[Level], comparable: Comparable, budgets: &[Budget], deployment: Deployment, wanted: Option<(Target, f64)>) -> Answer {
    let rows: Vec<Row> = levels.iter().map(|level| row(level, budgets)).collect();
    let last = rows.iter().rposition(|row| row.within);
    let passing = last.map(|at| Passing {
        concurrency: rows[at].concurrency,
        output_tokens_per_second: rows[at].output_tokens_per_second,
        requests_per_second: rows[at].requests_per_second,
        close: rows[at].close,
        despite: rows[..at].iter().filter(|row| !row.within).map(|row| row.concurrency).collect(),
    });
    let breaks = last.and_then(|at| breaks(&rows[at], rows.get(at + 1)?));
    let nearest_miss = if last.is_none() { rows.iter().filter_map(miss).min_by(|a, b| over(a).total_cmp(&over(b))) } else { None };
    let scale = breaks.as_ref().map(|breaks| scale(breaks.budget.metric)).or(nearest_miss.as_ref().map(helps));
    let size = passing
        .as_ref()
        .zip(wanted)
        .and_then(|(passing, (target, headroom))| Size::of(target, headroom, &deployment, passing.output_tokens_per_second, passing.requests_per_second));
    Answer { comparable, budgets: budgets.to_vec(), levels: rows, passing, breaks, nearest_miss, scale, deployment, size }
}

fn row(level: &Level, budgets: &[Budget]) -> Row {
    let held: Vec<Held> = budgets.iter().map(|budget| budget.hold(level)).collect();
    let within = held.iter().all(|held| held.within);
    // Beyond a limit that is far away, what is close elsewhere changes nothing.
    let close = if within { held.iter().any(|held| held.close) } else { held.iter().filter(|held| !held.within).all(|held| held.close) };
    Row {
        folder: level.folder.display().to_string(),
        concurrency: level.concurrency,
        answered: level.numbers.answered,
        failed: level.numbers.failed,
        output_tokens_per_second: level.numbers.output_tokens_per_second,
        requests_per_second: level.numbers.requests_per_second,
        tokens_per_second_per_user: level.numbers.itl_ms.as_ref().map(|itl| 1000.0 / itl.p50),
        held,
        within,
        close,
        objections: level.objections.clone(),
    }
}

/// The budget that a straight line meets first.
fn breaks(passing: &Row, next: &Row) -> Option<Breaks> {
    let crossing = |before: &Held, after: &Held| {
        let (low, high) = (before.measured_ms?, after.measured_ms?);
        let share = (before.budget.limit_ms - low) / (high - low);
        Some(f64::from(passing.concurrency) + share * f64::from(next.concurrency - passing.concurrency))
    };
    let broken = passing.held.iter().zip(&next.held).filter(|(_, after)| !after.within);
    let all = broken.map(|(before, after)| Breaks { budget: after.budget, at: next.concurrency, interpolated_concurrency: crossing(before, after) });
    all.min_by(|a, b| a.interpolated_concurrency.unwrap_or(0.0).total_cmp(&b.interpolated_concurrency.unwrap_or(0.0)))
}

/// The budget by which a level misses most.
fn miss(row: &Row) -> Option<Miss> {
    let all = row.held.iter().filter(|held| !held.within).map(|held| Miss {
        concurrency: row.concurrency,
        budget: held.budget,
        measured_ms: held.measured_ms,
        over: held.measured_ms.map(|ms| ms / held.budget.limit_ms - 1.0),
    });
    all.max_by(|a, b| over(a).total_cmp(&over(b)))
}

fn over(miss: &Miss) -> f64 {
    miss.over.unwrap_or(f64::INFINITY)
}

fn scale(broken: Metric) -> String {
    match broken {
        Metric::Ttft => "prefill: prompts wait for their first token before answers slow down; where prefill and decode are apart, more prefill workers; else more replicas",
        Metric::Itl => "decode: answers slow down before prompts wait; where prefill and decode are apart, more decode workers; else more replicas, or prefill apart",
        Metric::Latency => "replicas: the whole answer is late; a budget for TTFT and one for ITL tell which side it is",
    }
    .to_owned()
}

/// Where nothing holds: with one request at once no number of replicas makes it faster.
fn helps(miss: &Miss) -> String {
    match (miss.concurrency, miss.budget.metric) {
        (2.., _) => "nothing yet: measure lower concurrencies, down to 1",
        (_, Metric::Ttft) => "no replica helps, one request alone waits that long: shorter prompts, prefix caching, more GPUs for prefill (tensor parallel), or prefill and decode on the same worker",
        (_, Metric::Itl) => "no replica helps, one request alone is that slow: more GPUs for decode (tensor parallel), a smaller precision, or speculative decoding",
        (_, Metric::Latency) => "no replica helps, one request alone takes that long: shorter answers, more GPUs (tensor parallel), or a smaller precision",
    }
    .to_owned()
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.comparable)?;
        writeln!(f, "budgets: {}", list(&self.budgets))?;
        self.table(f)?;
        for row in &self.levels {
            row.objections.iter().try_for_each(|why| writeln!(f, "not to be trusted: {}: {why}", row.folder))?;
        }
        match &self.passing {
            Some(passing) => self.holds(f, passing)?,
            None => self.misses(f)?,
        }
        if let Some(scale) = &self.scale {
            write!(f, "\nscale first: {scale}")?;
        }
        match &self.size {
            Some(size) => size.fmt_for(f, &self.deployment),
            None => Ok(()),
        }
    }
}

fn list<T: fmt::Display>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl Answer {
    fn table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>11}", "concurrency")?;
        for budget in &self.budgets {
            write!(f, "  {:>14}", format!("{} {}, ms", budget.metric, budget.statistic))?;
        }
        writeln!(f, "  {:>12}  {:>10}  {:>6}  within", "out tokens/s", "per user", "failed")?;
        for row in &self.levels {
            write!(f, "{:>11}", row.concurrency)?;
            for held in &row.held {
                let measured = held.measured_ms.map_or("-".into(), |ms| format!("{ms:.1}"));
                write!(f, "  {:>14}", if held.within { measured } else { format!("{measured} !") })?;
            }
            let user = row.tokens_per_second_per_user.map_or("-".into(), |rate| format!("{rate:.1}"));
            let word = match (row.within, row.close) {
                (true, false) if row.held.iter().any(Held::few) => "yes, of few requests",
                (true, false) => "yes",
                (true, true) => "yes, but close",
                (false, true) => "no, but close",
                (false, false) => "no",
            };
            writeln!(f, "  {:>12.1}  {user:>10}  {:>6}  {word}", row.output_tokens_per_second, row.failed)?;
        }
        Ok(())
    }

    fn holds(&self, f: &mut fmt::Formatter<'_>, passing: &Passing) -> fmt::Result {
        let Passing { concurrency, output_tokens_per_second, requests_per_second, .. } = passing;
        write!(f, "within the budgets up to concurrency {concurrency}, as measured: {output_tokens_per_second:.1} output tokens/s, {requests_per_second:.2} requests/s")?;
        if passing.close {
            write!(f, "\nclose: another run of the same system might not hold it; measure it with more requests")?;
        }
        if self.levels.iter().any(|row| row.held.iter().any(Held::few)) {
            write!(f, "\nfew requests: where so few were sent, nobody can say how high a percentile may be (a p95 takes 110 requests, a p99 560)")?;
        }
        if !passing.despite.is_empty() {
            write!(f, "\nodd: concurrency {} did not hold though it is lower; measure it again", list(&passing.despite))?;
        }
        match &self.breaks {
            Some(Breaks { budget, at, interpolated_concurrency }) => {
                let place = interpolated_concurrency.map(|c| format!(", at about {c:.0} if the line between them is straight (interpolated)")).unwrap_or_default();
                write!(f, "\nfirst to break: {budget}, between {concurrency} and {at}{place}")
            }
            None => write!(f, "\nnothing breaks in what was measured: a higher concurrency may hold, too"),
        }
    }

    fn misses(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.nearest_miss {
            Some(Miss { concurrency, budget, measured_ms: Some(ms), over: Some(over) }) => {
                write!(f, "no level is within the budgets; nearest is concurrency {concurrency}: {} {} is {ms:.1} ms, {:.0} % over", budget.metric, budget.statistic, over * 100.0)
            }
            Some(Miss { concurrency, budget, .. }) => {
                write!(
                    f,
                    "no level is within the budgets; at concurrency {concurrency} {} {} was not measured: answers came in one piece, or too many requests failed",
                    budget.metric, budget.statistic
                )
            }
            None => Ok(()),
        }
    }
}

impl Size {
    fn fmt_for(&self, f: &mut fmt::Formatter<'_>, deployment: &Deployment) -> fmt::Result {
        let Self { target, headroom, deployments, with_one_to_spare, nodes, gpus, .. } = self;
        write!(f, "\n{target}")?;
        if *headroom > 0.0 {
            write!(f, " with {:.0} % to spare", headroom * 100.0)?;
        }
        write!(f, ": {deployments} × ({}), {nodes} {} with {gpus} GPUs; {with_one_to_spare} to stand the loss of one", deployment.workers, deployment.instance)?;
        match (self.usd_per_hour, self.usd_per_million_tokens) {
            (Some(hourly), Some(million)) => write!(f, "\ncost: about ${hourly:.2} an hour, ${million:.2} for a million output tokens at the target"),
            _ => write!(f, "\ncost: the price of {} is not known here (--price)", deployment.instance),
        }
    }
}
