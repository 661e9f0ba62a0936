// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the parts of the service share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use uuid::Uuid;

use crate::peers::Peers;
use crate::records::Records;
use volumes_core::volume::Volume;

/// What an operator may set.
#[derive(Clone, Debug)]
pub struct Settings {
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
    Looks, "vm_looks", "Times that a VM was looked at";
    Listings, "vm_listings", "Full listings of VMAPI's VMs";
    FeedsLost, "feeds_lost", "Times that the stream of changes was lost";
    Recovered, "work_recovered", "Pieces of work that another process had left";
    SnapshotsMade, "snapshots_made", "Snapshots that nodes made";
    SnapshotsFailed, "snapshots_failed", "Snapshots that could not be made";
    RolledBack, "volumes_rolled_back", "Times that a node made a volume as it was";
    Calls, "nfs_calls", "Times that the NFS server of a storage VM was called";
    CallsFailed, "nfs_calls_failed", "Calls that were not answered as they should be";
    Errors, "errors", "Looks and passes that failed";
}

/// What was counted.
#[derive(Debug, Default)]
pub struct Counts([AtomicU64; Count::ALL.len()]);

impl Counts {
    /// Counts one.
    pub fn add(&self, count: Count) {
        self.0[count as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns a counter.
    pub fn get(&self, count: Count) -> u64 {
        self.0[count as usize].load(Ordering::Relaxed)
    }
}

/// The service.
#[derive(Debug)]
pub struct Service {
    /// Its records.
    pub records: Records,
    /// The services that it asks.
    pub peers: Peers,
    /// What an operator may set.
    pub settings: Settings,
    /// What it counted.
    pub counts: Counts,
    has_images: AtomicBool,
    /// The keys of the work that this process does now.
    doing: Mutex<BTreeSet<String>>,
    /// The volumes that are being rolled back: whether VMAPI was asked to start the storage VM, not to stop it, and
    /// when.
    asked: Mutex<BTreeMap<String, (bool, Instant)>>,
    /// Wakes the pass over what is left.
    pub(super) hurry: Notify,
    /// Since when the storage VMs of ready volumes are stopped.
    stopped: Mutex<BTreeMap<String, Instant>>,
}

impl Service {
    /// A service over these records.
    pub fn new(records: Records, peers: Peers, settings: Settings) -> Service {
        Service {
            records,
            peers,
            settings,
            counts: Counts::default(),
            has_images: AtomicBool::new(false),
            doing: Mutex::default(),
            asked: Mutex::default(),
            hurry: Notify::new(),
            stopped: Mutex::default(),
        }
    }

    /// Looks for the images of storage VMs, and has missing ones imported. Returns whether all are there.
    pub async fn find_images(&self) -> bool {
        let mut all = true;
        for image in self.settings.images.iter().rev() {
            match self.peers.image(image, &self.settings.image_source).await {
                Ok(is_there) => all &= is_there,
                Err(error) => {
                    tracing::warn!(%error, image, "an image of storage VMs is not there");
                    all = false;
                }
            }
        }
        self.has_images.store(all, Ordering::Relaxed);
        all
    }

    /// Returns true once all images are there.
    pub fn has_images(&self) -> bool {
        self.has_images.load(Ordering::Relaxed)
    }

    /// Returns true if the storage answers.
    pub async fn is_healthy(&self) -> bool {
        !self.records.volumes.get("ping").await.is_err_and(|error| error.is_away())
    }

    /// The keys of the work that this process does now.
    pub(super) fn doing(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.doing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks new work as done by this process now.
    pub(super) fn busy_with_new(&self) -> Busy<'_> {
        let key = Uuid::new_v4().to_string();
        self.doing().insert(key.clone());
        Busy { service: self, key }
    }

    /// Marks work as done by this process now; none if it is already.
    pub(super) fn busy_with(&self, key: &str) -> Option<Busy<'_>> {
        let is_new = self.doing().insert(key.to_owned());
        is_new.then(|| Busy { service: self, key: key.to_owned() })
    }

    pub(super) fn asked(&self) -> MutexGuard<'_, BTreeMap<String, (bool, Instant)>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes whether the storage VM of a ready volume is stopped; returns whether it has been for longer
    /// than a reboot takes.
    pub(super) fn is_patience_over(&self, vm: &str, is_degraded: bool) -> bool {
        let mut stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_degraded {
            stopped.remove(vm);
            return false;
        }
        let since = *stopped.entry(vm.to_owned()).or_insert_with(Instant::now);
        since.elapsed() >= self.settings.reboot_grace
    }

    /// Returns the stopped storage VMs of ready volumes.
    pub fn degraded(&self) -> Vec<String> {
        self.stopped_for().into_keys().collect()
    }

    /// Returns them with how long they have been so.
    pub fn stopped_for(&self) -> BTreeMap<String, Duration> {
        let stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        stopped.iter().map(|(vm, since)| (vm.clone(), since.elapsed())).collect()
    }
}

/// Work that this process does now, until this is dropped.
#[derive(Debug)]
pub(super) struct Busy<'a> {
    service: &'a Service,
    key: String,
}

impl Busy<'_> {
    /// The key of the work.
    pub(super) fn key(&self) -> &str {
        &self.key
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.service.doing().remove(&self.key);
    }
}

/// Returns the VMs that use a volume.
pub(super) fn users(volume: &Volume) -> Vec<String> {
    volume.refs().into_iter().map(str::to_owned).collect()
}
