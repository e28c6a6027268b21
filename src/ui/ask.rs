//! The one question that `nemo` asks.

use std::io::{IsTerminal, Write};

use crate::error::{Failure, Kind, fail};

/// Asks; without a terminal, and in JSON, refuses with exit code 2: nobody can answer.
pub fn confirm(question: &str) -> Result<(), Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(fail(Kind::Usage, "this needs a yes, and there is no terminal to ask on").hint("look at the plan above, then run the same command with --yes").into());
    }
    let mut out = anstream::stderr().lock();
    let _ = write!(out, "{question} [y/N] ");
    let _ = out.flush();
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).map_err(|e| Failure::new(Kind::LocalIo, format!("reading the answer: {e}")))?;
    match line.trim().to_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(fail(Kind::Interrupted, "not confirmed: nothing was done").into()),
    }
}
