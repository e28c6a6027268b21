//! What has been checked: each worker notes its files, and whoever finds everything noted writes the manifest of the folder, last.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::plan::{FetchPlan, PlanFile};

/// Name of the manifest in the model's folder; while it is not there, the folder is not complete.
pub const MANIFEST: &str = ".nemo-manifest.json";
/// Notes of the workers.
const NOTES: &str = ".nemo-checked";

/// A file whose bytes were hashed and found right.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Checked {
    path: String,
    size: u64,
    hash: String,
    /// Nanoseconds since 1970: a file that was touched since is hashed again.
    modified: i64,
}

/// The folder as it was when the last file had been checked.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Manifest {
    repository: String,
    revision: String,
    bytes: u64,
    files: Vec<Checked>,
}

/// The notes of all workers, and the file where this one writes its own.
pub(super) struct Records {
    folder: PathBuf,
    index: u32,
    known: BTreeMap<String, Checked>,
    mine: Mutex<File>,
}

impl Records {
    pub(super) fn open(folder: &Path, index: u32) -> anyhow::Result<Self> {
        let notes = folder.join(NOTES);
        fs::create_dir_all(&notes).with_context(|| format!("making {}", notes.display()))?;
        let path = notes.join(format!("{index}.jsonl"));
        let mut mine = OpenOptions::new().create(true).append(true).open(&path).with_context(|| format!("opening {}", path.display()))?;
        // Ends a line that a killed worker did not finish.
        mine.write_all(b"\n").with_context(|| format!("writing {}", path.display()))?;
        Ok(Self { folder: folder.to_owned(), index, known: read(&notes)?, mine: Mutex::new(mine) })
    }

    /// Has this very file been checked before?
    pub(super) fn knows(&self, file: &PlanFile) -> bool {
        self.known.get(&file.path).is_some_and(|checked| is(&self.folder, checked, file))
    }

    /// Notes that the file has been checked.
    pub(super) fn note(&self, file: &PlanFile) -> anyhow::Result<()> {
        let path = self.folder.join(&file.path);
        let data = fs::metadata(&path).with_context(|| format!("reading {}", path.display()))?;
        let checked = Checked { path: file.path.clone(), size: file.size, hash: file.hash().to_owned(), modified: modified(&data) };
        let line = serde_json::to_string(&checked).context("writing a note")? + "\n";
        let mut mine = self.mine.lock().unwrap_or_else(PoisonError::into_inner);
        mine.write_all(line.as_bytes()).and_then(|()| mine.sync_data()).context("noting a checked file")
    }

    /// Writes the manifest if every file of the plan has been checked by somebody. Two workers that end at once write the same.
    pub(super) fn complete(&self, plan: &FetchPlan) -> anyhow::Result<bool> {
        let known = read(&self.folder.join(NOTES))?;
        let mut files: Vec<Checked> = plan.files.iter().filter_map(|file| known.get(&file.path).filter(|checked| is(&self.folder, checked, file))).cloned().collect();
        if files.len() < plan.files.len() {
            return Ok(false);
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let manifest = Manifest { repository: plan.repository.clone(), revision: plan.revision.clone(), bytes: files.iter().map(|file| file.size).sum(), files };
        let path = self.folder.join(MANIFEST);
        let new = self.folder.join(format!("{MANIFEST}.{}", self.index));
        let write = || {
            let mut file = File::create(&new)?;
            serde_json::to_writer_pretty(&mut file, &manifest)?;
            file.sync_all()?;
            fs::rename(&new, &path)
        };
        write().with_context(|| format!("writing {}", path.display()))?;
        Ok(true)
    }
}

fn modified(data: &fs::Metadata) -> i64 {
    data.mtime() * 1_000_000_000 + data.mtime_nsec()
}

fn is(folder: &Path, checked: &Checked, file: &PlanFile) -> bool {
    let same = checked.size == file.size && checked.hash == file.hash();
    same && fs::metadata(folder.join(&file.path)).is_ok_and(|data| data.len() == file.size && modified(&data) == checked.modified)
}

/// The notes of all workers; lines that are not whole are none. The last note about a file counts.
fn read(notes: &Path) -> anyhow::Result<BTreeMap<String, Checked>> {
    let mut known = BTreeMap::new();
    for entry in fs::read_dir(notes).with_context(|| format!("reading {}", notes.display()))? {
        let text = fs::read_to_string(entry.with_context(|| format!("reading {}", notes.display()))?.path()).unwrap_or_default();
        for checked in text.lines().filter_map(|line| serde_json::from_str::<Checked>(line).ok()) {
            known.insert(checked.path.clone(), checked);
        }
    }
    Ok(known)
}
