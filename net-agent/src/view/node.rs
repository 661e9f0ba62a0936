// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The node, shared by all tasks: the inventory, and a count of changes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use daemon::timing::Clock;
use sdc_clients::vminfod::{VmObject, Vminfod};
use tokio::sync::Notify;

use super::inventory::{Differing, Inventory};
use super::local::{LocalView, LocalVm};

/// The most zones that are asked about, whether more than an XML is left of them.
const STRAYS: usize = 16;

/// Why there is no fresh view.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    #[error("vminfod")]
    Vminfod(#[from] sdc_clients::Error),
    /// Events overtook every reading.
    #[error("the node changed during five readings in a row")]
    Unstable,
}

/// A fresh view of the node.
#[derive(Clone, Debug)]
pub struct Fresh {
    pub view: LocalView,
    /// The VMs that differed from what was known.
    pub differing: Vec<Differing>,
}

/// The node. The lock is held for a few instructions and never over an await.
#[derive(Debug)]
pub struct Node {
    current: Mutex<Current>,
    clock: Clock,
    hidden_memory: Duration,
    /// Held while a view is read that several tasks need.
    reading: tokio::sync::Mutex<()>,
    /// Wakes the task that saves the state file.
    save: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Current {
    inventory: Inventory,
    /// Grows with every change of the inventory.
    revision: u64,
}

impl Node {
    /// Nothing is known yet.
    pub fn new(clock: Clock, hidden_memory: Duration, save: Arc<Notify>) -> Self {
        let (current, reading) = (Mutex::default(), tokio::sync::Mutex::default());
        Self { current, clock, hidden_memory, reading, save }
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the inventory, with the list of lately hidden VMs as of now.
    pub fn with<T>(&self, read: impl FnOnce(&Inventory) -> T) -> T {
        let mut known = self.lock();
        known.inventory.refresh(self.clock.now());
        read(&known.inventory)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Inventory) -> T) -> T {
        self.change_known(self.lock(), change)
    }

    fn change_known<T>(
        &self,
        mut known: MutexGuard<'_, Current>,
        change: impl FnOnce(&mut Inventory) -> T,
    ) -> T {
        known.revision += 1;
        let changed = change(&mut known.inventory);
        drop(known);
        self.save.notify_one();
        changed
    }

    /// Takes over what the last run knew.
    pub fn restore(&self, restore: impl FnOnce(&mut Inventory)) {
        self.change(restore);
    }

    /// Stores the stream's snapshot. Returns the VMs that differ.
    pub fn synced(&self, view: LocalView) -> Vec<Differing> {
        self.change(|inventory| inventory.snapshot(view, self.hidden_memory))
    }

    /// Stores a VM object. Returns the VM before and after, or none if it has no name.
    pub fn put(&self, object: &VmObject) -> Option<(Option<LocalVm>, LocalVm)> {
        self.change(|inventory| inventory.put(object, self.clock.now(), self.hidden_memory))
    }

    /// Removes a VM; `synced` if the stream is in sync. Returns it as it was.
    pub fn remove(&self, uuid: &str, synced: bool) -> Option<LocalVm> {
        self.change(|inventory| {
            inventory.remove(uuid, self.clock.now(), self.hidden_memory, synced)
        })
    }

    /// Remembers which of these VMs are hidden, even if the answer that showed them is not used.
    pub fn shown<'a>(&self, vms: impl IntoIterator<Item = &'a LocalVm>) {
        let until = self.clock.now() + self.hidden_memory;
        let hidden: Vec<_> = vms.into_iter().filter(|vm| vm.hidden).collect();
        if !hidden.is_empty() {
            self.change(|inventory| hidden.into_iter().for_each(|vm| inventory.note(vm, until)));
        }
    }

    /// Waits until no other task of those that share a view reads one.
    pub async fn reading(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.reading.lock().await
    }

    /// Reads a full view of the node now and stores it. A view that an event overtook is read
    /// again.
    /// Fails if vminfod does not answer or the node changes all the time.
    pub async fn read_fresh(&self, vminfod: &Vminfod) -> Result<Fresh, ViewError> {
        for _ in 0..5 {
            let (revision, asked) = (self.lock().revision, self.clock.now());
            let shown = vminfod.zones().await?;
            let mut view = LocalView::of(&shown, asked);
            for name in view.unread.iter().take(STRAYS) {
                if vminfod.left(name).await.is_ok_and(|left| left.is_stray) {
                    view.strays.insert(name.clone());
                }
            }
            let known = self.lock();
            if known.revision != revision {
                drop(known);
                self.shown(view.vms.values());
                continue;
            }
            return Ok(self.change_known(known, |inventory| {
                inventory.forget(asked);
                let differing = inventory.replace(view, self.hidden_memory);
                inventory.refresh(asked);
                Fresh { view: inventory.view.clone(), differing }
            }));
        }
        Err(ViewError::Unstable)
    }
}
