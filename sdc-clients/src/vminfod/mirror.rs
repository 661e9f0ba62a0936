// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The watcher's copy of the node: the last object of every VM, updated by each line of the stream. A VM
//! leaves it only if the service says so, or if another one takes its name. Pure.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use super::event::{Vm, WatchEvent};
use super::fields::VmFields as _;
use super::types::{Change, VmObject, key_of};

/// Returns true if the two are different VMs: a field that is fixed at creation differs.
fn is_another(old: &VmObject, new: &VmObject) -> bool {
    let differ = |key: &str| match (old.get(key), new.get(key)) {
        (Some(old), Some(new)) => !old.is_null() && !new.is_null() && old != new,
        _ => false,
    };
    ["uuid", "create_timestamp"].into_iter().any(differ)
}

/// What is known of every VM, by zone name.
#[derive(Debug, Default)]
pub struct Mirror {
    vms: HashMap<String, Arc<Vm>>,
    /// VMs that came into being so far.
    incarnations: u64,
    /// Whether a snapshot was ever taken: the first one derives nothing.
    filled: bool,
}

impl Mirror {
    /// The VM of this zone name.
    pub fn get(&self, zonename: &str) -> Option<&Arc<Vm>> {
        self.vms.get(zonename)
    }

    /// All VMs, in no order.
    pub fn vms(&self) -> impl Iterator<Item = &Arc<Vm>> {
        self.vms.values()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.vms.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.vms.is_empty()
    }

    /// What was known is complete again.
    pub(super) fn caught_up(&self, out: &mut VecDeque<WatchEvent>) {
        let mut all: Vec<(&String, &Arc<Vm>)> = self.vms.iter().collect();
        all.sort_unstable_by_key(|(name, _)| *name);
        out.push_back(WatchEvent::Synced(all.into_iter().map(|(_, vm)| Arc::clone(vm)).collect()));
    }

    /// A complete snapshot: differences first, then the snapshot itself.
    pub(super) fn snapshot(&mut self, vms: Vec<VmObject>, out: &mut VecDeque<WatchEvent>) {
        let mut present = HashSet::with_capacity(vms.len());
        let mut order = Vec::with_capacity(vms.len());
        for vm in vms {
            let Some(name) = key_of(&vm).map(str::to_owned) else { continue };
            if !present.insert(name.clone()) {
                tracing::warn!(vm = name, "vminfod listed a VM twice; keeping the first");
                continue;
            }
            order.push(self.put(name, vm, Vec::new(), self.filled.then_some(&mut *out)));
        }
        let mut gone: Vec<String> =
            self.vms.keys().filter(|name| !present.contains(*name)).cloned().collect();
        gone.sort_unstable();
        for name in gone {
            self.remove(&name, out);
        }
        self.filled = true;
        out.push_back(WatchEvent::Synced(order));
    }

    /// A create or a modify, whichever the service called it.
    pub(super) fn apply(
        &mut self,
        name: String,
        vm: VmObject,
        changes: Vec<Change>,
        out: &mut VecDeque<WatchEvent>,
    ) {
        self.put(name, vm, changes, Some(out));
    }

    /// A delete; of an unknown VM it is no news.
    pub(super) fn remove(&mut self, name: &str, out: &mut VecDeque<WatchEvent>) {
        match self.vms.remove(name) {
            Some(vm) => out.push_back(WatchEvent::Deleted(vm)),
            None => tracing::debug!(vm = name, "delete of a VM that was not known"),
        }
    }

    fn put(
        &mut self,
        name: String,
        vm: VmObject,
        changes: Vec<Change>,
        out: Option<&mut VecDeque<WatchEvent>>,
    ) -> Arc<Vm> {
        let mut out = out;
        if self.vms.get(&name).is_some_and(|old| is_another(old, &vm))
            && let Some(gone) = self.vms.remove(&name)
            && let Some(out) = &mut out
        {
            out.push_back(WatchEvent::Deleted(gone));
        }
        let old = match self.vms.get(&name) {
            // Key order is no difference to a holder of the old object.
            Some(old) if old.object == vm => {
                if changes.is_empty() {
                    return Arc::clone(old);
                }
                Some(Arc::clone(old))
            }
            old => old.cloned(),
        };
        let incarnation = old.as_ref().map_or(self.incarnations + 1, |old| old.incarnation);
        self.incarnations = self.incarnations.max(incarnation);
        let vm = Arc::new(Vm { object: vm, incarnation });
        self.vms.insert(name, Arc::clone(&vm));
        let Some(out) = out else { return vm };
        out.push_back(match old {
            None => WatchEvent::Created(Arc::clone(&vm)),
            Some(old) => match (old.is_hidden(), vm.is_hidden()) {
                (false, true) => WatchEvent::Hidden(Arc::clone(&vm)),
                (true, false) => WatchEvent::Shown(Arc::clone(&vm)),
                _ => WatchEvent::Modified { vm: Arc::clone(&vm), old, changes },
            },
        });
        vm
    }
}
