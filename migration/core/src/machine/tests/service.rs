// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A service that does the rounds, and is disturbed while it does them.

use uuid::Uuid;

use super::model::{Bug, Fault, World};
use crate::intent::{Confirmation, End, Power, Rehearsal};
use crate::machine::*;
use crate::record::{Phase, Record, State};
use crate::time::Time;
use crate::vm_agent::VmAgent;

const NOW: Time = Time::from_millis(1_770_000_000_000);

impl World {
    /// Gives a command, if it is admitted. Returns true if it was.
    pub fn command(&mut self, action: Action) -> bool {
        let Ok(admitted) = admit(self.record.as_ref(), Call::new(action)) else { return false };
        if self.record.is_none() && self.intent().over {
            return false; // the model ends with a node that was declared dead
        }
        if self.record.is_none() && admitted == Admitted::Start(Phase::Begin) {
            if self.vmapi == End::Target {
                std::mem::swap(&mut self.source, &mut self.target);
                self.vmapi = End::Source;
            }
            // Orders name their record: those of one that is over are refused.
            self.late.clear();
            (self.source.heard, self.target.heard) = (0, 0);
            let fields = serde_json::json!({"state": "running", "target_server_uuid": null});
            self.record = Some(crate::samples::record(fields));
        }
        let record = self.record.as_mut().unwrap();
        match admitted {
            Admitted::Start(phase) => start(record, phase, "x", Uuid::nil(), NOW),
            Admitted::Rescue => rescue(record, "x", Uuid::nil(), NOW),
            Admitted::Pause => record.intent.pause = true,
            Admitted::Finalize | Admitted::TryNow => {}
            Admitted::AbortAtOnce => self.record = None,
            _ => return false,
        }
        self.finalizing = admitted == Admitted::Finalize;
        self.waits = 0;
        true
    }

    /// The operator declares a node that is down dead, with the command that needs it.
    pub fn declare_dead(&mut self, end: End) {
        let action = match end {
            End::Source => Action::Switch,
            End::Target => Action::Rollback,
        };
        let is_admitted = admit(self.record.as_ref(), Call::new(action)).is_ok();
        if !self.host(end).down || !is_admitted || !self.command(action) {
            return;
        }
        let word = Some(Confirmation { by: Uuid::nil(), at: NOW });
        let intent = &mut self.record.as_mut().unwrap().intent;
        match end {
            End::Source => intent.source_dead = word,
            End::Target => (intent.target_dead, intent.discard) = (word.clone(), word),
        }
        // What VMAPI said of the VM last, since its node cannot be asked.
        let power = Power { running: self.is_running, autoboot: self.is_running };
        intent.power.get_or_insert(power);
        // What was written there is lost by his word, unless it had arrived.
        let is_shown = self.record.as_ref().unwrap().intent.target_shown;
        if let Some(disk) = self.disk(end.other())
            && (end == End::Target || !is_shown)
        {
            let newest = disk.seen.snapshots.last().map(|it| it.guid);
            let kept = disk.kept.iter().find(|(guid, _)| Some(*guid) == newest);
            self.truth = kept.map_or(disk.data, |(_, data)| *data);
        }
    }

    fn observe(&mut self, end: End, revision: u64, fault: Fault) -> Report {
        let bug = self.bug;
        let host = self.host(end);
        if host.down || fault == Fault::Deaf(end) {
            return Report::Silent;
        }
        host.heard = host.heard.max(revision);
        let mut copy = host.copy.as_ref().map(|disk| disk.seen.clone());
        if let Some(copy) = &mut copy {
            match bug {
                Some(Bug::NoFence) if end == End::Source => {
                    (copy.running, copy.hidden, copy.autoboot) = (false, true, false);
                }
                Some(Bug::QuotaNotRestored) => copy.quota_lifted = false,
                _ => {}
            }
        }
        Report::Node(Node {
            held: host.held,
            copy,
            vm_agent: host.vm_agent.unwrap_or(VmAgent::Ours),
            in_the_way: host.in_the_way.clone(),
        })
    }

