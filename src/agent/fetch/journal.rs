//! Which pieces of a file are on disk, kept beside the file, so that a killed pod's successor asks only for the rest.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// What the pieces are of; other notes are none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Head {
    pub(super) hash: String,
    pub(super) size: u64,
    pub(super) piece: u64,
}

/// The notes about one file: a line of JSON, then a line for each piece.
pub(super) struct Journal {
    path: PathBuf,
    file: File,
    done: Vec<bool>,
}

impl Journal {
    /// Goes on with the notes beside `part`, or begins anew when they are of something else or the part is gone.
    pub(super) fn open(part: &Path, head: &Head) -> io::Result<Self> {
        let path = part.with_added_extension("journal");
        let pieces = usize::try_from(head.size.div_ceil(head.piece)).unwrap_or(usize::MAX);
        let mut done = vec![false; pieces];
        let text = fs::read_to_string(&path).unwrap_or_default();
        // The end of the last line may be missing: a note that was not finished is none.
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        let mut lines = whole.lines();
        let same = lines.next().and_then(|line| serde_json::from_str::<Head>(line).ok()).is_some_and(|noted| noted == *head);
        if same && fs::metadata(part).is_ok_and(|data| data.len() == head.size) {
            for piece in lines.filter_map(|line| line.parse::<usize>().ok()) {
                if let Some(done) = done.get_mut(piece) {
                    *done = true;
                }
            }
            let file = OpenOptions::new().write(true).open(&path)?;
            file.set_len(whole.len() as u64)?;
            drop(file);
            let file = OpenOptions::new().append(true).open(&path)?;
            return Ok(Self { path, file, done });
        }
        let mut file = File::create(&path)?;
        writeln!(file, "{}", serde_json::to_string(head)?)?;
        Ok(Self { path, file, done })
    }

    /// Is the piece there?
    pub(super) fn has(&self, piece: usize) -> bool {
        self.done.get(piece).copied().unwrap_or(false)
    }

    /// The pieces that are missing.
    pub(super) fn missing(&self) -> Vec<usize> {
        (0..self.done.len()).filter(|piece| !self.has(*piece)).collect()
    }

    /// Notes pieces whose bytes are on disk for good.
    pub(super) fn note(&mut self, pieces: &[usize]) -> io::Result<()> {
        let lines: String = pieces.iter().map(|piece| format!("{piece}\n")).collect();
        self.file.write_all(lines.as_bytes())?;
        self.file.sync_data()?;
        for piece in pieces {
            if let Some(done) = self.done.get_mut(*piece) {
                *done = true;
            }
        }
        Ok(())
    }

    /// The file is complete, or wrong: nothing is to be gone on with.
    pub(super) fn remove(self) -> io::Result<()> {
        fs::remove_file(self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(hash: &str) -> Head {
        Head { hash: hash.into(), size: 25, piece: 10 }
    }

    #[test]
    fn goes_on_where_it_was_and_forgets_half_a_note() {
        let folder = tempfile::tempdir().unwrap();
        let part = folder.path().join("a.part");
        fs::write(&part, [0; 25]).unwrap();
        let mut journal = Journal::open(&part, &head("x")).unwrap();
        assert_eq!(journal.missing(), [0, 1, 2]);
        journal.note(&[1]).unwrap();
        // Killed in the middle of a line: `2` of `2x`, say.
        OpenOptions::new().append(true).open(part.with_added_extension("journal")).unwrap().write_all(b"2").unwrap();
        let mut journal = Journal::open(&part, &head("x")).unwrap();
        assert_eq!(journal.missing(), [0, 2]);
        journal.note(&[0]).unwrap();
        assert_eq!(Journal::open(&part, &head("x")).unwrap().missing(), [2]);
    }

    #[test]
    fn notes_of_another_file_or_without_its_bytes_are_none() {
        let folder = tempfile::tempdir().unwrap();
        let part = folder.path().join("a.part");
        fs::write(&part, [0; 25]).unwrap();
        Journal::open(&part, &head("x")).unwrap().note(&[0, 1, 2]).unwrap();
        assert_eq!(Journal::open(&part, &head("y")).unwrap().missing().len(), 3);
        Journal::open(&part, &head("y")).unwrap().note(&[0]).unwrap();
        fs::write(&part, [0; 3]).unwrap();
        assert_eq!(Journal::open(&part, &head("y")).unwrap().missing().len(), 3);
    }
}
