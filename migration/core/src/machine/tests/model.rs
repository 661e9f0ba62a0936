// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Two nodes, VMAPI and NAPI, as far as a migration touches them.
//!
//! The model knows nothing of the rules: it does what orders say, and breaks when it is told to.

use crate::intent::{End, Intent};
use crate::machine::*;
use crate::record::{Record, State};
use crate::vm_agent::VmAgent;

/// A deliberate mistake, made outside the rules: the promises must notice it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The source's agent confirms stopped and hidden whatever is so.
    NoFence,
    /// VMAPI is believed to have moved the VM.
    BootedBeforeMoved,
    /// The snapshot that both have goes before the next one has arrived.
    PredecessorGoesEarly,
    /// The agent answers that the quota is restored, and leaves it.
    QuotaNotRestored,
    /// Agents obey orders of earlier rounds.
    OldOrderObeyed,
}

/// What goes wrong in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// The service dies after it has stored the revision, or a note, or before it sends the order.
    Dies,
    /// The order never arrives.
    OrderLost,
    /// The order arrives later.
    OrderLate,
    /// A stream ends half way.
    Cut,
    /// One node's answers are lost.
    Deaf(End),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    pub seen: Copy,
    /// What the datasets hold now; each write makes a new value.
    pub data: u64,
    /// What each snapshot holds, by GUID.
    pub kept: Vec<(u64, u64)>,
}

#[derive(Clone, Debug, Default)]
pub struct Host {
    pub down: bool,
    pub held: bool,
    /// Which vm-agent it has; none: ours.
    pub vm_agent: Option<VmAgent>,
    pub copy: Option<Disk>,
    /// Somebody's datasets of the VM's name.
    pub in_the_way: Vec<String>,
    /// The highest revision that its agent has heard, on disk.
    pub heard: u64,
}

#[derive(Clone, Debug)]
pub struct World {
    pub source: Host,
    pub target: Host,
    pub vmapi: End,
    pub reserved: bool,
    pub settings: SettingsMatch,
    /// The target was created when the source was.
    pub dated: bool,
    pub record: Option<Record>,
    /// A record that is over and stays.
    pub past: Option<Record>,
    pub finalizing: bool,
    /// What the VM wrote last.
    pub truth: u64,
    pub late: Vec<(u64, Step)>,
    pub bug: Option<Bug>,
    /// The orders that were given, by name.
    pub orders: Vec<String>,
    /// Those that a rehearsal has planned.
    pub planned: Vec<String>,
    /// What a promise was broken by.
    pub broken: Option<String>,
    pub is_running: bool,
    pub waits: u32,
    /// vmadm refuses to delete a copy.
    pub refuses_deletion: bool,
    writes: u64,
}

impl World {
    pub fn new(is_running: bool, bug: Option<Bug>) -> World {
        let seen = Copy { running: is_running, autoboot: is_running, ..Copy::default() };
        let copy = Some(Disk { seen, data: 1, kept: Vec::new() });
        World {
            source: Host { copy, ..Host::default() },
            target: Host::default(),
            vmapi: End::Source,
            reserved: false,
            settings: SettingsMatch::Same,
            dated: true,
            record: None,
            past: None,
            finalizing: false,
            truth: 1,
            late: Vec::new(),
            bug,
            orders: Vec::new(),
            planned: Vec::new(),
            broken: None,
            is_running,
            writes: 1,
            waits: 0,
            refuses_deletion: false,
        }
    }

    pub fn host(&mut self, end: End) -> &mut Host {
        match end {
            End::Source => &mut self.source,
            End::Target => &mut self.target,
        }
    }

    pub fn disk(&mut self, end: End) -> Option<&mut Disk> {
        self.host(end).copy.as_mut()
    }

    pub fn intent(&self) -> Intent {
        let record = self.record.as_ref().or(self.past.as_ref());
        record.map(|record| record.intent.clone()).unwrap_or_default()
    }

    /// Returns true if the copy on this node was given up with the node.
    pub fn is_given_up(&self, end: End) -> bool {
        self.intent().is_dead(end)
    }

    pub fn is_busy(&self) -> bool {
        self.finalizing || self.record.as_ref().is_some_and(|it| it.state == State::Running)
    }

