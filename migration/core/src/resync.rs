// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Whether an automatic migration syncs once more before its switch (RFD 34, R12).

use crate::record::Record;

/// The three criteria. Any one of them ends the syncs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// An increment of fewer bytes is small enough.
    pub small_bytes: u64,
    /// No more syncs than this.
    pub most_syncs: u32,
    /// Increments that are compared for the third criterion.
    pub window: usize,
    /// The newest of them must be below this part of the oldest, in percent.
    pub shrink_percent: u64,
}

impl Default for Rule {
    fn default() -> Rule {
        Rule { small_bytes: 50_000_000, most_syncs: 10, window: 3, shrink_percent: 80 }
    }
}

/// Whether to sync again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Another sync makes the last one, with the VM stopped, shorter.
    Again,
    /// The last increment was small.
    Small,
    /// There were enough syncs.
    Many,
    /// The increments do not shrink.
    Steady,
}

impl Rule {
    /// Judges a record after a sync. The first sync is no increment.
    pub fn judge(&self, record: &Record) -> Verdict {
        let syncs = record.num_sync_phases;
        let sizes = &record.intent.sync_sizes;
        let increments = sizes.len().min(syncs.saturating_sub(1) as usize);
        let increments = &sizes[sizes.len() - increments..];
        if syncs >= self.most_syncs {
            return Verdict::Many;
        }
        let Some(&newest) = increments.last() else { return Verdict::Again };
        if newest < self.small_bytes {
            return Verdict::Small;
        }
        let window = self.window.max(2);
        match increments.len().checked_sub(window).map(|at| increments[at]) {
            Some(oldest) if newest >= oldest / 100 * self.shrink_percent => Verdict::Steady,
            _ => Verdict::Again,
        }
    }

    /// Writes the size of a sync down, before its end is settled.
    pub fn remember(&self, record: &mut Record, bytes: u64) {
        record.last_sync_size = Some(bytes);
        let sizes = &mut record.intent.sync_sizes;
        sizes.push(bytes);
        let surplus = sizes.len().saturating_sub(self.window.max(2));
        sizes.drain(..surplus);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::record;

    const MB: u64 = 1_000_000;

    #[test] // R12
    fn each_criterion_alone_ends_the_syncs() {
        let rule = Rule::default();
        for (sizes, want) in [
            (vec![9000], Verdict::Again),
            (vec![10], Verdict::Again), // the first one, however small, is no increment
            (vec![9000, 49], Verdict::Small),
            (vec![9000, 50], Verdict::Again),
            (vec![9000, 3000, 1000], Verdict::Again),
            (vec![9000, 1000, 950, 900], Verdict::Steady),
            (vec![9000, 1000, 950, 700], Verdict::Again),
            (vec![9000, 1000, 2000, 800], Verdict::Steady),
            (vec![9000, 8000, 5000, 3000, 1900, 1200, 700, 400, 250, 160], Verdict::Many),
        ] {
            let mut record = record(serde_json::json!({}));
            for size in &sizes {
                rule.remember(&mut record, size * MB);
                record.num_sync_phases += 1;
            }
            assert_eq!(rule.judge(&record), want, "{sizes:?}");
            assert!(record.intent.sync_sizes.len() <= 3);
        }
    }
}
