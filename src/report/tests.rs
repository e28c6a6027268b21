//! Against sweeps that the real aiperf recorded, and against names that mean harm.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use proptest::prelude::*;

use super::Report;
use crate::bench::measure::{Metric, Statistic};
use crate::bench::side::{Side, sides};
use crate::slo::Budget;

static SIDES: LazyLock<Vec<Side>> = LazyLock::new(|| {
    let folder = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/aiperf/sweeps").join(name);
    let mut sides = sides(&[folder("agg-0.9.0"), folder("disagg-0.9.0")], &[]).unwrap().0;
    for level in sides.iter_mut().flat_map(|side| &mut side.levels) {
        level.folder = level.folder.strip_prefix(folder("")).unwrap().to_owned();
    }
    sides
});

fn read() -> Vec<Side> {
    SIDES.clone()
}

const BUDGETS: [Budget; 2] = [
    Budget { metric: Metric::Ttft, statistic: Statistic::Percentile(95.0), limit_ms: 200.0 },
    Budget { metric: Metric::Itl, statistic: Statistic::Percentile(95.0), limit_ms: 20.0 },
];

fn report(sides: &[Side]) -> Report<'_> {
    Report { sides, across: &[], budgets: &BUDGETS, gpus: Some(&[8, 16]) }
}

#[test]
fn the_page_is_whole_and_asks_nobody() {
    let sides = read();
    let page = report(&sides).html().unwrap();
    // The only addresses in it are data.
    for word in ["http:", "https:", "src=", "url(", "@import", "<script", "<link rel=\"style"] {
        assert!(!page.contains(word), "{word}");
    }
    assert_eq!(page.matches("href=\"").count(), page.matches("href=\"data:").count() + 1, "and the one that skips to the tables");
    assert!(page.contains("Content-Security-Policy\" content=\"default-src 'none'"));
    // A table behind each chart, and one a side.
    assert_eq!((page.matches("<figure>").count(), page.matches("<table>").count(), page.matches("class=\"chart\"").count()), (4, 6, 4));
    for words in [
        "within the budgets up to concurrency 8, at 488.5 output tokens&#x2f;s",
        "within the budgets up to concurrency 16",
        "local&#x2f;mocktok",
        "TTFT p95 ≤ 200 ms",
        "output tokens&#x2f;s a GPU",
    ] {
        assert!(page.contains(words), "{words}");
    }
    assert!(!page.contains("NaN") && !page.contains("inf "));
}

#[test]
fn the_numbers_in_it_are_the_true_ones() {
    let sides = read();
    let page = report(&sides).html().unwrap();
    // Fixtures' README: aggregated at 32.
    for number in ["<td>67.6</td>", "<td>639.8</td>", "<td>28.75</td>", "<td>30.81</td>", "<td>1010.6</td>"] {
        assert!(page.contains(number), "{number}");
    }
    // 1010.6 over 8 GPUs, 1886.5 over 16.
    assert!(page.contains("126.3 output tokens&#x2f;s a GPU at concurrency 32") && page.contains("117.9 output tokens&#x2f;s a GPU at concurrency 32"));
}

#[test]
fn the_front_has_no_level_that_another_beats() {
    let sides = read();
    let page = report(&sides).html().unwrap();
    let beaten = page.matches("<td>no</td>").count();
    let front = page.matches("<td>yes</td>").count();
    // By hand: 12 levels; of one GPU disaggregated on 16 delivers less than aggregated on 8 until its users see more.
    assert_eq!(front + beaten, 12);
    let points: Vec<(f64, f64)> = sides
        .iter()
        .zip([8.0, 16.0])
        .flat_map(|(side, gpus)| side.levels.iter().map(move |level| (1000.0 / level.numbers.itl_ms.as_ref().unwrap().p50, level.numbers.output_tokens_per_second / gpus)))
        .collect();
    let best = points.iter().filter(|(user, gpu)| !points.iter().any(|(u, g)| u > user && g > gpu)).count();
    assert_eq!(front, best);
}

