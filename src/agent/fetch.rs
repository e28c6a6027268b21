//! `nemo agent fetch`: brings a model's files to the shared volume, from wherever it was stopped, each checked by its hash.
//!
//! Every worker of the Indexed Job has files of its own, so nobody locks anything. What it says on stdout is one JSON object a line.

mod file;
mod journal;
mod link;
mod plan;
mod rate;
mod record;
mod say;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

pub use plan::{FetchPlan, PlanFile, ReadBack};
pub use rate::ReadRate;
pub use say::Said;

use self::file::Worker;
use self::link::Link;
use self::record::Records;
use self::say::Tally;
use crate::error::{Kind, fail};
use crate::secret::Secret;

/// Where and who this worker is.
#[derive(Debug, Clone)]
pub struct Place {
    /// Where the shared volume is mounted.
    pub root: PathBuf,
    /// `JOB_COMPLETION_INDEX`
    pub index: u32,
}

/// Fetches this worker's share of the plan in `file`. What happens is written to `out`, one JSON object a line.
pub async fn run(file: &Path, place: &Place, token: Option<Secret>, out: Box<dyn std::io::Write + Send>) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    // The first process of a pod gets no default for SIGTERM: without this it would be ignored until SIGKILL.
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let stopping = stop.clone();
    let listening = tokio::spawn(async move {
        terminate.recv().await;
        stopping.cancel();
    });
    let plan = FetchPlan::read(file)?;
    let tally = Arc::new(Tally::new(out));
    let result = fetch(&plan, place, token, tally.clone(), stop).await;
    listening.abort();
    if let Err(error) = &result {
        let failure = crate::error::Failure::of(None, error);
        tally.say(&Said::Failed { exit_code: failure.kind.exit_code(), why: failure.message, hints: failure.hints });
    }
    result
}

async fn fetch(plan: &FetchPlan, place: &Place, token: Option<Secret>, tally: Arc<Tally>, stop: CancellationToken) -> anyhow::Result<()> {
    let mine = plan.share(place.index)?;
    let folder = place.root.join(&plan.folder);
    std::fs::create_dir_all(&folder).with_context(|| format!("making {} on the shared volume", folder.display()))?;
    let records = Records::open(&folder, place.index)?;
    tally.set_total(mine.iter().map(|file| file.size).sum(), mine.len());
    room(plan, &folder)?;
    let link = Link::new(plan, token)?;
    let worker = Worker { link, folder: folder.clone(), records, tally: tally.clone(), slots: Semaphore::new(plan.connections.max(1) as usize), stop, piece: plan.piece };
    let saying = tokio::spawn(say::regularly(tally.clone()));
    let files = stream::iter(mine).map(|file| worker.file(file));
    let fetched = files.buffer_unordered(plan.connections.max(1) as usize).try_collect::<()>().await;
    saying.abort();
    fetched?;
    let complete = worker.records.complete(plan)?;
    if complete {
        // Nobody writes any more. The files are there whether or not anybody knows how fast they are read.
        match rate::of(plan, &folder).await {
            Ok(Some(rate)) => tally.say(&Said::Read(rate)),
            Ok(None) => {}
            Err(error) => tally.retrying("measuring how fast the volume reads", &format!("{error:#}"), 1),
        }
    }
    tally.finish(complete);
    Ok(())
}

/// Refuses when the volume has no room for what is still to come, of all workers.
fn room(plan: &FetchPlan, folder: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::MetadataExt as _;
    let there = |path: &Path| std::fs::metadata(path).map_or(0, |data| data.blocks() * 512);
    let needed: u64 = plan.files.iter().map(|file| file.size.saturating_sub(there(&folder.join(&file.path)).max(there(&file::part_of(&folder.join(&file.path)))))).sum();
    let volume = rustix::fs::statvfs(folder).with_context(|| format!("asking how much room {} has", folder.display()))?;
    let free = volume.f_bavail.saturating_mul(volume.f_frsize);
    if needed > free {
        let message = format!("the shared volume has {} free and {} are still to come", gigabytes(free), gigabytes(needed));
        return Err(fail(Kind::Capacity, message).hint("set a larger storage.capacity_gib, or remove what is on the volume").into());
    }
    Ok(())
}

fn gigabytes(bytes: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "a figure with one decimal for people")]
    let figure = bytes as f64 / 1e9;
    format!("{figure:.1} GB")
}
