// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What is known of the node: its VMs as the stream shows them, those that left and are not settled,
//! and those that are or were hidden. Nothing here makes requests.

// Blank lines keep the modules in layer order.

mod known;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use daemon::brake::DAY;
use daemon::timing::Clock;
use sdc_clients::vminfod::{Vm, VmFields as _, VmObject};
use tokio::sync::Notify;

use crate::config::Times;
use crate::plan::{LASTS, STRANGERS, named, passing};

pub use known::{Gone, Known};

/// When a VM of which a write got no answer is looked at again, in second looks since the write: 1, 5 and
/// 30 minutes as shipped.
const LATE_LOOKS: [u32; 3] = [1, 5, 30];

/// After how many second looks VMAPI is asked again whether a VM has moved, while the brake is on.
const ASK_AGAIN: u32 = 10;
/// So many lists for those that left hidden follow each other at once.
const SOON_LISTS: u32 = 3;

/// Above this number, VMs that are not here are forgotten.
const MOST_TOLD: usize = 10_000;

/// The node, shared by all tasks. The lock is held for a few instructions and never over an await.
#[derive(Debug)]
pub struct Node {
    known: Mutex<Known>,
    clock: Clock,
    hidden_memory: Duration,
    second_look: Duration,
    /// Wakes the task that saves the state file.
    save: Arc<Notify>,
}

impl Node {
    /// Nothing is known yet.
    pub fn new(clock: Clock, times: &Times, save: Arc<Notify>) -> Self {
        let (hidden_memory, second_look) = (times.hidden_memory, times.second_look);
        Self { known: Mutex::default(), clock, hidden_memory, second_look, save }
    }

