// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! How much a migration moves, how long it takes, how long the VM is down (RFD 34, R20).

use serde_json::{Value, json};

use crate::resync::Rule;

/// What an estimate is made from. Rates are in bytes per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Basis {
    /// What all datasets use; less what a running sync has sent already.
    pub bytes: u64,
    /// Syncs that are done.
    pub syncs: u32,
    /// How fast a stream goes: the limit, or what was measured.
    pub send_rate: u64,
    /// How fast the VM writes. Taken from the last increment where there is one.
    pub write_rate: u64,
    /// How long stopping, hiding, moving and starting take, apart from the last sync.
    pub switch_seconds: u64,
    /// The VM is stopped: the switch takes nothing from it.
    pub is_stopped: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// From now to the end of the switch.
    pub total_seconds: u64,
    /// From the stop to the start; 0 of a VM that does not run.
    pub downtime_seconds: u64,
    /// What all streams together carry from now on.
    pub size_bytes: u64,
}

/// Returns for how many seconds a VM is down whose last sync has so many bytes.
pub fn downtime(bytes: u64, rate: u64, switch_seconds: u64) -> u64 {
    bytes.div_ceil(rate.max(1)).saturating_add(switch_seconds)
}

impl Basis {
    /// Plays the syncs that the rule leads to: each sends what was written during the one before.
    pub fn estimate(&self, rule: &Rule) -> Estimate {
        let rate = self.send_rate.max(1);
        let (mut bytes, mut size, mut seconds) = (self.bytes, 0_u64, 0_u64);
        let mut past: Vec<u64> = Vec::new();
        for _ in self.syncs..rule.most_syncs.max(self.syncs + 1) {
            let took = bytes.div_ceil(rate);
            size = size.saturating_add(bytes);
            seconds = seconds.saturating_add(took);
            past.push(bytes);
            // What is written more than once is sent once: never more than there is.
            bytes = self.write_rate.saturating_mul(took).min(self.bytes.max(bytes));
            let is_small = bytes < rule.small_bytes;
            let window = past.len().checked_sub(rule.window).map(|at| past[at]);
            if is_small || window.is_some_and(|oldest| bytes >= oldest / 100 * rule.shrink_percent)
            {
                break;
            }
        }
        let switch_seconds = downtime(bytes, rate, self.switch_seconds);
        Estimate {
            total_seconds: seconds.saturating_add(switch_seconds),
            downtime_seconds: if self.is_stopped { 0 } else { switch_seconds },
            size_bytes: size.saturating_add(bytes),
        }
    }
}

impl Estimate {
    /// Returns the body of `?format=rfd34`.
    pub fn rfd34(&self) -> Value {
        json!({
            "total_seconds": self.total_seconds,
            "downtime_seconds": self.downtime_seconds,
            "size_bytes": self.size_bytes,
        })
    }
}

/// Returns the body of the deployed service: what all datasets use.
pub fn deployed(bytes: u64) -> Value {
    json!({"size": bytes})
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const GB: u64 = 1_000_000_000;
    const MB: u64 = 1_000_000;

    #[test] // R20
    fn the_body_of_the_deployed_service_is_the_recorded_one() {
        let text = recordings::text("vmapi-transcripts.jsonl").unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let replies = lines.filter(|line| {
            let query = line["request"]["query"].as_str().unwrap_or_default();
            query.contains("migration_action=estimate") && line["response"]["status"] == 200
        });
        let bodies: Vec<Value> = replies.map(|line| line["response"]["body"].clone()).collect();
        assert!(bodies.len() >= 2);
        bodies.iter().for_each(|body| assert_eq!(*body, deployed(1_234_567_890)));
    }

    #[test] // R20
    fn seconds_and_bytes_follow_from_the_rates() {
        let idle = Basis {
            bytes: 10 * GB,
            syncs: 0,
            send_rate: 100 * MB,
            write_rate: 0,
            switch_seconds: 20,
            is_stopped: false,
        };
        for (what, basis, want) in [
            ("idle", idle, (120, 20, 10 * GB)),
            ("stopped", Basis { is_stopped: true, ..idle }, (120, 0, 10 * GB)),
            // 100 s, then 1 GB in 10 s, then 100 MB in 1 s, then 10 MB with the VM stopped.
            ("writes", Basis { write_rate: 10 * MB, ..idle }, (132, 21, 11_110 * MB)),
            // Two of three are left; the last increment shows how fast it writes.
            (
                "while one runs",
                Basis { bytes: GB, syncs: 1, write_rate: 10 * MB, ..idle },
                (32, 21, 1_110 * MB),
            ),
            (
                "writes as fast as it sends",
                Basis { write_rate: 100 * MB, ..idle },
                (420, 120, 40 * GB),
            ),
            ("nothing", Basis { bytes: 0, ..idle }, (20, 20, 0)),
            ("no rate", Basis { bytes: 5, send_rate: 0, ..idle }, (25, 20, 5)),
        ] {
            let got = basis.estimate(&Rule::default());
            assert_eq!((got.total_seconds, got.downtime_seconds, got.size_bytes), want, "{what}");
        }
        let most = Basis { bytes: u64::MAX, write_rate: u64::MAX, ..idle };
        assert!(most.estimate(&Rule::default()).rfd34()["total_seconds"].as_u64().unwrap() > 0);
    }
}
