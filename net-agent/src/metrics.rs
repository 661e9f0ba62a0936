// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `/metrics`: base units, `_total` on counters (the library adds it).

use daemon::metrics::{counters, flag, gauges, size, timestamp};
use prometheus_client::registry::Registry;

use crate::holds::Hold;
use crate::parts::Parts;
use crate::status::Count;

/// Returns a registry with the current numbers; `holds` are those in force.
pub(crate) fn registry(parts: &Parts, holds: &[Hold]) -> Registry {
    daemon::metrics::registry("net_agent", |registry| fill(registry, parts, holds))
}

fn fill(registry: &mut Registry, parts: &Parts, holds: &[Hold]) {
    let (status, clients) = (&parts.status, &parts.clients);
    counters(registry, status.metrics());
    let requests = "Requests to NAPI and VMAPI, retries included";
    counters(
        registry,
        [
            ("passes", "Passes over NAPI's list that ended well", status.passes()),
            ("requests", requests, clients.pace.taken()),
        ],
    );
    let shown = |count: Count| size(usize::try_from(status.get(count)).unwrap_or(usize::MAX));
    let brake = flag(parts.brake.sentence().is_some());
    let fault = flag(parts.state_file.sentence().is_some());
    let unreadable = "Records of NAPI's last list that cannot be read and were left out";
    let is_held = holds.iter().any(|hold| hold.vm.is_none());
    let writes = flag(parts.gate.writable().is_ok() && !is_held);
    let next_end = timestamp(holds.iter().filter_map(|hold| hold.until).min());
    gauges(
        registry,
        [
            ("nics_listed", "Zone NICs in NAPI's last list for this node", shown(Count::Listed)),
            ("nics_unreadable", unreadable, shown(Count::Unreadable)),
            (
                "vms",
                "VMs that vminfod shows, hidden ones included",
                parts.node.with(|i| size(i.view.vms.len())),
            ),
            ("brake_on", "1 while the brake blocks deletes", brake),
            ("writing", "1 while the agent may write to NAPI", writes),
            (
                "candidates",
                "Records that look leaked and are not decided",
                size(parts.brake.candidates()),
            ),
            (
                "departed",
                "NICs that left the node and are not settled",
                size(parts.departures.count()),
            ),
            ("holds", "Holds in force", size(holds.len())),
            ("next_hold_end_timestamp_seconds", "When the first hold ends; 0: none does", next_end),
            ("memory_fault", "1 while the state file is lost or cannot be written", fault),
            (
                "last_pass_timestamp_seconds",
                "When the last pass ended well; 0: never",
                timestamp(status.last_pass()),
            ),
            ("uptime_seconds", "Time since the start", parts.clock.now().as_secs_f64()),
        ],
    );
    let (napi, vmapi) = (&clients.napi_health.took, &clients.vmapi_health.took);
    napi.register(registry, "napi_request_duration", "Time until NAPI answered or failed");
    vmapi.register(registry, "vmapi_request_duration", "Time until VMAPI answered or failed");
}
