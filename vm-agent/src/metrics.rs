// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The metrics: base units, `_total` on counters (the library adds it). A test compares the names with
//! `docs/metrics-vm-agent.md`.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::parts::Parts;
use crate::status::Count;

/// The prefix of every name.
const PREFIX: &str = "vm_agent";

/// The name and the help of each gauge, and how it is read.
type Gauge = (&'static str, &'static str, fn(&Parts) -> f64);

fn size(n: usize) -> f64 {
    f64::from(u32::try_from(n).unwrap_or(u32::MAX))
}

fn flag(on: bool) -> f64 {
    f64::from(u8::from(on))
}

const GAUGES: [Gauge; 9] = [
    ("vms", "VMs that vminfod shows, hidden ones included", |parts| {
        size(parts.node.look(|known| known.here.len()))
    }),
    ("vms_gone", "VMs that left the node and are not settled", |parts| {
        size(parts.node.look(|known| known.unsettled()))
    }),
    ("vms_held", "VMs that wait for something", |parts| size(parts.status.held())),
    ("queue", "VMs that are to have a turn", |parts| size(parts.schedule.queued().0.len())),
    ("brake_on", "1 while the brake blocks reports of destroyed VMs", |parts| {
        flag(parts.status.brake().is_some())
    }),
    ("writing", "1 while the agent may write to VMAPI", |parts| flag(parts.writable().is_ok())),
    ("memory_fault", "1 while the state file is lost or cannot be written", |parts| {
        flag(parts.state_file.sentence().is_some())
    }),
    (
        "last_comparison_timestamp_seconds",
        "When VMAPI's list was last compared; 0: never",
        |parts| {
            let at = parts.status.last_start().map_or(0, |at| at.as_second());
            std::time::Duration::from_secs(u64::try_from(at).unwrap_or(0)).as_secs_f64()
        },
    ),
    ("uptime_seconds", "Time since the start", |parts| parts.clock.now().as_secs_f64()),
];

/// Name and help of one more counter.
const ADMISSIONS: (&str, &str) = ("admissions", "Turns taken to ask VMAPI, retries included");

/// A reading of all metrics.
#[derive(Debug)]
struct Reading {
    counters: Vec<((&'static str, &'static str), u64)>,
    gauges: Vec<((&'static str, &'static str), f64)>,
}

impl Collector for Reading {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        for ((name, help), n) in &self.counters {
            let metric = ConstCounter::new(*n);
            let described = encoder.encode_descriptor(name, help, None, metric.metric_type())?;
            metric.encode(described)?;
        }
        for ((name, help), value) in &self.gauges {
            let metric = ConstGauge::new(*value);
            let described = encoder.encode_descriptor(name, help, None, metric.metric_type())?;
            metric.encode(described)?;
        }
        Ok(())
    }
}

/// Returns a registry with a reading of now.
pub(crate) fn registry(parts: &Parts) -> Registry {
    let counts = Count::ALL.iter().map(|count| (count.metric(), parts.status.get(*count)));
    let reading = Reading {
        counters: counts.chain([(ADMISSIONS, parts.clients.pace.taken())]).collect(),
        gauges: GAUGES.iter().map(|(name, help, read)| ((*name, *help), read(parts))).collect(),
    };
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(reading));
    registry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_every_metric() {
        let counters = Count::ALL.iter().map(|count| count.metric().0).chain([ADMISSIONS.0]);
        let counters = counters.map(|name| format!("{PREFIX}_{name}_total"));
        let gauges = GAUGES.iter().map(|(name, ..)| format!("{PREFIX}_{name}"));
        let names: Vec<String> = counters.chain(gauges).collect();
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/metrics-vm-agent.md");
        let page = std::fs::read_to_string(page).unwrap();
        for name in &names {
            assert!(page.contains(&format!("| `{name}` |")), "{name} is not in the table");
        }
        let rows = page.lines().filter(|line| line.starts_with("| `vm_agent_")).count();
        assert_eq!(rows, names.len(), "the table has unknown rows");
    }
}
