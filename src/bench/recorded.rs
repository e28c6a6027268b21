//! Tests against runs that the real aiperf recorded (`tests/fixtures/aiperf`), and against the same runs spoiled.

use std::fs;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::plan::{Limits, Load, Plan, Served};
use super::result::Attempt;

fn recorded(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/aiperf").join(name)
}

fn plan(concurrency: u32, requests: u32) -> Plan {
    Plan {
        run: "r".into(),
        url: "http://frontend:8000".into(),
        model: "m".into(),
        tokenizer: "/models/m".into(),
        shared: "/shared".into(),
        load: Load { concurrency, requests, warmup: 4, isl: 200, osl: 48, seed: 42 },
        limits: Limits::default(),
        gpu_telemetry: vec![],
        served: Served::default(),
    }
}

fn judge(folder: &Path, concurrency: u32, requests: u32) -> Attempt {
    Attempt::judge(&plan(concurrency, requests), folder, Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH, "exit code 0".into())
}

/// A copy of the recorded 0.13.0 run, with one of its files changed.
fn spoiled(file: &str, spoil: impl FnOnce(String) -> String) -> (tempfile::TempDir, Attempt) {
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(recorded("0.13.0")).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    let path = copy.path().join(file);
    fs::write(&path, spoil(fs::read_to_string(&path).unwrap())).unwrap();
    let attempt = judge(copy.path(), 8, 48);
    (copy, attempt)
}

fn failed(attempt: &Attempt) -> Vec<&str> {
    attempt.checks.iter().filter(|check| !check.passed).map(|check| check.name.as_str()).collect()
}

#[test]
fn numbers_are_the_true_values() {
    for (name, version, concurrency, requests, want) in [
        ("0.9.0", "0.9.0", 4, 24, [44.7, 75.5, 12.46, 12.87, 298.7]),
        ("0.13.0", "0.13.0", 8, 48, [44.0, 174.9, 15.11, 16.19, 490.1]),
        ("stalled-0.13.0", "0.13.0", 8, 60, [47.2, 160.0, 15.20, 29.38, 159.8]),
    ] {
        let attempt = judge(&recorded(name), concurrency, requests);
        // `cross-check` is among the checks: every statistic equals aiperf's own to 1e-9.
        assert_eq!(attempt.objections(), Vec::<String>::new(), "{name}");
        assert!(attempt.valid());
        assert_eq!(attempt.aiperf_version, version);
        let n = attempt.numbers.unwrap();
        let (ttft, itl) = (n.ttft_ms.unwrap(), n.itl_ms.unwrap());
        let got = [ttft.p50, ttft.p95, itl.p50, itl.p95, n.output_tokens_per_second];
        for ((got, want), digits) in got.iter().zip(want).zip([0.05, 0.05, 0.005, 0.005, 0.05]) {
            assert!((got - want).abs() <= digits * 1.001, "{name}: {got} is not {want}");
        }
        assert_eq!((n.answered, n.failed, n.short, n.in_flight), (u64::from(requests), 0, 0, u64::from(concurrency)), "{name}");
    }
}

#[test]
fn the_opening_burst_is_told_apart() {
    let n = judge(&recorded("0.13.0"), 8, 48).numbers.unwrap();
    let (all, steady) = (n.ttft_ms.unwrap(), n.ttft_ms_after_first_wave.unwrap());
    assert_eq!(steady.count, 40);
    assert!(steady.p95 < all.p95 / 1.5, "{} {}", steady.p95, all.p95);
}

#[test]
fn a_stalled_tail_is_told_apart() {
    let n = judge(&recorded("stalled-0.13.0"), 8, 60).numbers.unwrap();
    let (stalled, itl) = (n.stalled.unwrap(), n.itl_ms.unwrap());
    // Three of sixty stopped for twelve seconds: 27.7 ms on average with them, and a third of the healthy run's 488 tokens a second.
    assert_eq!((stalled.requests, stalled.rest_itl_ms.as_ref().unwrap().count), (3, 57));
    assert!((itl.avg - 27.7).abs() < 0.1 && stalled.rest_itl_ms.as_ref().unwrap().avg < 16.0, "{stalled:?}");
    assert!(n.output_tokens_per_second < 160.0 && stalled.rest_output_tokens_per_second > 450.0, "{stalled:?}");
    for healthy in ["0.9.0", "0.13.0"] {
        assert_eq!(judge(&recorded(healthy), 8, 48).numbers.unwrap().stalled, None);
    }
}

#[test]
fn what_was_not_as_asked_is_named() {
    let folder = recorded("0.13.0");
    assert_eq!(failed(&judge(&folder, 8, 60)), ["count"]);
    assert_eq!(failed(&judge(&folder, 16, 48)), ["concurrency"]);
    let mut asked = plan(8, 48);
    asked.load.osl = 64;
    asked.load.isl = 512;
    let later = "2026-12-01T00:00:00Z".parse().unwrap();
    let attempt = Attempt::judge(&asked, &folder, later, later, String::new());
    assert_eq!(failed(&attempt), ["fresh", "output-length", "input-length"]);
}

#[test]
fn a_folder_of_two_runs_is_found_out() {
    let (_copy, attempt) = spoiled("profile_export.jsonl", |text| text.replacen(r#""time_to_first_token":{"value":2"#, r#""time_to_first_token":{"value":3"#, 1));
    assert_eq!(failed(&attempt), ["cross-check"]);
    assert!(attempt.objections()[0].contains("time_to_first_token avg: "), "{:?}", attempt.objections());
}

#[test]
fn cut_and_cancelled_runs_are_not_valid() {
    let (_copy, cut) = spoiled("profile_export.jsonl", |text| text[..text.len() - 40].to_owned());
    assert!(failed(&cut).starts_with(&["whole", "count"]) && !cut.valid(), "{:?}", failed(&cut));
    let (_copy, cancelled) = spoiled("profile_export_aiperf.json", |text| text.replacen("\"was_cancelled\": false", "\"was_cancelled\": true", 1));
    assert_eq!(failed(&cancelled), ["not-cancelled"]);
    let (_copy, unknown) = spoiled("profile_export_aiperf.json", |text| text.replacen("\"0.13.0\"", "\"0.14.0\"", 1));
    assert_eq!(failed(&unknown), ["version"]);
}

#[test]
fn bad_files_are_named_with_their_line() {
    for (file, text, words) in [
        ("profile_export.jsonl", "<html>\n", "profile_export.jsonl, line 1: not a record of aiperf"),
        ("profile_export_aiperf.json", "{\"aiperf_version\":\n", "profile_export_aiperf.json, line 2: not as aiperf writes it"),
        ("profile_export_aiperf.json", "{}", "profile_export_aiperf.json, line 1: not as aiperf writes it: missing field `aiperf_version`"),
        ("phase_manifest.json", "[1]", "phase_manifest.json, line 1: not as aiperf writes it"),
    ] {
        let (_copy, attempt) = spoiled(file, |_| text.to_owned());
        assert!(!attempt.valid() && attempt.numbers.is_none());
        assert!(attempt.objections()[0].contains(words), "{:?}", attempt.objections());
    }
    let empty = tempfile::tempdir().unwrap();
    assert!(judge(empty.path(), 8, 48).objections()[0].contains("profile_export.jsonl is not there"));
}
