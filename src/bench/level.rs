//! Runs that somebody made with aiperf, one load each: found in a folder, read from their records, told what they were asked for.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::records::{self, Outcome, Record};
use super::stats::{self, Asked, Numbers};
use super::{summary, validity};
use crate::error::{Kind, fail};

/// What has to be the same in runs that are compared.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Comparable {
    pub aiperf: String,
    pub model: String,
    /// By the last part of the model's name, as NVIDIA names them: `bf16`, `fp8`, `nvfp4`; none: not known.
    pub precision: Option<String>,
    pub tokenizer: String,
    /// Tokens of a prompt, on average, as asked.
    pub isl: f64,
    /// Tokens of an answer, on average, as asked.
    pub osl: f64,
    pub streaming: bool,
}

impl fmt::Display for Comparable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { aiperf, model, precision, tokenizer, isl, osl, streaming } = self;
        write!(f, "{model}")?;
        if let Some(precision) = precision {
            write!(f, " ({precision})")?;
        }
        write!(f, ", {isl} tokens in, {osl} out, {}, tokenizer {tokenizer}, aiperf {aiperf}", if *streaming { "streaming" } else { "not streaming" })
    }
}

/// `nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4` is nvfp4.
fn precision(model: &str) -> Option<String> {
    let last = model.rsplit(['-', '/', '_']).next()?.to_ascii_lowercase();
    ["bf16", "fp16", "fp8", "nvfp4", "mxfp4", "fp4", "int8", "int4"].contains(&last.as_str()).then_some(last)
}

/// One run: one load.
#[derive(Debug, Clone)]
pub struct Level {
    pub folder: PathBuf,
    pub comparable: Comparable,
    pub concurrency: u32,
    pub numbers: Numbers,
    /// Milliseconds, sorted; a request that failed is infinite, since for who sent it it never came.
    pub ttft_ms: Vec<f64>,
    /// As TTFT; empty where tokens did not arrive one after the other.
    pub itl_ms: Vec<f64>,
    pub latency_ms: Vec<f64>,
    /// The requests themselves, as they ended.
    pub requests: Vec<Record>,
    /// Why its numbers are not to be trusted: a cut file, two runs in one folder, a run that was stopped.
    pub objections: Vec<String>,
}

/// Reads every run in the folder or below it, by rising concurrency.
pub fn read(folder: &Path) -> anyhow::Result<Vec<Level>> {
    if !folder.exists() {
        let hint = "name the folder that aiperf was given as --artifact-dir, or one above several of them";
        return Err(fail(Kind::LocalIo, format!("{}: there is no such folder", folder.display())).hint(hint).into());
    }
    let mut folders = Vec::new();
    find(folder, &mut folders)?;
    if folders.is_empty() {
        return Err(fail(Kind::Usage, format!("{}: no run of aiperf in it or below it (profile_export.jsonl)", folder.display()))
            .hint("name the folder that aiperf was given as --artifact-dir, or one above several of them")
            .into());
    }
    let mut levels = folders.iter().map(|folder| one(folder)).collect::<anyhow::Result<Vec<_>>>()?;
    levels.sort_by_key(|level| level.concurrency);
    Ok(levels)
}

fn find(folder: &Path, found: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    if folder.join("profile_export.jsonl").exists() {
        found.push(folder.to_owned());
        return Ok(());
    }
    let entries = std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    let mut below = Vec::new();
    for entry in entries {
        let entry = entry.with_context(|| format!("reading {}", folder.display()))?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            below.push(entry.path());
        }
    }
    below.sort();
    below.iter().try_for_each(|path| find(path, found))
}

/// `input_config` of the summary, as far as it is used.
#[derive(Deserialize)]
struct InputConfig {
    models: Items,
    endpoint: Endpoint,
    datasets: Vec<Dataset>,
    phases: Vec<Phase>,
    tokenizer: Name,
}

#[derive(Deserialize)]
struct Items {
    items: Vec<Name>,
}

#[derive(Deserialize)]
struct Name {
    name: String,
}

#[derive(Deserialize)]
struct Endpoint {
    #[serde(default)]
    streaming: bool,
}

#[derive(Deserialize)]
struct Dataset {
    prompts: Prompts,
}

#[derive(Deserialize)]
struct Prompts {
    isl: Tokens,
    osl: Tokens,
}

#[derive(Deserialize)]
struct Tokens {
    mean: f64,
}

#[derive(Deserialize)]
struct Phase {
    name: String,
    concurrency: Option<u32>,
}

