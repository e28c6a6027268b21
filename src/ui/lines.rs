//! Plain lines: what happened, when it happened; waiting and progress no more often than a person can read.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::engine::clock;
use crate::engine::event::{Event, EventKind};
use crate::engine::step::{StepId, Unit};

/// The same wait, or progress of the same thing, is told again after so long: less than the ten seconds between two looks at AWS, of which one may come
/// a moment early and would leave twenty seconds of silence.
const AGAIN: SignedDuration = SignedDuration::from_secs(8);

#[derive(Default)]
pub(super) struct Lines {
    /// When each wait was told last: several may go on at once in one step.
    told: BTreeMap<(Option<StepId>, String), Timestamp>,
    progress: BTreeMap<(Option<StepId>, String), (Timestamp, u64)>,
}

impl Lines {
    /// The line for an event, or none if it need not be told now.
    pub(super) fn line(&mut self, event: &Event) -> Option<String> {
        let text = match &event.kind {
            EventKind::Planned { .. } | EventKind::Ended { .. } => return None,
            EventKind::Waiting { what, .. } if !self.due(event, what) => return None,
            EventKind::Progress { what, done, total, unit } => self.progress(event, what, *done, *total, *unit)?,
            kind => words(kind),
        };
        let at = event.at.strftime("%H:%M:%S");
        Some(match event.step {
            Some(step) => format!("{at} {step:<12} {text}"),
            None => format!("{at} {text}"),
        })
    }

    fn due(&mut self, event: &Event, what: &str) -> bool {
        let wait = (event.step, what.to_owned());
        let due = self.told.get(&wait).is_none_or(|at| event.at.duration_since(*at) >= AGAIN);
        if due {
            self.told.insert(wait, event.at);
        }
        due
    }

    fn progress(&mut self, event: &Event, what: &str, done: u64, total: u64, unit: Unit) -> Option<String> {
        let thing = (event.step, what.to_owned());
        let before = self.progress.get(&thing).copied();
        let ended = total > 0 && done >= total;
        if before.is_some_and(|(at, before)| event.at.duration_since(at) < AGAIN && !(ended && before < total)) {
            return None;
        }
        self.progress.insert(thing, (event.at, done));
        let rate = before.and_then(|(at, before)| {
            let seconds = event.at.duration_since(at).as_secs_f64();
            (seconds > 0.0 && done > before).then(|| (done - before) as f64 / seconds)
        });
        Some(format!("{what}: {}", amount(done, total, unit, rate)))
    }
}

/// An event in words, without time and step.
pub(super) fn words(kind: &EventKind) -> String {
    match kind {
        EventKind::Planned { .. } => "planned".into(),
        EventKind::Started { verdict } => verdict.clone(),
        EventKind::Waiting { what, seconds, .. } if *seconds > 0 => format!("waiting for {what} ({})", clock::words(Duration::from_secs(*seconds))),
        EventKind::Waiting { what, .. } => format!("waiting for {what}"),
        EventKind::Progress { what, done, total, unit } => format!("{what}: {}", amount(*done, *total, *unit, None)),
        EventKind::Note { text } => text.clone(),
        EventKind::Retrying { what, why, attempt } => format!("{what} failed and is tried again (attempt {attempt}): {why}"),
        EventKind::Reached { part } => format!("{part}: ready"),
        EventKind::Finished { changed: true, seconds } => format!("done in {}", clock::words(Duration::from_secs_f64(*seconds))),
        EventKind::Finished { .. } => "is there already".into(),
        EventKind::Failed { failure } => format!("FAILED: {}", failure.message),
        EventKind::Ended { ok, .. } => if *ok { "done" } else { "stopped" }.into(),
    }
}

/// `1.2 GB of 3.4 GB, 35%, 120 MB/s, 20s left`.
pub(super) fn amount(done: u64, total: u64, unit: Unit, per_second: Option<f64>) -> String {
    let show = |n: u64| match unit {
        Unit::Bytes => bytes(n),
        Unit::Items => n.to_string(),
    };
    let mut text = match total {
        0 => show(done),
        _ => format!("{} of {}, {}%", show(done), show(total), done.saturating_mul(100) / total),
    };
    if let (Some(rate), true) = (per_second, done < total) {
        if unit == Unit::Bytes {
            text += &format!(", {}/s", bytes(rate as u64));
        }
        text += &format!(", {} left", clock::words(Duration::from_secs_f64(((total - done) as f64 / rate).clamp(1.0, 1e6))));
    }
    text
}

/// Bytes in powers of 1000, as clouds and hubs count them.
pub(super) fn bytes(n: u64) -> String {
    let mut value = n as f64;
    for unit in ["B", "kB", "MB", "GB"] {
        if value < 1000.0 {
            return if unit == "B" { format!("{n} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1000.0;
    }
    format!("{value:.2} TB")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(second: i64, kind: EventKind) -> Event {
        Event { at: Timestamp::from_second(1_796_061_600 + second).unwrap(), step: Some(StepId::Weights), kind }
    }

    fn progress(second: i64, done: u64) -> Event {
        event(second, EventKind::Progress { what: "files".into(), done, total: 4_000_000_000, unit: Unit::Bytes })
    }

    #[test]
    fn progress_says_how_far_how_fast_how_long_yet() {
        let mut lines = Lines::default();
        assert_eq!(lines.line(&progress(0, 0)).unwrap(), "18:00:00 weights      files: 0 B of 4.0 GB, 0%");
        assert_eq!(lines.line(&progress(3, 900_000_000)), None);
        assert_eq!(lines.line(&progress(10, 1_000_000_000)).unwrap(), "18:00:10 weights      files: 1.0 GB of 4.0 GB, 25%, 100.0 MB/s, 30s left");
        assert_eq!(lines.line(&progress(12, 4_000_000_000)).unwrap(), "18:00:12 weights      files: 4.0 GB of 4.0 GB, 100%");
        assert_eq!(lines.line(&progress(13, 4_000_000_000)), None);
    }

    #[test]
    fn the_same_wait_is_not_told_again_at_once() {
        let mut lines = Lines::default();
        let wait = |second, what: &str| event(second, EventKind::Waiting { what: what.into(), seconds: second as u64, limit_seconds: 60 });
        assert!(lines.line(&wait(0, "CREATING")).is_some());
        assert!(lines.line(&wait(1, "CREATING")).is_none());
        assert!(lines.line(&wait(2, "ACTIVE")).is_some());
        assert_eq!(lines.line(&wait(12, "ACTIVE")).unwrap(), "18:00:12 weights      waiting for ACTIVE (12s)");
    }
}
