//! One file: its pieces over several connections into `<file>.part`, then its hash, then its name.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures::stream::{self, StreamExt as _};
use sha1::Sha1;
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::journal::{Head, Journal};
use super::link::{Link, Trouble, Verdict, words};
use super::plan::PlanFile;
use super::record::Records;
use super::say::Tally;
use crate::engine::clock;
use crate::error::{Kind, fail};

/// Tries that bring not one byte, until it is given up.
const TRIES: u32 = 8;
/// Whole fetches of a file whose bytes turned out wrong.
const ROUNDS: u32 = 3;
/// Bytes that are written at once.
const BLOCK: usize = 1 << 20;
/// Pieces are noted once they are on disk for good; so often.
const NOTE_EVERY: Duration = Duration::from_secs(2);

/// What fetches files.
pub(super) struct Worker {
    pub(super) link: Link,
    pub(super) folder: PathBuf,
    pub(super) records: Records,
    pub(super) tally: Arc<Tally>,
    /// Connections, over all files.
    pub(super) slots: Semaphore,
    pub(super) stop: CancellationToken,
    /// Bytes of one request.
    pub(super) piece: u64,
}

/// Where a file is while it is not whole.
pub(super) fn part_of(path: &Path) -> PathBuf {
    path.with_added_extension("part")
}

impl Worker {
    /// Brings the file to its place, checked.
    pub(super) async fn file(&self, file: &PlanFile) -> anyhow::Result<()> {
        let path = self.folder.join(&file.path);
        if self.records.knows(file) || self.is_there(file, &path).await? {
            self.tally.there(file.size);
            self.tally.file();
            return Ok(());
        }
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).with_context(|| format!("making {}", parent.display()))?;
        }
        let part = part_of(&path);
        for round in 1..=ROUNDS {
            let journal = self.pieces(file, &part).await?;
            if matches(file, &part).await? {
                fs::rename(&part, &path).with_context(|| format!("naming {}", path.display()))?;
                journal.remove().with_context(|| format!("removing the notes about {}", part.display()))?;
                self.records.note(file)?;
                self.tally.file();
                return Ok(());
            }
            // Nobody knows which of its bytes are wrong.
            journal.remove().with_context(|| format!("removing the notes about {}", part.display()))?;
            fs::remove_file(&part).with_context(|| format!("removing {}", part.display()))?;
            self.tally.lost(file.size);
            self.tally.retrying(&file.path, "its bytes do not hash to what the hub lists", round + 1);
        }
        let message = format!("{}: fetched {ROUNDS} times, and its bytes never hashed to the {} that the hub lists", file.path, file.hash());
        Err(fail(Kind::Verification, message).hint("something between the hub and here changes bytes; if not, tell the owner of the repository").into())
    }

    /// A file of the right name and size from before, whose hash nobody noted.
    async fn is_there(&self, file: &PlanFile, path: &Path) -> anyhow::Result<bool> {
        let Ok(data) = fs::metadata(path) else { return Ok(false) };
        if data.len() == file.size && matches(file, path).await? {
            self.records.note(file)?;
            return Ok(true);
        }
        self.tally.retrying(&file.path, "what lies there under its name is something else", 1);
        fs::remove_file(path).with_context(|| format!("removing {}", path.display()))?;
        Ok(false)
    }

    /// Fetches the pieces that are missing. What has come is noted also when the rest fails.
    async fn pieces(&self, file: &PlanFile, part: &Path) -> anyhow::Result<Journal> {
        let at = || format!("writing {}", part.display());
        let head = Head { hash: file.hash().to_owned(), size: file.size, piece: self.piece };
        let mut journal = Journal::open(part, &head).with_context(at)?;
        let data = Arc::new(OpenOptions::new().create(true).read(true).write(true).truncate(false).open(part).with_context(at)?);
        data.set_len(file.size).with_context(at)?;
        let missing = journal.missing();
        self.tally.there(file.size - missing.iter().map(|piece| self.end(file, *piece) - self.start(*piece)).sum::<u64>());
        let mut coming = stream::iter(missing).map(|piece| self.piece(file, &data, piece)).buffer_unordered(self.slots.available_permits().max(1));
        let (mut fresh, mut noted, mut failed) = (Vec::new(), Instant::now(), None);
        while let Some(piece) = coming.next().await {
            match piece {
                Ok(piece) => fresh.push(piece),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
            if noted.elapsed() > NOTE_EVERY {
                note(&data, &mut journal, &mut fresh).await.with_context(at)?;
                noted = Instant::now();
            }
        }
        drop(coming);
        note(&data, &mut journal, &mut fresh).await.with_context(at)?;
        failed.map_or(Ok(journal), Err)
    }

    fn start(&self, piece: usize) -> u64 {
        piece as u64 * self.piece
    }

    fn end(&self, file: &PlanFile, piece: usize) -> u64 {
        (self.start(piece) + self.piece).min(file.size)
    }

    /// One piece over one connection, over another when that one breaks.
    async fn piece(&self, file: &PlanFile, data: &Arc<File>, piece: usize) -> anyhow::Result<usize> {
        let _slot = self.slots.acquire().await.context("connections are never closed")?;
        let (mut at, end) = (self.start(piece), self.end(file, piece));
        let mut tries = 0;
        while at < end {
            let before = at;
            let came = tokio::select! {
                () = self.stop.cancelled() => return Err(fail(Kind::Interrupted, "told to stop").into()),
                came = self.some(file, data, &mut at, end) => came?,
            };
            let Err(trouble) = came else { continue };
            tries = if at > before { 1 } else { tries + 1 };
            let after = match trouble.verdict {
                Verdict::Lasting { kind, hint } => return Err(fail(kind, trouble.why).hint(hint).into()),
                Verdict::Again(_) if tries > TRIES => {
                    let message = format!("{}: {TRIES} tries brought no byte; the last one: {}", file.path, trouble.why);
                    return Err(fail(Kind::Remote, message).hint("what has come is kept: run the same command again to go on").into());
                }
                Verdict::Again(after) => after.unwrap_or(Duration::from_millis(250 << tries.min(7))),
            };
            self.tally.retrying(&file.path, &trouble.why, tries);
            tokio::select! {
                () = self.stop.cancelled() => {}
                () = clock::sleep(after) => {}
            }
        }
        Ok(piece)
    }

    /// As much as one answer brings; `at` moves on with what has been written.
    async fn some(&self, file: &PlanFile, data: &Arc<File>, at: &mut u64, end: u64) -> anyhow::Result<Result<(), Trouble>> {
        let answer = match self.link.get(file, *at, end).await {
            Ok(answer) => answer,
            Err(trouble) => return Ok(Err(trouble)),
        };
        let mut skip = answer.skip;
        let mut bytes = answer.response.bytes_stream();
        let mut block = Vec::with_capacity(BLOCK);
        let ended = loop {
            if *at + block.len() as u64 >= end {
                break Ok(());
            }
            let mut piece = match tokio::time::timeout(self.link.stall(), bytes.next()).await {
                Ok(Some(Ok(piece))) => piece,
                Ok(Some(Err(error))) => break Err(Trouble::again(words(&error))),
                Ok(None) => break Err(Trouble::again("the answer ended early")),
                Err(_) => break Err(Trouble::again(format!("no byte came for {} s", self.link.stall().as_secs()))),
            };
            let unwanted = usize::try_from(skip).unwrap_or(usize::MAX).min(piece.len());
            skip -= unwanted as u64;
            piece = piece.slice(unwanted..);
            let room = usize::try_from(end - *at).unwrap_or(usize::MAX) - block.len();
            block.extend_from_slice(&piece[..piece.len().min(room)]);
            if block.len() >= BLOCK {
                block = self.write(file, data, at, block).await?;
            }
        };
        if !block.is_empty() {
            self.write(file, data, at, block).await?;
        }
        Ok(ended)
    }

    /// Writes a block and gives its memory back.
    async fn write(&self, file: &PlanFile, data: &Arc<File>, at: &mut u64, mut block: Vec<u8>) -> anyhow::Result<Vec<u8>> {
        let (to, offset, length) = (data.clone(), *at, block.len() as u64);
        let written = tokio::task::spawn_blocking(move || {
            to.write_all_at(&block, offset)?;
            block.clear();
            Ok::<_, io::Error>(block)
        });
        let block = written.await.context("writing")?.with_context(|| format!("writing {}", file.path))?;
        *at += length;
        self.tally.received(length);
        Ok(block)
    }
}