    /// A node goes down, with what runs on it.
    pub fn goes_down(&mut self, end: End) {
        self.host(end).down = true;
        if let Some(disk) = self.disk(end) {
            disk.seen.running = false;
        }
    }

    /// A node comes back, and boots what has autoboot. Its agent comes first: a copy that was declared
    /// dead after the other one was shown is stopped and hidden.
    pub fn comes_up(&mut self, end: End) {
        if !self.host(end).down {
            return;
        }
        self.host(end).down = false;
        let intent = self.intent();
        if intent.is_replaced(end) {
            self.host(end).heard = intent.revision;
            if let Some(disk) = self.disk(end) {
                (disk.seen.hidden, disk.seen.autoboot) = (true, false);
            }
        }
        if self.disk(end).is_some_and(|disk| disk.seen.autoboot) {
            self.boots(end);
        }
    }

    /// An operator starts a VM that is shown, with vmadm.
    pub fn started_by_hand(&mut self, end: End) {
        let is_shown = self.disk(end).is_some_and(|disk| !disk.seen.hidden);
        if self.is_running && is_shown && !self.host(end).down {
            self.boots(end);
        }
    }

    /// The VM writes.
    pub fn writes(&mut self, end: End) {
        let value = self.writes + 1;
        if let Some(disk) = self.disk(end).filter(|disk| disk.seen.running) {
            disk.data = value;
            (self.writes, self.truth) = (value, value);
        }
    }

    fn boots(&mut self, end: End) {
        if let Some(disk) = self.disk(end).filter(|disk| !disk.seen.running) {
            disk.seen.running = true;
            disk.seen.started_since_snapshot = !disk.seen.snapshots.is_empty();
        }
        self.writes(end);
    }

    /// An order that was late arrives.
    pub fn delivers(&mut self, at: usize) {
        if !self.late.is_empty() {
            let (revision, step) = self.late.remove(at % self.late.len());
            self.order(revision, step, false);
        }
    }

    /// Returns true if the agent of a node takes an order.
    fn takes(&mut self, end: End, revision: u64) -> bool {
        let obeys_all = self.bug == Some(Bug::OldOrderObeyed);
        let host = self.host(end);
        let is_taken = !host.down && (revision >= host.heard || obeys_all);
        host.heard = host.heard.max(revision);
        is_taken
    }

    pub fn order(&mut self, revision: u64, step: Step, is_cut: bool) {
        let end = match step {
            Step::Hold(end) | Step::Release(end) | Step::NoAutoboot(end) | Step::Stop(end) => end,
            Step::RestoreQuota(end) | Step::Settle(end) | Step::Hide(end) => end,
            Step::Forget { end, .. } | Step::Send { from: end, .. } => end,
            Step::Autoboot(may) | Step::Boot(may) => may.end(),
            Step::Show(may) => may.end(),
            Step::Delete(may) => may.end(),
            Step::Create => End::Target,
            // On datasets that are not there nothing can be set.
            Step::BringOver if self.disk(End::Target).is_some_and(|disk| disk.seen.bare) => return,
            Step::BringOver => return self.settings = SettingsMatch::Same,
            Step::Date => return self.dated = true,
            Step::Protect(end, _) => end,
            Step::Place | Step::Rehearse => return,
            Step::Reserve => return self.reserved = true,
            Step::Unreserve => return self.reserved = false,
            Step::MoveRecord(may) => return self.vmapi = may.end(),
        };
        if !self.takes(end, revision) {
            return;
        }
        match step {
            Step::Hold(_) => self.host(end).held = true,
            Step::Release(_) => self.host(end).held = false,
            Step::Create => self.creates(),
            Step::Delete(_) => self.host(end).copy = None,
            Step::Send { number, .. } if self.takes(end.other(), revision) => {
                self.sends(end, number, is_cut);
            }
            Step::Boot(_) if self.disk(end).is_some() => {
                self.boots(end);
                if self.vmapi != end {
                    self.broken = Some(format!("the {end} runs, and VMAPI has the VM elsewhere"));
                }
            }
            _ => {
                let Some(disk) = self.disk(end) else { return };
                match step {
                    Step::NoAutoboot(_) => disk.seen.autoboot = false,
                    Step::Autoboot(_) => disk.seen.autoboot = true,
                    Step::Stop(_) => disk.seen.running = false,
                    Step::Hide(_) => disk.seen.hidden = true,
                    Step::Show(_) => disk.seen.hidden = false,
                    Step::RestoreQuota(_) => disk.seen.quota_lifted = false,
                    Step::Settle(_) => disk.settles(),
                    Step::Protect(_, of) => {
                        disk.seen.protection.zoneroot |= of.zoneroot;
                        disk.seen.protection.delegated |= of.delegated;
                        disk.seen.marked = disk.seen.protection;
                    }
                    Step::Forget { keep, .. } => {
                        disk.seen.partial &= keep.is_some();
                        disk.seen.snapshots.retain(|it| Some(it.number) == keep)
                    }
                    _ => {}
                }
            }
        }
    }

