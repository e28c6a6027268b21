//! Bars on a terminal: one line for each step at work, finished steps above them.

use std::collections::BTreeMap;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use style::{bold, green, red};

use super::lines::{amount, words};
use crate::engine::event::{Event, EventKind};
use crate::engine::step::StepId;

pub(super) struct Bars {
    all: MultiProgress,
    bars: BTreeMap<StepId, (ProgressBar, std::time::Instant)>,
}

/// The three styles in use; `NO_COLOR` is obeyed by the terminal layer below.
mod style {
    pub(super) fn bold(text: &str) -> String {
        paint("1", text)
    }
    pub(super) fn green(text: &str) -> String {
        paint("32", text)
    }
    pub(super) fn red(text: &str) -> String {
        paint("31", text)
    }
    fn paint(code: &str, text: &str) -> String {
        if std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()) { text.to_owned() } else { format!("\x1b[{code}m{text}\x1b[0m") }
    }
}

impl Bars {
    pub(super) fn new() -> Self {
        Self { all: MultiProgress::new(), bars: BTreeMap::new() }
    }

    pub(super) fn show(&mut self, event: &Event) {
        let Some(step) = event.step else { return };
        match &event.kind {
            EventKind::Finished { changed, .. } => {
                self.drop(step);
                if *changed {
                    self.line(&green("✓"), step, &words(&event.kind));
                }
            }
            EventKind::Failed { failure } => {
                self.drop(step);
                self.line(&red("✗"), step, &failure.message);
            }
            EventKind::Note { text } => self.line("·", step, text),
            EventKind::Retrying { .. } => self.line("↻", step, &words(&event.kind)),
            EventKind::Progress { what, done, total, unit } => {
                let (bar, began) = self.bar(step);
                let seconds = began.elapsed().as_secs_f64();
                let rate = (*done > 0 && seconds > 1.0).then(|| *done as f64 / seconds);
                bar.set_message(format!("{what}: {}", amount(*done, *total, *unit, rate)));
            }
            kind => self.bar(step).0.set_message(words(kind)),
        }
    }

    fn bar(&mut self, step: StepId) -> &(ProgressBar, std::time::Instant) {
        self.bars.entry(step).or_insert_with(|| {
            let bar = self.all.add(ProgressBar::new_spinner());
            if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix:<12} {wide_msg} {elapsed}") {
                bar.set_style(style);
            }
            bar.set_prefix(step.to_string());
            bar.enable_steady_tick(Duration::from_millis(120));
            (bar, std::time::Instant::now())
        })
    }

    fn drop(&mut self, step: StepId) {
        if let Some((bar, _)) = self.bars.remove(&step) {
            bar.finish_and_clear();
            self.all.remove(&bar);
        }
    }

    fn line(&self, mark: &str, step: StepId, text: &str) {
        let _ = self.all.println(format!("{mark} {} {text}", bold(&format!("{step:<12}"))));
    }
}
