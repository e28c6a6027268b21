//! A failure as a person reads it: what, what is left and costs, what next.

use std::io::Write;

use serde::Serialize;

use crate::engine::event::FailureShown;
use crate::error::{Failure, Resource};

/// The last line of JSON when a command did not work.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct Failed {
    kind: &'static str,
    failure: FailureShown,
}

/// Prints a failure as the last line of JSON.
pub fn failure_json(failure: &Failure) {
    super::json_line(&Failed { kind: "failure", failure: failure.into() });
}

/// Prints a failure to stderr.
pub fn failure(failure: &Failure) {
    let mut out = anstream::stderr().lock();
    let _ = write(&mut out, failure);
}

fn write(out: &mut impl Write, failure: &Failure) -> std::io::Result<()> {
    writeln!(out, "error: {failure}")?;
    if !failure.left.is_empty() {
        writeln!(out, "\nwhat exists now because of this deployment:")?;
        for resource in &failure.left {
            match resource.usd_per_hour {
                Some(usd) => writeln!(out, "  {} {} (${usd:.2}/h)", resource.what, resource.id)?,
                None if resource.bills => writeln!(out, "  {} {} (price unknown)", resource.what, resource.id)?,
                None => writeln!(out, "  {} {}", resource.what, resource.id)?,
            }
        }
        writeln!(out, "  together {}", Resource::hourly_words(&failure.left))?;
    }
    for hint in &failure.hints {
        writeln!(out, "next: {hint}")?;
    }
    Ok(())
}