    fn creates(&mut self) {
        if self.target.copy.is_none() {
            let seen = Copy { hidden: true, ..Copy::default() };
            self.target.copy = Some(Disk { seen, data: 0, kept: Vec::new() });
            self.dated = false;
        }
    }

    /// Takes the snapshot where it is missing, and streams it.
    fn sends(&mut self, from: End, number: u32, is_cut: bool) {
        let guid = self.writes * 1000 + u64::from(number) + self.late.len() as u64 * 100_000_000;
        let is_early = self.bug == Some(Bug::PredecessorGoesEarly);
        let Some(sender) = self.disk(from) else { return };
        sender.seen.quota_lifted = true;
        if sender.seen.snapshots.iter().all(|it| it.number != number) {
            if is_early {
                sender.seen.snapshots.clear();
            }
            sender.seen.snapshots.push(Snapshot { number, guid });
            sender.seen.started_since_snapshot = false;
            sender.kept.push((guid, sender.data));
        }
        let sent = sender.clone();
        let last = *sent.seen.snapshots.last().unwrap();
        let Some(receiver) = self.disk(from.other()) else { return };
        let base = receiver.seen.snapshots.iter().rev();
        let mut base =
            base.filter(|it| sent.seen.snapshots.iter().any(|other| other.guid == it.guid));
        let has_base = base.next().is_some();
        if !has_base && from == End::Target {
            return; // what a rollback sends never replaces the source
        }
        receiver.seen.quota_lifted = true;
        receiver.seen.partial = true;
        if is_cut {
            return;
        }
        if !has_base {
            receiver.seen.snapshots.clear(); // a full stream replaces all, and makes what is not there
            receiver.seen.bare = false;
            receiver.seen.protection = Protection::default();
        }
        receiver.seen.snapshots.retain(|it| sent.seen.snapshots.contains(it));
        if !receiver.seen.snapshots.contains(&last) {
            receiver.seen.snapshots.push(last);
        }
        receiver.seen.marked = sent.seen.marked; // the snapshot, without its hold
        receiver.kept = sent.kept.clone();
        receiver.seen.partial = false;
        receiver.seen.started_since_snapshot = false;
        receiver.data = sent.kept.iter().rev().find(|it| it.0 == last.guid).unwrap().1;
    }

    /// Finds what P13 forbids.
    pub fn check(&mut self) {
        let truth = self.truth;
        let intent = self.intent();
        let mut shown = 0;
        let (mut running, mut good) = (0, 0);
        for end in [End::Source, End::Target] {
            let is_lost = self.host(end).down && intent.is_dead(end);
            let Some(disk) = self.disk(end) else { continue };
            running += usize::from(disk.seen.running);
            shown += usize::from(!disk.seen.hidden && !is_lost);
            let newest = disk.seen.snapshots.last().map(|it| it.guid);
            let settled = disk.kept.iter().find(|(guid, _)| Some(*guid) == newest).map(|it| it.1);
            let data = if disk.seen.partial { settled } else { Some(disk.data) };
            good += usize::from(data == Some(truth) || settled == Some(truth));
        }
        let broken = if running > 1 {
            "two copies run"
        } else if shown > 1 {
            "two copies are shown"
        } else if good == 0 {
            "the last good copy is lost"
        } else {
            return;
        };
        self.broken.get_or_insert(broken.into());
    }
}

impl Disk {
    fn settles(&mut self) {
        let newest = self.seen.snapshots.last().map(|it| it.guid);
        if let Some((_, data)) = self.kept.iter().find(|(guid, _)| Some(*guid) == newest) {
            (self.data, self.seen.partial) = (*data, false);
        }
    }
}
