//! Against sweeps that the real aiperf recorded (`tests/fixtures/aiperf/sweeps`), whose true values are known.

use std::path::{Path, PathBuf};

use super::{Answer, Budget, Deployment, Limit, Target, answer};
use crate::bench::level::{Level, read};
use crate::bench::measure::Metric;

fn sweep(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/aiperf/sweeps").join(name)
}

fn levels(name: &str) -> Vec<Level> {
    let mut levels = read(&sweep(name)).unwrap();
    for level in &mut levels {
        level.folder = level.folder.strip_prefix(sweep("")).unwrap().to_owned();
    }
    levels
}

fn budget(metric: Metric, limit: &str) -> Budget {
    let Limit { statistic, ms } = limit.parse().unwrap();
    Budget { metric, statistic, limit_ms: ms }
}

fn judged(levels: &[Level], budgets: &[Budget], target: Option<(Target, f64)>) -> Answer {
    let deployment = Deployment { workers: "1 worker".into(), nodes: 1, gpus: 8, instance: "p5en.48xlarge".into(), usd_per_hour: Some(63.296) };
    answer(levels, levels[0].comparable.clone(), budgets, deployment, target)
}

fn of(name: &str, ttft: &str, itl: &str) -> Answer {
    judged(&levels(name), &[budget(Metric::Ttft, ttft), budget(Metric::Itl, itl)], None)
}

#[test]
fn every_level_is_found_with_what_was_asked() {
    for (name, version, ttft, itl) in [
        ("agg-0.9.0", "0.9.0", [35.8, 54.5, 75.5, 171.1, 307.3, 639.8], [10.82, 11.57, 12.87, 15.88, 20.67, 30.81]),
        ("disagg-0.9.0", "0.9.0", [54.2, 55.2, 70.8, 110.1, 180.4, 346.0], [10.18, 10.28, 10.54, 11.34, 12.39, 14.82]),
        ("agg-0.13.0", "0.13.0", [36.0, 58.4, 84.8, 174.9, 344.7, 704.0], [10.89, 11.59, 12.94, 16.19, 20.78, 30.74]),
        ("disagg-0.13.0", "0.13.0", [55.6, 55.2, 76.1, 116.0, 207.1, 361.3], [10.05, 10.32, 10.45, 11.14, 12.31, 14.83]),
    ] {
        let answer = of(name, "p95=200ms", "p95=20ms");
        assert_eq!(answer.levels.iter().map(|row| row.concurrency).collect::<Vec<_>>(), [1, 2, 4, 8, 16, 32], "{name}");
        assert_eq!((answer.comparable.aiperf.as_str(), answer.comparable.isl, answer.comparable.osl, answer.comparable.streaming), (version, 200.0, 48.0, true));
        for (row, (ttft, itl)) in answer.levels.iter().zip(ttft.into_iter().zip(itl)) {
            let got = [row.held[0].measured_ms.unwrap(), row.held[1].measured_ms.unwrap()];
            assert!((got[0] - ttft).abs() <= 0.0501 && (got[1] - itl).abs() <= 0.00501, "{name} at {}: {got:?}", row.concurrency);
        }
    }
}

#[test]
fn the_last_level_within_the_budgets_is_the_true_one() {
    for (name, passing, breaks) in [("agg-0.9.0", 8, Metric::Ttft), ("disagg-0.9.0", 16, Metric::Ttft), ("disagg-0.13.0", 8, Metric::Ttft), ("agg-0.13.0", 8, Metric::Ttft)] {
        let answer = of(name, "p95=200ms", "p95=20ms");
        let (found, broken) = (answer.passing.unwrap(), answer.breaks.unwrap());
        assert_eq!((found.concurrency, broken.at, broken.budget.metric), (passing, passing * 2, breaks), "{name}");
        let interpolated = broken.interpolated_concurrency.unwrap();
        assert!(interpolated > f64::from(passing) && interpolated < f64::from(passing * 2), "{name}: {interpolated}");
        assert_eq!(found.despite, [0; 0]);
    }
}

