//! The state file `.nemo/<name>.toml`: notes about the cloud, never the truth, never a secret.
//!
//! Written before and after every step to a temporary file, synced, then renamed; the copy before it stays as
//! `<name>.toml.last`. A lock file says who is at work.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::clock;
use super::step::{Digest, Facts, StepId};
use crate::error::{Kind, fail};

/// The version of the file that this `nemo` writes. An older one is read; a newer one is refused.
pub const VERSION: u32 = 1;

/// The last line of a whole file: a cut TOML file can still be valid TOML.
const END: &str = "# end of state\n";

/// How far a step is known to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    Started,
    Done,
    Failed,
}

/// The note about one step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub status: Status,
    pub inputs: Digest,
    pub started: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished: Option<Timestamp>,
    /// The parts that were reached, for steps that others need only in part.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<String>,
    #[serde(default)]
    pub facts: toml::Table,
}

/// All notes about one deployment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    pub version: u32,
    /// The `nemo` that wrote it.
    pub written_by: String,
    pub deployment: String,
    pub account: String,
    pub region: String,
    /// Revisions, digests and prices as resolved when the deployment was planned.
    #[serde(default)]
    pub pins: toml::Table,
    #[serde(default)]
    pub steps: BTreeMap<StepId, Record>,
}

impl State {
    /// The state of a deployment of which nothing is known.
    pub fn new(deployment: &str, account: &str, region: &str) -> Self {
        Self {
            version: VERSION,
            written_by: env!("CARGO_PKG_VERSION").into(),
            deployment: deployment.into(),
            account: account.into(),
            region: region.into(),
            pins: toml::Table::new(),
            steps: BTreeMap::new(),
        }
    }

    /// The facts of all steps.
    pub fn facts(&self) -> Facts {
        let facts = Facts::default();
        for (step, record) in &self.steps {
            // A step that was only started knows nothing yet: an empty table would pass for facts.
            if record.status == Status::Done || !record.facts.is_empty() {
                facts.extend(*step, record.facts.clone());
            }
        }
        facts
    }
}

/// Where the state of a deployment is kept.
#[derive(Debug, Clone)]
pub struct Place {
    folder: PathBuf,
    name: String,
}

impl Place {
    /// In `.nemo` under this folder.
    pub fn new(working_folder: &Path, name: &str) -> Self {
        Self { folder: working_folder.join(".nemo"), name: name.into() }
    }

    /// `.nemo/<name>.<what>`.
    pub fn path(&self, what: &str) -> PathBuf {
        self.folder.join(format!("{}.{what}", self.name))
    }

    /// Reads the notes; `None` if there are none.
    pub fn read(&self) -> anyhow::Result<Option<State>> {
        let path = self.path("toml");
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            // What is no text is broken; the rest is the disk's.
            Err(e) if e.kind() == std::io::ErrorKind::InvalidData => String::from("\0"),
            Err(e) => return Err(e).with_context(|| format!("reading {}", path.display())),
        };
        parse(&text).map(Some).map_err(|why| {
            let last = self.path("toml.last");
            let mut advice = fail(Kind::Config, format!("{}: {}", path.display(), why.words));
            if why.broken && fs::read_to_string(&last).is_ok_and(|text| parse(&text).is_ok()) {
                advice = advice.hint(format!("the last good copy is there; to use it: cp {} {}", last.display(), path.display()));
            } else if why.broken {
                advice = advice.hint(format!("move it away; `nemo status` finds the deployment again by its tags: mv {0} {0}.broken", path.display()));
            }
            advice.into()
        })
    }

    /// Locks the deployment for writing. A second `nemo` is told who holds it and since when.
    pub fn lock(&self) -> anyhow::Result<Lock> {
        fs::create_dir_all(&self.folder).with_context(|| format!("making the folder {}", self.folder.display()))?;
        let path = self.path("lock");
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).with_context(|| format!("opening {}", path.display()))?;
        // The guard borrows the lock; both live as long as the process needs them, so it is leaked into a static one.
        let lock: &'static mut fd_lock::RwLock<File> = Box::leak(Box::new(fd_lock::RwLock::new(file)));
        match lock.try_write() {
            Ok(mut guard) => {
                let who = format!("process {} on {} since {}", std::process::id(), host(), clock::now());
                guard.set_len(0).and_then(|()| guard.rewind()).and_then(|()| guard.write_all(who.as_bytes())).with_context(|| format!("writing {}", path.display()))?;
                Ok(Lock { _guard: guard })
            }
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                let mut who = String::new();
                let _ = File::open(&path).and_then(|mut file| file.read_to_string(&mut who));
                Err(fail(Kind::Conflict, format!("another nemo works on {:?}: {}", self.name, who.trim()))
                    .hint("wait until it has ended, or end it; `nemo status` reads without the lock")
                    .into())
            }
            Err(e) => Err(e).with_context(|| format!("locking {}", path.display())),
        }
    }

    /// Writes the notes so that there is always one whole file. Written only if they differ from what is there.
    pub fn write(&self, state: &State) -> anyhow::Result<()> {
        let path = self.path("toml");
        let text = toml::to_string_pretty(state).context("the state does not serialise")? + "\n" + END;
        let old = fs::read_to_string(&path).ok();
        if old.as_deref() == Some(&text) {
            return Ok(());
        }
        let act = || -> std::io::Result<()> {
            fs::create_dir_all(&self.folder)?;
            let mut temporary = tempfile::Builder::new().prefix(&format!(".{}.", self.name)).suffix(".tmp").tempfile_in(&self.folder)?;
            temporary.write_all(text.as_bytes())?;
            temporary.as_file().sync_all()?;
            if old.as_deref().is_some_and(|old| parse(old).is_ok()) {
                let last = self.path("toml.last");
                let next = self.path("toml.last.tmp");
                let _ = fs::remove_file(&next);
                fs::hard_link(&path, &next).or_else(|_| fs::copy(&path, &next).map(drop))?;
                fs::rename(&next, &last)?;
            }
            temporary.persist(&path).map_err(|e| e.error)?;
            File::open(&self.folder)?.sync_all()
        };
        act().with_context(|| format!("writing {}", path.display())).map_err(|e| {
            let advice = fail(Kind::LocalIo, "the state could not be noted")
                .hint("make room or fix the folder's permissions, then run the same command: the notes before this one are whole");
            e.context(advice)
        })
    }

    /// Forgets the deployment: everything of it is gone.
    pub fn remove(&self) -> anyhow::Result<()> {
        for what in ["toml", "toml.last"] {
            match fs::remove_file(self.path(what)) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e).with_context(|| format!("removing {}", self.path(what).display())),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Held while a command may change something.
pub struct Lock {
    _guard: fd_lock::RwLockWriteGuard<'static, File>,
}

fn host() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").map_or_else(|_| "this host".into(), |name| name.trim().to_owned())
}

