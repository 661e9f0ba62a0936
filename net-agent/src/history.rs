// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What was written and deleted: a journal in the state directory, one JSON object per line, in two files
//! of which the older one goes when the newer one is full. A line that a crash cut is left out. Nothing
//! depends on it: where it cannot be written, the log says so and the work goes on.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use daemon::disk::{self, stamp};
use jiff::Timestamp;
use sdc_clients::MacAddr;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Bytes of one file: some thousand entries.
const LONGEST: usize = 4 << 20;

/// One request that was answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// When.
    #[serde(with = "stamp")]
    pub at: Timestamp,
    /// The record.
    pub mac: MacAddr,
    /// Its VM, or the node for its own NICs.
    pub vm: String,
    /// `updated`, `deleted`, `gone`, `already gone` or `failed`.
    pub outcome: String,
    /// The rule by which it was sent.
    pub rule: String,
    /// On what evidence, or why it failed.
    pub why: String,
    /// The fields that were to change, or the whole record, as they were.
    pub old: Map<String, Value>,
    /// The fields as they were written; none for a delete.
    #[serde(default)]
    pub new: Option<Map<String, Value>>,
}

impl Entry {
    /// Returns true if it deleted the record.
    pub fn is_delete(&self) -> bool {
        self.outcome == "deleted"
    }
}

/// Which entries are asked for.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// Of this record.
    pub mac: Option<MacAddr>,
    /// Of this VM.
    pub vm: Option<String>,
    /// Not older than this.
    pub since: Option<Timestamp>,
}

impl Asked {
    fn fits(&self, entry: &Entry) -> bool {
        self.mac.is_none_or(|mac| mac == entry.mac)
            && self.vm.as_ref().is_none_or(|vm| *vm == entry.vm)
            && self.since.is_none_or(|since| since <= entry.at)
    }
}

/// The journal. Its lock is held while a line is appended, on a thread that may block.
#[derive(Clone, Debug)]
pub struct History {
    path: PathBuf,
    older: PathBuf,
    one_at_a_time: Arc<Mutex<()>>,
}

impl History {
    /// The journal of this state directory.
    pub fn new(state_dir: &Path) -> Self {
        let [path, older] =
            ["history.jsonl", "history.older.jsonl"].map(|name| state_dir.join(name));
        Self { path, older, one_at_a_time: Arc::default() }
    }

    /// Appends an entry.
    pub async fn note(&self, entry: Entry) {
        let history = self.clone();
        let appended = disk::blocking(move || history.append(&entry)).await;
        if let Some(Err(err)) = appended {
            let path = self.path.display();
            tracing::error!(%path, reason = %err, "a write is missing in the history");
        }
    }

    fn append(&self, entry: &Entry) -> io::Result<()> {
        let _one_at_a_time = self.one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        if let Some(dir) = self.path.parent() {
            std::fs::create_dir_all(dir)?;
        }
        let mut file = self.open()?;
        let length = file.seek(SeekFrom::End(0))?;
        if length + line.len() as u64 > LONGEST as u64 {
            std::fs::rename(&self.path, &self.older)?;
            file = self.open()?;
        } else if length > 0 {
            let mut last = [0];
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
            if last != *b"\n" {
                line.insert(0, b'\n');
            }
        }
        file.write_all(&line)
    }

    fn open(&self) -> io::Result<File> {
        OpenOptions::new().create(true).append(true).read(true).open(&self.path)
    }

    /// Returns the entries that are asked for, the oldest first. Blocks.
    ///
    /// # Errors
    /// If a file exists and cannot be read.
    pub fn read(&self, asked: &Asked) -> io::Result<Vec<Entry>> {
        let mut found = Vec::new();
        for path in [&self.older, &self.path] {
            let bytes = match disk::read(path, LONGEST) {
                Err(err) if err.kind() == io::ErrorKind::NotFound => continue,
                bytes => bytes?,
            };
            let lines = bytes.split(|byte| *byte == b'\n');
            let entries = lines.filter_map(|line| serde_json::from_slice::<Entry>(line).ok());
            found.extend(entries.filter(|entry| asked.fits(entry)));
        }
        Ok(found)
    }

    /// Returns the last entry of a record; none also if the journal cannot be read.
    pub async fn last_of(&self, mac: MacAddr) -> Option<Entry> {
        let (history, asked) = (self.clone(), Asked { mac: Some(mac), ..Asked::default() });
        disk::blocking(move || history.read(&asked)).await?.ok()?.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(second: i64, mac: &str, vm: &str) -> Entry {
        Entry {
            at: Timestamp::from_second(second).unwrap(),
            mac: mac.parse().unwrap(),
            vm: vm.to_owned(),
            outcome: "deleted".to_owned(),
            rule: "reap".to_owned(),
            why: "x".repeat(10_000),
            old: Map::new(),
            new: None,
        }
    }

    #[test] // C38
    fn keeps_what_was_done_within_two_files_and_over_a_cut_line() {
        let dir = tempfile::tempdir().unwrap();
        let history = History::new(dir.path());
        assert_eq!(history.read(&Asked::default()).unwrap(), []);
        history.append(&entry(1, "f2:00:00:00:00:01", "v1")).unwrap();
        history.open().unwrap().write_all(b"{\"at\": \"20").unwrap();
        let again = History::new(dir.path());
        again.append(&entry(2, "f2:00:00:00:00:02", "v2")).unwrap();
        again.append(&entry(3, "f2:00:00:00:00:01", "v2")).unwrap();
        let seconds = |asked: Asked| -> Vec<i64> {
            again.read(&asked).unwrap().iter().map(|entry| entry.at.as_second()).collect()
        };
        let mac = Some("f2:00:00:00:00:01".parse().unwrap());
        assert_eq!(seconds(Asked::default()), [1, 2, 3]);
        assert_eq!(seconds(Asked { mac, ..Asked::default() }), [1, 3]);
        assert_eq!(seconds(Asked { vm: Some("v2".to_owned()), ..Asked::default() }), [2, 3]);
        let since = Timestamp::from_second(2).ok();
        assert_eq!(seconds(Asked { mac, since, ..Asked::default() }), [3]);
        for second in 4..1000 {
            again.append(&entry(second, "f2:00:00:00:00:03", "v3")).unwrap();
        }
        let sizes = [&again.path, &again.older].map(|path| path.metadata().unwrap().len());
        assert!(sizes.iter().all(|size| *size <= LONGEST as u64), "{sizes:?}");
        let kept = again.read(&Asked::default()).unwrap();
        assert!(kept.len() > 300 && kept.last().unwrap().at.as_second() == 999);
    }
}