#[test]
fn two_honest_runs_on_both_sides_of_a_budget_are_both_called_close() {
    for (name, within) in [("disagg-0.9.0", true), ("disagg-0.13.0", false)] {
        let row = of(name, "p95=200ms", "p95=20ms").levels.remove(4);
        assert_eq!((row.concurrency, row.within, row.close), (16, within, true), "{name}: {:?}", row.held);
    }
    // 640 ms is far from 200 in every run.
    assert!(!of("agg-0.9.0", "p95=200ms", "p95=20ms").levels[5].close);
}

#[test]
fn what_breaks_first_says_what_to_scale() {
    let decode = of("agg-0.9.0", "p95=2s", "p95=20ms");
    assert_eq!((decode.passing.unwrap().concurrency, decode.breaks.unwrap().budget.metric), (8, Metric::Itl));
    assert!(decode.scale.unwrap().starts_with("decode"));
    assert!(of("agg-0.9.0", "p95=200ms", "p95=1s").scale.unwrap().starts_with("prefill"));
    let all = of("agg-0.9.0", "p95=2s", "p95=1s");
    assert_eq!((all.passing.unwrap().concurrency, all.breaks, all.scale), (32, None, None));
}

#[test]
fn the_nearest_miss_is_told_with_how_much() {
    let answer = of("disagg-0.9.0", "p50=40ms", "p95=20ms");
    assert_eq!(answer.passing, None);
    let miss = answer.nearest_miss.unwrap();
    assert_eq!((miss.concurrency, miss.budget.metric), (1, Metric::Ttft));
    assert!((miss.over.unwrap() - 0.2463).abs() < 0.0001, "{miss:?}");
}

#[test]
fn a_request_that_failed_never_came() {
    let mut levels = levels("agg-0.9.0");
    levels.truncate(1);
    let failed = levels[0].ttft_ms.len() / 10;
    levels[0].ttft_ms.extend(std::iter::repeat_n(f64::INFINITY, failed));
    let ask = |limit: &str| judged(&levels, &[budget(Metric::Ttft, limit)], None).levels.remove(0).held.remove(0);
    let (half, most) = (ask("p50=200ms"), ask("p95=200ms"));
    assert!(half.within && !most.within && most.measured_ms.is_none(), "{half:?} {most:?}");
}

#[test]
fn an_answer_in_one_piece_holds_no_budget_for_itl() {
    let mut levels = levels("agg-0.9.0");
    levels.iter_mut().for_each(|level| level.itl_ms.clear());
    let answer = judged(&levels, &[budget(Metric::Itl, "p95=1s")], None);
    assert_eq!((answer.passing, answer.nearest_miss.and_then(|miss| miss.measured_ms)), (None, None));
}

#[test]
fn is_told_in_words() {
    let target = Some(("5000tok/s".parse().unwrap(), 0.1));
    insta::assert_snapshot!(judged(&levels("disagg-0.9.0"), &[budget(Metric::Ttft, "p95=200ms"), budget(Metric::Itl, "p95=20ms")], target));
    insta::assert_snapshot!(of("disagg-0.9.0", "p50=40ms", "p99=20ms"));
}

#[test]
fn what_is_no_run_is_named() {
    let empty = tempfile::tempdir().unwrap();
    assert!(read(empty.path()).unwrap_err().to_string().contains("no run of aiperf"));
    let text = std::fs::read_to_string(sweep("agg-0.9.0/concurrency_1/profile_export_aiperf.json")).unwrap();
    std::fs::copy(sweep("agg-0.9.0/concurrency_1/profile_export.jsonl"), empty.path().join("profile_export.jsonl")).unwrap();
    for (from, to, words) in [
        (r#""name": "profiling""#, r#""name": "other""#, "input_config: no phase profiling"),
        (r#""concurrency": 1"#, r#""rate": 1"#, "no number of requests at once"),
        (r#""input_config""#, r#""other""#, "input_config: invalid type: null"),
        (r#""aiperf_version""#, r#""version""#, "not as aiperf writes it"),
    ] {
        assert!(text.contains(from), "{from}");
        std::fs::write(empty.path().join("profile_export_aiperf.json"), text.replace(from, to)).unwrap();
        let error = format!("{:#}", read(empty.path()).unwrap_err());
        assert!(error.contains(words), "{error}");
    }
}
