// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `/metrics`. A test compares the names with `docs/metrics-kvmd.md`.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::ledger::Snapshot;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: String,
}

/// Returns the ledger's numbers; `listeners` counts the open streams, `up_s` the seconds since the start.
pub fn registry(snapshot: &Snapshot, listeners: usize, up_s: u64) -> Registry {
    let mut registry = Registry::with_prefix("kvmd");
    let instances = Family::<StateLabel, Gauge>::default();
    for instance in snapshot.instances.values() {
        let state = crate::verdict::word(&instance.state);
        instances.get_or_create(&StateLabel { state }).inc();
    }
    registry.register("instances", "Instances by how far their watching is", instances);
    let unreachable = snapshot.instances.values().filter(|instance| !instance.reachable).count();
    let gauges = [
        ("unreachable", "Watched instances whose socket lost its name", whole(unreachable)),
        ("listeners", "Open streams of events", whole(listeners)),
        ("uptime_seconds", "Time since the start", whole(up_s)),
    ];
    for (name, help, value) in gauges {
        let gauge: Gauge = Gauge::default();
        gauge.set(value);
        registry.register(name, help, gauge);
    }
    let counts = snapshot.counts;
    let counters = [
        ("connections", "Monitors connected to", counts.connections),
        ("verdicts", "Verdicts given", counts.verdicts),
        ("users", "Verdicts that count as the user's wish", counts.users),
        ("markers_written", "Markers written", counts.markers_written),
        ("markers_failed", "Markers that could not be changed", counts.markers_failed),
        ("bad_lines", "Lines of monitors that could not be understood", counts.bad_lines),
        ("broken", "Monitors closed by a process that served them again", counts.broken),
    ];
    for (name, help, value) in counters {
        registry.register(name, help, ConstCounter::new(value));
    }
    registry
}

fn whole(number: impl TryInto<i64>) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Instance, Ledger, State};
    use std::collections::BTreeSet;

    #[test]
    fn every_metric_is_told_and_documented() {
        let mut snapshot = Ledger::default().snapshot();
        let instance = Instance {
            state: State::Queued,
            generation: 1,
            since: String::new(),
            pid: None,
            qemu: None,
            reachable: false,
        };
        snapshot.instances.insert("web01".to_owned(), instance);
        let mut text = String::new();
        let registry = registry(&snapshot, 2, 7);
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in
            ["kvmd_instances{state=\"queued\"} 1", "kvmd_unreachable 1", "kvmd_uptime_seconds 7"]
        {
            assert!(text.contains(line), "{line} in {text}");
        }
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        let told: BTreeSet<&str> =
            samples.filter_map(|line| line.split(['{', ' ']).next()).collect();
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/metrics-kvmd.md");
        let page = std::fs::read_to_string(page).unwrap();
        let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
        let documented: BTreeSet<&str> =
            rows.filter_map(|row| row.split(['{', '`']).next()).collect();
        assert_eq!(told, documented);
    }
}
