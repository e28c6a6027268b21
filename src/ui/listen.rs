//! Listens to the events of a walk and hands each to the log and to what the user chose to see.

use std::path::PathBuf;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;

use super::bars::Bars;
use super::lines::Lines;
use super::log::Log;
use super::{Manner, Output, Progress, json_line};
use crate::engine::event::Event;

/// The listener at work; it ends when every sender is gone.
pub struct Listening(JoinHandle<()>);

impl Listening {
    /// Waits until everything that was said is shown.
    pub async fn finish(self) {
        let _ = self.0.await;
    }
}

/// Starts to listen.
pub fn listen(manner: Manner, mut events: UnboundedReceiver<Event>, log: Option<PathBuf>) -> Listening {
    Listening(tokio::spawn(async move {
        let mut log = Log::open(log.as_deref());
        let mut view = View::new(manner);
        while let Some(event) = events.recv().await {
            log.write(&event);
            view.show(&event);
        }
    }))
}

enum View {
    Json,
    Bars(Bars),
    Lines(Lines),
    Nothing,
}

impl View {
    fn new(manner: Manner) -> Self {
        match manner.progress() {
            _ if manner.output == Output::Json => Self::Json,
            Progress::Bars => Self::Bars(Bars::new()),
            Progress::Lines => Self::Lines(Lines::default()),
            _ => Self::Nothing,
        }
    }

    fn show(&mut self, event: &Event) {
        match self {
            Self::Json => json_line(event),
            Self::Bars(bars) => bars.show(event),
            Self::Lines(lines) => {
                if let Some(line) = lines.line(event) {
                    super::say(Manner::default(), line);
                }
            }
            Self::Nothing => {}
        }
    }
}
