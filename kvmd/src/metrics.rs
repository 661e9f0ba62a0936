// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `/metrics`.

use daemon::metrics::{counters, gauges, size};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::ledger::{Snapshot, State};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: String,
}

/// Returns the ledger's numbers; `listeners` counts the open streams, `up_s` the seconds since the start.
pub fn registry(snapshot: &Snapshot, listeners: usize, up_s: f64) -> Registry {
    daemon::metrics::registry("kvmd", |registry| fill(registry, snapshot, listeners, up_s))
}

fn fill(registry: &mut Registry, snapshot: &Snapshot, listeners: usize, up_s: f64) {
    let instances = Family::<StateLabel, Gauge>::default();
    for state in State::ALL {
        let count = snapshot.instances.values().filter(|instance| instance.state == state).count();
        let state = crate::verdict::word(&state);
        instances
            .get_or_create(&StateLabel { state })
            .set(i64::try_from(count).unwrap_or(i64::MAX));
    }
    registry.register("instances", "Instances by how far their watching is", instances);
    let unreachable = snapshot.instances.values().filter(|instance| !instance.reachable).count();
    gauges(
        registry,
        [
            ("unreachable", "Watched instances whose socket lost its name", size(unreachable)),
            ("listeners", "Open streams of events", size(listeners)),
            ("uptime_seconds", "Time since the start", up_s),
        ],
    );
    let counts = snapshot.counts;
    counters(
        registry,
        [
            ("connections", "Monitors connected to", counts.connections),
            ("verdicts", "Verdicts given", counts.verdicts),
            ("users", "Verdicts that count as the user's wish", counts.users),
            ("markers_written", "Markers written", counts.markers_written),
            ("markers_failed", "Markers that could not be changed", counts.markers_failed),
            ("bad_lines", "Lines of monitors that could not be understood", counts.bad_lines),
            ("broken", "Monitors closed by a process that served them again", counts.broken),
        ],
    );
}
