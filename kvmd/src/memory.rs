// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What was heard, kept on disk for the daemon that comes after this one (R2): without it a
//! request to power off that came before a restart would be forgotten, and the guest's obedience
//! taken for its user's wish.
//!
//! A history belongs to one process, told by its number and start; it is never used for another.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::history::History;
use crate::marker::atomically;
use crate::qmp::Peer;

/// Largest file that is read, in bytes; ours have a few hundred.
const CAP: u64 = 1 << 16;

#[derive(Serialize, Deserialize)]
struct Written {
    peer: Peer,
    history: History,
}

/// The histories of the instances that live.
#[derive(Clone, Debug)]
pub struct Memory {
    dir: PathBuf,
}

impl Memory {
    /// Histories kept below `run_dir`.
    ///
    /// # Errors
    /// When their directory cannot be made.
    pub fn below(run_dir: &Path) -> io::Result<Self> {
        let dir = run_dir.join("histories");
        fs::create_dir_all(&dir)?;
        Ok(Self { dir })
    }

    /// Writes a history down. A full disk costs certainty after a restart and nothing else.
    pub fn keep(&self, name: &str, peer: Peer, history: &History) {
        let written = Written { peer, history: history.clone() };
        let done = serde_json::to_vec(&written)
            .map_err(io::Error::from)
            .and_then(|bytes| atomically(&self.path(name), &bytes));
        if let Err(error) = done {
            tracing::warn!(instance = name, %error, "history not written down");
        }
    }

    /// The history of exactly this process.
    pub fn of(&self, name: &str, peer: Peer) -> Option<History> {
        let mut bytes = Vec::new();
        let file = fs::File::open(self.path(name)).ok()?;
        io::Read::read_to_end(&mut io::Read::take(file, CAP), &mut bytes).ok()?;
        let written: Written = serde_json::from_slice(&bytes).ok()?;
        (peer.start.is_some() && written.peer == peer).then_some(written.history)
    }

    /// Forgets an instance that ended.
    pub fn forget(&self, name: &str) {
        let _there_was_none = fs::remove_file(self.path(name));
    }

    /// Forgets all that are not `live`: they ended while nobody watched.
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