#[test]
fn what_was_not_measured_is_a_gap_and_said() {
    let mut sides = read();
    sides.truncate(1);
    for level in &mut sides[0].levels {
        level.itl_ms.clear();
    }
    sides[0].levels[2].ttft_ms.iter_mut().for_each(|ms| *ms = f64::INFINITY);
    sides[0].levels[2].objections.push("whole: the last record is cut".into());
    let report = Report { sides: &sides, across: &[], budgets: &[], gpus: None };
    let (page, comment) = (report.html().unwrap(), report.markdown());
    assert!(page.contains("Not measured: answers came in one piece") && page.contains("Not measured: what a user sees"));
    assert!(page.contains("not to be trusted: concurrency 4: whole: the last record is cut") && comment.contains("Concurrency 4 is not to be trusted"));
    assert!(!page.contains("NaN") && !page.contains(">inf"));
    assert!(page.contains("output tokens&#x2f;s, whole deployment"), "nobody said how many GPUs");
}

/// What a browser must not take for anything but text.
fn escaped(word: &str) -> String {
    [("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("\"", "&quot;"), ("'", "&#x27;"), ("/", "&#x2f;")].into_iter().fold(word.to_owned(), |word, (from, to)| word.replace(from, to))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn whatever_a_name_is_it_stays_a_name(harm in prop_oneof![
        Just("</title><script>alert(1)</script>".to_owned()), Just("\" onload=\"alert(1)".to_owned()), Just("' autofocus onfocus='x".to_owned()), Just("--><img src=x onerror=alert(1)>".to_owned()),
        Just("</svg><style>*{display:none}".to_owned()), Just("{{ 7 * 7 }}{% raw %}".to_owned()), Just("&lt;b&gt;\u{202e}".to_owned()), "[<>&\"'/{}%a-z ]{1,30}\\PC{0,8}",
    ]) {
        let mut sides = read();
        sides.iter_mut().for_each(|side| side.levels.truncate(1));
        let page_of = |sides: &mut [Side], word: &str| {
            for side in sides.iter_mut() {
                side.name = format!("§{word}§");
                for level in &mut side.levels {
                    (level.comparable.model, level.comparable.tokenizer, level.folder) = (format!("§{word}§"), format!("§{word}§"), PathBuf::from(format!("§{word}§")));
                    level.objections = vec![format!("§{word}§")];
                }
            }
            report(sides).html().unwrap()
        };
        let (plain, page) = (page_of(&mut sides, "name"), page_of(&mut sides, &harm));
        // The page is that of a harmless name, with the escaped one in its place.
        let same = page.replace(&format!("§{}§", escaped(&harm)), "§name§") == plain;
        prop_assert!(same, "{harm}");
        let comment = report(&sides).markdown();
        prop_assert!(!comment.contains("<script") && !comment.contains("<img") && !comment.contains("<style"));
        prop_assert_eq!(comment.lines().filter(|line| line.starts_with('|')).count(), 2 * 3, "{}", comment);
    }
}

#[test]
fn every_request_is_in_the_download() {
    let sides = read();
    let text = super::csv::requests(&sides[0]);
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("concurrency,start_ms,ttft_ms,itl_ms,output_tokens"));
    let requests: usize = sides[0].levels.iter().map(|level| level.requests.len()).sum();
    assert_eq!((requests, lines.clone().count()), (24 * 3 + 48 + 96 + 192, requests));
    assert!(lines.all(|line| line.split(',').count() == 5 && line.ends_with(",48")));
}

#[test]
fn comments_and_tables_are_told() {
    let sides = read();
    insta::assert_snapshot!(report(&sides).markdown());
    insta::assert_snapshot!(report(&sides).csv().lines().map(|line| line.split(',').take(16).collect::<Vec<_>>().join(",")).collect::<Vec<_>>().join("\n"));
}
