//! Whether a run can be trusted. aiperf's exit code cannot: it is 0 with a quarter of the requests failed and after Ctrl-C.

use serde::{Deserialize, Serialize};

use super::plan::Load;
use super::records::Records;
use super::stats::Numbers;
use super::summary::{KNOWN_VERSIONS, Summary};

/// The largest share of requests that may fail: latencies are of those that were answered, so failures make a run look better.
const ERRORS: f64 = 0.01;
/// The largest share of answers that may be shorter than asked.
const SHORT: f64 = 0.01;
/// By how much the mean prompt may differ from what was asked, and how many tokens more the chat template may make of it.
const INPUT: f64 = 0.1;
const TEMPLATE_TOKENS: f64 = 100.0;
/// The share of the asked concurrency that must have been reached at some time.
const CONCURRENCY: f64 = 0.9;
/// Median delay inside the client: past 70 % of its CPU aiperf's own queueing enters the latencies (81 ms of delay beside answers of 58 ms were
/// seen). 1 to 5 ms are usual; beside long answers a little more does no harm.
const CLIENT_MS: f64 = 50.0;
const CLIENT_SHARE: f64 = 0.1;

/// One question about a run, answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Check {
    pub name: String,
    pub passed: bool,
    /// What was found.
    pub says: String,
}

/// A check by name.
pub fn check(name: &str, passed: bool, says: impl Into<String>) -> Check {
    Check { name: name.into(), passed, says: says.into() }
}

/// Asks everything about a run. `launched_ns`: when its aiperf was started, in nanoseconds since the Unix epoch.
pub fn checks(load: &Load, launched_ns: u64, records: &Records, summary: &Summary, numbers: &Numbers) -> Vec<Check> {
    let Numbers { answered, failed, short, .. } = *numbers;
    let finished = answered + failed;
    let asked = u64::from(load.requests);
    let stale = records.profiling.iter().filter(|record| record.start_ns < launched_ns).count();
    let input = numbers.input_tokens.as_ref().map_or(0.0, |tokens| tokens.avg);
    let wanted = f64::from(load.isl);
    vec![
        version(summary),
        check("fresh", stale == 0, format!("{stale} records are older than the launch")),
        whole(records),
        not_cancelled(summary),
        check("count", finished == asked, format!("{answered} answered and {failed} failed of {asked} asked")),
        check("errors", share(failed, finished) <= ERRORS, format!("{failed} of {finished} requests failed{}", reason(records))),
        check(
            "streaming",
            numbers.streamed || load.osl <= 1,
            if numbers.streamed { "tokens came one after the other" } else { "answers came in one piece: no ITL, and TTFT is the whole latency" },
        ),
        check("output-length", share(short, answered) <= SHORT, format!("{short} of {answered} answers are shorter than nine tenths of {} tokens", load.osl)),
        check(
            "input-length",
            input >= (1.0 - INPUT) * wanted && input <= (1.0 + INPUT) * wanted + TEMPLATE_TOKENS,
            format!("{input:.0} tokens a prompt on average, {} asked", load.isl),
        ),
        concurrency(load.concurrency, numbers),
        client(numbers),
        cross_check(summary, numbers),
    ]
}

/// Asks what can be asked of a run that somebody else made: nobody knows what it was meant to be.
pub fn found(concurrency_asked: u32, records: &Records, summary: &Summary, numbers: &Numbers) -> Vec<Check> {
    vec![version(summary), whole(records), not_cancelled(summary), concurrency(concurrency_asked, numbers), client(numbers), cross_check(summary, numbers)]
}

fn version(summary: &Summary) -> Check {
    check("version", summary.version_known(), format!("aiperf {}; known are {}", summary.version, KNOWN_VERSIONS.join(" and ")))
}

fn whole(records: &Records) -> Check {
    check("whole", !records.torn, if records.torn { "the last record is cut" } else { "every record is whole" })
}

fn not_cancelled(summary: &Summary) -> Check {
    check("not-cancelled", !summary.was_cancelled && summary.is_complete != Some(false), format!("was_cancelled {}", summary.was_cancelled))
}

fn concurrency(asked: u32, numbers: &Numbers) -> Check {
    check("concurrency", numbers.in_flight as f64 >= (CONCURRENCY * f64::from(asked)).floor(), format!("{} requests at once, {asked} asked", numbers.in_flight))
}

fn client(numbers: &Numbers) -> Check {
    let delay = numbers.client_delay_ms.as_ref().map_or(0.0, |delay| delay.p50);
    let patience = CLIENT_MS.max(CLIENT_SHARE * numbers.latency_ms.as_ref().map_or(0.0, |latency| latency.p50));
    check("client", delay <= patience, format!("half of the requests waited more than {delay:.1} ms inside aiperf"))
}

fn cross_check(summary: &Summary, numbers: &Numbers) -> Check {
    let disagreements = summary.disagreements(numbers);
    check("cross-check", disagreements.is_empty(), if disagreements.is_empty() { "records and summary agree".into() } else { disagreements.join("; ") })
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// The first failure's own words.
fn reason(records: &Records) -> String {
    use super::records::Outcome::Failed;
    let first = records.profiling.iter().find_map(|record| match &record.outcome {
        Failed { code, message, .. } => Some((code, message)),
        _ => None,
    });
    match first {
        Some((Some(code), message)) => format!("; the first: {code} {message}"),
        Some((None, message)) => format!("; the first: {message}"),
        None => String::new(),
    }
}
