// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The measures of a mass-delete brake: a node that shows much less than it had is not believed. Pure.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::state_file::WallTime;

/// What a node had, and how much of it is here now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reference {
    /// The VMs that it had.
    pub vms: usize,
    /// How many of these VMs are here.
    pub here: usize,
}

impl Reference {
    /// Returns true if at least 90 % of its VMs are here.
    pub fn is_most(self) -> bool {
        self.here * 10 >= self.vms * 9
    }

    /// Returns that fewer than half of its VMs are here, if so.
    pub fn shrunk(self) -> Option<Shrunk> {
        let Self { vms: most, here } = self;
        (here * 2 < most).then_some(Shrunk { here, most })
    }
}

/// The node shows much less than before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{here} of the {most} VMs that the node had are here, fewer than half")]
pub struct Shrunk {
    /// The VMs that are here.
    pub here: usize,
    /// The VMs that it had.
    pub most: usize,
}

/// Where there are no more VMs than this there is little to lose, and a service's word is enough.
pub const LITTLE: usize = 3;

/// Returns how many records may go at once where so many are listed.
pub fn allowance(listed: usize) -> usize {
    (listed / 10).max(5)
}

/// How long departures count together at least; at most twice as long.
pub const DAY: Duration = Duration::from_secs(86_400);

/// The VMs that a node had a day ago: those that left since count together, so that a slow decline passes no brake.
/// What came in their place counts as well.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Day {
    /// The VMs of a view that is one to two days old, or of the first one.
    older: BTreeSet<String>,
    /// Those of the view that replaces it.
    newer: BTreeSet<String>,
    /// When, on the agent's clock; none before the first view.
    due: Option<Duration>,
}

/// [`Day`] in a state file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedDay {
    older: BTreeSet<String>,
    newer: BTreeSet<String>,
    since: Option<WallTime>,
}

impl SavedDay {
    /// Returns true if there is no need to write `other` after this.
    pub fn is_same(&self, other: &Self) -> bool {
        (&self.older, &self.newer) == (&other.older, &other.newer)
            && WallTime::are_close(self.since, other.since)
    }
}

impl Day {
    /// Takes over what an earlier run kept.
    pub fn restore(kept: SavedDay, clock: Duration, now: jiff::Timestamp) -> Self {
        let due = kept.since.map(|since| clock + since.rest(DAY, now));
        Self { older: kept.older, newer: kept.newer, due }
    }

    /// Returns what the state file should say.
    pub fn keep(&self, clock: Duration, now: jiff::Timestamp) -> SavedDay {
        let since = self.due.map(|due| WallTime::ago(now, (clock + DAY).saturating_sub(due)));
        SavedDay { older: self.older.clone(), newer: self.newer.clone(), since }
    }

    /// A complete view shows these VMs. While the day has shrunk nothing is forgotten: waiting takes no brake off.
    pub fn note<'a>(&mut self, here: impl Iterator<Item = &'a String> + Clone, now: Duration) {
        match self.due {
            Some(due) if now < due => return,
            Some(_) => {
                let here: BTreeSet<&String> = here.clone().collect();
                if self.measure(here.len(), |vm| here.contains(vm)).shrunk().is_some() {
                    return;
                }
                self.older = std::mem::take(&mut self.newer);
            }
            None => self.older = here.clone().cloned().collect(),
        }
        self.newer = here.cloned().collect();
        self.due = Some(now + DAY);
    }

    /// VMAPI says that this VM lives on another node.
    pub fn moved(&mut self, vm: &str) {
        self.older.remove(vm);
        self.newer.remove(vm);
    }

    /// An operator takes the node as it is.
    pub fn accept(&mut self, is_here: impl Fn(&String) -> bool) {
        self.older.retain(&is_here);
        self.newer.retain(is_here);
    }

    /// Returns true if one of the views shows this VM.
    pub fn has(&self, vm: &str) -> bool {
        self.older.contains(vm) || self.newer.contains(vm)
    }

    /// Returns the VMs that left.
    pub fn left<'a>(
        &'a self,
        is_here: impl Fn(&String) -> bool + 'a,
    ) -> impl Iterator<Item = &'a String> {
        self.older.iter().filter(move |vm| !is_here(vm))
    }

    /// Compares so many VMs that are here now with those and the ones that left.
    pub fn measure(&self, here: usize, is_here: impl Fn(&String) -> bool) -> Reference {
        Reference { vms: here + self.left(is_here).count(), here }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn departures_of_a_day_count_together_and_waiting_forgets_none_of_them() {
        let names =
            |range: std::ops::Range<u32>| range.map(|n| n.to_string()).collect::<BTreeSet<_>>();
        let shrunk = |day: &Day, here: &BTreeSet<String>| {
            day.measure(here.len(), |vm| here.contains(vm)).shrunk().is_some()
        };
        let (mut day, hour) = (Day::default(), Duration::from_secs(3600));
        day.note(names(0..20).iter(), hour);
        for (left, want) in [(4, false), (8, false), (10, false), (11, true)] {
            day.note(names(left..20).iter(), hour * 5);
            assert_eq!(shrunk(&day, &names(left..20)), want, "{left} left");
        }
        // They came in the place of those that left.
        assert!(!shrunk(&day, &names(11..31)));
        day.note(names(11..20).iter(), DAY * 30);
        assert!(shrunk(&day, &names(11..20)), "waiting alone");
        let mut accepted = day.clone();
        accepted.accept(|vm| names(11..20).contains(vm));
        assert!(!shrunk(&accepted, &names(11..20)));
        names(0..2).iter().for_each(|vm| day.moved(vm));
        assert!(!shrunk(&day, &names(11..20)), "two of them live elsewhere");
        // A view that is older than a day is replaced by one that is a day old.
        day.note(names(11..20).iter(), DAY * 31);
        day.note(names(11..20).iter(), DAY * 33);
        assert_eq!(day.left(|_| false).count(), 9);
    }
}
