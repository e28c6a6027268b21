//! The run log: every event as one line of JSON in `.nemo/<name>.log`, kept when the terminal is closed.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::Path;

use crate::engine::event::Event;

/// The file above which a log is put aside as `<name>.log.old` when a new run begins.
const ROTATE_BYTES: u64 = 16 << 20;

pub(super) struct Log(Option<BufWriter<File>>);

impl Log {
    /// A log that cannot be written is done without: the walk matters more.
    pub(super) fn open(path: Option<&Path>) -> Self {
        let Some(path) = path else { return Self(None) };
        if path.metadata().is_ok_and(|meta| meta.len() > ROTATE_BYTES) {
            let _ = std::fs::rename(path, path.with_extension("log.old"));
        }
        Self(OpenOptions::new().create(true).append(true).open(path).ok().map(BufWriter::new))
    }

    pub(super) fn write(&mut self, event: &Event) {
        if let Some(file) = &mut self.0
            && let Ok(line) = serde_json::to_string(event)
            && writeln!(file, "{line}").and_then(|()| file.flush()).is_err()
        {
            self.0 = None;
        }
    }
}
