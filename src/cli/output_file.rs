//! Files that somebody named for an answer.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;

use crate::error::{Failure, Kind, fail};

/// Writes it, with the folders above it.
pub(super) fn write(file: &Path, text: &str) -> Result<(), Failure> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(file, text)).map_err(|error| cannot(file, &error))
}

/// Can it be written? Known before minutes of work; what is in it stays until there is something to put in its place.
pub(super) fn writable(file: &Path) -> Result<(), Failure> {
    let new = !file.exists();
    OpenOptions::new().create(true).append(true).open(file).map_err(|error| cannot(file, &error))?;
    if new { fs::remove_file(file).map_err(|error| cannot(file, &error)) } else { Ok(()) }
}

fn cannot(file: &Path, error: &io::Error) -> Failure {
    fail(Kind::LocalIo, format!("{} cannot be written: {error}", file.display())).hint("name a file in a folder that may be written").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asking_whether_it_can_be_written_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (old, new) = (folder.path().join("old.xml"), folder.path().join("new.xml"));
        write(&old, "of the last run").unwrap();
        writable(&old).unwrap();
        writable(&new).unwrap();
        assert_eq!((fs::read_to_string(&old).unwrap().as_str(), new.exists()), ("of the last run", false));
    }

    #[test]
    fn what_cannot_be_written_is_named_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        write(&file, "").unwrap();
        for failure in [write(&file.join("below.md"), "").unwrap_err(), writable(&file.join("below.md")).unwrap_err(), writable(folder.path()).unwrap_err()] {
            assert!(failure.kind == Kind::LocalIo && failure.message.contains("cannot be written") && !failure.hints.is_empty(), "{failure:?}");
        }
    }
}
