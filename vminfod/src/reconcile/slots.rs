// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Which listings of single datasets may run at once.
//!
//! A tenant can make the listing of his own datasets slow: by many children and snapshots, or by what he does to them
//! meanwhile. So delegated datasets, slow ones and those that a request waits for have places of their own, and no VM
//! holds all places of a kind. A listing that takes long counts as slow while it runs and the next time.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;
use vm_model::parse::zfs_event::vm_uuid;

use super::status::SLOW;

/// The most slow datasets that are remembered.
const REMEMBERED: usize = 10_000;

/// The kinds of listings that have places of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Of a VM's own directory or disk.
    Own,
    /// Of a dataset that a tenant manages.
    Delegated,
    /// Of a VM that a request waits for.
    Asked,
    /// Its last listing was slow.
    Slow,
}

impl Lane {
    const ALL: [Self; 4] = [Self::Own, Self::Delegated, Self::Asked, Self::Slow];

    /// How many listings run at once, and how many of them of one VM.
    fn places(self) -> (usize, usize) {
        match self {
            Self::Own | Self::Asked => (4, 2),
            Self::Delegated => (2, 1),
            Self::Slow => (4, 1),
        }
    }
}

/// A listing under way.
#[derive(Clone, Copy, Debug)]
pub struct Running {
    pub began: Instant,
    /// How often it has failed in a row.
    pub failures: u32,
    pub lane: Lane,
}

impl Running {
    fn lane_at(self, now: Instant) -> Lane {
        if now.saturating_duration_since(self.began) >= SLOW { Lane::Slow } else { self.lane }
    }
}

/// Which datasets are slow.
#[derive(Debug, Default)]
pub struct Slots {
    slow: BTreeMap<String, Duration>,
}

impl Slots {
    /// Notes how long the listing of this name took. Returns true if it was slow.
    pub fn took(&mut self, name: &str, time: Duration) -> bool {
        let is_slow = time >= SLOW;
        if !is_slow {
            self.slow.remove(dataset(name));
        } else if self.slow.len() < REMEMBERED || self.slow.contains_key(dataset(name)) {
            self.slow.insert(dataset(name).to_owned(), time);
        }
        is_slow
    }

    /// The dataset is gone.
    pub fn forget(&mut self, name: &str) {
        self.slow.remove(name);
    }

    /// Returns the slow datasets, and how long the last listing of each took.
    pub fn slow(&self) -> &BTreeMap<String, Duration> {
        &self.slow
    }

    pub fn lane(&self, name: &str, is_asked: bool) -> Lane {
        match dataset(name) {
            dataset if self.slow.contains_key(dataset) => Lane::Slow,
            _ if is_asked => Lane::Asked,
            dataset if dataset.split('/').nth(2) == Some("data") => Lane::Delegated,
            _ => Lane::Own,
        }
    }
}

/// The places that are taken.
pub struct Taken<'a> {
    running: Vec<(Lane, &'a str)>,
    full: [bool; Lane::ALL.len()],
}

impl<'a> Taken<'a> {
    pub fn new(running: &'a BTreeMap<String, Running>, now: Instant) -> Self {
        let of = |(name, running): (&'a String, &Running)| (running.lane_at(now), vm(name));
        let running: Vec<_> = running.iter().map(of).collect();
        let count = |lane| running.iter().filter(|(other, _)| *other == lane).count();
        let full = Lane::ALL.map(|lane| count(lane) >= lane.places().0);
        Self { running, full }
    }

    /// Returns true if a listing of this name may begin.
    pub fn has_place(&self, name: &str, lane: Lane) -> bool {
        if self.full.get(lane as usize).is_none_or(|is_full| *is_full) {
            return false;
        }
        let same = self.running.iter().filter(|(other, of)| *other == lane && *of == vm(name));
        same.count() < lane.places().1
    }
}

fn dataset(name: &str) -> &str {
    name.split_once('@').map_or(name, |(dataset, _)| dataset)
}

fn vm(name: &str) -> &str {
    vm_uuid(name).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_places_of_its_own_and_no_vm_all_of_them() {
        let (now, mut slots) = (Instant::now(), Slots::default());
        let uuid = |n: usize| format!("7992e853-8812-4060-8b15-{n:012}");
        let (own, data) = (|n| format!("zones/{}", uuid(n)), |n| format!("zones/{}/data", uuid(n)));
        let mut running = BTreeMap::new();
        let begin = |running: &mut BTreeMap<_, _>, slots: &Slots, name: &str, asked, at| {
            let lane = slots.lane(name, asked);
            let has_place = Taken::new(running, at).has_place(name, lane);
            if has_place {
                running.insert(name.to_owned(), Running { began: at, failures: 0, lane });
            }
            has_place
        };
        let begun = (0..9).filter(|n| begin(&mut running, &slots, &data(*n), false, now)).count();
        assert_eq!(begun, 2, "of tenants");
        assert!(begin(&mut running, &slots, &own(0), false, now));
        assert!(begin(&mut running, &slots, &format!("{}-disk0", own(0)), false, now));
        assert!(!begin(&mut running, &slots, &format!("{}-disk1", own(0)), false, now));
        assert!((1..3).all(|n| begin(&mut running, &slots, &own(n), false, now)));
        assert!(!begin(&mut running, &slots, &own(3), false, now));
        assert!(begin(&mut running, &slots, &own(3), true, now), "a request");
        // What runs for long takes no place of the others.
        let later = now + SLOW;
        assert!(begin(&mut running, &slots, &own(4), false, later));
        assert!(
            slots.took(&data(9), SLOW) && slots.lane(&format!("{}@x", data(9)), true) == Lane::Slow
        );
        assert!(!begin(&mut running, &slots, &data(9), true, later), "there are enough slow ones");
        assert!(!slots.took(&data(9), SLOW / 2) && slots.slow().is_empty());
    }
}
