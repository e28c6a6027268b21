//! nccl-tests' table, between the log lines of NCCL.

use super::run::{Row, Run, Side};

/// Words by which the program and its runtime say that they failed.
const FAILED: &[&str] = &["Test NCCL failure", "Test CUDA failure", ": Test failure ", "Segmentation fault", "Bus error", "MPI_ABORT", "out of memory", "NCCL WARN Cuda failure"];
/// Errors that are kept: each rank says the same.
const MOST: usize = 20;

pub(super) fn read(text: &str) -> Run {
    let mut run = Run::default();
    // Without the head of the table a row may be the end of one: the log was cut in front.
    let mut table = false;
    // A line without its end may have lost some of its last number.
    for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
        let line = line.trim_end();
        if let Some(said) = line.strip_prefix('#') {
            table |= is_head(said);
            remark(&mut run, said.trim());
        } else if FAILED.iter().any(|words| line.contains(words)) {
            if run.errors.len() < MOST && !run.errors.iter().any(|error| error == line.trim()) {
                run.errors.push(line.trim().to_owned());
            }
        } else if table && line.trim_start().starts_with(|c: char| c.is_ascii_digit()) {
            match row(line) {
                Some(row) => run.rows.push(row),
                // A host name may begin with a digit; rows never hold words of NCCL.
                None if line.contains("NCCL ") && !starts_like_row(line) => {}
                None => run.unreadable.push(line.trim().to_owned()),
            }
        }
    }
    run
}

/// `#       size         count      type   redop    root     time   algbw   busbw  #wrong …`
fn is_head(said: &str) -> bool {
    let words: Vec<&str> = said.split_whitespace().collect();
    words.starts_with(&["size", "count", "type"]) && words.contains(&"busbw")
}

fn remark(run: &mut Run, said: &str) {
    if let Some(program) = said.strip_prefix("Collective test starting:") {
        run.program = Some(program.trim().to_owned());
    } else if said.starts_with("Collective test concluded:") {
        run.concluded = true;
    } else if let Some(version) = said.strip_prefix("nccl-tests version ") {
        run.version = version.split_whitespace().next().map(str::to_owned);
    } else if let Some(bandwidth) = said.strip_prefix("Avg bus bandwidth") {
        run.average_busbw_gb_s = number(bandwidth.trim_start_matches([' ', ':']));
    } else if let Some(counted) = said.strip_prefix("Out of bounds values :") {
        let mut words = counted.split_whitespace();
        run.out_of_bounds = words.next().and_then(|count| count.parse().ok());
        // Its own verdict counts more than its number, which may be rounded.
        if words.next() == Some("FAILED") && run.out_of_bounds.is_none_or(|count| count == 0) {
            run.errors.push(format!("Out of bounds values :{counted}"));
        }
    }
}

fn row(line: &str) -> Option<Row> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [size, count, _type, _redop, _root, rest @ ..] = words.as_slice() else { return None };
    let [time, algbw, busbw, wrong, in_time, in_algbw, in_busbw, in_wrong] = rest else { return None };
    count.parse::<u64>().ok()?;
    Some(Row { size: size.parse().ok()?, out_of_place: side([time, algbw, busbw, wrong])?, in_place: side([in_time, in_algbw, in_busbw, in_wrong])? })
}

/// Size and count stand before the other numbers: the line was begun as a row, and another rank's log line came into it.
fn starts_like_row(line: &str) -> bool {
    let mut words = line.split_whitespace();
    words.next().is_some_and(|size| size.parse::<u64>().is_ok()) && words.next().is_some_and(|count| count.parse::<u64>().is_ok())
}

/// `None`: unreadable. `Some(None)`: there is no such side, as it says.
fn side([time, algbw, busbw, wrong]: [&str; 4]) -> Option<Option<Side>> {
    if [time, algbw, busbw] == ["N/A"; 3] {
        return Some(None);
    }
    let wrong = if wrong == "N/A" { None } else { Some(wrong.parse().ok()?) };
    Some(Some(Side { time_us: number(time)?, algbw_gb_s: number(algbw)?, busbw_gb_s: number(busbw)?, wrong }))
}

/// Digits with at most one point: neither `inf` nor `nan` is a measurement.
fn number(word: &str) -> Option<f64> {
    let plain = !word.is_empty() && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    plain.then(|| word.parse().ok()).flatten()
}
