//! Waiting for something to become ready: what for, how often to look, how long at most.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::clock;
use super::event::EventKind;
use super::step::Cx;
use crate::error::{Kind, fail};

/// How to wait; the settings `wait.*`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Wait {
    /// Milliseconds between two looks.
    pub every_ms: u64,
    /// Seconds until it is given up.
    pub limit_s: u64,
}

/// The answer to one look.
#[derive(Debug)]
pub enum Look<T> {
    /// It is there.
    Ready(T),
    /// Not yet; what it says of itself, for the person who waits.
    NotYet(String),
}

impl Cx {
    /// Looks until it is ready. Ends early with [`Kind::Interrupted`] when the walk is to stop, with [`Kind::Timeout`] after the limit.
    pub async fn until<T, F, L>(&self, what: &str, wait: Wait, mut look: F) -> anyhow::Result<T>
    where
        // Not `AsyncFnMut`: whether what that gives is Send cannot be said, and steps are spawned.
        F: FnMut() -> L,
        L: Future<Output = anyhow::Result<Look<T>>>,
    {
        let started = std::time::Instant::now();
        let limit = Duration::from_secs(wait.limit_s);
        loop {
            let state = match look().await? {
                Look::Ready(value) => return Ok(value),
                Look::NotYet(state) => state,
            };
            let waited = started.elapsed();
            if waited > limit {
                return Err(fail(Kind::Timeout, format!("waited {} for {what}; it still says: {state}", clock::words(waited)))
                    .hint("run the same command again to go on waiting; wait.* settings change the limit")
                    .into());
            }
            let what = if state.is_empty() { what.to_owned() } else { format!("{what}: {state}") };
            self.events.send(Some(self.step), EventKind::Waiting { what, seconds: waited.as_secs(), limit_seconds: wait.limit_s });
            tokio::select! {
                () = self.stop.cancelled() => return Err(fail(Kind::Interrupted, "stopped while waiting").into()),
                () = clock::sleep(Duration::from_millis(wait.every_ms)) => {}
            }
        }
    }
}
