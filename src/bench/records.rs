//! Reads `profile_export.jsonl`: one line per finished request, in order of completion, as aiperf 0.9.0 and 0.13.0 write it.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::Context;
use serde::Deserialize;

use crate::error::{Kind, fail};

/// One finished request of the phase that is measured. Times in nanoseconds since the Unix epoch.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    pub start_ns: u64,
    pub end_ns: u64,
    /// When the load generator meant to send it.
    pub issued_ns: Option<u64>,
    pub outcome: Outcome,
}

/// How a request ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    Answered(Measured),
    Failed {
        /// HTTP status, where there was one: a timeout or a cut connection has none.
        code: Option<i64>,
        message: String,
        cancelled: bool,
    },
}

/// What aiperf measured of a request that was answered: milliseconds and tokens.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Measured {
    pub latency_ms: f64,
    /// To the first token of any kind; a reasoning model's first token is a reasoning token.
    pub ttft_ms: Option<f64>,
    /// To the first token of the answer itself.
    pub first_answer_ms: Option<f64>,
    /// (latency − TTFT) / (output tokens − 1): one value a request.
    pub itl_ms: Option<f64>,
    pub input_tokens: Option<f64>,
    pub output_tokens: Option<f64>,
    /// Output tokens as the server counted them, where it said so.
    pub usage_output_tokens: Option<f64>,
    pub chunks: Option<f64>,
}

/// All that a file of records says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Records {
    pub profiling: Vec<Record>,
    /// Requests of the warm-up, which count for nothing (0.9.0 leaves them out of the file).
    pub warmup: u64,
    /// The last line is cut: the writer was killed.
    pub torn: bool,
}

#[derive(Deserialize)]
struct Line {
    metadata: Metadata,
    #[serde(default)]
    metrics: Metrics,
    error: Option<ErrorDetails>,
}

#[derive(Deserialize)]
struct Metadata {
    benchmark_phase: String,
    request_start_ns: u64,
    request_end_ns: u64,
    credit_issued_ns: Option<u64>,
    #[serde(default)]
    was_cancelled: bool,
}

/// Only what is used; the rest, above all the long array `inter_chunk_latency`, is skipped while parsing.
#[derive(Deserialize, Default)]
struct Metrics {
    request_latency: Option<Metric>,
    time_to_first_token: Option<Metric>,
    time_to_first_output_token: Option<Metric>,
    inter_token_latency: Option<Metric>,
    input_sequence_length: Option<Metric>,
    output_sequence_length: Option<Metric>,
    usage_completion_tokens: Option<Metric>,
    http_req_chunks_received: Option<Metric>,
}

#[derive(Deserialize)]
struct Metric {
    value: f64,
}

#[derive(Deserialize)]
struct ErrorDetails {
    code: Option<i64>,
    #[serde(rename = "type")]
    kind: Option<String>,
    message: Option<String>,
}

/// Reads the file line by line: 20,000 requests are 50 MB. Only a last line without its newline may be cut.
pub fn read(path: &Path) -> anyhow::Result<Records> {
    let file = File::open(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => anyhow::Error::new(
            fail(Kind::Verification, format!("{} is not there: no request finished, or aiperf was stopped before it wrote anything", path.display()))
                .hint("look into the log beside it: logs/aiperf.log, aiperf-output.log"),
        ),
        _ => anyhow::Error::new(e).context(format!("reading {}", path.display())),
    })?;
    read_from(BufReader::new(file), &path.display().to_string())
}

