//! What a worker says: one JSON object a line, read by the step through the pod's log.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::rate::ReadRate;
use crate::engine::clock;

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Said {
    /// Once a second: bytes that are there (also from before) of this worker's share, and bytes that came over the network in the last second.
    Progress { done: u64, total: u64, files: u64, of: u64, bytes_per_second: u64 },
    /// Something was tried again.
    Retrying { what: String, why: String, attempt: u32 },
    /// How fast the volume reads; said by whoever found everything there.
    Read(ReadRate),
    /// The share is there and checked; `complete`: the shares of all workers are.
    Done { bytes: u64, files: u64, seconds: f64, complete: bool },
    /// It was given up.
    Failed { exit_code: u8, why: String, hints: Vec<String> },
}

/// Counts and says.
pub(super) struct Tally {
    out: Mutex<Box<dyn Write + Send>>,
    began: Instant,
    done: AtomicU64,
    total: AtomicU64,
    files: AtomicU64,
    of: AtomicU64,
    received: AtomicU64,
}

impl Tally {
    pub(super) fn new(out: Box<dyn Write + Send>) -> Self {
        let zero = AtomicU64::default;
        Self { out: Mutex::new(out), began: Instant::now(), done: zero(), total: zero(), files: zero(), of: zero(), received: zero() }
    }

    pub(super) fn set_total(&self, bytes: u64, files: usize) {
        self.total.store(bytes, Ordering::Relaxed);
        self.of.store(files as u64, Ordering::Relaxed);
    }

    /// Bytes came over the network.
    pub(super) fn received(&self, bytes: u64) {
        self.received.fetch_add(bytes, Ordering::Relaxed);
        self.there(bytes);
    }

    /// Bytes are there from before.
    pub(super) fn there(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes turned out to be wrong.
    pub(super) fn lost(&self, bytes: u64) {
        self.done.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// A file is checked and in its place.
    pub(super) fn file(&self) {
        self.files.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn retrying(&self, what: &str, why: &str, attempt: u32) {
        self.say(&Said::Retrying { what: what.to_owned(), why: why.to_owned(), attempt });
    }

    pub(super) fn finish(&self, complete: bool) {
        let (bytes, files) = (self.done.load(Ordering::Relaxed), self.files.load(Ordering::Relaxed));
        self.say(&Said::Done { bytes, files, seconds: self.began.elapsed().as_secs_f64(), complete });
    }

    /// Writes the line. Nobody listening is no reason to stop.
    pub(super) fn say(&self, said: &Said) {
        let Ok(line) = serde_json::to_string(said) else { return };
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    }
}

/// Says how far it is, once a second.
pub(super) async fn regularly(tally: Arc<Tally>) {
    let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let mut before = 0;
    loop {
        let received = read(&tally.received);
        let bytes_per_second = received - before;
        before = received;
        tally.say(&Said::Progress { done: read(&tally.done), total: read(&tally.total), files: read(&tally.files), of: read(&tally.of), bytes_per_second });
        clock::sleep(Duration::from_secs(1)).await;
    }
}
