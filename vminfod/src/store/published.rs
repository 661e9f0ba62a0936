// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The read side: the newest snapshot, and the events after it.
//!
//! Readers never wait for the writer, however slow they are: they hold a snapshot whose objects are shared, and the
//! writer copies the map of objects only if a reader still holds it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use daemon::journal::Journal;
use indexmap::IndexMap;

use super::stored::StoredVm;

/// All VMs at one sequence number, in the order in which they were created.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The last event that the VMs contain.
    pub seq: u64,
    /// By zone name.
    pub vms: IndexMap<Arc<str>, Arc<StoredVm>>,
}

/// The read side.
#[derive(Debug)]
pub struct Published {
    /// Sixteen hex digits, new at every start.
    pub epoch: String,
    current: Mutex<Arc<Snapshot>>,
    /// The events after a snapshot.
    pub journal: Arc<Journal>,
}

impl Published {
    pub(super) fn new(ring_bytes: usize) -> Self {
        let epoch = uuid::Uuid::new_v4().simple().to_string().chars().take(16).collect();
        Self { epoch, current: Mutex::default(), journal: Arc::new(Journal::new(ring_bytes)) }
    }

    /// The newest snapshot.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.lock())
    }

    /// Changes the newest snapshot, or a copy of it if a reader holds it.
    pub(super) fn edit(&self, edit: impl FnOnce(&mut Snapshot)) {
        edit(Arc::make_mut(&mut self.lock()));
    }

    fn lock(&self) -> MutexGuard<'_, Arc<Snapshot>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
