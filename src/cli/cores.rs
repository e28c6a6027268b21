//! Work on many things that know nothing of each other, spread over the machine's cores.

use std::thread;

/// Gives each core one part of the items, in their order; the answers come in the order of the parts.
pub(super) fn spread<T: Sync, R: Send>(items: &[T], work: impl Fn(&[T]) -> R + Sync) -> Vec<R> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let parts = items.chunks(items.len().div_ceil(cores).max(1));
    thread::scope(|scope| {
        let running: Vec<_> = parts.map(|part| scope.spawn(|| work(part))).collect();
        running.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_seen_once_and_in_order() {
        for count in [0, 1, 2, 3, 97] {
            let items: Vec<usize> = (0..count).collect();
            assert_eq!(spread(&items, <[usize]>::to_vec).concat(), items);
        }
    }
}
