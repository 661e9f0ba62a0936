// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The state file: what must outlive the process. It is versioned and replaced as a whole. If it is
//! damaged, of another version or of another node, the worst is assumed: everything may have been
//! hidden, and the number of recent deletes is unknown. So a restart or a crash may delay a delete
//! but never causes a wrong one.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use sdc_clients::MacAddr;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::departures::{Left, Waits};
use crate::disk::{self, stamp};
use crate::timing::HOUR;

/// The version of the layout.
const VERSION: u32 = 1;

/// The content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    version: u32,
    /// The node that wrote it.
    pub cn_uuid: String,
    /// The VMs of the brake's reference view.
    #[serde(default)]
    pub reference: Option<BTreeSet<String>>,
    /// MACs of shown VMs, with their VMs.
    #[serde(default)]
    pub macs: BTreeMap<MacAddr, String>,
    /// VMs that were hidden shortly before they went, and when they went; none for those that were
    /// still here when this was written.
    #[serde(default)]
    pub hidden: BTreeMap<String, Option<Seen>>,
    /// The NICs that left and are not settled.
    #[serde(default)]
    pub departed: Vec<KeptDeparture>,
    /// The deletes of the last hour.
    #[serde(default)]
    pub deletes: Vec<Seen>,
    /// Those besides that VMAPI's word exempted from the brake.
    #[serde(default)]
    pub exempted: Vec<Seen>,
    /// When an earlier file was found damaged.
    #[serde(default)]
    pub lost: Option<Seen>,
}

/// A time of the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seen(#[serde(with = "stamp")] pub Timestamp);

/// One departure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptDeparture {
    /// The address.
    pub mac: MacAddr,
    /// Its VM.
    pub vm: String,
    /// How it left.
    pub left: Left,
    /// What it waits for.
    #[serde(default)]
    pub waits: Waits,
    /// Why it waits, in words.
    pub why: String,
}

impl Seen {
    /// Returns what is left of `span` since this time. If the clock went back, all of it.
    pub(crate) fn rest(self, span: Duration, now: Timestamp) -> Duration {
        let passed = Duration::try_from(now.duration_since(self.0)).unwrap_or_default();
        span.saturating_sub(passed)
    }
}

impl Kept {
    /// Nothing is known of this node.
    pub fn new(cn_uuid: &str) -> Self {
        Self {
            version: VERSION,
            cn_uuid: cn_uuid.to_owned(),
            reference: None,
            macs: BTreeMap::new(),
            hidden: BTreeMap::new(),
            departed: Vec::new(),
            deletes: Vec::new(),
            exempted: Vec::new(),
            lost: None,
        }
    }
}

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    /// The file system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is not a state file.
    #[error("{}: {source}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Line and column.
        source: serde_json::Error,
    },
    /// Another layout.
    #[error("{}: version {found}, not {VERSION}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u64,
    },
    /// Another node's.
    #[error("{}: it is the file of node {found}", path.display())]
    Node {
        /// The file.
        path: PathBuf,
        /// Its node.
        found: String,
    },
}

/// The file and its condition. The lock is held for a few instructions and never over an await.
#[derive(Debug)]
pub(crate) struct StateFile {
    path: PathBuf,
    condition: Mutex<Condition>,
    save: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Condition {
    /// When an earlier file was found damaged.
    lost: Option<Seen>,
    /// That damage, while something depends on it.
    damage: Option<String>,
    /// Why the file cannot be written.
    fault: Option<String>,
}

impl StateFile {
    /// The file in this state directory; `save` wakes the task that saves it.
    pub(crate) fn new(state_dir: &Path, save: Arc<Notify>) -> Self {
        Self { path: state_dir.join("memory.json"), condition: Mutex::default(), save }
    }

    fn condition(&self) -> MutexGuard<'_, Condition> {
        self.condition.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the file; none before the first run.
    ///
    /// # Errors
    /// If it exists and cannot be used.
    pub(crate) async fn read(&self, cn_uuid: &str) -> Result<Option<Kept>, Damage> {
        let (path, node) = (self.path.clone(), cn_uuid.to_owned());
        let failed = || {
            let (path, source) = (self.path.clone(), io::Error::other("the read was aborted"));
            Err(Damage::Io { path, source })
        };
        disk::blocking(move || read(path, &node)).await.unwrap_or_else(failed)
    }

    /// Replaces the file.
    pub(crate) async fn write(&self, kept: Kept) -> Result<(), Unwritten> {
        let path = self.path.clone();
        match disk::blocking(move || disk::write_atomically(&path, &kept)).await {
            Some(written) => Ok(written?),
            None => Err(Unwritten(io::Error::other("the write was aborted"))),
        }
    }

