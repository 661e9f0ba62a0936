// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The last listings of VMs with so many snapshots that to list them takes long. What takes a moment is read each time.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::zfs::Listed;

/// A listing that took longer is kept,
const LONG: Duration = Duration::from_secs(5);
/// for so many times as long as it took.
const TIMES: u32 = 10;

/// One of each VM at most. None that began before this agent has changed something.
#[derive(Default)]
pub struct Listings(Mutex<HashMap<Uuid, Kept>>);

struct Kept {
    began: Instant,
    until: Instant,
    roots: Vec<String>,
    /// None: what was listed is no more so.
    listed: Option<Listed>,
}

impl Listings {
    fn all(&self) -> MutexGuard<'_, HashMap<Uuid, Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a listing that has just ended, if it took long.
    pub fn keep(&self, vm: Uuid, roots: &[String], began: Instant, listed: &Listed) {
        let took = began.elapsed();
        let mut all = self.all();
        if took < LONG || all.get(&vm).is_some_and(|kept| kept.began >= began) {
            return;
        }
        let until = Instant::now() + took * TIMES;
        all.insert(vm, Kept { began, until, roots: roots.to_vec(), listed: Some(listed.clone()) });
    }

    /// Returns what was listed of these lately.
    pub fn recent(&self, vm: Uuid, roots: &[String]) -> Option<Listed> {
        let all = self.all();
        let kept = all.get(&vm).filter(|kept| kept.roots == roots && Instant::now() < kept.until);
        kept.and_then(|kept| kept.listed.clone())
    }

    /// Something was changed.
    pub fn changed(&self, vm: Uuid) {
        let now = Instant::now();
        self.all().insert(vm, Kept { began: now, until: now, roots: Vec::new(), listed: None });
    }

    /// These snapshots are gone.
    pub fn without(&self, vm: Uuid, gone: &[String]) {
        let mut all = self.all();
        if let Some(listed) = all.get_mut(&vm).and_then(|kept| kept.listed.as_mut()) {
            listed.side.snapshots.retain(|row| !gone.contains(&row.full_name()));
        }
    }

    /// Forgets a VM.
    pub fn forget(&self, vm: Uuid) {
        self.all().remove(&vm);
    }
}
