//! Reads what aiperf says of a whole run (`profile_export_aiperf.json`, `phase_manifest.json`) and holds it against the records.

use std::fs;
use std::path::Path;

use jiff::civil::DateTime;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::records::Record;
use super::stats::{Distribution, Numbers, answered_seconds};
use crate::error::{Kind, fail};

/// The versions whose files were read and checked, with what they divide throughputs by.
pub const KNOWN_VERSIONS: [&str; 2] = ["0.9.0", "0.13.0"];

/// Records and summary agree exactly, but for the rounding of sums.
const TOLERANCE: f64 = 1e-9;

/// `profile_export_aiperf.json` with the length of the phase.
#[derive(Debug, Clone)]
pub struct Summary {
    pub version: String,
    pub was_cancelled: bool,
    /// 0.13.0 says so; 0.9.0 does not.
    pub is_complete: Option<bool>,
    /// Of the measured phase: as throughputs are divided by, with the share by which it may be off.
    pub seconds: f64,
    precision: f64,
    /// Everything else of the file. Any statistic may be absent: not measured, or not finite.
    metrics: Map<String, Value>,
}

#[derive(Deserialize)]
struct File {
    aiperf_version: String,
    was_cancelled: bool,
    is_complete: Option<bool>,
    start_time: DateTime,
    end_time: DateTime,
    #[serde(flatten)]
    metrics: Map<String, Value>,
}

#[derive(Deserialize)]
struct Manifest {
    phases: Vec<Phase>,
}

#[derive(Deserialize)]
struct Phase {
    phase_kind: String,
    start_ns: u64,
    /// Absent when the phase was cut short.
    end_ns: Option<u64>,
}

/// Reads a run's folder.
pub fn read(folder: &Path, records: &[Record]) -> anyhow::Result<Summary> {
    let path = folder.join("profile_export_aiperf.json");
    let file: File = json(&path)?.ok_or_else(|| {
        fail(Kind::Verification, format!("{} is not there: aiperf writes it only at a regular end with at least one answer", path.display()))
            .hint("look into the log beside it: logs/aiperf.log, aiperf-output.log")
    })?;
    let (seconds, precision) = length(folder, &file, records)?;
    if seconds.is_nan() || seconds <= 0.0 {
        return Err(fail(Kind::Verification, format!("{}: the measured phase has no length", path.display())).into());
    }
    let File { aiperf_version: version, was_cancelled, is_complete, metrics, .. } = file;
    Ok(Summary { version, was_cancelled, is_complete, seconds, precision, metrics })
}

/// The length of the phase that throughputs are divided by. 0.9.0 takes the answered requests; 0.13.0 the whole phase, which the manifest
/// has in nanoseconds (there is one when there was a warm-up) and the summary in microseconds.
fn length(folder: &Path, file: &File, records: &[Record]) -> anyhow::Result<(f64, f64)> {
    if file.aiperf_version == "0.9.0" {
        return Ok((answered_seconds(records).unwrap_or(0.0), TOLERANCE));
    }
    let manifest: Option<Manifest> = json(&folder.join("phase_manifest.json"))?;
    let measured = manifest.iter().flat_map(|manifest| &manifest.phases).find(|phase| phase.phase_kind == "profiling");
    if let Some(Phase { start_ns, end_ns: Some(end_ns), .. }) = measured {
        return Ok((end_ns.saturating_sub(*start_ns) as f64 / 1e9, TOLERANCE));
    }
    let seconds = file.end_time.duration_since(file.start_time).as_secs_f64();
    Ok((seconds, 2e-6 / seconds))
}

fn json<T: DeserializeOwned>(path: &Path) -> anyhow::Result<Option<T>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(anyhow::Error::new(e).context(format!("reading {}", path.display()))),
    };
    serde_json::from_str(&text).map(Some).map_err(|e| fail(Kind::Verification, format!("{}, line {}: not as aiperf writes it: {e}", path.display(), e.line())).into())
}

impl Summary {
    /// A statistic of a metric: `get("time_to_first_token", "p95")`. Never looks into `warmup_metrics`, a copy of everything.
    pub fn get(&self, metric: &str, statistic: &str) -> Option<f64> {
        self.metrics.get(metric)?.get(statistic)?.as_f64()
    }

    /// What the run was asked for, as aiperf repeats it.
    pub fn input_config<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        T::deserialize(self.metrics.get("input_config").unwrap_or(&Value::Null))
    }

    /// Is this a version whose files we know?
    pub fn version_known(&self) -> bool {
        KNOWN_VERSIONS.contains(&self.version.as_str())
    }

    /// Where summary and records disagree, in words; empty when they are of the same run.
    pub fn disagreements(&self, numbers: &Numbers) -> Vec<String> {
        let mut found = Vec::new();
        let mut compare = |metric: &str, statistic: &str, ours: f64, tolerance: f64| {
            // No failure: the metric is not there at all.
            let theirs = self.get(metric, statistic).or((metric == "error_request_count").then_some(0.0));
            match theirs {
                Some(theirs) if (ours - theirs).abs() <= tolerance * theirs.abs().max(1.0) => {}
                Some(theirs) => found.push(format!("{metric} {statistic}: {ours} by the records, {theirs} in the summary")),
                None => found.push(format!("{metric} {statistic}: {ours} by the records, absent in the summary")),
            }
        };
        compare("request_count", "avg", numbers.answered as f64, 0.0);
        compare("error_request_count", "avg", numbers.failed as f64, 0.0);
        compare("output_token_throughput", "avg", numbers.output_tokens_per_second, self.precision);
        compare("request_throughput", "avg", numbers.requests_per_second, self.precision);
        for (metric, ours) in [
            ("time_to_first_token", &numbers.ttft_ms),
            ("inter_token_latency", &numbers.itl_ms),
            ("request_latency", &numbers.latency_ms),
            ("input_sequence_length", &numbers.input_tokens),
            ("output_sequence_length", &numbers.output_tokens),
        ] {
            let Some(Distribution { count, avg, std, min, max, p50, p90, p95, p99 }) = ours else { continue };
            for (statistic, ours) in
                [("count", *count as f64), ("avg", *avg), ("std", *std), ("min", *min), ("max", *max), ("p50", *p50), ("p90", *p90), ("p95", *p95), ("p99", *p99)]
            {
                compare(metric, statistic, ours, TOLERANCE);
            }
        }
        found
    }
}
