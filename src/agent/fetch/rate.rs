//! How fast the volume reads: a part of the largest file read back, once for the files of a folder.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::fs::{Advice, fadvise};
use serde::{Deserialize, Serialize};

use super::plan::{FetchPlan, ReadBack};
use crate::engine::clock;

/// In the model's folder, beside the manifest. Who fetches nothing anew reports what is in it, so that what was measured moves only with the files.
pub const FILE: &str = ".nemo-read-rate.json";
/// Reading ends after so long, whatever it has read.
const LIMIT: Duration = Duration::from_secs(20);
/// Bytes that a stream reads at once.
const BLOCK: usize = 1 << 20;

/// What was measured; none of it where nothing was.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReadRate {
    /// Of all streams together.
    pub mb_s: u64,
    pub streams: u32,
    /// The day, as in 2026-12-01.
    pub on: String,
}

/// What was measured before with these files, else what a read now gives; None for files that are too small to tell.
pub(super) async fn of(plan: &FetchPlan, folder: &Path) -> anyhow::Result<Option<ReadRate>> {
    let Some(largest) = plan.files.iter().max_by_key(|file| file.size).filter(|file| file.size >= plan.read_back.at_least) else { return Ok(None) };
    let (kept, path, how) = (folder.join(FILE), folder.join(&largest.path), plan.read_back.clone());
    let measured = tokio::task::spawn_blocking(move || {
        if let Some(rate) = known(&kept) {
            return Ok(rate);
        }
        let (bytes, time) = read(&path, &how).with_context(|| format!("reading {} back", path.display()))?;
        keep(&kept, &rate(bytes, time, how.streams)).with_context(|| format!("writing {}", kept.display()))
    });
    measured.await.context("measuring")?.map(Some)
}

fn rate(bytes: u64, time: Duration, streams: u32) -> ReadRate {
    let mb_s = u128::from(bytes) / time.as_micros().max(1);
    ReadRate { mb_s: u64::try_from(mb_s).unwrap_or(u64::MAX).max(1), streams, on: clock::now().strftime("%Y-%m-%d").to_string() }
}

fn known(kept: &Path) -> Option<ReadRate> {
    serde_json::from_str(&fs::read_to_string(kept).ok()?).ok().filter(|rate: &ReadRate| rate.mb_s > 0)
}

/// Of two workers that measure at once, the first one's number is everybody's.
fn keep(kept: &Path, rate: &ReadRate) -> io::Result<ReadRate> {
    let new = kept.with_added_extension(std::process::id().to_string());
    fs::write(&new, serde_json::to_string(rate)?)?;
    let linked = match fs::hard_link(&new, kept) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && known(kept).is_none() => fs::rename(&new, kept).map(|()| rate.clone()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(known(kept).unwrap_or_else(|| rate.clone())),
        other => other.map(|()| rate.clone()),
    };
    let _ = fs::remove_file(&new);
    linked
}

/// Bytes read by all streams, each a part of its own, and how long that took. What this node still holds of the file is thrown away first.
fn read(path: &Path, how: &ReadBack) -> io::Result<(u64, Duration)> {
    let file = Arc::new(File::open(path)?);
    // Only what is on disk can be thrown away.
    file.sync_all()?;
    fadvise(&file, 0, None, Advice::DontNeed)?;
    let streams = u64::from(how.streams.max(1));
    let part = file.metadata()?.len().min(how.at_most) / streams;
    let began = Instant::now();
    let reading: Vec<_> = (0..streams)
        .map(|stream| {
            let file = file.clone();
            std::thread::spawn(move || stretch(&file, stream * part, part, began))
        })
        .collect();
    let mut bytes = 0;
    for stream in reading {
        bytes += stream.join().map_err(|_| io::Error::other("a thread that reads has ended"))??;
    }
    Ok((bytes, began.elapsed()))
}

/// Reads `length` bytes from `start`, or what the time allows.
fn stretch(file: &File, start: u64, length: u64, began: Instant) -> io::Result<u64> {
    let mut block = vec![0; BLOCK];
    let mut done = 0;
    while done < length && began.elapsed() < LIMIT {
        let wanted = usize::try_from(length - done).unwrap_or(BLOCK).min(BLOCK);
        match file.read_at(&mut block[..wanted], start + done)? {
            0 => break,
            came => done += came as u64,
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_over_time_are_a_rate_and_never_none() {
        for (bytes, seconds, mb_s) in [(8_000_000_000, 20.0, 400), (1_000_000_000, 0.5, 2000), (999_999, 1.0, 1), (0, 20.0, 1)] {
            let rate = rate(bytes, Duration::from_secs_f64(seconds), 8);
            assert_eq!((rate.mb_s, rate.streams, rate.on.len()), (mb_s, 8, 10), "{bytes} bytes in {seconds} s");
        }
    }

    #[test]
    fn each_stream_reads_its_own_part_and_no_more_than_is_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        fs::write(&path, vec![7; 5 << 20]).unwrap();
        for (streams, at_most, wanted) in [(1, 100 << 20, 5 << 20), (4, 100 << 20, 5 << 20), (3, 3 << 20, 3 << 20)] {
            let (bytes, time) = read(&path, &ReadBack { streams, at_least: 0, at_most }).unwrap();
            assert_eq!(bytes, wanted, "{streams} streams");
            assert!(time > Duration::ZERO);
        }
        assert!(read(&folder.path().join("none"), &ReadBack { streams: 1, at_least: 0, at_most: 1 }).is_err());
    }

    #[test]
    fn the_first_number_stays_and_half_a_note_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let kept = folder.path().join(FILE);
        fs::write(&kept, "{\"mb_s\":").unwrap();
        let (first, second) = (rate(500_000_000, Duration::from_secs(1), 8), rate(100_000_000, Duration::from_secs(1), 8));
        assert_eq!(keep(&kept, &first).unwrap(), first);
        assert_eq!(keep(&kept, &second).unwrap(), first);
        assert_eq!(known(&kept), Some(first));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
    }
}
