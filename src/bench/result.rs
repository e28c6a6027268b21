//! What a benchmark ends with: the numbers, whether they can be trusted, and what was measured.

use std::fmt;
use std::path::Path;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::plan::{Load, Plan, Served};
use super::stats::{self, Asked, Distribution, Numbers, Stalled};
use super::validity::{Check, check, checks};
use super::{records, summary};
use crate::error::Failure;

/// The result of a run, as the agent prints it last and keeps it beside the run (`result.json`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RunResult {
    pub run: String,
    /// Folder of the run, below the root of the shared volume.
    pub folder: String,
    pub load: Load,
    pub served: Served,
    /// All of them, in the order in which they were made; the last one counts.
    pub attempts: Vec<Attempt>,
}

/// One start of aiperf.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Attempt {
    /// Below the run's folder: `attempt-1`.
    pub folder: String,
    #[schemars(with = "String")]
    pub started: Timestamp,
    #[schemars(with = "String")]
    pub ended: Timestamp,
    /// How aiperf ended: `exit code 0`, `stopped after 660 s without a new record`.
    pub end: String,
    pub aiperf_version: String,
    /// None: there was nothing to work them out from.
    pub numbers: Option<Numbers>,
    pub checks: Vec<Check>,
}

impl Attempt {
    /// Can the numbers be trusted?
    pub fn valid(&self) -> bool {
        self.numbers.is_some() && self.checks.iter().all(|check| check.passed)
    }

    /// The checks that failed, in words.
    pub fn objections(&self) -> Vec<String> {
        self.checks.iter().filter(|check| !check.passed).map(|check| format!("{}: {}", check.name, check.says)).collect()
    }

    /// Reads what an ended aiperf left in its folder. Never an error: what is missing or unreadable is a failed check.
    pub fn judge(plan: &Plan, folder: &Path, started: Timestamp, ended: Timestamp, end: String) -> Self {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let launched_ns = u64::try_from(started.as_nanosecond()).unwrap_or(0);
        let (aiperf_version, numbers, checks) = match read(plan, folder, launched_ns) {
            Ok((version, numbers, checks)) => (version, Some(numbers), checks),
            Err(error) => (String::new(), None, vec![check("files", false, Failure::of(None, &error).message)]),
        };
        Self { folder: name, started, ended, end, aiperf_version, numbers, checks }
    }
}

fn read(plan: &Plan, folder: &Path, launched_ns: u64) -> anyhow::Result<(String, Numbers, Vec<Check>)> {
    let records = records::read(&folder.join("profile_export.jsonl"))?;
    let summary = summary::read(folder, &records.profiling)?;
    let asked = Asked { concurrency: plan.load.concurrency, output_tokens: plan.load.osl };
    let numbers = stats::numbers(&records.profiling, asked, summary.seconds);
    let checks = checks(&plan.load, launched_ns, &records, &summary, &numbers);
    Ok((summary.version, numbers, checks))
}

impl RunResult {
    /// The attempt that counts.
    pub fn last(&self) -> Option<&Attempt> {
        self.attempts.last()
    }

    /// The numbers, if they can be trusted.
    pub fn numbers(&self) -> Option<&Numbers> {
        self.last().filter(|attempt| attempt.valid())?.numbers.as_ref()
    }
}

impl fmt::Display for RunResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Load { concurrency, requests, isl, osl, .. } = self.load;
        writeln!(f, "{requests} requests, {concurrency} at once, {isl} tokens in, {osl} out")?;
        let Some(attempt) = self.last() else { return writeln!(f, "no attempt was made") };
        if let Some(numbers) = &attempt.numbers {
            table(f, numbers)?;
        }
        if !attempt.valid() {
            writeln!(f, "not valid ({}):", attempt.end)?;
            attempt.objections().iter().try_for_each(|objection| writeln!(f, "  {objection}"))?;
        }
        let aiperf = if attempt.aiperf_version.is_empty() { String::new() } else { format!("; aiperf {}", attempt.aiperf_version) };
        write!(f, "kept in {}/{} on the shared volume{aiperf}", self.folder, attempt.folder)
    }
}

fn table(f: &mut fmt::Formatter<'_>, numbers: &Numbers) -> fmt::Result {
    writeln!(f, "{:<34}{:>10}{:>10}{:>10}", "", "p50", "p95", "p99")?;
    let mut row = |name: &str, distribution: &Option<Distribution>| match distribution {
        Some(d) => writeln!(f, "{name:<34}{:>10.1}{:>10.1}{:>10.1}", d.p50, d.p95, d.p99),
        None => writeln!(f, "{name:<34}{:>10}{:>10}{:>10}", "-", "-", "-"),
    };
    row("TTFT, ms", &numbers.ttft_ms)?;
    row("TTFT without the first wave, ms", &numbers.ttft_ms_after_first_wave)?;
    row("ITL, ms", &numbers.itl_ms)?;
    row("whole answer, ms", &numbers.latency_ms)?;
    writeln!(f, "{:<34}{:>10.1} a second", "output tokens", numbers.output_tokens_per_second)?;
    writeln!(f, "{:<34}{:>10.2} a second", "requests", numbers.requests_per_second)?;
    writeln!(f, "{:<34}{:>10}", "failed requests", numbers.failed)?;
    let Some(Stalled { above_ms, requests, rest_output_tokens_per_second, .. }) = &numbers.stalled else { return Ok(()) };
    writeln!(f, "{:<34}{requests:>10} with an ITL above {above_ms:.1} ms; the others had {rest_output_tokens_per_second:.1} output tokens a second", "stalled requests")
}
