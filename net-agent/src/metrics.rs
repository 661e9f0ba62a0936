// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The board as Prometheus reads it: base units, `_total` on counters (the library adds it), one
//! table of names. `docs/metrics-net-agent.md` is that table in words, and a test holds it to it.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::status::Count;

/// The prefix of every name.
pub const PREFIX: &str = "net_agent";

/// A reading of all metrics.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// The board's counts.
    pub counts: Vec<(Count, u64)>,
    /// Passes that ended well.
    pub passes: u64,
    /// Requests to NAPI and VMAPI, retries included.
    pub requests: u64,
    /// Everything that goes up and down.
    pub gauges: Vec<(Gauge, f64)>,
}

/// What goes up and down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gauge {
    /// Zone records of the last list.
    Listed,
    /// VMs here.
    Vms,
    /// Is the brake on?
    Brake,
    /// Is anything written at all?
    Writing,
    /// Candidates of the last pass that are not decided.
    Candidates,
    /// NICs that left and are not settled.
    Departed,
    /// Holds in force.
    Holds,
    /// Is the memory on the disk lost or not to be written?
    MemoryFault,
    /// When the last pass ended well.
    LastPass,
    /// Seconds since the start.
    Uptime,
}

impl Gauge {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Listed,
        Self::Vms,
        Self::Brake,
        Self::Writing,
        Self::Candidates,
        Self::Departed,
        Self::Holds,
        Self::MemoryFault,
        Self::LastPass,
        Self::Uptime,
    ];

    /// Name and help.
    pub fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Listed => ("nics_listed", "Zone NICs in NAPI's last list for this node"),
            Self::Vms => ("vms", "VMs that vminfod shows, hidden ones included"),
            Self::Brake => ("brake_on", "1 while the brake keeps deletes back"),
            Self::Writing => ("writing", "1 while the agent may write to NAPI"),
            Self::Candidates => ("candidates", "Records that look leaked and are not decided"),
            Self::Departed => ("departed", "NICs that left the node and are not settled"),
            Self::Holds => ("holds", "Holds in force"),
            Self::MemoryFault => {
                ("memory_fault", "1 while the memory on disk is lost or unwritable")
            }
            Self::LastPass => {
                ("last_pass_timestamp_seconds", "When the last pass ended well; 0: never")
            }
            Self::Uptime => ("uptime_seconds", "Time since the start"),
        }
    }
}

/// Name and help of a counter; none for those shown as gauges.
pub fn counter(count: Count) -> Option<(&'static str, &'static str)> {
    Some(match count {
        Count::Listed => return None,
        Count::Backfilled => ("nics_backfilled", "Records whose cn_uuid was written"),
        Count::StateFixed => ("nic_states_written", "Records whose state was written"),
        Count::Claimed => ("nics_claimed", "Own NICs claimed as server NICs"),
        Count::Mirrored => ("nics_mirrored", "Records whose owner or primary flag was written"),
        Count::Reaped => ("nics_deleted", "Records deleted"),
        Count::AlreadyGone => ("nics_already_gone", "Deletes that found the record gone"),
        Count::Deferred => ("deferrals", "Times something due was put off"),
        Count::Skipped => ("nics_left_alone", "Records left alone for good reason"),
        Count::Missing => ("nics_missing_in_napi", "Local NICs that NAPI has no record of"),
        Count::ForeignOwner => ("nics_of_foreign_owner", "Local NICs whose record is another's"),
        Count::Conflicts => {
            ("conflicts", "Writes that found the record changed, or whose outcome was not known")
        }
        Count::Errors => ("errors", "Requests and passes that failed"),
        Count::Resyncs => ("comparisons", "Comparisons of memory with a fresh view"),
        Count::MissedEvents => ("missed_events", "Differences that no event had told"),
        Count::StreamsLost => ("streams_lost", "Times the stream of vminfod was lost"),
        Count::Unconditional => {
            ("unconditional_writes", "Writes without an etag, to a NAPI that has none")
        }
        Count::Reported => ("writes_reported", "Writes only talked about, in report mode"),
    })
}

/// Name and help of the two counters that are not the board's.
pub const PASSES: (&str, &str) = ("passes", "Passes over NAPI's list that ended well");
/// As [`PASSES`].
pub const REQUESTS: (&str, &str) = ("requests", "Requests to NAPI and VMAPI, retries included");

impl Collector for Reading {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let counts = self.counts.iter().filter_map(|(count, n)| Some((counter(*count)?, *n)));
        for ((name, help), n) in counts.chain([(PASSES, self.passes), (REQUESTS, self.requests)]) {
            let metric = ConstCounter::new(n);
            let told = encoder.encode_descriptor(name, help, None, metric.metric_type())?;
            metric.encode(told)?;
        }
        for (gauge, value) in &self.gauges {
            let (name, help) = gauge.words();
            let metric = ConstGauge::new(*value);
            let told = encoder.encode_descriptor(name, help, None, metric.metric_type())?;
            metric.encode(told)?;
        }
        Ok(())
    }
}

/// A registry that tells this reading.
pub fn registry(reading: Reading) -> Registry {
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(reading));
    registry
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<String> {
        let counters = Count::ALL.into_iter().filter_map(counter).chain([PASSES, REQUESTS]);
        let counters = counters.map(|(name, _)| format!("{PREFIX}_{name}_total"));
        counters.chain(Gauge::ALL.map(|gauge| format!("{PREFIX}_{}", gauge.words().0))).collect()
    }

    #[test]
    fn every_metric_is_told_and_documented() {
        let reading = Reading {
            counts: Count::ALL.map(|count| (count, 3)).to_vec(),
            gauges: Gauge::ALL.map(|gauge| (gauge, 2.0)).to_vec(),
            ..Reading::default()
        };
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry(reading)).unwrap();
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/metrics-net-agent.md");
        let page = std::fs::read_to_string(page).unwrap();
        for name in names() {
            assert!(text.contains(&format!("\n{name} ")), "{name} is not told:\n{text}");
            assert!(page.contains(&format!("| `{name}` |")), "{name} is not in the table");
        }
        let rows = page.lines().filter(|line| line.starts_with("| `net_agent_")).count();
        assert_eq!(rows, names().len(), "the table has rows that nothing tells");
    }
}
