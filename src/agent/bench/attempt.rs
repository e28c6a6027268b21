//! One start of aiperf, in a process group of its own, watched through the records that it writes.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::process::{Child, Command};

use super::{Driver, tokenizer};
use crate::bench::plan::Limits;
use crate::bench::result::Attempt;
use crate::bench::said::Said;
use crate::engine::clock;

/// How often the records are looked at: a file on a network file system tells nobody when it grows.
const LOOK: Duration = Duration::from_secs(1);

/// Runs aiperf once in this empty folder, and reads what it left.
pub(super) async fn run(driver: &Driver<'_>, installed: &Path, folder: &Path) -> anyhow::Result<Attempt> {
    let tokenizer = tokenizer::lay(&driver.plan.tokenizer, folder)?;
    let args = driver.plan.aiperf_args(folder, &tokenizer);
    super::write(&folder.join("started-with.json"), &serde_json::json!({ "plan": driver.plan, "args": args }))?;
    let log = File::create(folder.join("aiperf-output.log")).with_context(|| format!("writing into {}", folder.display()))?;
    let mut command = Command::new(driver.python);
    command
        .args(["-m", "aiperf"])
        .args(&args)
        .env("PYTHONPATH", installed)
        // With either set, aiperf takes the tokenizer's folder for a name on the hub, and ends (its issue 1339).
        .env_remove("HF_HUB_OFFLINE")
        .env_remove("TRANSFORMERS_OFFLINE")
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .process_group(0);
    let started = clock::now();
    let child = command.spawn().with_context(|| format!("starting {} -m aiperf", driver.python.display()))?;
    let end = watch(driver, child, folder).await?;
    Ok(Attempt::judge(driver.plan, folder, started, clock::now(), end))
}

/// Waits until it ends, hangs, or has to go. Nothing of its group is left then. Says how it ended.
async fn watch(driver: &Driver<'_>, mut child: Child, folder: &Path) -> anyhow::Result<String> {
    let limits = driver.plan.limits;
    let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed())).context("a process that was just started has an id")?;
    let mut records = Growth::new(folder.join("profile_export.jsonl"));
    let end = loop {
        tokio::select! {
            status = child.wait() => break words(status.context("waiting for aiperf")?),
            () = driver.stop.cancelled() => {
                stop(&mut child, group, limits).await?;
                break "stopped, since the pod was told to end".to_owned();
            }
            () = clock::sleep(LOOK) => {
                if records.look() {
                    (driver.say)(&Said::Progress { what: "requests".into(), done: records.measured, total: u64::from(driver.plan.load.requests) });
                }
                // The first record takes aiperf's start and the model's, too.
                let limit = limits.stall_s + if records.any { 0 } else { limits.model_s };
                if records.grew.elapsed() > Duration::from_secs(limit) {
                    stop(&mut child, group, limits).await?;
                    break format!("stopped after {limit} s without a new record");
                }
            }
        }
    };
    // Children that outlive aiperf would go on sending load into the next attempt.
    let _ = kill_process_group(group, Signal::KILL);
    Ok(end)
}

/// SIGINT makes aiperf write what it has; only then SIGKILL. (SIGTERM would end it without a summary.)
async fn stop(child: &mut Child, group: Pid, limits: Limits) -> anyhow::Result<()> {
    let _ = kill_process(group, Signal::INT);
    if tokio::time::timeout(Duration::from_secs(limits.stop_s), child.wait()).await.is_err() {
        let _ = kill_process_group(group, Signal::KILL);
        child.wait().await.context("waiting for aiperf")?;
    }
    Ok(())
}

fn words(status: std::process::ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (_, Some(signal)) => format!("ended by signal {signal}"),
        _ => "ended".into(),
    }
}

/// How many records a growing file holds.
struct Growth {
    path: PathBuf,
    /// Up to here every line is counted.
    counted: u64,
    /// Requests of the measured phase.
    measured: u64,
    /// Is there any record, also of the warm-up?
    any: bool,
    grew: Instant,
}

impl Growth {
    fn new(path: PathBuf) -> Self {
        Self { path, counted: 0, measured: 0, any: false, grew: Instant::now() }
    }

    /// Counts what came since the last look; true if anything did. A file that is not there yet has not grown.
    fn look(&mut self) -> bool {
        let mut new = Vec::new();
        let read = File::open(&self.path).and_then(|mut file| {
            file.seek(SeekFrom::Start(self.counted))?;
            file.read_to_end(&mut new)
        });
        let Some(end) = read.ok().and_then(|_| new.iter().rposition(|byte| *byte == b'\n')) else { return false };
        let whole = String::from_utf8_lossy(&new[..end]);
        self.measured += whole.lines().filter(|line| line.contains(r#""benchmark_phase":"profiling""#)).count() as u64;
        self.counted += end as u64 + 1;
        self.any = true;
        self.grew = Instant::now();
        true
    }
}
