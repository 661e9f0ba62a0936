// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! An append-only file of JSON lines, in two parts of which the older one goes when the newer one is full. A last
//! line that a crash cut was never acknowledged, and is left out.
//! All functions here block: async code calls them through [`disk::blocking`].

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::disk;

/// The file. Its lock is held while a line is appended, on a thread that may block.
#[derive(Clone, Debug)]
pub struct JsonLines<T> {
    path: PathBuf,
    older: PathBuf,
    longest: usize,
    one_at_a_time: Arc<Mutex<()>>,
    entries: PhantomData<fn(&T) -> T>,
}

impl<T: Serialize + DeserializeOwned> JsonLines<T> {
    /// A file of this name in a state directory; each of its parts has at most `longest` bytes.
    pub fn new(state_dir: &Path, name: &str, longest: usize) -> Self {
        let path = state_dir.join(name);
        let older = path.with_extension("older");
        Self { path, older, longest, one_at_a_time: Arc::default(), entries: PhantomData }
    }

    /// Returns where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends an entry, and flushes it to the disk if it is to be `durable`. One that could not be written is not
    /// there.
    pub fn append(&self, entry: &T, durable: bool) -> io::Result<()> {
        let _one_at_a_time = self.one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        if let Some(dir) = self.path.parent() {
            disk::make_private(dir)?;
        }
        let mut file = self.open()?;
        let mut whole = self.whole(&mut file)?;
        if whole + line.len() > self.longest {
            std::fs::rename(&self.path, &self.older)?;
            (file, whole) = (self.open()?, 0);
        }
        let written = file.write_all(&line);
        let written = written.and_then(|()| if durable { file.sync_all() } else { Ok(()) });
        if written.is_err() {
            file.set_len(whole as u64)?;
        }
        written
    }

    fn open(&self) -> io::Result<File> {
        OpenOptions::new().create(true).append(true).read(true).open(&self.path)
    }

    /// Returns the length of the file; a cut line goes first.
    fn whole(&self, file: &mut File) -> io::Result<usize> {
        let length = file.seek(SeekFrom::End(0))?;
        let mut last = *b"\n";
        if length > 0 {
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
        }
        if last == *b"\n" {
            return usize::try_from(length).map_err(io::Error::other);
        }
        let bytes = disk::read(&self.path, self.longest)?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        file.set_len(whole as u64)?;
        Ok(whole)
    }

    /// Returns the entries, the oldest first, and why a line is none.
    /// Fails if a part exists and cannot be read.
    pub fn read(&self) -> io::Result<Vec<serde_json::Result<T>>> {
        let mut found = Vec::new();
        for path in [&self.older, &self.path] {
            let bytes = match disk::read(path, self.longest) {
                Err(err) if err.kind() == io::ErrorKind::NotFound => continue,
                bytes => bytes?,
            };
            let lines = bytes.split_inclusive(|byte| *byte == b'\n');
            let whole = lines.filter(|line| line.ends_with(b"\n"));
            found.extend(whole.map(serde_json::from_slice));
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_newest_within_two_parts_and_over_a_cut_line() {
        let dir = tempfile::tempdir().unwrap();
        let file = || JsonLines::<String>::new(dir.path(), "x.jsonl", 100);
        let read = || file().read().unwrap().into_iter().collect::<Result<Vec<_>, _>>().unwrap();
        assert!(read().is_empty());
        file().append(&"one".to_owned(), false).unwrap();
        file().open().unwrap().write_all(b"\"tw").unwrap();
        assert_eq!(read(), ["one"]);
        file().append(&"two".to_owned(), true).unwrap();
        assert_eq!(read(), ["one", "two"]);
        for n in 0..1000 {
            file().append(&format!("{n}"), false).unwrap();
            let parts = [file().path, file().older];
            let sizes = parts.map(|part| part.metadata().map_or(0, |it| it.len()));
            assert!(sizes.iter().all(|size| *size <= 100), "{sizes:?}");
        }
        let kept = read();
        assert!(kept.len() > 15 && kept.last().unwrap() == "999", "{kept:?}");
        file().open().unwrap().write_all(b"7\n").unwrap();
        assert!(file().read().unwrap().pop().unwrap().is_err(), "no text");
    }
}
