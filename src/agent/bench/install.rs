//! aiperf on the shared volume: installed once, from a list of wheels with their hashes, by the Python of the runtime image.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::Context;
use sha2::{Digest, Sha256};
use tokio::process::Command;

use crate::bench::plan::AIPERF_VERSION;
use crate::bench::said::{Said, Say};
use crate::error::{Kind, fail};

/// aiperf and all that it needs.
const LOCK: &str = include_str!("../../../configs/aiperf-0.13.0.lock");

/// Written last into the folder, with the lock's SHA-256: without it the folder is half of something.
const COMPLETE: &str = ".complete";

/// Where aiperf is installed, if it is there as the lock wants it; else installs it. Several pods may do this at once: each installs into a
/// folder of its own, and the first to rename it wins.
pub(super) async fn install(shared: &Path, python: &Path, say: Say<'_>) -> anyhow::Result<PathBuf> {
    let place = shared.join(format!("aiperf-{AIPERF_VERSION}"));
    let wanted: String = Sha256::digest(LOCK).iter().map(|byte| format!("{byte:02x}")).collect();
    if complete(&place, &wanted) {
        return Ok(place);
    }
    say(&Said::Note { text: format!("installing aiperf {AIPERF_VERSION} on the shared volume: once, one to two minutes") });
    let own = tempfile::Builder::new().prefix(".aiperf-").tempdir_in(shared).with_context(|| format!("making a folder in {}", shared.display()))?;
    let (target, lock) = (own.path().join("installed"), own.path().join("lock.txt"));
    fs::write(&lock, LOCK).with_context(|| format!("writing {}", lock.display()))?;
    pip(python, &target, &lock, &shared.join("wheels")).await?;
    fs::write(target.join(COMPLETE), &wanted).with_context(|| format!("writing into {}", target.display()))?;
    if fs::rename(&target, &place).is_err() && !complete(&place, &wanted) {
        // What is there is half of something, or of another lock: it makes room.
        fs::rename(&place, own.path().join("before")).with_context(|| format!("moving {} away", place.display()))?;
        if let Err(e) = fs::rename(&target, &place)
            && !complete(&place, &wanted)
        {
            return Err(e).with_context(|| format!("putting aiperf in place at {}", place.display()));
        }
    }
    Ok(place)
}

fn complete(place: &Path, wanted: &str) -> bool {
    fs::read_to_string(place.join(COMPLETE)).is_ok_and(|found| found.trim() == wanted)
}

async fn pip(python: &Path, target: &Path, lock: &Path, wheels: &Path) -> anyhow::Result<()> {
    let mut command = Command::new(python);
    command.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "--target"]).arg(target).args(["--require-hashes", "-r"]).arg(lock);
    if wheels.is_dir() {
        command.args(["--no-index", "--find-links"]).arg(wheels);
    }
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await.with_context(|| format!("starting {} -m pip", python.display()))?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<_> = words.lines().filter(|line| !line.trim().is_empty()).collect();
    Err(fail(Kind::Remote, format!("installing aiperf {AIPERF_VERSION} failed ({}): {}", output.status, lines[lines.len().saturating_sub(5)..].join("; ")))
        .hint("pods need a way to a package index, or the wheels of the lock in the folder wheels/ of the shared volume")
        .into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A Python whose pip does this; `$target` is where it should install, `$@` its arguments.
    fn python(folder: &Path, script: &str) -> PathBuf {
        let path = folder.join("python3");
        fs::write(&path, format!("#!/bin/sh\necho \"$@\" >> {0}/calls\nwhile [ \"$1\" != --target ]; do shift; done\ntarget=$2\n{script}\n", folder.display())).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[tokio::test]
    async fn is_installed_once_and_whole() {
        let (tools, shared) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let python = python(tools.path(), "mkdir -p $target/aiperf");
        fs::create_dir(shared.path().join("wheels")).unwrap();
        // Half of an earlier installation.
        fs::create_dir_all(shared.path().join("aiperf-0.13.0/old")).unwrap();
        for _ in 0..2 {
            let place = install(shared.path(), &python, &|_| ()).await.unwrap();
            assert_eq!(place, shared.path().join("aiperf-0.13.0"));
            assert!(place.join("aiperf").is_dir() && !place.join("old").exists());
        }
        let calls = fs::read_to_string(tools.path().join("calls")).unwrap();
        assert_eq!(calls.lines().count(), 1);
        assert!(calls.contains("--require-hashes -r ") && calls.contains("--no-index --find-links "), "{calls}");
        let left: Vec<_> = fs::read_dir(shared.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left.len(), 2, "{left:?}");
    }

    #[tokio::test]
    async fn two_pods_at_once_both_find_it() {
        let (tools, shared) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        // Each waits for the other to have begun.
        let python = python(tools.path(), "mkdir -p $target/aiperf; echo > $target/own; until [ $(wc -l < $(dirname $0)/calls) = 2 ]; do :; done");
        let (a, b) = tokio::join!(install(shared.path(), &python, &|_| ()), install(shared.path(), &python, &|_| ()));
        assert_eq!(a.unwrap(), b.unwrap());
        assert!(shared.path().join("aiperf-0.13.0/.complete").is_file());
        assert_eq!(fs::read_dir(shared.path()).unwrap().count(), 1);
    }

    #[tokio::test]
    async fn what_pip_says_is_said() {
        let (tools, shared) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let python = python(tools.path(), "echo 'ERROR: no matching distribution for aiperf' >&2; exit 1");
        let error = install(shared.path(), &python, &|_| ()).await.unwrap_err();
        assert!(error.to_string().contains("exit status: 1): ERROR: no matching distribution"), "{error}");
        assert_eq!(fs::read_dir(shared.path()).unwrap().count(), 0);
    }
}
