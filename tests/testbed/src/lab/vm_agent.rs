// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A credulous VM agent: it writes to VMAPI what vminfod shows, and marks VMs destroyed that vminfod
//! deleted, whatever the node looks like then. The shipped one does no less; ours would hide from a
//! test what net-agent makes of it.

use sdc_clients::Jitter;
use sdc_clients::vminfod::{VmFields as _, VmObject, Vminfod, WatchEvent, watch};

use mocks::vmapi::Store;

/// Follows the node until it is dropped.
pub async fn follow(hub: Vminfod, vmapi: Store, cn_uuid: String) {
    let mut watcher = watch(&hub, Jitter::from_entropy());
    loop {
        match watcher.next().await {
            WatchEvent::Synced(vms) => vms.iter().for_each(|vm| tell(&vmapi, vm, &cn_uuid)),
            WatchEvent::Created(vm) | WatchEvent::Shown(vm) | WatchEvent::Modified { vm, .. } => {
                tell(&vmapi, &vm, &cn_uuid);
            }
            WatchEvent::Deleted(vm) => {
                if let (Some(uuid), false) = (vm.uuid(), vm.is_hidden()) {
                    vmapi.set(uuid, "destroyed", Some(&cn_uuid));
                }
            }
            // A hidden VM is not this agent's to speak of, not even when it goes; a lost stream
            // comes back by itself.
            _ => {}
        }
    }
}

fn tell(vmapi: &Store, vm: &VmObject, cn_uuid: &str) {
    if let (Some(uuid), false) = (vm.uuid(), vm.is_hidden()) {
        vmapi.set(uuid, vm.state().unwrap_or("unknown"), Some(cn_uuid));
    }
}
