// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The metrics: base units, `_total` on counters (the library adds it). A test compares the names
//! with `docs/metrics-net-agent.md`.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::status::Count;

/// The prefix of every name.
const PREFIX: &str = "net_agent";

/// A reading of all metrics.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reading {
    pub counts: Vec<(Count, u64)>,
    pub passes: u64,
    /// Requests to NAPI and VMAPI, retries included.
    pub requests: u64,
    pub gauges: Vec<(Gauge, f64)>,
}

macro_rules! gauges {
    ($($variant:ident, $name:literal, $help:literal;)+) => {
        /// The gauges.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Gauge { $(#[doc = $help] $variant),+ }

        impl Gauge {
            /// All of them.
            pub(crate) const ALL: &[Self] = &[$(Self::$variant),+];

            /// Returns name and help.
            fn metric(self) -> (&'static str, &'static str) {
                match self { $(Self::$variant => ($name, $help)),+ }
            }
        }
    };
}

// The name and the help of each gauge.
gauges! {
    Listed, "nics_listed", "Zone NICs in NAPI's last list for this node";
    Unreadable, "nics_unreadable", "Records of NAPI's last list that cannot be read and were left out";
    Vms, "vms", "VMs that vminfod shows, hidden ones included";
    Brake, "brake_on", "1 while the brake blocks deletes";
    Writing, "writing", "1 while the agent may write to NAPI";
    Candidates, "candidates", "Records that look leaked and are not decided";
    Departed, "departed", "NICs that left the node and are not settled";
    Holds, "holds", "Holds in force";
    MemoryFault, "memory_fault", "1 while the state file is lost or cannot be written";
    LastPass, "last_pass_timestamp_seconds", "When the last pass ended well; 0: never";
    Uptime, "uptime_seconds", "Time since the start";
}

/// Returns name and help of a counter; none for those shown as gauges.
fn counter(count: Count) -> Option<(&'static str, &'static str)> {
    Some(count.metric()).filter(|(name, _)| !name.is_empty())
}

/// Name and help of two more counters.
const PASSES: (&str, &str) = ("passes", "Passes over NAPI's list that ended well");
const REQUESTS: (&str, &str) = ("requests", "Requests to NAPI and VMAPI, retries included");

impl Collector for Reading {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let counts = self.counts.iter().filter_map(|(count, n)| Some((counter(*count)?, *n)));
        for ((name, help), n) in counts.chain([(PASSES, self.passes), (REQUESTS, self.requests)]) {
            let metric = ConstCounter::new(n);
            let described = encoder.encode_descriptor(name, help, None, metric.metric_type())?;
            metric.encode(described)?;
        }
        for (gauge, value) in &self.gauges {
            let (name, help) = gauge.metric();
            let metric = ConstGauge::new(*value);
            let described = encoder.encode_descriptor(name, help, None, metric.metric_type())?;
            metric.encode(described)?;
        }
        Ok(())
    }
}

/// Returns a registry with this reading.
pub(crate) fn registry(reading: Reading) -> Registry {
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(reading));
    registry
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<String> {
        let counters = Count::ALL.iter().copied().filter_map(counter).chain([PASSES, REQUESTS]);
        let counters = counters.map(|(name, _)| format!("{PREFIX}_{name}_total"));
        counters
            .chain(Gauge::ALL.iter().map(|gauge| format!("{PREFIX}_{}", gauge.metric().0)))
            .collect()
    }

    #[test]
    fn documents_every_metric() {
        let reading = Reading {
            counts: Count::ALL.iter().map(|count| (*count, 3)).collect(),
            gauges: Gauge::ALL.iter().map(|gauge| (*gauge, 2.0)).collect(),
            ..Reading::default()
        };
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry(reading)).unwrap();
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/metrics-net-agent.md");
        let page = std::fs::read_to_string(page).unwrap();
        for name in names() {
            assert!(text.contains(&format!("\n{name} ")), "{name} is missing:\n{text}");
            assert!(page.contains(&format!("| `{name}` |")), "{name} is not in the table");
        }
        let rows = page.lines().filter(|line| line.starts_with("| `net_agent_")).count();
        assert_eq!(rows, names().len(), "the table has unknown rows");
    }
}
