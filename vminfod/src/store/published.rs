// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The read side: the newest snapshot, and the events after it.

use std::sync::Arc;

use arc_swap::ArcSwap;
use daemon::journal::Journal;

use super::vms::Vms;

/// All VMs at one sequence number, in the order in which they were created.
#[derive(Debug)]
pub struct Snapshot {
    /// The last event that the VMs contain.
    pub seq: u64,
    /// By zone name.
    pub vms: Vms,
}

/// The read side.
#[derive(Debug)]
pub struct Published {
    /// Sixteen hex digits, new at every start.
    pub epoch: String,
    current: ArcSwap<Snapshot>,
    /// The events after a snapshot.
    pub journal: Arc<Journal>,
}

impl Published {
    pub(super) fn new(ring_bytes: usize) -> Self {
        let epoch = uuid::Uuid::new_v4().simple().to_string().chars().take(16).collect();
        let current = ArcSwap::from_pointee(Snapshot { seq: 0, vms: Vms::default() });
        Self { epoch, current, journal: Arc::new(Journal::new(ring_bytes)) }
    }

    /// The newest snapshot.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }

    pub(super) fn replace(&self, snapshot: Snapshot) {
        self.current.store(Arc::new(snapshot));
    }
}
