// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the parts of the service share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::peers::Peers;
use crate::records::Records;
use volumes_core::volume::Volume;

/// What an operator may set.
#[derive(Clone, Debug)]
pub struct ServiceConfig {
    /// The name of this instance; the same after a restart.
    pub instance: String,
    /// The images of storage VMs: the second version's and the first's.
    pub images: [String; 2],
    /// Where missing images are imported from.
    pub image_source: String,
    /// How long a ready volume stays ready while its storage VM is stopped.
    pub reboot_grace: Duration,
    /// How long a ticket holds.
    pub ticket_life: Duration,
    /// After how long a failed volume goes to the archive; never if none.
    pub failed_keep: Option<Duration>,
    /// Also offers what only RFD 26 has.
    pub rfd26: bool,
    /// How many snapshots a volume may have.
    pub max_snapshots: usize,
}

macro_rules! counts {
    ($($variant:ident, $name:literal, $help:literal;)+) => {
        /// The counters.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Count { $(#[doc = $help] $variant),+ }

        impl Count {
            /// All of them.
            pub const ALL: &[Count] = &[$(Count::$variant),+];

            /// Returns its name and its help.
            pub fn metric(self) -> (&'static str, &'static str) {
                match self { $(Count::$variant => ($name, $help)),+ }
            }
        }
    };
}

counts! {
    Created, "volumes_created", "Volumes whose storage VM VMAPI agreed to make";
    CreateFailed, "volumes_create_failed", "Volumes whose storage VM VMAPI did not agree to make";
    Deleted, "volumes_deleted", "Volumes that clients deleted";
    NetworksChanged, "networks_changed", "Changes of networks after which VMAPI agreed to restart the storage VM";
    NetworkChangesFailed, "network_changes_failed", "Changes of networks that did not come to their end";
    Archived, "volumes_archived", "Failed volumes that went to the archive";
    Looks, "vm_looks", "Times that a VM was read";
    Listings, "vm_listings", "Full listings of VMAPI's VMs";
    FeedsLost, "feeds_lost", "Times that the stream of changes was lost";
    Recovered, "work_recovered", "Pieces of work that another process had left";
    SnapshotsMade, "snapshots_made", "Snapshots that nodes made";
    SnapshotsFailed, "snapshots_failed", "Snapshots that could not be made";
    RolledBack, "volumes_rolled_back", "Times that a node made a volume as it was";
    Calls, "nfs_calls", "Times that the NFS server of a storage VM was called";
    CallsFailed, "nfs_calls_failed", "Calls that were not answered as they should be";
    Errors, "errors", "Readings of VMs and passes that failed";
}

/// What was counted.
#[derive(Debug, Default)]
pub struct Counts([AtomicU64; Count::ALL.len()]);

impl Counts {
    pub fn add(&self, count: Count) {
        self.0[count as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns a counter.
    pub fn get(&self, count: Count) -> u64 {
        self.0[count as usize].load(Ordering::Relaxed)
    }
}

/// What every part of the service has.
#[derive(Debug)]
pub struct Shared {
    pub records: Records,
    /// The services that are asked.
    pub peers: Peers,
    /// What an operator may set.
    pub settings: ServiceConfig,
    /// What was counted.
    pub counts: Counts,
}

impl Shared {
    /// Returns true if the storage answers.
    pub async fn is_healthy(&self) -> bool {
        !self.records.volumes.get("ping").await.is_err_and(|error| error.is_away())
    }
}

/// Returns the VMs that use a volume.
pub(super) fn users(volume: &Volume) -> Vec<String> {
    volume.refs().into_iter().map(str::to_owned).collect()
}

/// A request is answered or given up within this time, in seconds.
pub(super) const LATEST: i64 = 60;

/// By what right an instance acts on work.
#[derive(Clone, Copy, Debug)]
pub(super) enum Right<'a> {
    /// It has the lease: it acts on its own work, and on that of others which has expired.
    Lease(&'a store::Fence),
    /// The work is its own, and expires at this second.
    Own(i64),
}

impl<'a> Right<'a> {
    /// Returns whether a request may be sent. After work has expired another instance acts on it, so the last request
    /// is sent early enough to be over by then. What has the lease is ended by `store.lead`.
    pub(super) fn holds(self) -> bool {
        match self {
            Right::Lease(_) => true,
            Right::Own(expires_at) => daemon::wall::now().as_second() < expires_at - LATEST,
        }
    }

    /// Returns what writes require. Writes about own work require none: each is refused where the record changed.
    pub(super) fn fence(self) -> Option<&'a store::Fence> {
        match self {
            Right::Lease(fence) => Some(fence),
            Right::Own(_) => None,
        }
    }
}
