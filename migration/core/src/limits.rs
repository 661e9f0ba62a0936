// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! How many migrations a node has at once, and how often a step is tried (RFD 34, R13, R15).

use std::collections::BTreeMap;

use uuid::Uuid;

use crate::record::{Record, State};

/// The settings that operators change. Those with a node's own value are looked up by node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub allow_user_migrations: bool,
    pub max_running_migrations_per_cn: u32,
    /// `zfs_send_mbps_limit`, in megabit per second.
    pub zfs_send_mbps_limit: u32,
    /// Attempts of a step in a row that bring nothing forward.
    pub max_attempts: u32,
    /// How late a scheduled switch may start, in seconds.
    pub schedule_leeway: u32,
    /// Seconds after a switch after which its migration is finalized by itself; none: never.
    pub auto_finalize_after: Option<u32>,
    /// Seconds after which a paused migration is aborted by itself; none: never.
    pub max_paused: Option<u32>,
    /// Seconds after its last sign of life after which a node may be taken for dead.
    pub dead_after: u32,
    /// The values of single nodes.
    pub of_cn: BTreeMap<Uuid, Overrides>,
}

/// The names of the settings.
pub const SETTINGS: [&str; 8] = [
    "allow_user_migrations",
    "max_running_migrations_per_cn",
    "zfs_send_mbps_limit",
    "max_attempts",
    "schedule_leeway",
    "auto_finalize_after",
    "max_paused",
    "dead_after",
];

/// What differs on one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    pub max_running_migrations_per_cn: Option<u32>,
    pub zfs_send_mbps_limit: Option<u32>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            allow_user_migrations: false,
            max_running_migrations_per_cn: 5,
            zfs_send_mbps_limit: 500,
            max_attempts: 10,
            schedule_leeway: 3600,
            auto_finalize_after: None,
            max_paused: None,
            dead_after: 300,
            of_cn: BTreeMap::new(),
        }
    }
}

impl Settings {
    /// Returns how many migrations may run on a node.
    pub fn running_on(&self, cn: Uuid) -> u32 {
        let own = self.of_cn.get(&cn).and_then(|it| it.max_running_migrations_per_cn);
        own.unwrap_or(self.max_running_migrations_per_cn)
    }

    /// Returns the bytes per second that all streams of a node together may have, in and out.
    pub fn bytes_per_second(&self, cn: Uuid) -> u64 {
        let own = self.of_cn.get(&cn).and_then(|it| it.zfs_send_mbps_limit);
        u64::from(own.unwrap_or(self.zfs_send_mbps_limit)) * 125_000
    }
}

/// Whether a queued migration may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It may run now.
    Now,
    /// It waits for a node.
    Waits {
        /// The node that has as many as it may have.
        cn: Uuid,
        /// How many it may have.
        limit: u32,
        /// 1 for the first of those that wait for it.
        place: usize,
    },
}

/// Returns the turn of each queued migration, the oldest first.
///
/// A migration counts on both of its nodes while it runs; scheduled, paused and queued ones do not. One
/// that waits keeps its place on both: a younger one does not overtake it on either node.
pub fn turns<'a>(
    records: impl IntoIterator<Item = &'a Record>,
    settings: &Settings,
) -> Vec<(Uuid, Turn)> {
    let (mut queued, mut taken, mut waiting) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
    for record in records {
        match record.state {
            State::Running => nodes(record).for_each(|cn| *taken.entry(cn).or_insert(0_u32) += 1),
            State::Queued => queued.push(record),
            _ => {}
        }
    }
    queued.sort_by_key(|record| (record.created_timestamp, record.id));
    let mut turns = Vec::new();
    for record in queued {
        let is_full = |cn: &Uuid| taken.get(cn).copied().unwrap_or(0) >= settings.running_on(*cn);
        let full = nodes(record).find(is_full);
        nodes(record).for_each(|cn| *taken.entry(cn).or_insert(0) += 1);
        let turn = match full {
            None => Turn::Now,
            Some(cn) => {
                let place = waiting.entry(cn).or_insert(0_usize);
                *place += 1;
                Turn::Waits { cn, limit: settings.running_on(cn), place: *place }
            }
        };
        turns.push((record.id, turn));
    }
    turns
}

