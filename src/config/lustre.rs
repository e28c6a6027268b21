//! Sizes that FSx for Lustre is sold in: one rule for the settings, the check and the step.

const GIB: u64 = 1 << 30;

/// The smallest PERSISTENT_2 file system on SSD that has so many GiB: 1200, 2400, then multiples of 2400 (FSx guide, read 2026-09-01).
pub fn sold_gib(gib: u64) -> u64 {
    if gib <= 1200 { 1200 } else { gib.div_ceil(2400) * 2400 }
}

/// GiB of the file system: `wanted`, or where that is 0 the smallest that holds the weights one and a half times.
pub fn capacity_gib(wanted: u32, weights_bytes: u64) -> Result<u32, String> {
    if wanted == 0 {
        let needed = (weights_bytes + weights_bytes / 2).div_ceil(GIB);
        return u32::try_from(sold_gib(needed)).map_err(|_| format!("weights of {weights_bytes} bytes fit no file system"));
    }
    let nearest = sold_gib(u64::from(wanted));
    if nearest != u64::from(wanted) {
        return Err(format!("FSx sells 1200 GiB, 2400 GiB and multiples of 2400 GiB; {wanted} GiB is none of them, {nearest} GiB is"));
    }
    if u64::from(wanted) * GIB < weights_bytes {
        return Err(format!("{wanted} GiB do not hold the weights ({} GiB)", weights_bytes.div_ceil(GIB)));
    }
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sizes_that_are_sold() {
        for (gib, size) in [(0, 1200), (1, 1200), (1200, 1200), (1201, 2400), (2400, 2400), (2401, 4800), (7000, 7200)] {
            assert_eq!(sold_gib(gib), size, "{gib}");
        }
    }

    #[test]
    fn the_weights_fit() {
        const GB: u64 = 1_000_000_000;
        for (wanted, bytes, size) in [(0, 227 * GB, 1200), (0, 1_100 * GB, 2400), (0, 2_000 * GB, 4800), (1200, 227 * GB, 1200), (4800, 227 * GB, 4800), (0, 0, 1200)] {
            assert_eq!(capacity_gib(wanted, bytes), Ok(size), "{wanted} {bytes}");
        }
        for (wanted, bytes) in [(1000, GB), (3600, GB), (1200, 1_400 * GB)] {
            assert!(capacity_gib(wanted, bytes).is_err(), "{wanted} {bytes}");
        }
    }
}
