// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The delete: behind the whole predicate, asked of a fresh copy, and asked again after the turn
//! was taken, with the node looked at in between. The only `DELETE` this program can send.

use sdc_clients::MacAddr;
use sdc_clients::http::{Precondition, Versioned};
use sdc_clients::napi::Nic;

use super::{Apply, Fresh, Outcome, ROUNDS, audit};
use crate::inventory::LocalVm;
use crate::plan::evidence::Guard;
use crate::plan::reap::{self, Basis, Facts, Judgement, Reading, Ruling};
use crate::plan::verdict::Verdict;
use crate::status::{Count, DEPARTURES, EMPTIED};

impl Apply {
    /// Deletes one leaked record behind the whole predicate. `verdict` is VMAPI's answer if it
    /// was just asked.
    pub async fn reap(
        &self,
        mac: MacAddr,
        vm: &str,
        basis: Basis,
        mut verdict: Option<Verdict>,
    ) -> Outcome {
        for round in 0..ROUNDS {
            if round > 0 {
                self.pause(round).await;
                verdict = None;
            }
            if let Some(hold) = self.shared.held(vm) {
                return self.deferred(mac, vm, &format!("held: {}", hold.reason));
            }
            let fresh = match self.read(mac).await {
                Ok(Fresh::Record(fresh)) => fresh,
                Ok(Fresh::Missing) => {
                    self.shared.status.count(Count::AlreadyGone);
                    return Outcome::Done;
                }
                Err(failed) => return failed,
            };
            if fresh.value.belongs_to_uuid != vm {
                let owner = &fresh.value.belongs_to_uuid;
                return self.left(mac, vm, &format!("it belongs to {owner} now"));
            }
            let mut judgement = self.judge(&fresh, basis, verdict.as_ref());
            if judgement.ruling == Ruling::AskVmapi {
                verdict = Some(self.ask(vm).await);
                judgement = self.judge(&fresh, basis, verdict.as_ref());
            }
            if let Some(outcome) = self.refused(mac, vm, &judgement, verdict.as_ref()) {
                return outcome;
            }
            if let Some(why) = self.braked(&fresh, basis, verdict.as_ref()) {
                self.deferred(mac, vm, &format!("{}: {why}", Guard::G10));
                return Outcome::Braked(why);
            }
            let turn = self.clients.pace.turn().await;
            if let Some(outcome) = self.absent(mac, vm, basis).await {
                return outcome;
            }
            if let Some(why) = self.shared.mute() {
                return self.muted(mac, vm, &why, "delete");
            }
            if let Some(why) = self.shared.memory_fault() {
                return self.deferred(mac, vm, &why);
            }
            let last = self.judge(&fresh, basis, verdict.as_ref());
            if let Some(outcome) = self.refused(mac, vm, &last, verdict.as_ref()) {
                return outcome;
            }
            if let Some(why) = self.braked(&fresh, basis, verdict.as_ref()) {
                self.deferred(mac, vm, &format!("{}: {why}", Guard::G10));
                return Outcome::Braked(why);
            }
            let departed = !matches!(basis, Basis::Pass { .. });
            if departed && !self.shared.is_departed(mac, vm) {
                return self.left(mac, vm, "it came back");
            }
            let Some(etag) = fresh.etag.clone().filter(|etag| !etag.is_empty()) else {
                return self.left(mac, vm, "G9: no etag");
            };
            let answer =
                self.clients.napi_writes.delete_nic(mac, Precondition::IfMatch(etag.clone())).await;
            drop(turn);
            let rule = match basis {
                Basis::Pass { .. } => "reap",
                Basis::Witnessed | Basis::Remembered => "vm-deleted",
                Basis::LeftVm => "nic-removed",
            };
            match &answer {
                Ok(()) => {
                    self.shared.deleted();
                    self.shared.status.count(Count::Reaped);
                    audit(mac, vm, rule, Some(&etag), "deleted", "DELETE", &reasons(&last));
                    return Outcome::Done;
                }
                Err(err) if err.is_not_found_resource() => {
                    self.shared.status.count(Count::AlreadyGone);
                    audit(mac, vm, rule, Some(&etag), "already gone", "DELETE", "");
                    return Outcome::Done;
                }
                Err(err) => {
                    audit(mac, vm, rule, Some(&etag), "failed", "DELETE", &err.to_string());
                    if let Some(outcome) = self.conflict(err) {
                        return outcome;
                    }
                }
            }
        }
        Outcome::Failed(format!("{mac} changed under {ROUNDS} attempts in a row"))
    }

