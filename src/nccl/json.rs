//! What nccl-tests writes with `--output_file`: one object, which may be cut.

use serde::Deserialize;

use super::run::{Row, Run, Side};

#[derive(Deserialize)]
struct Whole {
    #[serde(default)]
    out_of_bounds: Option<OutOfBounds>,
    #[serde(default)]
    average_bus_bandwidth: Option<Average>,
    #[serde(default)]
    errors: Vec<String>,
    #[serde(default)]
    end_time: Option<String>,
}

#[derive(Deserialize)]
struct OutOfBounds {
    count: u64,
    okay: String,
}

#[derive(Deserialize)]
struct Average {
    bandwidth: f64,
}

#[derive(Deserialize)]
struct Measured {
    size: u64,
    #[serde(default)]
    out_of_place: Option<Timed>,
    #[serde(default)]
    in_place: Option<Timed>,
}

#[derive(Deserialize)]
struct Timed {
    time: f64,
    alg_bw: f64,
    bus_bw: f64,
    /// Written as a number with a point.
    #[serde(default)]
    nwrong: Option<f64>,
}

impl From<Timed> for Side {
    fn from(timed: Timed) -> Self {
        let wrong = timed.nwrong.filter(|count| *count >= 0.0).map(|count| count.ceil() as u64);
        Self { time_us: timed.time, algbw_gb_s: timed.alg_bw, busbw_gb_s: timed.bus_bw, wrong }
    }
}

pub(super) fn read(text: &str) -> Run {
    let mut run = Run { program: first_of(text, "args"), ..Run::default() };
    run.rows = rows(text);
    // The rest stands behind the rows: without its end nothing of it is sure.
    if let Ok(whole) = serde_json::from_str::<Whole>(text) {
        run.concluded = whole.end_time.is_some();
        run.average_busbw_gb_s = whole.average_bus_bandwidth.map(|average| average.bandwidth);
        run.errors = whole.errors.into_iter().filter(|error| !error.is_empty()).collect();
        if let Some(counted) = whole.out_of_bounds {
            run.out_of_bounds = Some(counted.count);
            if counted.count == 0 && counted.okay == "false" {
                run.errors.push("out_of_bounds is not okay".to_owned());
            }
        }
    }
    run
}

/// The first word of a list of words.
fn first_of(text: &str, key: &str) -> Option<String> {
    let mut words = serde_json::Deserializer::from_str(list(text, key)?).into_iter::<String>();
    let first = words.next()?.ok()?;
    Some(first.rsplit('/').next().unwrap_or_default().to_owned())
}

/// Every object of the results that is whole.
fn rows(text: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    let Some(mut rest) = list(text, "results") else { return rows };
    loop {
        rest = rest.trim_start_matches([',', ' ', '\n', '\r', '\t']);
        let mut objects = serde_json::Deserializer::from_str(rest).into_iter::<Measured>();
        let Some(Ok(measured)) = objects.next() else { return rows };
        rest = rest.get(objects.byte_offset()..).unwrap_or_default();
        rows.push(Row { size: measured.size, out_of_place: measured.out_of_place.map(Side::from), in_place: measured.in_place.map(Side::from) });
    }
}

/// What stands behind `"key": [`. Within a string the quotes would have a backslash before them.
fn list<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("\"{key}\""))?;
    rest.trim_start().strip_prefix(':')?.trim_start().strip_prefix('[')
}
