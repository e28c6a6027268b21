//! What nccl-tests prints, and what it proves: bus bandwidth by message size, and the network that NCCL took. Pure.
//!
//! A log may end anywhere, begin anywhere, and hold the lines of many ranks: nothing is read of a line or an object that is not whole.

mod floor;
mod json;
mod run;
mod text;
mod transport;

pub use floor::{Baseline, Compared, Expected, Verdict, compare, expected};
pub use run::{Row, Run, Side};
pub use transport::{Objection, Transport};

/// Reads what nccl-tests printed to its log, or wrote as JSON.
pub fn read(output: &[u8]) -> Run {
    let output = String::from_utf8_lossy(output);
    if output.trim_start().starts_with('{') { json::read(output.trim_start()) } else { text::read(&output) }
}

#[cfg(test)]
mod tests;
