// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The metrics: base units, `_total` on counters (the library adds it). A test compares the names with
//! `docs/metrics-migration-agent.md`.

use std::sync::atomic::Ordering;

use daemon::metrics::{by_reason, counters, flag, gauges, labelled, size};
use prometheus_client::registry::Registry;
use trust::Keeper;

use super::parts::Parts;
use migration_core::protocol::State;

/// The prefix of every name.
const PREFIX: &str = "migration_agent";

/// Name and help of each counter with labels.
const COUNTERS: [(&str, &str); 5] = [
    ("orders", "Orders that have ended, by name and outcome"),
    ("requests_refused", "Requests of programs that may not make them, by reason"),
    ("streams_refused", "Streams that were refused or cut, by reason"),
    ("handshakes_refused", "Connections whose peer did not authenticate, by reason"),
    ("stream_bytes", "Bytes of streams that have passed, by direction"),
];

/// Name and help of each gauge.
const GAUGES: [(&str, &str); 7] = [
    ("migrations", "Open migrations"),
    ("orders_running", "Orders that are being carried out"),
    ("holds", "VMs that net-agent is held for"),
    ("vms_waiting", "VMs that do not boot until the service says that they were not replaced"),
    ("vms_replaced", "VMs that were replaced on another node while this one was away"),
    (
        "certificate_until_seconds",
        "When the agent's certificate expires, in seconds since 1970; 0: none",
    ),
    ("certificate_needs", "1 if the agent's certificate needs a person"),
];

/// Returns a registry with a reading of now.
pub fn registry(parts: &Parts, keeper: Option<&Keeper>) -> Registry {
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
    let refused = keeper.into_iter().flat_map(Keeper::refused);
    let counts = [
        orders.collect(),
        by_reason(parts.counts.refusals()),
        by_reason(parts.streams.refusals.counts()),
        by_reason(refused),
        bytes.into(),
    ];
    let values = [
        open.len(),
        running.count(),
        open.values().filter(|entry| entry.hold).count(),
        open.values().filter(|entry| entry.waits.is_some()).count(),
        open.values().filter(|entry| entry.replaced).count(),
    ];
    let standing = keeper.map(Keeper::standing);
    let until = standing.and_then(|it| it.until).and_then(|at| u32::try_from(at).ok());
    let certificate =
        [until.map_or(0.0, f64::from), flag(keeper.is_some_and(|it| it.needs().is_some()))];
    daemon::metrics::registry(PREFIX, |registry| {
        let counts = COUNTERS.iter().zip(counts);
        counters(registry, parts.status.metrics());
        labelled(registry, counts.map(|((name, help), values)| (*name, *help, values)));
        let all = GAUGES.iter().zip(values.map(size).into_iter().chain(certificate));
        gauges(registry, all.map(|((name, help), value)| (*name, *help, value)));
    })
}

#[cfg(test)]
mod tests {
    use daemon::agent::Counter as _;

    use super::*;
    use crate::status::Count;

    #[test]
    fn documents_every_metric() {
        let plain = Count::ALL.iter().map(|count| count.metric().0);
        let counters = COUNTERS.iter().map(|(name, _)| *name).chain(plain);
        let counters = counters.map(|name| format!("{PREFIX}_{name}_total"));
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
