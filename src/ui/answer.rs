//! Answers: a result type is shown as text or as JSON, from the same value.

use std::fmt::Display;
use std::io::Write;

use serde::Serialize;

use super::{Manner, Output};

/// Prints the answer of a command to stdout.
pub fn answer<T: Serialize + Display>(manner: Manner, result: &T) {
    match manner.output {
        Output::Human | Output::Sarif => {
            let _ = writeln!(anstream::stdout().lock(), "{result}");
        }
        Output::Json => json_line(result),
    }
}

/// Prints one JSON value as one line to stdout. A closed pipe is no reason to fail.
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