struct Why {
    words: String,
    /// The file itself is damaged, so that a copy would help.
    broken: bool,
}

fn parse(text: &str) -> Result<State, Why> {
    #[derive(Deserialize)]
    struct Head {
        version: u32,
        #[serde(default)]
        written_by: String,
    }
    let head: Head = toml::from_str(text).map_err(|e| Why { words: format!("not a state file, or cut: {}", e.to_string().trim()), broken: true })?;
    if head.version > VERSION {
        return Err(Why {
            words: format!(
                "written by nemo {} as version {} of the file; this nemo ({}) reads up to {VERSION}: use nemo {} or later",
                head.written_by,
                head.version,
                env!("CARGO_PKG_VERSION"),
                head.written_by
            ),
            broken: false,
        });
    }
    if !text.ends_with(END) {
        return Err(Why { words: "the file is cut: its last line is missing".into(), broken: true });
    }
    toml::from_str(text).map_err(|e| Why { words: e.to_string().trim().to_owned(), broken: true })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Failure;

    fn place() -> (tempfile::TempDir, Place) {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::new(folder.path(), "demo");
        (folder, place)
    }

    fn state(steps: usize) -> State {
        let mut state = State::new("demo", "123456789012", "us-east-2");
        for step in &StepId::ALL[..steps] {
            let record = Record { status: Status::Done, inputs: Digest("a".into()), started: clock::now(), finished: None, parts: vec![], facts: toml::Table::new() };
            state.steps.insert(*step, record);
        }
        state
    }

    #[test]
    fn a_step_that_only_began_has_no_facts() {
        let mut state = state(2);
        let begun = state.steps.get_mut(&StepId::ALL[1]).unwrap();
        begun.status = Status::Started;
        assert!(state.facts().table(StepId::ALL[0]).is_some());
        assert!(state.facts().table(StepId::ALL[1]).is_none());
        state.steps.get_mut(&StepId::ALL[1]).unwrap().facts.insert("part".into(), 1.into());
        assert!(state.facts().table(StepId::ALL[1]).is_some());
    }

    #[test]
    fn comes_back_as_written() {
        let (_folder, place) = place();
        assert!(place.read().unwrap().is_none());
        place.write(&state(3)).unwrap();
        assert_eq!(place.read().unwrap().unwrap().steps.len(), 3);
    }

    /// Cut anywhere, the file is either refused with the copy before it on offer, or it is still whole.
    #[test]
    fn a_cut_file_is_refused_and_the_last_good_copy_offered() {
        let (_folder, place) = place();
        place.write(&state(1)).unwrap();
        place.write(&state(2)).unwrap();
        let whole = fs::read(place.path("toml")).unwrap();
        for cut in 0..whole.len() {
            fs::write(place.path("toml"), &whole[..cut]).unwrap();
            let failure = Failure::from(place.read().unwrap_err());
            assert_eq!(failure.kind, Kind::Config, "cut at {cut}");
            assert!(failure.hints[0].contains("demo.toml.last"), "cut at {cut}: {:?}", failure.hints);
        }
        fs::copy(place.path("toml.last"), place.path("toml")).unwrap();
        assert_eq!(place.read().unwrap().unwrap().steps.len(), 1);
    }

    #[test]
    fn a_newer_version_names_the_nemo_that_reads_it() {
        let (_folder, place) = place();
        fs::create_dir_all(place.path("toml").parent().unwrap()).unwrap();
        fs::write(place.path("toml"), "version = 9\nwritten_by = \"7.1.0\"\nnew = true\n").unwrap();
        let failure = Failure::from(place.read().unwrap_err());
        assert_eq!(failure.kind, Kind::Config);
        assert!(failure.message.contains("use nemo 7.1.0 or later"), "{}", failure.message);
    }

    #[test]
    fn the_second_is_told_who_holds_the_lock() {
        let (_folder, place) = place();
        let held = place.lock().unwrap();
        let failure = Failure::from(place.lock().err().unwrap());
        assert_eq!(failure.kind, Kind::Conflict);
        assert!(failure.message.contains(&format!("process {} on", std::process::id())), "{}", failure.message);
        drop(held);
        place.lock().unwrap();
    }
}