    /// Takes over what the last run knew: the VMs that were told, those that had left, and those that
    /// were hidden.
    pub fn restore(
        &self,
        told: BTreeSet<String>,
        left: BTreeSet<String>,
        hidden: BTreeSet<String>,
        unseen: &BTreeSet<String>,
    ) {
        let (now, until) = (self.clock.now(), self.until());
        self.change(|known| {
            // They left while nobody looked, unless the first view shows them.
            let left = left.iter().chain(&told).chain(&hidden);
            known.gone = left.map(|vm| (vm.clone(), Gone::settled(now, now))).collect();
            for (vm, gone) in &mut known.gone {
                gone.seen = !unseen.contains(vm);
            }
            known.hidden = hidden.into_iter().map(|vm| (vm, until)).collect();
            known.told = told;
        });
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads what is known.
    pub fn with<T>(&self, read: impl FnOnce(&Known) -> T) -> T {
        read(&self.known())
    }

    /// Changes what is known.
    pub fn change<T>(&self, change: impl FnOnce(&mut Known) -> T) -> T {
        let changed = change(&mut self.known());
        self.save.notify_one();
        changed
    }

    fn until(&self) -> Duration {
        self.clock.now() + self.hidden_memory
    }

    /// The stream's view is complete. What differs from what it showed before was said already.
    pub fn synced(&self, vms: &[Arc<Vm>]) {
        let (now, until) = (self.clock.now(), self.until());
        self.change(|known| {
            known.passing.clear();
            for (vm, object) in vms.iter().filter_map(|vm| Some((named(vm)?, vm))) {
                if known.is_first_run {
                    known.told.insert(vm.clone());
                }
                known.put(vm, object.is_hidden(), until);
            }
            known.is_first_run = false;
            // They went while nobody looked.
            known.forget_secrets();
            known.note_day(now);
            known.forget_settled(now);
            if known.told.len() > MOST_TOLD {
                let Known { told, here, .. } = known;
                told.retain(|vm| here.contains_key(vm));
            }
        });
    }

    /// A VM is here. Returns its uuid if something may be said of it.
    pub fn put(&self, object: &Vm) -> Option<String> {
        let (vm, now, until) = (named(object)?, self.clock.now(), self.until());
        let hidden = object.is_hidden();
        self.change(|known| {
            known.forget_passing(&vm, passing(object.object()));
            known.put(vm.clone(), hidden, until);
            known.forget_settled(now);
        });
        (!hidden).then_some(vm)
    }

    /// A VM is gone. Returns its uuid if something may be said of it.
    pub fn remove(&self, object: &Arc<Vm>) -> Option<String> {
        let (vm, now, until) = (named(object)?, self.clock.now(), self.until());
        self.change(|known| {
            known.forget_told(&vm);
            known.forget_passing(&vm, None);
            let was_here = known.here.remove(&vm);
            if was_here == Some(true) || object.is_hidden() {
                known.hidden.insert(vm.clone(), until);
            }
            let is_secret = known.was_hidden(&vm, now) == Some(true);
            if is_secret {
                known.forget_secrets();
                known.listed = None;
            }
            let gone = match is_secret {
                true => Gone::settled(now, now + self.second_look),
                false => Gone::new(now, Some(Arc::clone(object))),
            };
            known.gone.insert(vm.clone(), gone);
            (!is_secret).then_some(vm)
        })
    }

    /// Other answers than the stream's show this VM as hidden.
    pub fn hide(&self, vm: &str) {
        let until = self.until();
        self.change(|known| {
            known.hidden.insert(vm.to_owned(), until);
            known.forget_told(vm);
            known.gone.remove(vm);
            if let Some(is_hidden) = known.here.get_mut(vm) {
                *is_hidden = true;
            }
        });
    }

    /// A list shows this VM, which may have come out of hiding since, as hidden. If it goes, nothing
    /// is said of it for a while.
    pub fn note_hidden(&self, vm: &str) {
        let until = self.until();
        self.change(|known| {
            if !known.shows(vm) {
                known.gone.remove(vm);
                known.hidden.insert(vm.to_owned(), until);
            }
        });
    }

    /// VMAPI has a VM that the node does not show. Returns true if something may be said of it.
    pub fn miss(&self, vm: &str) -> bool {
        let now = self.clock.now();
        self.change(|known| {
            let is_missing =
                !known.here.contains_key(vm) && known.was_hidden(vm, now) != Some(true);
            if is_missing {
                let missed = known.missed(vm, now);
                known.gone.entry(vm.to_owned()).or_insert(missed).settled = None;
            }
            is_missing
        })
    }

    /// VMAPI is provisioning this VM, which is not here: one that this agent never saw has not left.
    pub fn awaited(&self, vm: &str) {
        let now = self.clock.now();
        self.change(|known| {
            known.gone.retain(|gone, it| gone != vm || it.seen);
            known.forget_settled(now);
        });
    }

    /// A VM that had left when the turn began is settled; while the brake is on it counts all the same. One that
    /// left since has another turn: until then it counts as unsettled.
    pub fn settle(&self, vm: &str, began: Duration) {
        let now = self.clock.now();
        self.change(|known| {
            if let Some(gone) = known.gone.get_mut(vm).filter(|gone| gone.since <= began) {
                gone.settled.get_or_insert(now);
            }
            known.forget_settled(now);
        });
    }

    /// VMAPI says that a VM which had left when the turn began lives on another node: it counts no more.
    pub fn moved(&self, vm: &str, began: Duration) {
        let now = self.clock.now();
        self.change(|known| {
            if known.gone.get(vm).is_some_and(|gone| gone.since <= began) {
                known.gone.remove(vm);
                known.forget_told(vm);
            }
            if !known.here.contains_key(vm) {
                known.day.moved(vm);
            }
            known.forget_settled(now);
        });
    }

    /// Returns the settled VMs of which VMAPI is to be asked whether they have moved: not those of which
    /// nothing may be said.
    pub fn to_ask(&self) -> Vec<String> {
        let (now, pause) = (self.clock.now(), self.second_look * ASK_AGAIN);
        self.change(|known| {
            let Known { here, gone, hidden, hidden_unknown, day, .. } = known;
            let left: Vec<&String> = day.left(|vm| here.contains_key(vm)).collect();
            for vm in left {
                gone.entry(vm.clone()).or_insert_with(|| Gone::settled(now, now));
            }
            let is_secret = |vm: &String| hidden.contains_key(vm);
            let is_due = |gone: &Gone| gone.asked.is_none_or(|at| now >= at + pause);
            let due = gone.iter_mut().filter(|(vm, gone)| {
                gone.settled.is_some() && now >= *hidden_unknown && is_due(gone) && !is_secret(vm)
            });
            due.map(|(vm, gone)| {
                gone.asked = Some(now);
                vm.clone()
            })
            .collect()
        })
    }

    /// Returns true if VMAPI's list of this node is to be read, for the VMs that count and left hidden.
    pub fn is_list_due(&self) -> bool {
        let now = self.clock.now();
        self.change(|known| {
            let (at, lists) = known.listed.unwrap_or_default();
            let again = if lists < SOON_LISTS { 1 } else { ASK_AGAIN };
            let is_new = known.listed.is_none();
            let is_due = known.counts_secrets() && (is_new || now >= at + self.second_look * again);
            if is_due {
                known.listed = Some((now, lists.saturating_add(1)));
            }
            is_due
        })
    }

    /// VMAPI lists these VMs here.
    pub fn list(&self, names: &BTreeSet<String>) {
        let now = self.clock.now();
        self.change(|known| {
            known.list(names);
            known.forget_settled(now);
        });
    }

    /// A comparison shows the whole node.
    pub fn compared(&self) {
        let now = self.clock.now();
        self.change(|known| known.note_day(now));
    }

    /// The operator takes the node as it is: what is settled counts no more.
    pub fn accept(&self) {
        self.change(|known| {
            let Known { here, gone, day, .. } = known;
            gone.retain(|_, gone| gone.settled.is_none());
            day.accept(|vm| here.contains_key(vm));
        });
    }

    /// Returns how many VMs that this agent never saw are gone or were reported in the last day, if those
    /// are too many for this one to be reported: any is where nobody says whether this machine is the only one.
    pub fn strangers(&self, vm: &str, is_census: bool) -> Option<usize> {
        let now = self.clock.now();
        self.change(|known| {
            if let Some(gone) = known.gone.get_mut(vm) {
                gone.stranger = true;
            }
            let open =
                known.gone.iter().filter(|(_, gone)| gone.stranger && gone.settled.is_none());
            let reported = known.strangers.iter().filter(|(_, until)| now < **until);
            let all: BTreeSet<&str> = open
                .map(|(vm, _)| vm.as_str())
                .chain(reported.map(|(vm, _)| vm.as_str()))
                .chain([vm])
                .collect();
            (!is_census || all.len() > STRANGERS).then_some(all.len())
        })
    }

    /// A VM that this agent never saw is about to be reported.
    pub fn count_stranger(&self, vm: &str) {
        let now = self.clock.now();
        self.change(|known| {
            known.strangers.retain(|_, until| now < *until);
            if known.gone.get(vm).is_none_or(|gone| !gone.seen) {
                known.strangers.insert(vm.to_owned(), now + DAY);
            }
        });
    }

    /// VMAPI knows of this VM. Returns when to look again, if that is not certain yet.
    pub fn told(&self, vm: &str) -> Option<Duration> {
        let now = self.clock.now();
        self.change(|known| {
            if !known.shows(vm) || known.told.contains(vm) {
                return None;
            }
            let at = *known.looks.entry(vm.to_owned()).or_insert(now + self.second_look);
            if now < at {
                return Some(at);
            }
            known.looks.remove(vm);
            known.told.insert(vm.to_owned());
            None
        })
    }

    /// Returns how much longer this reading must be seen, if its state is one that seldom lasts.
    pub fn lasts_in(&self, vm: &str, object: &VmObject) -> Duration {
        let now = self.clock.now();
        let state = passing(object);
        self.change(|known| {
            known.forget_passing(vm, state);
            let Some(state) = state else { return Duration::ZERO };
            let seen = known.passing.entry(vm.to_owned());
            let (_, since) = seen.or_insert_with(|| (state.to_owned(), now));
            LASTS.saturating_sub(now.saturating_sub(*since))
        })
    }

    /// VMAPI does not have this VM here. Returns how much later it has to say so again before it is believed.
    pub fn unrecorded(&self, vm: &str) -> Duration {
        let now = self.clock.now();
        self.change(|known| {
            let since = *known.unrecorded.entry(vm.to_owned()).or_insert(now);
            self.second_look.saturating_sub(now.saturating_sub(since))
        })
    }

    /// VMAPI knows this VM, or what it does not know of it is settled.
    pub fn recorded(&self, vm: &str) {
        self.change(|known| known.unrecorded.remove(vm));
    }

    /// A write about this VM got no answer, and may still be carried out. Returns when to look again.
    pub fn unanswered(&self, vm: &str) -> Duration {
        let now = self.clock.now();
        self.change(|known| known.late.insert(vm.to_owned(), now));
        now + self.second_look
    }

    /// Returns when to look again at a VM of which a write got no answer.
    pub fn late(&self, vm: &str) -> Option<Duration> {
        let now = self.clock.now();
        self.change(|known| {
            let sent = *known.late.get(vm)?;
            let next = LATE_LOOKS.map(|looks| sent + self.second_look * looks);
            let next = next.into_iter().find(|at| now < *at);
            if next.is_none() {
                known.late.remove(vm);
            }
            next
        })
    }

    /// Forgets VMs that were hidden and are gone for long enough; keeps those that are here.
    pub fn forget_hidden(&self) {
        let (now, until) = (self.clock.now(), self.until());
        let mut known = self.known();
        known.forget_secrets();
        // One that counted for a brake of later would be asked about: nobody would know that it was hidden.
        known.forget_settled(now);
        let is_braked = known.crowd().tripped().is_some();
        let Known { here, hidden, gone, .. } = &mut *known;
        hidden.retain(|vm, at| {
            if here.get(vm) == Some(&true) {
                *at = until;
            }
            now < *at || is_braked && gone.contains_key(vm)
        });
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    use super::*;

    #[tokio::test(start_paused = true)] // W14
    async fn a_turn_settles_only_what_left_before_it_began() {
        let config = Config::from_json(r#"{"vmapi_url": "http://vmapi.lab"}"#).unwrap();
        let node = Node::new(Clock::start(), &config.times, Arc::default());
        let s = Duration::from_secs;
        node.change(|known| {
            known.here = ["a", "b"].map(|vm| (vm.to_owned(), false)).into();
            known.gone = [("c".to_owned(), Gone::new(s(10), None))].into();
        });
        // A turn that read the VM while it was here ends with "nothing differs".
        node.settle("c", s(9));
        assert_eq!(node.with(|known| (known.crowd().gone, known.unsettled())), (1, 1));
        tokio::time::advance(s(11)).await;
        node.settle("c", s(11));
        assert_eq!(node.with(|known| (known.crowd().gone, known.unsettled())), (0, 0));
    }

    #[tokio::test(start_paused = true)] // A4, W17
    async fn what_is_forgotten_as_hidden_is_forgotten_as_gone() {
        let config = Config::from_json(r#"{"vmapi_url": "http://vmapi.lab"}"#).unwrap();
        let node = Node::new(Clock::start(), &config.times, Arc::default());
        let s = Duration::from_secs;
        node.change(|known| {
            known.gone = [("c".to_owned(), Gone::settled(s(0), s(60)))].into();
            known.hidden = [("c".to_owned(), s(300))].into();
        });
        tokio::time::advance(s(301)).await;
        node.forget_hidden();
        assert_eq!(node.with(|known| (known.hidden.len(), known.gone.len())), (0, 0));
    }
}
