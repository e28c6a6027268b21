//! The size of the file system, by FSx's rules.

use super::report::{Answered, Question};
use crate::config::{Spec, WeightsPin, capacity_gib};
use crate::error::Kind;

/// `filesystem`: does it hold the weights? By the larger of what the catalogue and the hub say.
pub(super) fn size(spec: &Spec, weights: Option<&WeightsPin>) -> Answered {
    let question = Question::new("filesystem");
    let catalogue = u64::from(spec.precision.weights_gb.value) * 1_000_000_000;
    let bytes = weights.map_or(0, |weights| weights.bytes).max(catalogue);
    let (wanted, comfortable) = (spec.storage.capacity_gib, capacity_gib(0, bytes).unwrap_or(u32::MAX));
    let fix = format!("storage.capacity_gib = 0 takes {comfortable} GiB");
    match capacity_gib(wanted, bytes) {
        Err(why) => question.red(Kind::Config, why, fix),
        Ok(gib) => {
            let answer = format!("{gib} GiB at {} MB/s per TiB for {:.0} GB of weights", spec.storage.throughput, bytes as f64 / 1e9);
            if gib < comfortable { question.warn(format!("{answer}: little room for a second revision"), fix) } else { question.ok(answer) }
        }
    }
}
