// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The QEMUs of a node's kvm VMs: while a zone runs, its second monitor is in it, which kvmd listens to.

use std::collections::BTreeMap;
use std::sync::Arc;

use sdc_clients::Jitter;
use sdc_clients::vminfod::{VmFields as _, VmObject, Vminfod, WatchEvent, watch};
use simnode::Node;
use simnode::qemu::{OFF, POWERDOWN, Qemu};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use super::error::LabError;

/// The monitor's place in a zone.
pub(super) const SOCKET: &str = "/tmp/vm.kvmd";
/// How init ends with its guest: well.
const ENDED: i64 = 0;

type Running = Arc<Mutex<BTreeMap<String, Monitor>>>;

/// A QEMU, and whether it was asked to power its guest off.
struct Monitor {
    /// None once its guest has powered off, until the zone is seen halted: what was told of the zone before that must
    /// not start another.
    qemu: Option<Qemu>,
    is_asked: bool,
}

/// All of a node.
pub(super) struct Qemus {
    running: Running,
    follower: JoinHandle<()>,
}

impl std::fmt::Debug for Qemus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Qemus")
    }
}

impl Drop for Qemus {
    fn drop(&mut self) {
        self.follower.abort();
    }
}

impl Qemus {
    /// Follows the node's VMs.
    pub(super) fn follow(node: &Node, hub: &Vminfod) -> Qemus {
        let running = Running::default();
        let (node, known, mut watcher) =
            (node.clone(), Arc::clone(&running), watch(hub, Jitter::from_seed(1)));
        let follower = tokio::spawn(async move {
            loop {
                match watcher.next().await {
                    WatchEvent::Synced(vms) => {
                        for vm in &vms {
                            see(&node, &known, vm).await;
                        }
                    }
                    WatchEvent::Created(vm)
                    | WatchEvent::Modified { vm, .. }
                    | WatchEvent::Hidden(vm)
                    | WatchEvent::Shown(vm) => see(&node, &known, &vm).await,
                    WatchEvent::Deleted(vm) => drop(take(&known, &vm).await),
                    _ => {}
                }
            }
        });
        Qemus { running, follower }
    }

    /// The guest of a running kvm VM powers off, as its user does from inside: its QEMU says so and ends, and with it
    /// the zone.
    pub(super) async fn power_off(&self, node: &Node, vm: &str) -> Result<(), LabError> {
        let qemu = self.running.lock().await.get_mut(vm).and_then(|monitor| monitor.qemu.take());
        let qemu = qemu.ok_or(LabError::Cast("QEMU of this VM"))?;
        qemu.say(OFF).await;
        qemu.end().await;
        let (node, vm) = (node.clone(), vm.to_owned());
        let halted = tokio::task::spawn_blocking(move || node.zone_halt(&vm, ENDED)).await;
        let failed = LabError::io("halting a zone");
        halted.map_err(|error| failed(std::io::Error::other(error)))??;
        Ok(())
    }

    /// Returns true if a VM's QEMU has a listener. One that it has greeted alone is none yet: what that sends while the
    /// machine ends makes the end a reset, and a reset may take what was said before.
    pub(super) async fn is_heard(&self, vm: &str) -> bool {
        let running = self.running.lock().await;
        let qemu = running.get(vm).and_then(|monitor| monitor.qemu.as_ref());
        qemu.is_some_and(|qemu| qemu.received().contains("qmp_capabilities"))
    }
}

async fn take(known: &Running, vm: &VmObject) -> Option<()> {
    let monitor = known.lock().await.remove(vm.uuid()?)?;
    monitor.qemu?.end().await;
    Some(())
}

/// A QEMU runs with its zone. vmadm asks it to power its guest off when the VM is to stop.
async fn see(node: &Node, known: &Running, vm: &VmObject) {
    if vm.brand() != Some("kvm") {
        return;
    }
    let Some((uuid, zonepath)) = vm.uuid().zip(vm.text("zonepath")) else { return };
    if vm.text("zone_state") != Some("running") {
        let _there_was_none = take(known, vm).await;
        return;
    }
    let mut known = known.lock().await;
    if let Some(monitor) = known.get_mut(uuid) {
        if vm.state() == Some("stopping")
            && !std::mem::replace(&mut monitor.is_asked, true)
            && let Some(qemu) = &monitor.qemu
        {
            qemu.say(POWERDOWN).await;
        }
        return;
    }
    let root = node.root().join(zonepath.trim_start_matches('/')).join("root");
    let socket = root.join(SOCKET.trim_start_matches('/'));
    let made = socket.parent().map_or(Ok(()), std::fs::create_dir_all);
    // A zone that is on its way out has no place for it.
    if let Ok(qemu) = made.and_then(|()| Qemu::start(&socket)) {
        known.insert(uuid.to_owned(), Monitor { qemu: Some(qemu), is_asked: false });
    }
}
