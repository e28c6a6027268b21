//! A report of sweeps that can be read without nemo: one HTML file that asks nobody for anything, Markdown for a comment, CSV; pure.

mod chart;
mod csv;
mod markdown;
mod page;
mod rows;
#[cfg(test)]
mod tests;

use crate::bench::side::{Difference, Side};
use crate::slo::Budget;

/// What a report is made of.
#[derive(Debug, Clone, Copy)]
pub struct Report<'a> {
    /// At least one, each with at least one level.
    pub sides: &'a [Side],
    /// In what they differ though they are shown together.
    pub across: &'a [Difference],
    pub budgets: &'a [Budget],
    /// GPUs of each side; none: nobody said, so throughput is that of the whole deployment.
    pub gpus: Option<&'a [u32]>,
}

impl Report<'_> {
    pub fn html(&self) -> anyhow::Result<String> {
        page::html(self)
    }

    pub fn markdown(&self) -> String {
        markdown::markdown(self)
    }

    pub fn csv(&self) -> String {
        csv::levels(self)
    }

    /// What throughput is divided by: GPUs of the side, or 1.
    fn per(&self, side: usize) -> f64 {
        self.gpus.and_then(|gpus| gpus.get(side)).map_or(1.0, |gpus| f64::from(*gpus))
    }
}
