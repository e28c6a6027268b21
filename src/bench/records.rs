//! Reads `profile_export.jsonl`: one line per finished request, in order of completion, as aiperf 0.9.0 and 0.13.0 write it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{io, thread};

use anyhow::Context;
use serde::Deserialize;

use super::scan;
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

/// So much of a file is read at once: a million requests are three gigabytes.
const BLOCK: u64 = 2 << 20;

/// Reads the file, spread over the machine's cores. Only a last line without its newline may be cut.
pub fn read(path: &Path) -> anyhow::Result<Records> {
    let name = path.display();
    let file = File::open(path).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => anyhow::Error::new(
            fail(Kind::Verification, format!("{name} is not there: no request finished, or aiperf was stopped before it wrote anything"))
                .hint("look into the log beside it: logs/aiperf.log, aiperf-output.log"),
        ),
        _ => anyhow::Error::new(e).context(format!("reading {name}")),
    })?;
    let length = file.metadata().with_context(|| format!("reading {name}"))?.len();
    read_from(&|bytes, at| file.read_at(bytes, at), length, BLOCK, &name.to_string())
}

/// Fills bytes from a place on, as far as there are any.
type ReadAt<'a> = &'a (dyn Fn(&mut [u8], u64) -> io::Result<usize> + Sync);

fn read_from(source: ReadAt<'_>, length: u64, block: u64, name: &str) -> anyhow::Result<Records> {
    let (blocks, next) = (length.div_ceil(block), AtomicU64::new(0));
    let work = || {
        let mut parts = Vec::new();
        let mut bytes = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= blocks {
                return Ok(parts);
            }
            lines_of(source, at * block, block, length, &mut bytes)?;
            parts.push((at, Part::read(&bytes)));
        }
    };
    let threads = thread::available_parallelism().map_or(1, |cores| cores.get() as u64).min(blocks).max(1);
    let parts: io::Result<Vec<_>> = match threads {
        1 => work(),
        _ => thread::scope(|scope| {
            let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            let done: io::Result<Vec<_>> = running.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect();
            done.map(|parts| parts.into_iter().flatten().collect())
        }),
    };
    let mut parts = parts.with_context(|| format!("reading {name}"))?;
    parts.sort_by_key(|(at, _)| *at);
    let mut records = Records { profiling: Vec::with_capacity(parts.iter().map(|(_, part)| part.records.profiling.len()).sum()), ..Records::default() };
    let mut lines = 0;
    for (_, part) in parts {
        if let Some((line, why)) = part.wrong {
            return Err(fail(Kind::Verification, format!("{name}, line {}: {why}", lines + line)).into());
        }
        lines += part.lines;
        records.profiling.extend(part.records.profiling);
        records.warmup += part.records.warmup;
        records.torn |= part.records.torn;
    }
    Ok(records)
}

/// The lines that begin in the block at this place: the last one may end behind it.
fn lines_of(source: ReadAt<'_>, start: u64, block: u64, length: u64, bytes: &mut Vec<u8>) -> io::Result<()> {
    // A line begins behind a newline, which may be the last byte of the block before.
    let from = start.saturating_sub(1);
    let end = (start + block).min(length);
    bytes.clear();
    fill(source, from, end, bytes)?;
    let begins = if start == 0 { 0 } else { bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1) };
    if from + begins as u64 >= end {
        bytes.clear();
        return Ok(());
    }
    let mut behind = end;
    while !bytes.ends_with(b"\n") && behind < length {
        let (old, more) = (bytes.len(), (behind + 8192).min(length));
        fill(source, behind, more, bytes)?;
        behind = more;
        if let Some(at) = bytes[old..].iter().position(|byte| *byte == b'\n') {
            bytes.truncate(old + at + 1);
        }
    }
    bytes.drain(..begins);
    Ok(())
}

fn fill(source: ReadAt<'_>, from: u64, end: u64, bytes: &mut Vec<u8>) -> io::Result<()> {
    let (old, wanted) = (bytes.len(), (end - from) as usize);
    bytes.resize(old + wanted, 0);
    let mut got = 0;
    while got < wanted {
        match source(&mut bytes[old + got..], from + got as u64)? {
            0 => break,
            more => got += more,
        }
    }
    // Somebody cut the file meanwhile.
    bytes.truncate(old + got);
    Ok(())
}

/// What some lines say.
#[derive(Default)]
struct Part {
    records: Records,
    lines: u64,
    /// The first line that is none, by its number from 1, and why.
    wrong: Option<(u64, String)>,
}

impl Part {
    fn read(bytes: &[u8]) -> Self {
        let mut part = Self::default();
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            part.lines += 1;
            if line.trim_ascii().is_empty() {
                continue;
            }
            match scan::answered(line) {
                Ok(Some(record)) => part.records.profiling.push(record),
                Ok(None) => part.records.warmup += 1,
                Err(scan::Odd) => {
                    if let Err(why) = part.records.line(line) {
                        part.wrong = Some((part.lines, why));
                        break;
                    }
                }
            }
        }
        part
    }
}

