// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What is known of the VMs, and how it changes. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use daemon::brake::Day;
use sdc_clients::vminfod::Vm;

use crate::plan::Crowd;

/// So many lists of VMAPI running have to lack a VM that left hidden.
const LISTS: u32 = 2;

/// A VM that left.
#[derive(Clone, Debug)]
pub struct Gone {
    /// When it was found gone, on the agent's clock.
    pub since: Duration,
    /// It as it was seen last, if this run has seen it.
    pub last: Option<Arc<Vm>>,
    /// Set if nothing is to be said of it: until then it counts for the brake, and while that is on.
    pub settled: Option<Duration>,
    /// True if this agent has seen it here, in this run or an earlier one.
    pub seen: bool,
    /// True if this agent has not seen it and VMAPI has it here.
    pub stranger: bool,
    /// When VMAPI was last asked whether it has moved, after it was settled.
    pub asked: Option<Duration>,
    /// How many of VMAPI's lists of this node running have lacked it, which left hidden and may not be named.
    pub unlisted: u32,
}

impl Gone {
    /// A VM that left, of which something may be to be said.
    pub fn new(since: Duration, last: Option<Arc<Vm>>) -> Self {
        let seen = last.is_some();
        Self { since, last, settled: None, seen, stranger: false, asked: None, unlisted: 0 }
    }

    /// A VM of which nothing is to be said, and which counts until then.
    pub(super) fn settled(since: Duration, until: Duration) -> Self {
        let seen = Self::new(since, None);
        Self { settled: Some(until), seen: true, ..seen }
    }
}

/// What is known of the VMs.
#[derive(Debug, Default)]
pub struct Known {
    /// The VMs that are here, and whether each is hidden.
    pub here: BTreeMap<String, bool>,
    /// The VMs that left and are not settled, or still count for the brake.
    pub gone: BTreeMap<String, Gone>,
    /// The VMs of a day ago.
    pub day: Day,
    /// VMs that are hidden or were, and until when that is remembered if they are gone.
    pub hidden: BTreeMap<String, Duration>,
    /// Until when it is unknown what was hidden, after the state file was lost.
    pub hidden_unknown: Duration,
    /// The VMs of which VMAPI knows since they came here.
    pub told: BTreeSet<String>,
    /// The VMs of which it was told since, and when it is looked at again: what the node that had the
    /// VM before wrote last may arrive later than what this one wrote.
    pub looks: BTreeMap<String, Duration>,
    /// The VMs of which a write got no answer, and when: it may still be carried out.
    pub late: BTreeMap<String, Duration>,
    /// The VMs that this agent never saw and reported, and until when each counts.
    pub strangers: BTreeMap<String, Duration>,
    /// The VMs that VMAPI did not know when it was asked, and since when.
    pub unrecorded: BTreeMap<String, Duration>,
    /// The VMs that show a state that seldom lasts, and since when.
    pub passing: BTreeMap<String, (String, Duration)>,
    /// When VMAPI's list of this node was read for those that left hidden, and how often since the last of them left.
    pub listed: Option<(Duration, u32)>,
    /// True if `told` does not say which VMs are new: the first run, or the state file was lost.
    pub is_first_run: bool,
}

impl Known {
    /// Returns true if nothing may be said of this VM, which is not here: it was hidden, or may have
    /// been. None where that is not known. While the brake is on nothing is forgotten: one that left with
    /// the others may be here as much as they, and hidden.
    pub fn was_hidden(&self, vm: &str, now: Duration) -> Option<bool> {
        let is_kept = || self.gone.contains_key(vm) && self.crowd().tripped().is_some();
        if self.hidden.get(vm).is_some_and(|until| now < *until || is_kept()) {
            return Some(true);
        }
        (now >= self.hidden_unknown).then_some(false)
    }

    /// Returns a VM that VMAPI has here and the node does not show. One that left is not `told` any more, and a 404 of
    /// VMAPI settles it; the day's views still say that it was here.
    pub fn missed(&self, vm: &str, since: Duration) -> Gone {
        let seen = self.told.contains(vm) || self.day.has(vm);
        Gone { seen, ..Gone::new(since, None) }
    }

    /// Returns true if VMs that left hidden count for the brake.
    pub(super) fn counts_secrets(&self) -> bool {
        self.gone.keys().any(|vm| self.hidden.contains_key(vm))
    }

    /// VMAPI lists these VMs here, destroyed ones among them. Those that left hidden and that two lists running lack
    /// live elsewhere: they count no more. A list that lacks a VM of which it was told, and which is here, is not
    /// whole.
    pub(super) fn list(&mut self, names: &BTreeSet<String>) {
        let shown = self.told.iter().filter(|vm| self.shows(vm));
        if shown.into_iter().any(|vm| !names.contains(vm)) {
            return;
        }
        let Self { gone, hidden, day, .. } = self;
        gone.retain(|vm, gone| {
            gone.unlisted = if names.contains(vm) { 0 } else { gone.unlisted + 1 };
            let has_moved = hidden.contains_key(vm) && gone.unlisted >= LISTS;
            if has_moved {
                day.moved(vm);
            }
            !has_moved
        });
    }

    /// Returns true if the VM is here and shown.
    pub fn shows(&self, vm: &str) -> bool {
        self.here.get(vm) == Some(&false)
    }

    /// Returns what the brake measures.
    pub fn crowd(&self) -> Crowd {
        let is_known = |vm: &String| self.here.contains_key(vm) || self.gone.contains_key(vm);
        let left = self.day.left(is_known).count();
        Crowd { here: self.here.len(), gone: self.gone.len(), left }
    }

    /// Returns how many VMs left and are not settled.
    pub fn unsettled(&self) -> usize {
        self.gone.values().filter(|gone| gone.settled.is_none()).count()
    }

    /// What is here is all that is here.
    pub(super) fn note_day(&mut self, now: Duration) {
        let Self { here, day, .. } = self;
        day.note(here.keys(), now);
    }

    /// What left hidden counts for no day: once it is forgotten that it was hidden, somebody would be asked
    /// about it by its name.
    pub(super) fn forget_secrets(&mut self) {
        let Self { here, hidden, day, .. } = self;
        hidden.keys().filter(|vm| !here.contains_key(*vm)).for_each(|vm| day.moved(vm));
    }

    /// Forgets what is settled, unless the brake is on: what VMAPI says of a VM may be this node's own
    /// word, by which fewer VMs would be missing.
    pub(super) fn forget_settled(&mut self, now: Duration) {
        if self.crowd().tripped().is_none() {
            self.gone.retain(|_, gone| gone.settled.is_none_or(|until| now < until));
        }
    }

    /// The VM shows this state: what it showed before has not lasted.
    pub(super) fn forget_passing(&mut self, vm: &str, state: Option<&str>) {
        if self.passing.get(vm).is_some_and(|(before, _)| Some(before.as_str()) != state) {
            self.passing.remove(vm);
        }
    }

    pub(super) fn forget_told(&mut self, vm: &str) {
        self.told.remove(vm);
        self.looks.remove(vm);
    }

    pub(super) fn put(&mut self, vm: String, is_hidden: bool, until: Duration) {
        self.gone.remove(&vm);
        if is_hidden {
            self.forget_told(&vm);
            self.hidden.insert(vm.clone(), until);
        } else {
            self.hidden.remove(&vm);
        }
        self.here.insert(vm, is_hidden);
    }
}