fn read_from(mut input: impl BufRead, name: &str) -> anyhow::Result<Records> {
    let mut records = Records::default();
    // Bytes, since a cut may go through the middle of a character.
    let mut line = Vec::new();
    for number in 1_u64.. {
        line.clear();
        if input.read_until(b'\n', &mut line).with_context(|| format!("reading {name}, line {number}"))? == 0 {
            break;
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        match serde_json::from_slice::<Line>(&line) {
            Ok(parsed) => records.take(parsed, name, number)?,
            Err(e) if !line.ends_with(b"\n") && cut(&line, &e) => records.torn = true,
            Err(e) => return Err(fail(Kind::Verification, format!("{name}, line {number}: not a record of aiperf: {e}")).into()),
        }
    }
    Ok(records)
}

/// Does the line end where it could have gone on? After `1.` or `1e` a number is wrong only because it ends.
fn cut(line: &[u8], error: &serde_json::Error) -> bool {
    error.is_eof() || (error.is_syntax() && error.column() >= line.len()) || std::str::from_utf8(line).is_err()
}

impl Records {
    fn take(&mut self, line: Line, name: &str, number: u64) -> anyhow::Result<()> {
        match line.metadata.benchmark_phase.as_str() {
            "warmup" => self.warmup += 1,
            "profiling" => self.profiling.push(line.into_record(name, number)?),
            other => return Err(fail(Kind::Verification, format!("{name}, line {number}: phase {other:?} is not known; known are warmup and profiling")).into()),
        }
        Ok(())
    }
}

impl Line {
    fn into_record(self, name: &str, number: u64) -> anyhow::Result<Record> {
        let Self { metadata, metrics, error } = self;
        let value = |metric: Option<Metric>| metric.map(|metric| metric.value);
        let outcome = match (error, metrics.request_latency) {
            (Some(error), _) => {
                Outcome::Failed { code: error.code, message: [error.kind, error.message].into_iter().flatten().collect::<Vec<_>>().join(": "), cancelled: metadata.was_cancelled }
            }
            (None, Some(latency)) => Outcome::Answered(Measured {
                latency_ms: latency.value,
                ttft_ms: value(metrics.time_to_first_token),
                first_answer_ms: value(metrics.time_to_first_output_token),
                itl_ms: value(metrics.inter_token_latency),
                input_tokens: value(metrics.input_sequence_length),
                output_tokens: value(metrics.output_sequence_length),
                usage_output_tokens: value(metrics.usage_completion_tokens),
                chunks: value(metrics.http_req_chunks_received),
            }),
            (None, None) => return Err(fail(Kind::Verification, format!("{name}, line {number}: neither an error nor a request_latency")).into()),
        };
        Ok(Record { start_ns: metadata.request_start_ns, end_ns: metadata.request_end_ns, issued_ns: metadata.credit_issued_ns, outcome })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWERED: &str = r#"{"metadata":{"benchmark_phase":"profiling","request_start_ns":10,"request_end_ns":20,"new_key":{"a":[1]}},"metrics":{"request_latency":{"value":58.3,"unit":"ms"},"inter_chunk_latency":{"value":[1.0,2.0],"unit":"ms"},"something_new":{"value":"x"}}}"#;
    const FAILED: &str = r#"{"metadata":{"benchmark_phase":"profiling","request_start_ns":10,"request_end_ns":10,"was_cancelled":true},"metrics":{"error_isl":{"value":50}},"error":{"type":"RequestCancellationError","message":"cut"}}"#;
    const WARMUP: &str = r#"{"metadata":{"benchmark_phase":"warmup","request_start_ns":1,"request_end_ns":2},"metrics":{"request_latency":{"value":1.0,"unit":"ms"}}}"#;

    fn parse(text: &str) -> anyhow::Result<Records> {
        read_from(text.as_bytes(), "run/profile_export.jsonl")
    }

    #[test]
    fn warmup_is_left_out_and_unknown_keys_are_no_error() {
        let records = parse(&format!("{WARMUP}\n{ANSWERED}\n\n{FAILED}\n")).unwrap();
        assert_eq!((records.warmup, records.profiling.len(), records.torn), (1, 2, false));
        assert!(matches!(&records.profiling[0].outcome, Outcome::Answered(m) if m.latency_ms == 58.3 && m.ttft_ms.is_none()));
        assert_eq!(records.profiling[1].outcome, Outcome::Failed { code: None, message: "RequestCancellationError: cut".into(), cancelled: true });
    }

    #[test]
    fn only_the_last_line_may_be_cut() {
        let cut = &ANSWERED[..90];
        let records = parse(&format!("{ANSWERED}\n{cut}")).unwrap();
        assert_eq!((records.profiling.len(), records.torn), (1, true));
        let (umlaut, whole) = (FAILED.replace("cut", "schön"), "schön".len());
        let end = umlaut.find("schön").unwrap() + whole - 2;
        assert!(read_from(&umlaut.as_bytes()[..end], "r").unwrap().torn, "cut in the middle of a character");
        assert!(!parse(ANSWERED).unwrap().torn, "a whole line without its newline is whole");
        for text in [format!("{cut}\n{ANSWERED}\n"), format!("{ANSWERED}\n{cut}\n")] {
            let error = parse(&text).unwrap_err().to_string();
            assert!(error.starts_with("run/profile_export.jsonl, line ") && error.contains("not a record of aiperf: "), "{error}");
        }
    }

    #[test]
    fn a_record_cut_at_any_byte_is_cut() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/aiperf/0.13.0/profile_export.jsonl");
        let text = std::fs::read_to_string(path).unwrap();
        let line = text.lines().last().unwrap();
        for bytes in 1..line.len() {
            let records = read_from(&line.as_bytes()[..bytes], "r").unwrap_or_else(|error| panic!("{bytes}: {error}"));
            assert!(records.torn && records.profiling.is_empty(), "{bytes}");
        }
    }

    #[test]
    fn what_is_no_record_is_named_with_its_line() {
        for (text, words) in [
            (format!("{ANSWERED}\n<html>no</html>\n"), "line 2: not a record of aiperf: expected value"),
            (r#"{"metadata":{"benchmark_phase":"profiling","request_start_ns":1,"request_end_ns":2},"metrics":{}}"#.to_owned(), "line 1: neither an error nor a request_latency"),
            (WARMUP.replace("warmup", "cooldown"), r#"line 1: phase "cooldown" is not known"#),
            (r#"{"metrics":{}}"#.to_owned(), "line 1: not a record of aiperf: missing field `metadata`"),
        ] {
            let error = parse(&text).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        let error = read(Path::new("/nowhere/profile_export.jsonl")).unwrap_err();
        assert_eq!(crate::error::Failure::of(None, &error).kind, Kind::Verification);
    }
}
