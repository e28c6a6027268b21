//! The one question that `nemo` asks.

use std::io::{IsTerminal, Write};

use tokio_util::sync::CancellationToken;

use super::{Manner, Output};
use crate::error::{Failure, Kind, fail};

/// Asks; refuses with exit code 2 where nobody can answer (no terminal), or nobody was shown what is asked (JSON, `--quiet`).
/// A signal is a no.
pub async fn confirm(manner: Manner, question: &str, stop: &CancellationToken) -> Result<(), Failure> {
    if !std::io::stdin().is_terminal() || manner.quiet || manner.output == Output::Json {
        let why = if manner.quiet { "--quiet shows nothing to say yes to" } else { "there is no terminal to ask on" };
        return Err(fail(Kind::Usage, format!("this needs a yes, and {why}")).hint("look at what it would do, then run the same command with --yes").into());
    }
    {
        // Not held while waiting: who is told to stop wants to write, too.
        let mut out = anstream::stderr().lock();
        let _ = write!(out, "{question} [y/N] ");
        let _ = out.flush();
    }
    let (answer, answered) = tokio::sync::oneshot::channel();
    // A thread of its own that may outlive us: nothing ends a read from a terminal.
    std::thread::spawn(move || {
        let mut line = String::new();
        let _ = answer.send(std::io::stdin().read_line(&mut line).map(|_| line));
    });
    let line = tokio::select! {
        line = answered => line.map_err(|e| Failure::new(Kind::Bug, e.to_string()))?.map_err(|e| Failure::new(Kind::LocalIo, format!("reading the answer: {e}")))?,
        () = stop.cancelled() => String::new(),
    };
    match line.trim().to_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(fail(Kind::Interrupted, "not confirmed: nothing was done").into()),
    }
}
