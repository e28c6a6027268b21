//! A run of nccl-tests as it was read, and what is wrong with it.

use serde::Serialize;

/// What nccl-tests printed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Run {
    /// `all_reduce_perf`, where the log says so.
    pub program: Option<String>,
    /// Of nccl-tests.
    pub version: Option<String>,
    pub rows: Vec<Row>,
    /// GB/s over all sizes, small ones too: nccl-tests' own figure, of little use.
    pub average_busbw_gb_s: Option<f64>,
    /// Elements that came out wrong, where they were counted.
    pub out_of_bounds: Option<u64>,
    /// It says itself that it came to its end.
    pub concluded: bool,
    /// What it gave as errors, in its own words.
    pub errors: Vec<String>,
    /// Lines that look like a row of the table and are none.
    pub unreadable: Vec<String>,
}

/// One message size.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Row {
    /// Bytes.
    pub size: u64,
    pub out_of_place: Option<Side>,
    /// Some collectives know no in-place.
    pub in_place: Option<Side>,
}

/// Out of place or in place.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Side {
    /// Microseconds.
    pub time_us: f64,
    pub algbw_gb_s: f64,
    /// Comparable between numbers of ranks; nccl-tests' PERFORMANCE.md says how it is worked out.
    pub busbw_gb_s: f64,
    /// Wrong elements, where they were counted.
    pub wrong: Option<u64>,
}

impl Run {
    /// `all_reduce` of `all_reduce_perf`.
    pub fn collective(&self) -> Option<&str> {
        self.program.as_deref().map(|program| program.trim_end_matches("_perf"))
    }

    /// Did memory run out?
    pub fn out_of_memory(&self) -> bool {
        self.errors.iter().any(|error| error.to_lowercase().contains("out of memory"))
    }

    /// Why the run proves less than it should; empty where it is whole and right.
    pub fn objections(&self) -> Vec<String> {
        let mut said = Vec::new();
        if self.out_of_memory() {
            said.push("memory ran out: another process holds the GPU's, or the largest size is too large for it".to_owned());
        }
        said.extend(self.errors.iter().map(|error| format!("nccl-tests says: {error}")));
        if self.rows.is_empty() {
            said.push("there is no measurement in it".to_owned());
        }
        if !self.concluded && self.errors.is_empty() {
            let last = self.rows.last().map(|row| format!("; its last whole size is {} bytes", row.size)).unwrap_or_default();
            said.push(format!("it does not come to its end: the run broke off, or a part is missing{last}"));
        }
        if let Some(line) = self.unreadable.first() {
            said.push(format!("{} lines of the table cannot be read, the first: {line}", self.unreadable.len()));
        }
        let wrong = self.rows.iter().filter(|row| [row.out_of_place, row.in_place].iter().flatten().any(|side| side.wrong.is_some_and(|wrong| wrong > 0)));
        let sizes: Vec<String> = wrong.map(|row| row.size.to_string()).collect();
        if !sizes.is_empty() {
            said.push(format!("wrong results at {} bytes", sizes.join(", ")));
        } else if self.out_of_bounds.is_some_and(|count| count > 0) {
            said.push(format!("{} values out of bounds", self.out_of_bounds.unwrap_or_default()));
        }
        said
    }
}