    /// The predicate, asked of this copy and the node as it is known now.
    pub(crate) fn judge(
        &self,
        fresh: &Versioned<Nic>,
        basis: Basis,
        verdict: Option<&Verdict>,
    ) -> Judgement {
        let hold = self.shared.held(&fresh.value.belongs_to_uuid);
        self.shared.look(|inventory| {
            reap::judge(
                &fresh.value,
                &Facts {
                    local: &inventory.view,
                    now: fresh.date,
                    verdict,
                    hold: hold.as_ref(),
                    basis,
                    reading: Reading::Fresh(fresh.etag.as_deref()),
                    policy: &self.shared.policy,
                },
            )
        })
    }

    /// G10 at the very moment. A pass has asked it for all its records; here what happened since
    /// counts: an approved record that changed, a node that shrank. Departures are asked together.
    fn braked(
        &self,
        fresh: &Versioned<Nic>,
        basis: Basis,
        verdict: Option<&Verdict>,
    ) -> Option<String> {
        let left = basis == Basis::LeftVm && matches!(verdict, Some(Verdict::Alive { .. }));
        let confirmed = left || matches!(verdict, Some(Verdict::Gone(_)));
        if confirmed || self.shared.is_approved(fresh.value.mac, fresh.etag.as_deref()) {
            return None;
        }
        if let Some(why) = self.shared.status.brake_of(EMPTIED) {
            return Some(why);
        }
        let scale = self.shared.scale_of_departures();
        match basis {
            Basis::Pass { on_approval: true, .. } => {
                Some("the record is not what was approved, or the approval ran out".to_owned())
            }
            Basis::Pass { .. } => scale.shrunk(),
            Basis::Witnessed | Basis::LeftVm | Basis::Remembered => {
                let why = scale.tripped();
                if why.is_some() {
                    self.shared.status.brake(DEPARTURES, why.clone());
                }
                why
            }
        }
    }

    fn refused(
        &self,
        mac: MacAddr,
        vm: &str,
        judgement: &Judgement,
        verdict: Option<&Verdict>,
    ) -> Option<Outcome> {
        let obstacle = judgement.obstacle()?;
        let why = format!("{}: {}", obstacle.guard, obstacle.said);
        let undecided = obstacle.guard == Guard::G8
            && matches!(verdict, Some(Verdict::Alive { .. } | Verdict::Gone(_)));
        Some(match judgement.ruling {
            Ruling::Delete => return None,
            Ruling::Keep => self.left(mac, vm, &why),
            Ruling::Defer | Ruling::AskVmapi => match self.deferred(mac, vm, &why) {
                Outcome::Deferred(why) if undecided => Outcome::Undecided(why),
                outcome => outcome,
            },
        })
    }

    /// The point check right before a delete: none when vminfod has just looked and the VM (or
    /// the NIC) is not there.
    async fn absent(&self, mac: MacAddr, vm: &str, basis: Basis) -> Option<Outcome> {
        match self.clients.vminfod.vm(vm, true).await {
            // It was to leave a VM that stays, and the verdict was read so: now the VM went too,
            // and no event has told it yet.
            Err(err) if err.is_not_found_resource() && basis == Basis::LeftVm => self
                .shared
                .look(|inventory| inventory.view.has_vm(vm))
                .then(|| self.deferred(mac, vm, "the VM it left is gone now: judged anew")),
            Err(err) if err.is_not_found_resource() => None,
            Err(err) => {
                let text = format!("vminfod: {}", daemon::log::chain(&err));
                Some(self.deferred(mac, vm, &text))
            }
            Ok(object) => {
                let here = LocalVm::read(&object);
                self.shared.shown(here.iter().map(|(here, _)| here));
                match here {
                    Some((here, true))
                        if basis == Basis::LeftVm && !here.hidden && !here.has(mac) =>
                    {
                        None
                    }
                    _ => Some(self.left(mac, vm, "the VM is on this node after all")),
                }
            }
        }
    }
}

fn reasons(judgement: &Judgement) -> String {
    let all: Vec<_> =
        judgement.evidence.iter().map(|e| format!("{}: {}", e.guard, e.said)).collect();
    all.join("; ")
}
