// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What was written and deleted: `history.jsonl` in the state directory. Nothing depends on it: where it cannot be
//! written, the log says so and the work goes on.

use std::io;
use std::path::Path;

use daemon::disk::{self, stamp};
use daemon::json_lines::JsonLines;
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
pub struct Query {
    /// Of this record.
    pub mac: Option<MacAddr>,
    /// Of this VM.
    pub vm: Option<String>,
    /// Not older than this.
    pub since: Option<Timestamp>,
}

impl Query {
    fn fits(&self, entry: &Entry) -> bool {
        self.mac.is_none_or(|mac| mac == entry.mac)
            && self.vm.as_ref().is_none_or(|vm| *vm == entry.vm)
            && self.since.is_none_or(|since| since <= entry.at)
    }
}

/// The file of what was written and deleted.
#[derive(Clone, Debug)]
pub struct History(JsonLines<Entry>);

impl History {
    /// The history in this state directory.
    pub fn new(state_dir: &Path) -> Self {
        Self(JsonLines::new(state_dir, "history.jsonl", LONGEST))
    }

    /// Appends an entry.
    pub async fn note(&self, entry: Entry) {
        let history = self.clone();
        let appended = disk::blocking(move || history.0.append(&entry, false)).await;
        if let Some(Err(err)) = appended {
            let path = self.0.path().display();
            tracing::error!(%path, reason = %err, "a write is missing in the history");
        }
    }

    /// Returns the entries that are asked for, the oldest first. Blocks.
    /// Fails if a file exists and cannot be read.
    pub fn read(&self, asked: &Query) -> io::Result<Vec<Entry>> {
        let entries = self.0.read()?.into_iter().filter_map(Result::ok);
        Ok(entries.filter(|entry| asked.fits(entry)).collect())
    }

    /// Returns the last entry of a record; none also if the history cannot be read.
    pub async fn last_of(&self, mac: MacAddr) -> Option<Entry> {
        let (history, asked) = (self.clone(), Query { mac: Some(mac), ..Query::default() });
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
    fn keeps_what_was_done_within_two_files_and_over_a_strange_line() {
        let dir = tempfile::tempdir().unwrap();
        let history = History::new(dir.path());
        assert_eq!(history.read(&Query::default()).unwrap(), []);
        let append = |entry: Entry| history.0.append(&entry, false).unwrap();
        append(entry(1, "f2:00:00:00:00:01", "v1"));
        let path = history.0.path();
        let first = std::fs::read_to_string(path).unwrap();
        std::fs::write(path, first + "{\"of\": \"a later version\"}\n").unwrap();
        let again = History::new(dir.path());
        append(entry(2, "f2:00:00:00:00:02", "v2"));
        append(entry(3, "f2:00:00:00:00:01", "v2"));
        let seconds = |asked: Query| -> Vec<i64> {
            again.read(&asked).unwrap().iter().map(|entry| entry.at.as_second()).collect()
        };
        let mac = Some("f2:00:00:00:00:01".parse().unwrap());
        assert_eq!(seconds(Query::default()), [1, 2, 3]);
        assert_eq!(seconds(Query { mac, ..Query::default() }), [1, 3]);
        assert_eq!(seconds(Query { vm: Some("v2".to_owned()), ..Query::default() }), [2, 3]);
        let since = Timestamp::from_second(2).ok();
        assert_eq!(seconds(Query { mac, since, ..Query::default() }), [3]);
        for second in 4..1000 {
            append(entry(second, "f2:00:00:00:00:03", "v3"));
        }
        let kept = again.read(&Query::default()).unwrap();
        assert!(kept.len() > 300 && kept.last().unwrap().at.as_second() == 999);
    }
}