    /// Copies a damaged file, so that it can be examined; the next write replaces it.
    pub(crate) async fn keep_damaged(&self) {
        let path = self.path.clone();
        disk::blocking(move || std::fs::copy(&path, path.with_extension("damaged"))).await;
    }

    /// Waits until something that belongs in the file has changed. Cancel-safe: a change that
    /// nobody waited for is kept.
    pub(crate) async fn changed(&self) {
        self.save.notified().await;
    }

    /// The file of the last run was damaged.
    pub(crate) fn damaged(&self, damage: &Damage, now: Seen) {
        let mut condition = self.condition();
        condition.lost = Some(now);
        condition.damage = Some(format!("lost: {damage}"));
    }

    /// Returns true while a damaged file of the last run is reported.
    pub(crate) fn is_damaged(&self) -> bool {
        self.condition().damage.is_some()
    }

    /// Takes over that an earlier file was damaged.
    pub(crate) fn restore(&self, lost: Option<Seen>) {
        let mut condition = self.condition();
        condition.lost = condition.lost.or(lost);
    }

    /// Returns when an earlier file was found damaged.
    pub(crate) fn lost(&self) -> Option<Seen> {
        self.condition().lost
    }

    /// Returns true if an earlier file was found damaged within this time.
    pub(crate) fn lost_within(&self, span: Duration) -> bool {
        self.lost().is_some_and(|lost| !lost.rest(span, Timestamp::now()).is_zero())
    }

    /// Stops to report a damaged file after `span`, or an hour, when nothing depends on it.
    pub(crate) fn forget_damage(&self, span: Duration) {
        if !self.lost_within(HOUR.max(span)) {
            self.condition().damage = None;
        }
    }

    /// Stores why the file cannot be written, or none. Returns true if that is new.
    pub(crate) fn set_fault(&self, fault: Option<String>) -> bool {
        let mut condition = self.condition();
        let new = condition.fault != fault;
        condition.fault = fault;
        new
    }

    /// Returns why the file cannot be written.
    pub(crate) fn fault(&self) -> Option<String> {
        self.condition().fault.clone()
    }

    /// Returns what is wrong with the file, for people.
    pub(crate) fn sentence(&self) -> Option<String> {
        let condition = self.condition();
        condition.fault.clone().or_else(|| condition.damage.clone())
    }
}

/// The file cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("the state file memory.json cannot be written: {0}")]
pub(crate) struct Unwritten(#[from] io::Error);

fn read(path: PathBuf, cn_uuid: &str) -> Result<Option<Kept>, Damage> {
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(Damage::Io { path, source }),
    };
    let syntax = |source| Damage::Syntax { path: path.clone(), source };
    let value: serde_json::Value = serde_json::from_slice(&bytes).map_err(syntax)?;
    let found = value.get("version").and_then(serde_json::Value::as_u64).unwrap_or_default();
    if found != u64::from(VERSION) {
        return Err(Damage::Version { path, found });
    }
    let kept: Kept = serde_json::from_value(value).map_err(syntax)?;
    if kept.cn_uuid != cn_uuid {
        return Err(Damage::Node { path, found: kept.cn_uuid });
    }
    Ok(Some(kept))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept() -> Kept {
        let at = Seen(Timestamp::from_second(1_800_000_000).unwrap());
        let mac: MacAddr = "f2:00:00:00:00:01".parse().unwrap();
        Kept {
            reference: Some(["v".to_owned(), "w".to_owned()].into()),
            macs: [(mac, "v".to_owned())].into(),
            hidden: [("h".to_owned(), Some(at)), ("here".to_owned(), None)].into(),
            departed: vec![KeptDeparture {
                mac,
                vm: "v".into(),
                left: Left::WithVm,
                waits: Waits::Verdict,
                why: "VMAPI says running".into(),
            }],
            deletes: vec![at],
            exempted: vec![at, at],
            lost: Some(at),
            ..Kept::new("cn")
        }
    }

    #[tokio::test]
    async fn reads_only_what_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let file = StateFile::new(dir.path(), Arc::default());
        assert!(file.read("cn").await.unwrap().is_none());
        file.write(kept()).await.unwrap();
        assert_eq!(file.read("cn").await.unwrap(), Some(kept()));
        assert!(matches!(file.read("other").await, Err(Damage::Node { .. })));
        let path = dir.path().join("memory.json");
        let whole = std::fs::read_to_string(&path).unwrap();
        for cut in (0..whole.trim_end().len()).step_by(7) {
            std::fs::write(&path, &whole[..cut]).unwrap();
            assert!(file.read("cn").await.is_err(), "cut at {cut}");
        }
        std::fs::write(&path, whole.replace("\"version\": 1", "\"version\": 2")).unwrap();
        assert!(matches!(file.read("cn").await, Err(Damage::Version { found: 2, .. })));
        file.keep_damaged().await;
        assert!(path.with_extension("damaged").exists());
    }
}