/// The nodes that a migration loads; the target is not known before it is placed.
fn nodes(record: &Record) -> impl Iterator<Item = Uuid> {
    let target = record.target_server_uuid.filter(|cn| *cn != record.source_server_uuid);
    std::iter::once(record.source_server_uuid).chain(target)
}

/// Attempts of one step in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attempts(u32);

/// The longest wait between two attempts, in ms.
const LONGEST_WAIT: u64 = 60_000;

impl Attempts {
    /// Counts an attempt that failed. Returns the milliseconds to wait before the next one, or `None` if
    /// there were as many in a row as there may be. One that brought something forward is the first anew.
    pub fn failed(&mut self, has_progressed: bool, settings: &Settings) -> Option<u64> {
        self.0 = if has_progressed { 1 } else { self.0 + 1 };
        let wait = 1000_u64.checked_shl(self.0 - 1).unwrap_or(LONGEST_WAIT).min(LONGEST_WAIT);
        (self.0 < settings.max_attempts).then_some(wait)
    }

    /// Returns these, or so many that failed before: nothing of them was remembered.
    pub fn or_after(self, failed: u32) -> Attempts {
        if self.0 == 0 { Attempts(failed) } else { self }
    }

    /// Returns how many have failed in a row.
    pub fn count(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::samples::record;

    fn node(name: u128) -> Uuid {
        Uuid::from_u128(name)
    }

    /// id (also the age), state, source, target.
    fn migration(id: u128, state: &str, source: u128, target: u128) -> Record {
        let mut record = record(json!({
            "id": node(id), "state": state, "created_timestamp": format!("2026-02-01T10:00:{id:02}.000Z"),
        }));
        record.source_server_uuid = node(source);
        record.target_server_uuid = (target > 0).then(|| node(target));
        record
    }

    #[test] // R13
    fn the_oldest_runs_next_and_the_others_know_their_place() {
        let mut settings = Settings { max_running_migrations_per_cn: 1, ..Settings::default() };
        let waits = |cn, place| Turn::Waits { cn: node(cn), limit: 1, place };
        let records = [
            migration(9, "queued", 100, 200), // waits for 200 behind 3
            migration(1, "running", 200, 300),
            migration(2, "paused", 100, 400),
            migration(3, "queued", 200, 500),
            migration(4, "scheduled", 600, 700),
            migration(5, "queued", 600, 700),
            migration(6, "queued", 500, 800), // does not overtake 3 on 500
            migration(7, "queued", 900, 0),
        ];
        let want = [
            (node(3), waits(200, 1)),
            (node(5), Turn::Now),
            (node(6), waits(500, 1)),
            (node(7), Turn::Now),
            (node(9), waits(200, 2)),
        ];
        assert_eq!(turns(&records, &settings), want);
        let more = Overrides { max_running_migrations_per_cn: Some(2), ..Overrides::default() };
        settings.of_cn.insert(node(200), more);
        assert_eq!(turns(&records, &settings)[0], (node(3), Turn::Now));
        let none = Settings { max_running_migrations_per_cn: 0, ..Settings::default() };
        assert!(turns(&records, &none).iter().all(|(_, turn)| *turn != Turn::Now));
    }

    #[test] // R13
    fn a_limit_is_in_megabit_and_a_nodes_own_counts() {
        let mut settings = Settings::default();
        assert_eq!(settings.bytes_per_second(node(1)), 62_500_000);
        let own = Overrides { zfs_send_mbps_limit: Some(100), ..Overrides::default() };
        settings.of_cn.insert(node(1), own);
        assert_eq!(settings.bytes_per_second(node(1)), 12_500_000);
        assert_eq!(settings.running_on(node(1)), 5);
    }

    #[test] // R15
    fn attempts_in_a_row_without_progress_are_counted() {
        let settings = Settings { max_attempts: 4, ..Settings::default() };
        let mut attempts = Attempts::default();
        let fails: Vec<Option<u64>> = [false, false, true, false, false, false]
            .map(|has_progressed| attempts.failed(has_progressed, &settings))
            .into();
        assert_eq!(fails, [Some(1000), Some(2000), Some(1000), Some(2000), Some(4000), None]);
        let endless = Settings { max_attempts: u32::MAX, ..Settings::default() };
        let mut attempts = Attempts(90);
        assert_eq!(attempts.failed(false, &endless), Some(LONGEST_WAIT));
    }
}
