//! `nemo agent bench`: the first process of the benchmark's pod. It installs aiperf once on the shared volume, starts it, watches it, and
//! keeps what it left; so nothing depends on the machine that asked for the run.

mod attempt;
mod install;
mod tokenizer;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::bench::plan::Plan;
use crate::bench::result::RunResult;
use crate::bench::said::{Said, Say};
use crate::error::{Kind, fail};

/// The Python that has pip and runs aiperf.
const PYTHON: &str = "python3";

/// Runs the plan in this file. The result is said last and written beside the run; it may be one that is not valid. An error means that
/// there is no result: what went wrong before aiperf could start, or that the pod was told to end.
pub async fn run(file: &Path, say: Say<'_>) -> anyhow::Result<RunResult> {
    let plan = read(file)?;
    let stop = CancellationToken::new();
    // The first process of a pod gets no default for SIGTERM: without this it would be ignored until SIGKILL.
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let stopped = stop.clone();
    let listening = tokio::spawn(async move {
        terminate.recv().await;
        stopped.cancel();
    });
    let result = Driver { plan: &plan, python: Path::new(PYTHON), stop, say }.run().await;
    listening.abort();
    result
}

fn read(file: &Path) -> anyhow::Result<Plan> {
    let text = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    serde_json::from_str(&text).map_err(|e| fail(Kind::Config, format!("{}, line {}: not a plan of a benchmark: {e}", file.display(), e.line())).into())
}

struct Driver<'a> {
    plan: &'a Plan,
    python: &'a Path,
    /// Set by SIGTERM.
    stop: CancellationToken,
    say: Say<'a>,
}

impl Driver<'_> {
    async fn run(&self) -> anyhow::Result<RunResult> {
        let folder = self.plan.folder();
        let kept = folder.join("result.json");
        // A pod that was ended after its work and before its result was read is not made to work again.
        if let Some(result) = fs::read_to_string(&kept).ok().and_then(|text| serde_json::from_str::<RunResult>(&text).ok()).filter(|result| result.numbers().is_some()) {
            self.note(format!("the run was made before: {}", kept.display()));
            return Ok(self.last_word(result));
        }
        let installed = tokio::select! {
            installed = install::install(&self.plan.shared, self.python, self.say) => installed?,
            () = self.stop.cancelled() => return Err(stopped()),
        };
        fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        let mut result =
            RunResult { run: self.plan.run.clone(), folder: format!("runs/{}", self.plan.run), load: self.plan.load, served: self.plan.served.clone(), attempts: Vec::new() };
        for number in 1..=self.plan.limits.attempts.max(1) {
            let attempt = attempt::run(self, &installed, &fresh(&folder)?).await?;
            let (valid, words) = (attempt.valid(), attempt.objections().join("; "));
            self.note(format!("{} ended ({}), {}", attempt.folder, attempt.end, if valid { "valid".to_owned() } else { format!("not valid: {words}") }));
            result.attempts.push(attempt);
            if self.stop.is_cancelled() {
                return Err(stopped());
            }
            if valid {
                break;
            }
            if number < self.plan.limits.attempts {
                self.note("trying once more");
            }
        }
        write(&kept, &result)?;
        Ok(self.last_word(result))
    }

    fn last_word(&self, result: RunResult) -> RunResult {
        (self.say)(&Said::Result { result: Box::new(result.clone()) });
        result
    }

    fn note(&self, text: impl Into<String>) {
        (self.say)(&Said::Note { text: text.into() });
    }
}

fn stopped() -> anyhow::Error {
    fail(Kind::Interrupted, "the pod was told to end; what aiperf had measured until then is kept beside the run").into()
}

/// A folder that nothing has written to: aiperf deletes nothing when it starts, and a killed run leaves files that look whole.
fn fresh(run: &Path) -> anyhow::Result<PathBuf> {
    let mut number = 1_u32;
    loop {
        let folder = run.join(format!("attempt-{number}"));
        match fs::create_dir(&folder) {
            Ok(()) => return Ok(folder),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => number += 1,
            Err(e) => return Err(e).with_context(|| format!("making {}", folder.display())),
        }
    }
}

/// Whole or not at all: another pod may read it.
fn write(path: &Path, value: &impl serde::Serialize) -> anyhow::Result<()> {
    let folder = path.parent().context("a file has a folder")?;
    let mut file = tempfile::NamedTempFile::new_in(folder).with_context(|| format!("writing into {}", folder.display()))?;
    serde_json::to_writer_pretty(&mut file, value)?;
    file.flush()?;
    file.as_file().sync_all().with_context(|| format!("writing {}", path.display()))?;
    file.persist(path).map_err(|e| e.error).with_context(|| format!("writing {}", path.display()))?;
    Ok(())
}

#[cfg(test)]
mod mock_openai;
#[cfg(test)]
mod real;
#[cfg(test)]
mod tests;
