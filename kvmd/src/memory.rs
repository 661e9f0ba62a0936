// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Histories on disk, for the next start of the daemon (R2): without them a request to power off that
//! came before a restart would be lost, and the guest's obedience taken for its user's wish.
//!
//! A history belongs to one process, known by its pid and start time.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use daemon::disk;
use serde::{Deserialize, Serialize};

use crate::history::History;
use crate::marker::atomically;
use crate::qmp::Peer;

/// Largest file that is read, in bytes; ours have a few hundred.
const CAP: usize = 1 << 16;

#[derive(Serialize, Deserialize)]
struct Written {
    peer: Peer,
    history: History,
}

/// The histories of live instances.
#[derive(Clone, Debug)]
pub struct Memory {
    dir: PathBuf,
}

impl Memory {
    /// Keeps histories below `run_dir`.
    /// Fails if their directory cannot be made.
    pub fn below(run_dir: &Path) -> io::Result<Self> {
        let dir = run_dir.join("histories");
        fs::create_dir_all(&dir)?;
        Ok(Self { dir })
    }

    /// Saves a history. If that fails, verdicts after a restart are less sure.
    pub fn keep(&self, name: &str, peer: Peer, history: &History) {
        let written = Written { peer, history: history.clone() };
        let done = serde_json::to_vec(&written)
            .map_err(io::Error::from)
            .and_then(|bytes| atomically(&self.path(name), &bytes));
        if let Err(error) = done {
            tracing::warn!(instance = name, %error, "cannot write the history");
        }
    }

    /// Returns the history of this process.
    pub fn of(&self, name: &str, peer: Peer) -> Option<History> {
        let bytes = disk::read(&self.path(name), CAP).ok()?;
        let written: Written = serde_json::from_slice(&bytes).ok()?;
        (peer.start.is_some() && written.peer == peer).then_some(written.history)
    }

    /// Removes the history of an instance that ended.
    pub fn forget(&self, name: &str) {
        let _there_was_none = fs::remove_file(self.path(name));
    }

    /// Removes the histories of instances that are not `live`.
    pub fn sweep(&self, live: impl Fn(&str) -> bool) {
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if let Some(name) = name.strip_suffix(".json")
                && !live(name)
            {
                self.forget(name);
            }
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.json"))
    }
}
