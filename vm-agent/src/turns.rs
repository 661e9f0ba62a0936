// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Which VMs have a turn, and which ones a write of many records is about: no record is written from two sides, and
//! none waits for the request of another one.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The turns of one agent.
#[derive(Default)]
pub(crate) struct Turns {
    state: Mutex<State>,
    /// A write of many records is over.
    over: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The VMs that have a turn now.
    running: BTreeSet<String>,
    /// While a start compares: the VMs that had a turn since its view was asked for.
    noted: Option<BTreeSet<String>>,
    /// The VMs that a write of many records is about.
    written: BTreeSet<String>,
}

/// The turn of a VM, as long as it is there.
pub(crate) struct Turn<'a>(&'a Turns, String);

/// A write of many records, as long as it is there.
pub(crate) struct Write<'a>(&'a Turns);

/// For the explorer, which compares what agents know and mean to do.
impl std::fmt::Debug for Turns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.state())
    }
}

impl Turns {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A turn of this VM begins, once no write of many records is about it.
    pub(crate) async fn begin(&self, vm: &str) -> Turn<'_> {
        loop {
            let over = self.over.notified();
            {
                let mut state = self.state();
                if !state.written.contains(vm) {
                    state.running.insert(vm.to_owned());
                    state.noted.iter_mut().for_each(|noted| noted.extend([vm.to_owned()]));
                    return Turn(self, vm.to_owned());
                }
            }
            over.await;
        }
    }

    /// Begins to note the VMs that have a turn.
    pub(crate) fn note(&self) {
        let mut state = self.state();
        state.noted = Some(state.running.clone());
    }

    /// A write of many records begins. It is about the VMs that are returned for those that had a turn since
    /// [`Self::note`], which notes no more.
    pub(crate) fn write(
        &self,
        about: impl FnOnce(&BTreeSet<String>) -> BTreeSet<String>,
    ) -> Write<'_> {
        let mut state = self.state();
        let turned = state.noted.take().unwrap_or_default();
        state.written = about(&turned);
        Write(self)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.state().running.remove(&self.1);
    }
}

impl Drop for Write<'_> {
    fn drop(&mut self) {
        self.0.state().written.clear();
        self.0.over.notify_waiters();
    }
}
