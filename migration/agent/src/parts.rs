// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The parts that the tasks share, each of which owns its state.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use daemon::command::Commands;
use daemon::{Shutdown, Tasks};
use tokio::time::Instant;
use uuid::Uuid;

use super::counts::Counts;
use super::listings::Listings;
use super::looks::Looks;
use super::memory::Memory;
use super::node::Node;
use super::peer::Peers;
use super::running::Running;
use super::status::Status;
use super::vm_agents::VmAgents;
use super::wire::Wire;
use super::work::{Work, Works};
use super::zfs::{Listed, Zfs, ZfsError};
use migration_core::protocol::{About, Properties};
use migration_core::stream::{Meter, Rate, Refusals, Tokens};

/// What a token opens a stream for.
#[derive(Debug)]
pub struct Expected {
    /// The node that sends it.
    pub from: Uuid,
    /// The receiver's copy.
    pub about: About,
    /// The dataset that is received into.
    pub dataset: String,
    /// It is an image's.
    pub is_image: bool,
    /// The properties that the sender asks to set on it afterwards.
    pub properties: Properties,
    /// The stream brings none.
    pub is_bare: bool,
    /// The order to receive.
    pub work: Arc<Work>,
}

/// What the streams of a node share.
pub struct Streams {
    pub wire: Arc<dyn Wire>,
    /// What may be opened.
    pub tokens: Tokens<Expected>,
    /// The limit of all of them.
    pub rate: Arc<Rate>,
    /// Bytes that came in.
    pub bytes_in: Meter,
    /// Bytes that went out in orders that have ended.
    pub bytes_out: AtomicU64,
    /// What was refused.
    pub refusals: Refusals,
}

pub struct Parts {
    pub cn: Uuid,
    /// Where the node's directories begin.
    pub top: PathBuf,
    pub commands: Arc<dyn Commands>,
    /// Those that run now.
    pub running: Arc<Running>,
    pub node: Node,
    pub zfs: Zfs,
    pub vm_agents: VmAgents,
    pub peers: Peers,
    /// What outlives the agent.
    pub memory: Memory,
    pub streams: Streams,
    pub works: Works,
    /// The observations that take long.
    pub looks: Looks,
    pub listings: Listings,
    /// One change of the snapshots of volumes, or snapshot of a sync, at a time.
    pub snapshots: tokio::sync::Mutex<()>,
    /// The orders and refusals that are counted.
    pub counts: Counts,
    /// The state of each task.
    pub status: Status,
    /// Woken when the service says that its list of what is revoked has changed.
    pub trust_news: tokio::sync::Notify,
    pub tasks: Tasks,
    pub shutdown: Shutdown,
}

impl Parts {
    /// Returns the root dataset of a VM, of which its owner makes no snapshots.
    pub fn root(&self, vm: Uuid) -> String {
        format!("{}/{vm}", self.zfs.pool())
    }

    /// Lists datasets of a VM, with the sync snapshots of its migration numbered.
    pub async fn list(
        &self,
        vm: Uuid,
        datasets: &[String],
        origins: &[String],
    ) -> Result<Listed, ZfsError> {
        let began = Instant::now();
        let listed = self.zfs.list(datasets, origins).await?;
        if origins.is_empty() {
            self.listings.keep(vm, datasets, began, &listed);
        }
        Ok(self.numbered(vm, listed))
    }

    /// The same, or what was listed a short while ago where it takes long. Who uses it finds out by what he does next
    /// that others have changed something since.
    pub async fn recent(&self, vm: Uuid, datasets: &[String]) -> Result<Listed, ZfsError> {
        match self.listings.recent(vm, datasets) {
            Some(listed) => Ok(self.numbered(vm, listed)),
            None => self.list(vm, datasets, &[]).await,
        }
    }

    fn numbered(&self, vm: Uuid, mut listed: Listed) -> Listed {
        let entry = self.memory.of_vm(vm);
        let (known, left) = entry.map(|entry| (entry.known, entry.left)).unwrap_or_default();
        listed.side.number(&self.root(vm), &known, &left);
        listed
    }
}
