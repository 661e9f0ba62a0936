// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `/metrics`: base units, `_total` on counters (the library adds it).

use daemon::metrics::{counters, flag, gauges, size, timestamp};
use prometheus_client::registry::Registry;

use crate::parts::Parts;
use crate::status::{Own, State, Task};

/// Returns a registry with the current numbers.
pub(crate) fn registry(parts: &Parts) -> Registry {
    daemon::metrics::registry("fleet_agent", |registry| fill(registry, parts))
}

fn fill(registry: &mut Registry, parts: &Parts) {
    let status = &parts.status;
    counters(registry, status.metrics());
    let following = status.state(Task::Publisher) == Some(State::Resting);
    let claimed = matches!(status.state(Task::Heartbeat), Some(State::Own(Own::Claimed { .. })));
    let told = parts.told();
    gauges(
        registry,
        [
            ("publishing", "1 while the node is published", flag(following)),
            ("claimed_by_another", "1 while another program publishes this node", flag(claimed)),
            (
                "vms",
                "VMs of the node, as far as they are published",
                size(usize::try_from(told.vms).unwrap_or(usize::MAX)),
            ),
            (
                "last_published_timestamp_seconds",
                "When JetStream last acknowledged a message; 0: never",
                timestamp(status.last_published()),
            ),
            (
                "vms_stream_still_seconds",
                "How long VMS has stood still though CHANGES has more, where this agent makes the streams",
                told.still.as_secs_f64(),
            ),
            (
                "stream_differences",
                "Messages that the servers do not have alike, where this agent makes the streams",
                size(told.differ.sum()),
            ),
            (
                "makes_streams",
                "1 where this agent makes the streams, and compares what the servers have",
                flag(parts.config.make.is_some()),
            ),
            ("uptime_seconds", "Time since the start", parts.clock.now().as_secs_f64()),
        ],
    );
}
