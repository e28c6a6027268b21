//! The numbers of a level, once for every form of the report.

use super::Report;
use crate::bench::level::Level;
use crate::bench::measure::{Estimate, Metric, Statistic};
use crate::slo::Budget;

/// A column: its name in words, its name in a CSV file, its number, and how many digits of that are shown.
pub struct Column {
    pub title: &'static str,
    pub key: &'static str,
    pub of: fn(&Level) -> Option<f64>,
    pub digits: usize,
}

fn at(level: &Level, metric: Metric, percent: f64) -> Option<f64> {
    finite(Estimate::of(metric.values(level), Statistic::Percentile(percent))?.value)
}

fn finite(value: f64) -> Option<f64> {
    Some(value).filter(|value| value.is_finite())
}

/// Latencies are over all requests: one that failed never came.
pub const COLUMNS: [Column; 16] = [
    Column { title: "answered", key: "answered", of: |level| Some(level.numbers.answered as f64), digits: 0 },
    Column { title: "failed", key: "failed", of: |level| Some(level.numbers.failed as f64), digits: 0 },
    Column { title: "TTFT p50, ms", key: "ttft_p50_ms", of: |level| at(level, Metric::Ttft, 50.0), digits: 1 },
    Column { title: "p95", key: "ttft_p95_ms", of: |level| at(level, Metric::Ttft, 95.0), digits: 1 },
    Column { title: "p99", key: "ttft_p99_ms", of: |level| at(level, Metric::Ttft, 99.0), digits: 1 },
    Column { title: "p95 without first wave", key: "ttft_p95_ms_after_first_wave", of: |level| Some(level.numbers.ttft_ms_after_first_wave.as_ref()?.p95), digits: 1 },
    Column { title: "ITL p50, ms", key: "itl_p50_ms", of: |level| at(level, Metric::Itl, 50.0), digits: 2 },
    Column { title: "p95", key: "itl_p95_ms", of: |level| at(level, Metric::Itl, 95.0), digits: 2 },
    Column { title: "p99", key: "itl_p99_ms", of: |level| at(level, Metric::Itl, 99.0), digits: 2 },
    Column { title: "answer p50, ms", key: "latency_p50_ms", of: |level| at(level, Metric::Latency, 50.0), digits: 0 },
    Column { title: "p95", key: "latency_p95_ms", of: |level| at(level, Metric::Latency, 95.0), digits: 0 },
    Column { title: "output tokens/s", key: "output_tokens_per_second", of: |level| finite(level.numbers.output_tokens_per_second), digits: 1 },
    Column { title: "requests/s", key: "requests_per_second", of: |level| finite(level.numbers.requests_per_second), digits: 2 },
    Column { title: "tokens/s a user", key: "tokens_per_second_per_user", of: per_user, digits: 1 },
    Column { title: "stalled", key: "stalled", of: |level| Some(level.numbers.stalled.as_ref().map_or(0.0, |stalled| stalled.requests as f64)), digits: 0 },
    Column { title: "short answers", key: "short", of: |level| Some(level.numbers.short as f64), digits: 0 },
];

/// Output tokens a second that one user sees: 1000 ÷ median ITL.
pub fn per_user(level: &Level) -> Option<f64> {
    at(level, Metric::Itl, 50.0).filter(|ms| *ms > 0.0).map(|ms| 1000.0 / ms)
}

/// A number for people; a dash is none.
pub fn shown(value: Option<f64>, digits: usize) -> String {
    value.map_or("–".into(), |value| format!("{value:.digits$}"))
}

/// How far a side stays within all budgets, in words; none without budgets.
pub fn within(report: &Report, side: usize) -> Option<String> {
    if report.budgets.is_empty() {
        return None;
    }
    let levels = &report.sides[side].levels;
    let held = |level: &Level| report.budgets.iter().map(|budget| budget.hold(level)).collect::<Vec<_>>();
    let Some(last) = levels.iter().rposition(|level| held(level).iter().all(|held| held.within)) else { return Some("no level is within the budgets".into()) };
    let level = &levels[last];
    let mut said = format!("within the budgets up to concurrency {}, at {:.1} output tokens/s", level.concurrency, level.numbers.output_tokens_per_second);
    if held(level).iter().any(|held| held.close) {
        said += "; close: another honest run might not hold it";
    }
    if let Some(next) = levels.get(last + 1) {
        let broken: Vec<String> = held(next).iter().filter(|held| !held.within).map(|held| held.budget.to_string()).collect();
        said += &format!("; at {} it no longer holds {}", next.concurrency, broken.join(", "));
    }
    Some(said)
}

/// p50 and p95, and what the budgets ask for beside them.
pub fn statistics(metric: Metric, budgets: &[Budget]) -> Vec<Statistic> {
    let mut all = vec![Statistic::Percentile(50.0), Statistic::Percentile(95.0)];
    for budget in budgets {
        if budget.metric == metric && !all.contains(&budget.statistic) {
            all.push(budget.statistic);
        }
    }
    all
}
