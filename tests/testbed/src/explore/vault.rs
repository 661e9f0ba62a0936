// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The database of the instances of migration-service, and its backups: it may be lost, or restored as it was.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use store::{Error, Store};

/// So many backups are kept.
const KEPT: usize = 64;

/// The database; clones are the same one.
#[derive(Clone)]
pub struct Vault(Arc<Mutex<State>>);

struct State {
    store: Store,
    /// One after each write, the newest last; none where nobody will need them.
    backups: Option<VecDeque<Store>>,
    was_lost: bool,
}

impl Vault {
    /// An empty database, with backups or without.
    pub fn new(has_backups: bool) -> Result<Vault, Error> {
        let (store, backups) = (Store::in_memory()?, has_backups.then(VecDeque::new));
        Ok(Vault(Arc::new(Mutex::new(State { store, backups, was_lost: false }))))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The database that is there now.
    pub fn store(&self) -> Store {
        self.state().store.clone()
    }

    /// A write was done.
    pub fn written(&self) {
        let mut state = self.state();
        let State { store, backups: Some(backups), .. } = &mut *state else { return };
        let Ok(backup) = store.copied() else { return };
        backups.push_back(backup);
        if backups.len() > KEPT {
            backups.pop_front();
        }
    }

    /// The database is lost, and an empty one takes its place; or it is again as it was before so many writes.
    pub fn lose(&self, ago: Option<usize>) -> Result<(), Error> {
        let mut state = self.state();
        state.was_lost = true;
        let backup = ago.and_then(|ago| {
            let backups = state.backups.as_ref()?;
            backups.get(backups.len().checked_sub(ago + 1)?)?.copied().ok()
        });
        state.store = match backup {
            Some(backup) => backup,
            None => Store::in_memory()?,
        };
        Ok(())
    }

    /// Returns true if the database was ever lost.
    pub fn was_lost(&self) -> bool {
        self.state().was_lost
    }
}
