// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the brake remembers: the reference view, the deletes of the last hour, the candidates of
//! the pass, what it blocks, and the operator's approvals.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use daemon::approval::{Approval, Approvals, Offer, Refused};
use daemon::brake::{Day, Reference, SavedDay};
use daemon::timing::{Clock, HOUR};
use sdc_clients::MacAddr;
use tokio::sync::Notify;

use super::scale::{Clearance, Recent, Tripped};

/// Of the deletes that VMAPI's word exempts at most this many go ...
const EXEMPTED: usize = 10;
/// ... in this time.
const SPAN: Duration = Duration::from_secs(600);

/// What the brake is on for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BrakeOf {
    Departures,
    /// A NAPI that seems to have lost its records.
    Napi,
    Pass,
}

/// After this time VMAPI is asked again whether a VM that is missing has moved.
const ASK_AGAIN: Duration = SPAN;

/// The most VMs that are noted between two reference views.
const SEEN_CAP: usize = 10_000;

/// The brake. The lock is held for a few instructions and never over an await.
#[derive(Debug)]
pub struct Brake {
    ledger: Mutex<Ledger>,
    clock: Clock,
    /// Wakes the pass when the operator has approved.
    approved: Notify,
    /// Wakes the task that saves the state file.
    save: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Ledger {
    on: BTreeMap<BrakeOf, Tripped>,
    /// The VMs of the reference view: a complete view at the end of a pass that left nothing
    /// undecided, or one that the operator accepted.
    reference: Option<BTreeSet<String>>,
    /// The VMs that were seen here since the reference view was taken.
    seen: BTreeSet<String>,
    /// The VMs of a day ago.
    day: Day,
    /// The missing VMs of which VMAPI was asked, and when it is asked again.
    asked: BTreeMap<String, Duration>,
    /// The records and the VMs of NAPI's last list.
    listed: (usize, usize),
    deletes: Deletes,
    /// The undecided candidates of the last pass, and when each was first seen.
    candidates: BTreeMap<MacAddr, Duration>,
    /// Candidates of the pass that only the brake blocks, with their VMs.
    blocked: BTreeMap<MacAddr, String>,
    approvals: Approvals<MacAddr>,
}

/// When each delete of the last hour stops to count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deletes {
    pub counted: VecDeque<Duration>,
    /// Those that VMAPI's word exempted.
    pub exempted: VecDeque<Duration>,
}

impl Deletes {
    fn forget(&mut self, now: Duration) {
        self.counted.retain(|until| now < *until);
        self.exempted.retain(|until| now < *until);
    }
}

