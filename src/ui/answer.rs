//! Answers: a result type is shown as text or as JSON, from the same value.

use std::fmt::Display;
use std::io::Write;

use serde::Serialize;

use super::{Manner, Output};
use crate::error::Kind;

/// Prints the answer of a command to stdout. What cannot be written ends the process: the answer is what was asked for.
pub fn answer<T: Serialize + Display>(manner: Manner, result: &T) {
    let written = match manner.output {
        Output::Human | Output::Sarif => writeln!(anstream::stdout().lock(), "{result}"),
        Output::Json => serde_json::to_string(result).map_err(std::io::Error::from).and_then(|line| writeln!(std::io::stdout().lock(), "{line}")),
    };
    match written.and_then(|()| std::io::stdout().flush()) {
        Ok(()) => {}
        // Who reads has seen enough, as `| head -1` does.
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => {}
        Err(e) => {
            let _ = writeln!(anstream::stderr().lock(), "error: the answer cannot be written: {e}\nnext: give stdout somewhere to go and run it again; what was done stays done");
            std::process::exit(i32::from(Kind::LocalIo.exit_code()));
        }
    }
}

/// Prints one JSON value as one line to stdout, on the way. A walk does not end because nobody can hear of it.
pub fn json_line<T: Serialize>(value: &T) {
    if let Ok(line) = serde_json::to_string(value) {
        let _ = writeln!(std::io::stdout().lock(), "{line}");
    }
}

/// A line for the person, to stderr, unless `--quiet` or JSON.
pub fn say(manner: Manner, text: impl Display) {
    if !manner.quiet && manner.output == Output::Human {
        let _ = writeln!(anstream::stderr().lock(), "{text}");
    }
}
