// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What every reading needs.

use std::sync::Arc;
use std::time::Duration;

use daemon::command::{Call, Commands, Output};
use vm_model::origin::Origin;

use super::error::{Fault, LoadError};
use super::root::Root;

/// How long each command may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    pub zoneadm: Duration,
    /// The listing of one dataset.
    pub zfs_one: Duration,
    /// The listing of the node's filesystems and volumes.
    pub zfs_node: Duration,
    /// The listing of the node's snapshots.
    pub zfs_snapshots: Duration,
    /// The kstat reader.
    pub kstat: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Deadlines {
            zoneadm: Duration::from_secs(10),
            zfs_one: Duration::from_secs(30),
            zfs_node: Duration::from_secs(120),
            zfs_snapshots: Duration::from_secs(900),
            kstat: Duration::from_secs(10),
        }
    }
}

/// The files and commands of a node. Cheap to clone.
#[derive(Clone)]
pub struct Ctx {
    /// Where the files are.
    pub root: Root,
    /// Runs the commands.
    pub commands: Arc<dyn Commands>,
    /// How long the commands may take.
    pub deadlines: Deadlines,
}

impl Ctx {
    /// A context with the default deadlines.
    pub fn new(root: Root, commands: Arc<dyn Commands>) -> Self {
        Ctx { root, commands, deadlines: Deadlines::default() }
    }

    /// Runs a command; the caller judges its exit status.
    pub(super) async fn run(&self, origin: Origin, call: Call) -> Result<Output, LoadError> {
        let ran = self.commands.run(call).await;
        ran.map_err(|error| LoadError::new(origin, Fault::Command(error)))
    }
}