impl Brake {
    /// Nothing deleted, nothing blocked.
    pub fn new(clock: Clock, save: Arc<Notify>) -> Self {
        Self { ledger: Mutex::default(), clock, approved: Notify::new(), save }
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Turns the brake on or off.
    pub fn set(&self, of: BrakeOf, why: Option<Tripped>) {
        match why {
            Some(why) => self.ledger().on.insert(of, why),
            None => self.ledger().on.remove(&of),
        };
    }

    /// Returns why the brake is on for this, if it is.
    pub fn is_on(&self, of: BrakeOf) -> Option<Tripped> {
        self.ledger().on.get(&of).cloned()
    }

    /// Returns why the brake is on, for people, or none.
    pub fn sentence(&self) -> Option<String> {
        let all: Vec<String> = self.ledger().on.values().map(ToString::to_string).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// Takes over what the last run left.
    pub fn restore(&self, reference: Option<BTreeSet<String>>, deletes: Deletes) {
        let mut ledger = self.ledger();
        (ledger.reference, ledger.deletes) = (reference, deletes);
        ledger.deletes.forget(self.clock.now());
    }

    /// Takes over the VMs of a day ago.
    pub fn restore_day(&self, kept: SavedDay) {
        self.ledger().day = Day::restore(kept, self.clock.now(), daemon::wall::now());
    }

    /// Returns what the state file should say of the VMs of a day ago.
    pub fn kept_day(&self) -> SavedDay {
        self.ledger().day.keep(self.clock.now(), daemon::wall::now())
    }

    /// A complete view shows these VMs.
    pub fn note_view<'a>(&self, here: impl Iterator<Item = &'a String> + Clone) {
        self.ledger().day.note(here, self.clock.now());
    }

    /// The operator takes the node as it is.
    pub fn accept(&self, is_here: impl Fn(&str) -> bool) {
        self.ledger().day.accept(|vm| is_here(vm));
        self.save.notify_one();
    }

    /// Compares the VMs that are here with those that left in the last day.
    pub fn day(&self, here: usize, is_here: impl Fn(&str) -> bool) -> Reference {
        self.ledger().day.measure(here, |vm| is_here(vm))
    }

    /// Returns the VMs that the node had and does not show, of which VMAPI has not been asked for a while.
    pub fn to_ask(&self, is_here: impl Fn(&str) -> bool) -> Vec<String> {
        let now = self.clock.now();
        let ledger = &mut *self.ledger();
        ledger.asked.retain(|_, until| now < *until);
        let had = ledger.reference.iter().flatten().chain(&ledger.seen);
        let had = had.chain(ledger.day.left(|vm| is_here(vm)));
        let missing: BTreeSet<&String> =
            had.filter(|vm| !is_here(vm) && !ledger.asked.contains_key(*vm)).collect();
        let missing: Vec<String> = missing.into_iter().cloned().collect();
        ledger.asked.extend(missing.iter().map(|vm| (vm.clone(), now + ASK_AGAIN)));
        missing
    }

    /// VMAPI says that this VM lives on another node: it counts no more.
    pub fn moved(&self, vm: &str) {
        let mut ledger = self.ledger();
        if let Some(reference) = &mut ledger.reference {
            reference.remove(vm);
        }
        ledger.seen.remove(vm);
        ledger.day.moved(vm);
        drop(ledger);
        self.save.notify_one();
    }

    /// Replaces the reference view by this one.
    pub fn refer_to(&self, vms: BTreeSet<String>) {
        let mut ledger = self.ledger();
        (ledger.reference, ledger.seen) = (Some(vms), BTreeSet::new());
        drop(ledger);
        self.save.notify_one();
    }

    /// Returns the VMs of the reference view, if there is one.
    pub fn reference(&self) -> Option<BTreeSet<String>> {
        self.ledger().reference.clone()
    }

    /// Notes VMs that are here.
    pub fn saw(&self, vms: impl IntoIterator<Item = String>) {
        let mut ledger = self.ledger();
        let room = SEEN_CAP.saturating_sub(ledger.seen.len());
        ledger.seen.extend(vms.into_iter().take(room));
        drop(ledger);
        self.save.notify_one();
    }

    /// Returns the VMs that were seen here since the reference view was taken.
    pub fn seen(&self) -> BTreeSet<String> {
        self.ledger().seen.clone()
    }

    /// Returns true if this agent has seen this VM here.
    pub fn knew(&self, vm: &str) -> bool {
        let ledger = self.ledger();
        ledger.seen.contains(vm) || ledger.reference.as_ref().is_some_and(|vms| vms.contains(vm))
    }

    /// Compares the reference view with what is here. Returns none if there is no reference view.
    pub fn compared(&self, is_here: impl Fn(&str) -> bool) -> Option<Reference> {
        self.ledger().reference.as_ref().map(|vms| compared(vms.iter().collect(), is_here))
    }

    /// Compares the VMs of the reference view, and those that were seen since, with what is here.
    pub fn had(&self, is_here: impl Fn(&str) -> bool) -> Reference {
        let ledger = self.ledger();
        compared(ledger.reference.iter().flatten().chain(&ledger.seen).collect(), is_here)
    }

    /// Stores how many zone records NAPI's list holds, and of how many VMs.
    pub fn note_list(&self, records: usize, vms: usize) {
        self.ledger().listed = (records, vms);
    }

    /// Returns how many zone records NAPI's last list held, and of how many VMs.
    pub fn listed(&self) -> (usize, usize) {
        self.ledger().listed
    }

    /// The record is gone: an approval of it is settled.
    pub fn settled(&self, mac: MacAddr) {
        self.ledger().approvals.settle(&mac);
    }

    /// Returns what the operator approved last, while it holds.
    pub fn approval_given(&self) -> Option<Approval> {
        self.ledger().approvals.last(self.clock.now())
    }

    /// Counts a delete. One that VMAPI's word exempts is counted by [`Self::take_exemption`].
    pub fn deleted(&self, clearance: Clearance) {
        if clearance != Clearance::Exempted {
            self.ledger().deletes.counted.push_back(self.clock.now() + HOUR);
            self.save.notify_one();
        }
    }

    /// Returns true if one more exempted delete may go now.
    pub fn has_exemption(&self) -> bool {
        // Each stops to count an hour after it went.
        let since = self.clock.now() + HOUR.saturating_sub(SPAN);
        self.ledger().deletes.exempted.iter().filter(|until| **until > since).count() < EXEMPTED
    }

    /// Counts an exempted delete that is about to be sent. Returns false if none may go now.
    pub fn take_exemption(&self) -> bool {
        let may = self.has_exemption();
        if may {
            self.ledger().deletes.exempted.push_back(self.clock.now() + HOUR);
            self.save.notify_one();
        }
        may
    }

    /// Returns for each delete of the last hour when it stops to count.
    pub fn deletes(&self) -> Deletes {
        let mut ledger = self.ledger();
        ledger.deletes.forget(self.clock.now());
        ledger.deletes.clone()
    }

    /// Returns the numbers of deletes of the last hour.
    pub fn recent(&self) -> Recent {
        let Deletes { counted, exempted } = self.deletes();
        Recent { counted: counted.len(), exempted: exempted.len() }
    }

    /// Stores the undecided candidates of a pass and when each was first seen.
    pub fn note_candidates(&self, first_looks: &BTreeMap<MacAddr, Duration>) {
        self.ledger().candidates.clone_from(first_looks);
    }

    /// Returns the number of undecided candidates.
    pub fn candidates(&self) -> usize {
        self.ledger().candidates.len()
    }

    /// Returns when an undecided candidate was first seen.
    pub fn first_look(&self, mac: MacAddr) -> Option<Duration> {
        self.ledger().candidates.get(&mac).copied()
    }

    /// Stores the candidates that only the brake blocks.
    pub fn block(&self, blocked: BTreeMap<MacAddr, String>) {
        self.ledger().blocked = blocked;
    }

    /// Returns the candidates that only the brake blocks, with their VMs.
    pub fn blocked(&self) -> BTreeMap<MacAddr, String> {
        self.ledger().blocked.clone()
    }

    /// Offers these records, as they were read, for approval.
    pub fn offer(&self, pairs: BTreeMap<MacAddr, String>) -> Option<Offer<MacAddr>> {
        self.ledger().approvals.offer(pairs, self.clock.now())
    }

    /// Returns the latest offer that can be approved, and for how much longer.
    pub fn offered(&self) -> Option<(Offer<MacAddr>, Duration)> {
        self.ledger().approvals.latest(self.clock.now())
    }

    /// The operator approves an offer. Returns the number of records and wakes the pass.
    /// Fails if no valid offer has this id.
    pub fn approve(&self, id: &str, by: &str) -> Result<usize, Refused> {
        let approved = self.ledger().approvals.approve(id, by, self.clock.now())?;
        self.approved.notify_one();
        Ok(approved)
    }

    /// Waits for an approval. Cancel-safe: an approval that nobody waited for is kept.
    pub async fn approval(&self) {
        self.approved.notified().await;
    }

    /// Returns true if the operator approved this record as it is.
    pub fn is_approved(&self, mac: MacAddr, etag: Option<&str>) -> bool {
        etag.is_some_and(|etag| self.ledger().approvals.covers(&mac, etag, self.clock.now()))
    }

    /// Returns the MACs that the operator approved, whatever their etags are now.
    pub fn approved_macs(&self) -> BTreeSet<MacAddr> {
        self.ledger().approvals.keys(self.clock.now()).collect()
    }
}

fn compared(vms: BTreeSet<&String>, is_here: impl Fn(&str) -> bool) -> Reference {
    Reference { vms: vms.len(), here: vms.iter().filter(|vm| is_here(vm)).count() }
}
