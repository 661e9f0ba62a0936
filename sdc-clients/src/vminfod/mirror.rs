// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The watcher's memory: the last known object of every VM, and what each
//! line of the stream makes of it. Pure: no I/O and no clock. A VM leaves it
//! only because the service said so.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use serde_json::Value;

use super::types::{Change, VmObject, key_of};
use super::watch::WatchEvent;

/// What is known of every VM, by zone name.
#[derive(Debug, Default)]
pub(super) struct Mirror {
    vms: HashMap<String, Arc<VmObject>>,
    /// Whether a snapshot was ever taken: the first one derives nothing.
    filled: bool,
}

/// Whether the inventory is to leave this VM out.
fn hidden(vm: &VmObject) -> bool {
    match vm.get("do_not_inventory") {
        Some(Value::Bool(flag)) => *flag,
        Some(Value::String(text)) => text == "true",
        _ => false,
    }
}

impl Mirror {
    /// A complete snapshot: differences first, then the snapshot itself.
    pub(super) fn snapshot(&mut self, vms: Vec<VmObject>, out: &mut VecDeque<WatchEvent>) {
        let mut present = HashSet::with_capacity(vms.len());
        let mut order = Vec::with_capacity(vms.len());
        for vm in vms {
            let Some(name) = key_of(&vm).map(str::to_owned) else { continue };
            if !present.insert(name.clone()) {
                tracing::warn!(vm = name, "listed twice, the first one is kept");
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
            Some(vm) => out.push_back(WatchEvent::Deleted { vm }),
            None => tracing::debug!(vm = name, "delete of a VM that was not known"),
        }
    }

    fn put(
        &mut self,
        name: String,
        vm: VmObject,
        changes: Vec<Change>,
        out: Option<&mut VecDeque<WatchEvent>>,
    ) -> Arc<VmObject> {
        let old = match self.vms.get(&name) {
            // Key order is no difference to anybody who holds the old object.
            Some(old) if **old == vm => {
                if changes.is_empty() {
                    return Arc::clone(old);
                }
                Some(Arc::clone(old))
            }
            old => old.cloned(),
        };
        let vm = Arc::new(vm);
        self.vms.insert(name, Arc::clone(&vm));
        let Some(out) = out else { return vm };
        out.push_back(match old {
            None => WatchEvent::Created(Arc::clone(&vm)),
            Some(old) => match (hidden(&old), hidden(&vm)) {
                (false, true) => WatchEvent::Hidden { vm: Arc::clone(&vm) },
                (true, false) => WatchEvent::Shown { vm: Arc::clone(&vm) },
                _ => WatchEvent::Modified { vm: Arc::clone(&vm), old, changes },
            },
        });
        vm
    }
}
