// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What must outlive the process, as one small file under the state directory: replaced whole and
//! atomically, versioned, and never trusted beyond what it can prove. A file that is damaged, of
//! another version or of another node says nothing, and what it might have said is then taken to
//! be the worst: everything may have been hidden, the hour's deletes are all used up. A restart
//! or a crash may therefore put a delete off; it can never make a wrong one.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use sdc_clients::MacAddr;
use serde::{Deserialize, Serialize};

use crate::departed::{Left, Waits};
use crate::holds::{stamp, write_atomically};

/// The layout below; another number is another layout.
const VERSION: u32 = 1;

/// What is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    version: u32,
    /// Whose memory this is.
    pub cn_uuid: String,
    /// How many VMs the brake measures a view against.
    #[serde(default)]
    pub vms: Option<usize>,
    /// Addresses of shown VMs, and whose they are.
    #[serde(default)]
    pub macs: BTreeMap<MacAddr, String>,
    /// VMs that were hidden a short while before they went, and when they went; none for those
    /// that were here, hidden, when this was written.
    #[serde(default)]
    pub hidden: BTreeMap<String, Option<Seen>>,
    /// What has left and is not settled.
    #[serde(default)]
    pub departed: Vec<KeptDeparture>,
    /// The deletes of the last hour.
    #[serde(default)]
    pub deletes: Vec<Seen>,
    /// Since when an earlier memory is lost.
    #[serde(default)]
    pub lost: Option<Seen>,
}

/// A moment, by the wall clock.
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

impl Kept {
    /// Nothing known of this node.
    pub fn new(cn_uuid: &str) -> Self {
        Self {
            version: VERSION,
            cn_uuid: cn_uuid.to_owned(),
            vms: None,
            macs: BTreeMap::new(),
            hidden: BTreeMap::new(),
            departed: Vec::new(),
            deletes: Vec::new(),
            lost: None,
        }
    }
}

/// Why the memory of the last run says nothing.
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
    /// Not what we wrote.
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
    #[error("{}: it is the memory of node {found}", path.display())]
    Node {
        /// The file.
        path: PathBuf,
        /// Whose it is.
        found: String,
    },
}

/// The file.
#[derive(Clone, Debug)]
pub struct MemoryFile {
    path: PathBuf,
    kept: bool,
}

impl MemoryFile {
    /// The file of this state directory.
    pub fn new(state_dir: &Path) -> Self {
        Self { path: state_dir.join("memory.json"), kept: true }
    }

    /// No file: for simulations of thousands of agents that never restart.
    pub fn nowhere() -> Self {
        Self { path: PathBuf::new(), kept: false }
    }

    /// Reads it; none where there is none, as before the first run.
    ///
    /// # Errors
    /// When it exists and cannot be believed.
    pub fn read(&self, cn_uuid: &str) -> Result<Option<Kept>, Damage> {
        if !self.kept {
            return Ok(None);
        }
        let path = || self.path.clone();
        let bytes = match std::fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(Damage::Io { path: path(), source }),
        };
        let syntax = |source| Damage::Syntax { path: path(), source };
        let value: serde_json::Value = serde_json::from_slice(&bytes).map_err(syntax)?;
        let found = value.get("version").and_then(serde_json::Value::as_u64).unwrap_or_default();
        if found != u64::from(VERSION) {
            return Err(Damage::Version { path: path(), found });
        }
        let kept: Kept = serde_json::from_value(value).map_err(syntax)?;
        if kept.cn_uuid != cn_uuid {
            return Err(Damage::Node { path: path(), found: kept.cn_uuid });
        }
        Ok(Some(kept))
    }

    /// Puts a damaged file aside, for whoever wants to know; the next write replaces it.
    pub fn put_aside(&self) {
        // If that fails, the damage is found again at the next start: no harm.
        let _best_effort = std::fs::rename(&self.path, self.path.with_extension("damaged"));
    }

    /// Replaces it.
    ///
    /// # Errors
    /// Whatever the file system says; the old file is then untouched.
    pub fn write(&self, kept: &Kept) -> io::Result<()> {
        if !self.kept {
            return Ok(());
        }
        write_atomically(&self.path, kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept() -> Kept {
        let at = Seen(Timestamp::from_second(1_800_000_000).unwrap());
        let mac: MacAddr = "f2:00:00:00:00:01".parse().unwrap();
        Kept {
            vms: Some(3),
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
            lost: Some(at),
            ..Kept::new("cn")
        }
    }

    #[test]
    fn what_was_written_is_read_and_nothing_else_is_believed() {
        let dir = tempfile::tempdir().unwrap();
        let file = MemoryFile::new(dir.path());
        assert!(file.read("cn").unwrap().is_none());
        file.write(&kept()).unwrap();
        assert_eq!(file.read("cn").unwrap(), Some(kept()));
        assert!(matches!(file.read("other"), Err(Damage::Node { .. })));
        let path = dir.path().join("memory.json");
        let whole = std::fs::read_to_string(&path).unwrap();
        // Cut anywhere, it is not a shorter memory: it is none.
        for cut in (0..whole.trim_end().len()).step_by(7) {
            std::fs::write(&path, &whole[..cut]).unwrap();
            assert!(file.read("cn").is_err(), "cut at {cut}");
        }
        std::fs::write(&path, whole.replace("\"version\": 1", "\"version\": 2")).unwrap();
        assert!(matches!(file.read("cn"), Err(Damage::Version { found: 2, .. })));
        file.put_aside();
        assert!(file.read("cn").unwrap().is_none() && path.with_extension("damaged").exists());
    }
}