/// Does the line end where it could have gone on? After `1.` or `1e` a number is wrong only because it ends.
fn cut(line: &[u8], error: &serde_json::Error) -> bool {
    error.is_eof() || (error.is_syntax() && error.column() >= line.len()) || std::str::from_utf8(line).is_err()
}

impl Records {
    fn line(&mut self, line: &[u8]) -> Result<(), String> {
        match serde_json::from_slice::<Line>(line) {
            Ok(parsed) => match parsed.metadata.benchmark_phase.as_str() {
                "warmup" => self.warmup += 1,
                "profiling" => self.profiling.push(parsed.into_record()?),
                other => return Err(format!("phase {other:?} is not known; known are warmup and profiling")),
            },
            // Bytes, since a cut may go through the middle of a character.
            Err(e) if !line.ends_with(b"\n") && cut(line, &e) => self.torn = true,
            Err(e) => return Err(format!("not a record of aiperf: {e}")),
        }
        Ok(())
    }
}

impl Line {
    fn into_record(self) -> Result<Record, String> {
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
            (None, None) => return Err("neither an error nor a request_latency".into()),
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
        bytes(text.as_bytes(), BLOCK)
    }

    fn bytes(all: &[u8], block: u64) -> anyhow::Result<Records> {
        let source = |into: &mut [u8], at: u64| {
            let left = &all[at as usize..];
            let most = left.len().min(into.len());
            into[..most].copy_from_slice(&left[..most]);
            Ok(most)
        };
        read_from(&source, all.len() as u64, block, "run/profile_export.jsonl")
    }

    #[test]
    fn a_line_of_spaces_alone_or_between_is_read_like_any_other() {
        let spaces = " ".repeat(1_000_000);
        let text = format!("{spaces}\n{}\n", ANSWERED.replacen(':', &format!(":{spaces}"), 1));
        assert_eq!(parse(&text).unwrap(), parse(&format!("{ANSWERED}\n")).unwrap());
    }

    #[test]
    fn it_is_the_same_in_blocks_of_any_size() {
        let text = format!("{WARMUP}\n{ANSWERED}\n\n{FAILED}\n{}\n{ANSWERED}", ANSWERED.replace("58.3", "60.5"));
        let want = parse(&text).unwrap();
        assert_eq!((want.warmup, want.profiling.len()), (1, 4));
        let wrong = text.replace("60.5", "x");
        for block in 1..text.len() as u64 + 2 {
            assert_eq!(bytes(text.as_bytes(), block).unwrap(), want, "{block}");
            let error = bytes(wrong.as_bytes(), block).unwrap_err().to_string();
            assert!(error.contains("line 5: not a record"), "{block}: {error}");
        }
    }

    /// Without what serde_json's last bit differs in: it reads 30.452458999999998 as 30.452459.
    fn rounded(mut record: Record) -> Record {
        if let Outcome::Answered(measured) = &mut record.outcome {
            let Measured { latency_ms, ttft_ms, first_answer_ms, itl_ms, .. } = measured;
            [Some(latency_ms), ttft_ms.as_mut(), first_answer_ms.as_mut(), itl_ms.as_mut()].into_iter().flatten().for_each(|ms| *ms = (*ms * 1e9).round());
        }
        record
    }

    #[test]
    fn a_line_read_fast_is_what_serde_makes_of_it() {
        for name in ["0.9.0", "0.13.0", "stalled-0.13.0"] {
            let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/aiperf").join(name).join("profile_export.jsonl")).unwrap();
            for line in text.lines() {
                let mut slow = Records::default();
                slow.line(line.as_bytes()).unwrap();
                let fast = scan::answered(line.as_bytes()).unwrap();
                assert_eq!(fast.map(rounded), slow.profiling.pop().map(rounded), "{line}");
            }
        }
        // What is odd is left to serde, which knows all of JSON.
        for (from, to) in
            [("58.3", "58."), ("58.3", ".3"), ("58.3", "058.3"), ("58.3", "\"58\""), ("request_latency", "request\\u005flatency"), ("profiling", "cooldown"), ("[1]", "[\"ü\"]")]
        {
            assert_eq!(scan::answered(ANSWERED.replace(from, to).as_bytes()), Err(scan::Odd), "{to}");
        }
        assert_eq!(scan::answered(FAILED.as_bytes()), Err(scan::Odd));
        for end in 0..ANSWERED.len() {
            assert_eq!(scan::answered(&ANSWERED.as_bytes()[..end]), Err(scan::Odd), "{end}");
        }
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
        assert!(bytes(&umlaut.as_bytes()[..end], BLOCK).unwrap().torn, "cut in the middle of a character");
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
        for end in 1..line.len() {
            let records = bytes(&line.as_bytes()[..end], BLOCK).unwrap_or_else(|error| panic!("{end}: {error}"));
            assert!(records.torn && records.profiling.is_empty(), "{end}");
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
