//! The size of the file system, by FSx's rules.

use super::report::{Answered, Question};
use crate::config::{Spec, WeightsPin};
use crate::error::Kind;

const GIB: f64 = (1u64 << 30) as f64;

/// GiB of a PERSISTENT_2 SSD file system: 1200, 2400, then multiples of 2400 (FSx guide, read 2026-09-01).
fn sold(gib: u64) -> u64 {
    if gib <= 1200 { 1200 } else { gib.div_ceil(2400) * 2400 }
}

/// `filesystem`: does it hold the weights? By the larger of what the catalogue and the hub say.
pub(super) fn size(spec: &Spec, weights: Option<&WeightsPin>) -> Answered {
    let question = Question::new("filesystem");
    let catalogue = u64::from(spec.precision.weights_gb.value) * 1_000_000_000;
    let bytes = weights.map_or(0, |weights| weights.bytes).max(catalogue) as f64;
    let comfortable = sold((bytes * 1.5 / GIB).ceil() as u64);
    let size = |gib: u64| format!("{gib} GiB at {} MB/s per TiB for {:.0} GB of weights", spec.storage.throughput, bytes / 1e9);
    let fix = format!("storage.capacity_gib = 0 takes {comfortable} GiB");
    match u64::from(spec.storage.capacity_gib) {
        0 => question.ok(size(comfortable)),
        gib if (gib as f64) * GIB < bytes => question.red(Kind::Config, format!("{}: they do not fit", size(gib)), fix),
        gib if gib < comfortable => question.warn(format!("{}: little room for a second revision", size(gib)), fix),
        gib => question.ok(size(gib)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sizes_that_are_sold() {
        for (gib, size) in [(0, 1200), (1, 1200), (1200, 1200), (1201, 2400), (2400, 2400), (2401, 4800), (7000, 7200)] {
            assert_eq!(sold(gib), size, "{gib}");
        }
    }
}
