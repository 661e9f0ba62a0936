// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The events task: follows vminfod's stream. An event carries no work of its own; it wakes the VM, and
//! the turn reads the node as it is then.

use std::sync::Arc;
use std::time::Duration;

use daemon::agent::State;
use sdc_clients::vminfod::{WatchEvent, watch};

use crate::parts::Parts;
use crate::plan::{Reason, named};
use crate::status::{Count, Task};

/// Follows the stream, for ever.
pub(crate) async fn follow(parts: Arc<Parts>) {
    let parts = &*parts;
    let mut watcher = watch(&parts.clients.vminfod, parts.random.fork());
    loop {
        match watcher.next().await {
            WatchEvent::Synced(vms) => {
                tracing::info!(vms = vms.len(), "read vminfod's snapshot");
                parts.node.synced(&vms);
                parts.gate.sync(true);
                parts.status.is(Task::Events, State::Working);
            }
            WatchEvent::Modified { vm, .. } => wake(parts, parts.node.put(&vm), parts.clock.now()),
            // A VM that came, or came out of hiding, goes first: after the switch of a migration VMAPI
            // knows nothing of it.
            WatchEvent::Created(vm) | WatchEvent::Shown(vm) => {
                wake(parts, parts.node.put(&vm), Duration::ZERO);
            }
            WatchEvent::Hidden(vm) => {
                parts.node.put(&vm);
                if let Some(vm) = named(&vm) {
                    parts.status.decided(&vm, "nothing", Reason::Hidden, false);
                }
            }
            WatchEvent::Deleted(vm) => wake(parts, parts.node.remove(&vm), parts.clock.now()),
            WatchEvent::Lost(error) => {
                let lost = (Task::Events, Count::StreamsLost);
                parts.status.stream_lost(&parts.gate, lost, &error);
            }
            _ => {}
        }
    }
}

fn wake(parts: &Parts, vm: Option<String>, at: Duration) {
    let Some(vm) = vm else { return };
    parts.schedule.wake_changed(&vm, at, ());
}