    /// One round of the service.
    pub fn round(&mut self, fault: Fault) {
        if !self.is_busy() {
            return;
        }
        let mut record = self.record.take().unwrap();
        record.intent.revision += 1;
        let revision = record.intent.revision;
        let target = match record.target_server_uuid {
            Some(_) => self.observe(End::Target, revision, fault),
            None => Report::Node(Node::default()),
        };
        let believes =
            if self.bug == Some(Bug::BootedBeforeMoved) { End::Target } else { self.vmapi };
        let facts = Facts {
            source: self.observe(End::Source, revision, fault),
            target,
            vmapi: Some(believes),
            reserved: self.reserved,
            settings: self.settings,
            dated: self.dated,
        };
        let next = next(&record, &facts);
        if !matches!(next, Next::Wait(_)) {
            self.waits = 0;
        }
        let mut after = After::Stays;
        if let Next::Do(step) = &next {
            self.orders.push(spelled(step));
        }
        match next {
            _ if fault == Fault::Dies => {}
            Next::Note(it) => note(&mut record, it),
            Next::Do(Step::Delete(_)) if self.refuses_deletion => {
                give_up(&mut record, &"the copy cannot be deleted");
            }
            Next::Do(Step::Create) => {
                record.intent.made = true;
                self.order(revision, Step::Create, false);
            }
            Next::Do(Step::Rehearse) => {
                self.planned = rest(&record, &facts).unwrap().iter().map(spelled).collect();
                record.intent.rehearsed = Some(Rehearsal::default());
            }
            Next::Do(Step::Place) => record.target_server_uuid = Some(Uuid::max()),
            Next::Do(step) => match fault {
                Fault::OrderLost => {}
                // NAPI takes a reservation with the etag that was observed. VMAPI knows no such thing: the
                // service waits for the request's deadline, and vm-agent repairs what comes after it.
                Fault::OrderLate
                    if !matches!(step, Step::Reserve | Step::Unreserve | Step::MoveRecord(_)) =>
                {
                    self.late.push((revision, step))
                }
                _ => self.order(revision, step, fault == Fault::Cut),
            },
            Next::Wait(why) => {
                self.waits += 1;
                if self.waits > 10 && (record.intent.undo.is_some() || self.finalizing) {
                    self.finalizing = false;
                    stall_unless_successful(&mut record, &why.into());
                } else if self.waits > 10 {
                    give_up(&mut record, &why);
                    self.waits = 0;
                }
            }
            Next::GiveUp(reason) if record.intent.undo.is_some() => {
                stall_unless_successful(&mut record, &reason)
            }
            Next::GiveUp(reason) => give_up(&mut record, &reason),
            Next::End(ending) => {
                self.finalizing = false;
                after = settle(&mut record, ending, NOW);
            }
        }
        match after {
            After::Stays => self.record = Some(record),
            After::Over => self.past = Some(record),
            After::Goes => {}
        }
    }
}

/// `hide source` and the like.
fn spelled(step: &Step) -> String {
    match step {
        Step::Hold(end) => format!("hold {end}"),
        Step::Release(end) => format!("release {end}"),
        Step::NoAutoboot(end) => format!("no autoboot {end}"),
        Step::Autoboot(may) => format!("autoboot {}", may.end()),
        Step::Stop(end) => format!("stop {end}"),
        Step::Boot(may) => format!("boot {}", may.end()),
        Step::Send { from, number } => format!("send {number} from {from}"),
        Step::RestoreQuota(end) => format!("quota {end}"),
        Step::Forget { end, keep } => format!("forget {end} but {}", keep.unwrap_or(0)),
        Step::Settle(end) => format!("settle {end}"),
        Step::Hide(end) => format!("hide {end}"),
        Step::Show(may) => format!("show {}", may.end()),
        Step::MoveRecord(may) => format!("move record to {}", may.end()),
        Step::Delete(may) => format!("delete {}", may.end()),
        Step::Protect(end, of) => {
            let which = [(of.zoneroot, " root"), (of.delegated, " data")];
            let which = which.into_iter().filter(|(is_one, _)| *is_one).map(|(_, name)| name);
            format!("protect {end}{}", which.collect::<String>())
        }
        Step::Place
        | Step::Rehearse
        | Step::Create
        | Step::Date
        | Step::BringOver
        | Step::Reserve
        | Step::Unreserve => format!("{step:?}").to_lowercase(),
    }
}

fn stall_unless_successful(record: &mut Record, reason: &Reason) {
    if record.state == State::Successful {
        record.intent.undo = None;
    } else {
        stall(record, reason, NOW);
    }
}
