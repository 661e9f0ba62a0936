// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The metrics: base units, `_total` on counters (the library adds it). A test compares the names with
//! `docs/metrics-migration-agent.md`.

use std::sync::atomic::Ordering;

use daemon::metrics::{gauges, size};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::registry::Registry;

use super::parts::Parts;
use migration_core::protocol::State;

/// The prefix of every name.
const PREFIX: &str = "migration_agent";

/// Name and help of each counter.
const COUNTERS: [(&str, &str); 4] = [
    ("orders", "Orders that have ended, by name and outcome"),
    ("requests_refused", "Requests of programs that may not make them, by reason"),
    ("streams_refused", "Streams that were refused or cut, by reason"),
    ("stream_bytes", "Bytes of streams that have passed, by direction"),
];

/// Name and help of each gauge.
const GAUGES: [(&str, &str); 5] = [
    ("migrations", "Open migrations"),
    ("orders_running", "Orders that are being carried out"),
    ("holds", "VMs that net-agent is held for"),
    ("vms_waiting", "VMs that do not boot until the service says that they were not replaced"),
    ("vms_replaced", "VMs that were replaced on another node while this one was away"),
];

type Labels = Vec<(&'static str, &'static str)>;

/// A reading of the counters, which have labels.
#[derive(Debug)]
struct Counted([Vec<(Labels, u64)>; COUNTERS.len()]);

impl Collector for Counted {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        for ((name, help), values) in COUNTERS.iter().zip(&self.0) {
            let kind = ConstCounter::new(0u64).metric_type();
            let mut described = encoder.encode_descriptor(name, help, None, kind)?;
            for (labels, value) in values {
                let family = described.encode_family(labels)?;
                ConstCounter::new(*value).encode(family)?;
            }
        }
        Ok(())
    }
}

/// Returns a registry with a reading of now.
pub fn registry(parts: &Parts) -> Registry {
    let reasons = |counts: &mut dyn Iterator<Item = (&'static str, u64)>| {
        counts.map(|(name, count)| (vec![("reason", name)], count)).collect()
    };
    let orders = parts.counts.orders().into_iter();
    let orders = orders.map(|((name, outcome), count)| {
        (vec![("order", name), ("outcome", outcome.name())], count)
    });
    let bytes = [
        (vec![("direction", "in")], parts.streams.bytes_in.bytes()),
        (vec![("direction", "out")], parts.streams.bytes_out.load(Ordering::Relaxed)),
    ];
    let open = parts.memory.open();
    let running = parts.works.all().into_iter().filter(|(_, doing)| doing.state == State::Running);
    let counted = Counted([
        orders.collect(),
        reasons(&mut parts.counts.refusals()),
        reasons(&mut parts.streams.refusals.counts()),
        bytes.into(),
    ]);
    let values = [
        open.len(),
        running.count(),
        open.values().filter(|entry| entry.hold).count(),
        open.values().filter(|entry| entry.waits.is_some()).count(),
        open.values().filter(|entry| entry.replaced).count(),
    ];
    daemon::metrics::registry(PREFIX, |registry| {
        registry.register_collector(Box::new(counted));
        let all = GAUGES.iter().zip(values);
        gauges(registry, all.map(|((name, help), value)| (*name, *help, size(value))));
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_every_metric() {
        let counters = COUNTERS.iter().map(|(name, _)| format!("{PREFIX}_{name}_total"));
        let gauges = GAUGES.iter().map(|(name, _)| format!("{PREFIX}_{name}"));
        let names: Vec<String> = counters.chain(gauges).collect();
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics-migration-agent.md");
        let page = std::fs::read_to_string(page).unwrap();
        for name in &names {
            assert!(page.contains(&format!("| `{name}` |")), "{name} is not in the table");
        }
        let rows = page.lines().filter(|line| line.starts_with("| `migration_agent_")).count();
        assert_eq!(rows, names.len(), "the table has unknown rows");
    }
}