fn one(folder: &Path) -> anyhow::Result<Level> {
    let records = records::read(&folder.join("profile_export.jsonl"))?;
    let summary = summary::read(folder, &records.profiling)?;
    let file = folder.join("profile_export_aiperf.json");
    let wrong = |why: String| fail(Kind::Verification, format!("{}: input_config: {why}", file.display()));
    let config: InputConfig = summary.input_config().map_err(|error| wrong(error.to_string()))?;
    let phase = config.phases.iter().find(|phase| phase.name == "profiling").ok_or_else(|| wrong("no phase profiling".into()))?;
    let concurrency = phase.concurrency.ok_or_else(|| wrong("the load was no number of requests at once (concurrency)".into()).hint("aiperf profile --concurrency N"))?;
    let (model, dataset) = config.models.items.first().zip(config.datasets.first()).ok_or_else(|| wrong("no model or no dataset".into()))?;
    let comparable = Comparable {
        aiperf: summary.version.clone(),
        model: model.name.clone(),
        precision: precision(&model.name),
        tokenizer: config.tokenizer.name.clone(),
        isl: dataset.prompts.isl.mean,
        osl: dataset.prompts.osl.mean,
        streaming: config.endpoint.streaming,
    };
    let numbers = stats::numbers(&records.profiling, Asked { concurrency, output_tokens: comparable.osl as u32 }, summary.seconds);
    let checks = validity::found(concurrency, &records, &summary, &numbers);
    let of = |value: fn(&records::Measured) -> Option<f64>| sorted(&records.profiling, value);
    Ok(Level {
        folder: folder.to_owned(),
        comparable,
        concurrency,
        ttft_ms: of(|m| m.ttft_ms),
        itl_ms: if numbers.streamed { of(|m| m.itl_ms) } else { Vec::new() },
        latency_ms: of(|m| Some(m.latency_ms)),
        numbers,
        objections: checks.into_iter().filter(|check| !check.passed).map(|check| format!("{}: {}", check.name, shortened(&check.says))).collect(),
        requests: records.profiling,
    })
}

/// A cut file disagrees with its summary in fifty numbers; the first two tell.
fn shortened(says: &str) -> String {
    let all: Vec<&str> = says.split("; ").collect();
    if all.len() <= 3 { says.to_owned() } else { format!("{}; and {} more", all[..2].join("; "), all.len() - 2) }
}

fn sorted(records: &[Record], value: fn(&records::Measured) -> Option<f64>) -> Vec<f64> {
    let mut values: Vec<f64> = records
        .iter()
        .filter_map(|record| match &record.outcome {
            Outcome::Answered(measured) => value(measured),
            Outcome::Failed { .. } => Some(f64::INFINITY),
        })
        .collect();
    values.sort_unstable_by(f64::total_cmp);
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_not_there_is_told_with_what_to_do() {
        let failure = crate::error::Failure::from(read(Path::new("/nowhere/artifacts")).unwrap_err());
        assert_eq!((failure.kind, failure.message.as_str()), (Kind::LocalIo, "/nowhere/artifacts: there is no such folder"));
        assert!(failure.hints.concat().contains("aiperf"));
    }

    #[test]
    fn a_precision_is_known_by_the_end_of_the_name() {
        for (model, want) in [
            ("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4", Some("nvfp4")),
            ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", Some("bf16")),
            ("nvidia/nemotron-mock", None),
            ("", None),
        ] {
            assert_eq!(precision(model).as_deref(), want, "{model}");
        }
    }
    #[test]
    fn a_cut_file_is_never_taken_for_a_whole_one() {
        let run = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/aiperf/sweeps/agg-0.13.0/concurrency_1__requests_24");
        let copy = tempfile::tempdir().unwrap();
        for name in ["profile_export_aiperf.json", "phase_manifest.json"] {
            std::fs::copy(run.join(name), copy.path().join(name)).unwrap();
        }
        let whole = std::fs::read(run.join("profile_export.jsonl")).unwrap();
        let cut = |bytes: usize| {
            std::fs::write(copy.path().join("profile_export.jsonl"), &whole[..bytes]).unwrap();
            read(copy.path())
        };
        assert_eq!(cut(whole.len()).unwrap()[0].objections, [""; 0]);
        assert_eq!(cut(whole.len() - 1).unwrap()[0].objections, [""; 0], "all but the last newline is there");
        for bytes in (0..whole.len() - 1).step_by(4999) {
            let levels = cut(bytes).unwrap_or_else(|error| panic!("{bytes}: {error:#}"));
            assert!(!levels[0].objections.is_empty(), "{bytes} of {}", whole.len());
            assert!(levels[0].numbers.answered < 24);
        }
    }
}
