// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What is broken on a node until it is cured: a setting of the node, so that its executables obey it too.

use std::path::PathBuf;
use std::time::Duration;

use crate::error::NodeError;
use crate::node::Node;

/// What waits for zfs looks so often.
const LOOK: Duration = Duration::from_millis(50);

/// What can be broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// Each `zfs` hangs, and what asks zfs; it goes on when this is cured.
    Zfs,
    /// The pool is full: what takes room is refused.
    Pool,
}

impl Node {
    fn broken_file(&self, what: Broken) -> PathBuf {
        let name = match what {
            Broken::Zfs => "zfs.hangs",
            Broken::Pool => "pool.full",
        };
        self.state_dir().join(name)
    }

    /// Breaks it, or cures it.
    pub fn set_broken(&self, what: Broken, is_broken: bool) -> Result<(), NodeError> {
        let file = self.broken_file(what);
        let done = match is_broken {
            true => std::fs::write(&file, ""),
            false if !file.exists() => Ok(()),
            false => std::fs::remove_file(&file),
        };
        done.map_err(|error| NodeError::io("change", &file, error))
    }

    /// Whether it is broken now.
    pub fn is_broken(&self, what: Broken) -> bool {
        self.broken_file(what).exists()
    }

    /// Blocks this thread for as long as zfs hangs. Only for an executable of the node.
    pub(crate) fn wait_for_zfs(&self) {
        while self.is_broken(Broken::Zfs) {
            std::thread::park_timeout(LOOK);
        }
    }

    /// Refuses what takes room while the pool is full.
    pub(crate) fn check_pool(&self, what: &str) -> Result<(), NodeError> {
        match self.is_broken(Broken::Pool) {
            true => Err(NodeError::refused(format!("cannot create '{what}': out of space"))),
            false => Ok(()),
        }
    }
}