/// Notes pieces after their bytes have reached the disk.
async fn note(data: &Arc<File>, journal: &mut Journal, fresh: &mut Vec<usize>) -> io::Result<()> {
    if fresh.is_empty() {
        return Ok(());
    }
    let file = data.clone();
    tokio::task::spawn_blocking(move || file.sync_data()).await.map_err(io::Error::other)??;
    journal.note(fresh)?;
    fresh.clear();
    Ok(())
}

/// Do the bytes hash to what the hub lists?
async fn matches(file: &PlanFile, path: &Path) -> anyhow::Result<bool> {
    let (wanted, path) = (file.clone(), path.to_owned());
    let hashed = tokio::task::spawn_blocking(move || {
        let mut data = File::open(&path)?;
        if wanted.sha256.is_some() {
            return hash(&mut data, Sha256::new());
        }
        // Git hashes a header with the size before the bytes.
        let size = data.metadata()?.len();
        hash(&mut data, Sha1::new_with_prefix(format!("blob {size}\0")))
    });
    let found = hashed.await.context("hashing")?.with_context(|| format!("reading {}", file.path))?;
    Ok(found == file.hash())
}

fn hash<H: sha2::Digest>(data: &mut File, mut hash: H) -> io::Result<String> {
    let mut block = vec![0; BLOCK];
    loop {
        match data.read(&mut block)? {
            0 => return Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()),
            length => hash.update(&block[..length]),
        }
    }
}
