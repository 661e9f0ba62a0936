// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `/metrics`: base units, `_total` on counters (the library adds it).

use daemon::metrics::{counters, flag, gauges, size, timestamp};
use prometheus_client::registry::Registry;

use crate::parts::Parts;

/// Returns a registry with the current numbers.
pub(crate) fn registry(parts: &Parts) -> Registry {
    daemon::metrics::registry("vm_agent", |registry| fill(registry, parts))
}

fn fill(registry: &mut Registry, parts: &Parts) {
    let (status, clients) = (&parts.status, &parts.clients);
    let asked = "Turns taken to ask VMAPI, retries included";
    counters(registry, status.metrics().chain([("admissions", asked, clients.pace.taken())]));
    let (vms, gone) = parts.node.with(|known| (size(known.here.len()), size(known.unsettled())));
    let fault = flag(parts.state_file.sentence().is_some());
    let brake = "1 while the brake blocks reports of destroyed VMs";
    gauges(
        registry,
        [
            ("vms", "VMs that vminfod shows, hidden ones included", vms),
            ("vms_gone", "VMs that left the node and are not settled", gone),
            ("vms_held", "VMs that wait for something", size(status.held())),
            ("records_ahead", "VMs whose record is from the future", size(status.records_ahead())),
            ("queue", "VMs that are to have a turn", size(parts.schedule.queued().0.len())),
            ("brake_on", brake, flag(status.brake().is_some())),
            (
                "writing",
                "1 while the agent may write to VMAPI",
                flag(parts.gate.writable().is_ok()),
            ),
            ("memory_fault", "1 while the state file is lost or cannot be written", fault),
            (
                "last_comparison_timestamp_seconds",
                "When VMAPI's list was last compared; 0: never",
                timestamp(status.last_start()),
            ),
            ("uptime_seconds", "Time since the start", parts.clock.now().as_secs_f64()),
        ],
    );
    let took = "Time until VMAPI answered or failed";
    clients.health.took.register(registry, "vmapi_request_duration", took);
}
