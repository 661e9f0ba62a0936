// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The delete: every guard is asked about a fresh copy, and again with the permit in hand, after
//! the turn was taken and the node was asked for the VM. The only `DELETE` of this program.

use daemon::agent::{Foreign, Permit};
use sdc_clients::http::Versioned;
use sdc_clients::napi::Nic;
use sdc_clients::vminfod::Left;
use sdc_clients::{Error, MacAddr};

use super::record::{Attempts, Audit, Found, ask_vmapi, conflict, deferred, left, read, refused};
use crate::brake::{BrakeOf, Clearance, Tripped};
use crate::outcome::Outcome;
use crate::parts::Parts;
use crate::permit::Delete;
use crate::plan::reap::{self, Basis, Facts, Judgement, Ruling, Source};
use crate::plan::{Guard, Reason, Verdict};
use crate::status::Count;
use crate::view::LocalVm;

/// Deletes one leaked record, if every guard agrees. `verdict` is VMAPI's answer if it was just
/// asked.
#[tracing::instrument(skip_all, fields(nic = %mac, vm, reason = basis.rule()))]
pub(crate) async fn delete(
    parts: &Parts,
    mac: MacAddr,
    vm: &str,
    basis: Basis,
    mut verdict: Option<Verdict>,
) -> Outcome {
    let mut attempts = Attempts::new(parts);
    while attempts.next(parts).await {
        if let Some(outcome) = attempt(parts, mac, vm, basis, verdict.take()).await {
            return outcome;
        }
    }
    Outcome::Failed(Reason::Changed(mac))
}

/// Reads, judges and deletes the record. Returns none if it is to be read again.
async fn attempt(
    parts: &Parts,
    mac: MacAddr,
    vm: &str,
    basis: Basis,
    mut verdict: Option<Verdict>,
) -> Option<Outcome> {
    if let Err(held) = parts.gate.not_held(vm).await {
        return Some(deferred(parts, held.into()));
    }
    let fresh = match read(parts, mac).await {
        Ok(Found::Record(fresh)) => fresh,
        Ok(Found::Missing) => {
            parts.brake.settled(mac);
            parts.status.count(Count::AlreadyGone);
            return Some(Outcome::Done);
        }
        Err(why) => return Some(Outcome::Failed(why)),
    };
    if fresh.value.belongs_to_uuid != vm {
        return Some(left(parts, Reason::belongs_to(&fresh.value)));
    }
    let mut checked = check(parts, &fresh, basis, verdict.as_ref());
    if matches!(checked, Err(Obstacle::AskVmapi)) {
        verdict = Some(ask_vmapi(parts, vm).await);
        checked = check(parts, &fresh, basis, verdict.as_ref());
    }
    if let Err(obstacle) = checked {
        return Some(obstacle.outcome(parts));
    }
    if matches!(basis, Basis::Pass { .. })
        && !parts.brake.knew(vm)
        && let Err(why) = parts.gate.is_of_this_machine(vm, parts.clients.census.as_ref()).await
    {
        return Some(match why {
            Foreign::Refused(refusal) => refused(parts, refusal.into(), &"delete"),
            Foreign::Unknown(error) => Outcome::Failed(parts.failed(&error)),
        });
    }
    let turn = parts.clients.pace.turn().await;
    if let Some(outcome) = present(parts, vm, mac, basis).await {
        return Some(outcome);
    }
    let decide = |permit: Permit<'_, Delete>| {
        let last = check(parts, &fresh, basis, verdict.as_ref())?;
        let departed = !matches!(basis, Basis::Pass { .. });
        if departed && parts.departures.how(mac, vm).is_none() {
            return Err(Obstacle::Keep(Reason::CameBack));
        }
        if last.clearance == Clearance::Exempted && !parts.brake.take_exemption() {
            return Err(Obstacle::Defer(Reason::Paced));
        }
        let request = parts.clients.writer.delete(permit, last.etag.clone());
        Ok(async move { (request.await, last) })
    };
    let (answer, last) = match parts.gate.write(Delete(mac), vm, decide).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(obstacle)) => return Some(obstacle.outcome(parts)),
        Err(refusal) => return Some(refused(parts, refusal, &"delete")),
    };
    drop(turn);
    let (rule, nic) = (basis.rule(), &fresh.value);
    let audit = Audit { vm, rule, etag: Some(&last.etag), nic, wish: None };
    answered(parts, &audit, &answer, &last).await
}

/// Counts and logs the answer to the request. Returns none if the record is to be read again.
async fn answered(
    parts: &Parts,
    audit: &Audit<'_>,
    answer: &Result<(), Error>,
    last: &Checked,
) -> Option<Outcome> {
    match answer {
        Ok(()) => {
            parts.brake.deleted(last.clearance);
            parts.status.count(Count::Reaped);
            audit.write(parts, "deleted", &sentences(&last.judgement)).await;
            // The history has it before the operator is told that nothing is left.
            parts.brake.settled(audit.nic.mac);
            Some(Outcome::Done)
        }
        Err(err) if err.is_not_found_resource() => {
            parts.brake.settled(audit.nic.mac);
            parts.status.count(Count::AlreadyGone);
            audit.write(parts, "already gone", &sentences(&last.judgement)).await;
            Some(Outcome::Done)
        }
        Err(err) => {
            audit.write(parts, "failed", &err.to_string()).await;
            conflict(parts, err, &[])
        }
    }
}

/// Why there is no delete now.
enum Obstacle {
    AskVmapi,
    Keep(Reason),
    Defer(Reason),
    Undecided(Reason),
    Braked(Tripped),
}

impl Obstacle {
    fn outcome(self, parts: &Parts) -> Outcome {
        match self {
            Self::Keep(why) => left(parts, why),
            Self::AskVmapi => deferred(parts, Reason::VmapiNotAsked),
            Self::Defer(why) => deferred(parts, why),
            Self::Undecided(why) => {
                deferred(parts, why.clone());
                Outcome::Undecided(why)
            }
            Self::Braked(why) => {
                deferred(parts, Reason::Brake(why.clone()));
                Outcome::Braked(why)
            }
        }
    }
}

/// What is known when every guard agrees.
struct Checked {
    judgement: Judgement,
    /// The etag to delete it by.
    etag: String,
    clearance: Clearance,
}

/// Asks all guards about this copy and the node as it is known now.
fn check(
    parts: &Parts,
    fresh: &Versioned<Nic>,
    basis: Basis,
    verdict: Option<&Verdict>,
) -> Result<Checked, Obstacle> {
    let judgement = judge(parts, fresh, basis, verdict, None);
    let undecided = judgement.obstacle().is_some_and(|e| e.guard == Guard::VmapiConfirms)
        && matches!(verdict, Some(Verdict::Alive { .. } | Verdict::Gone { .. }));
    match judgement.ruling {
        Ruling::Delete => {}
        Ruling::AskVmapi => return Err(Obstacle::AskVmapi),
        Ruling::Keep => return Err(Obstacle::Keep(judgement.reason())),
        Ruling::Defer if undecided => return Err(Obstacle::Undecided(judgement.reason())),
        Ruling::Defer => return Err(Obstacle::Defer(judgement.reason())),
    }
    let clearance = cleared(parts, fresh, basis, verdict).map_err(Obstacle::Braked)?;
    if clearance == Clearance::Exempted && !parts.brake.has_exemption() {
        return Err(Obstacle::Defer(Reason::Paced));
    }
    let etag = fresh.etag.clone().filter(|etag| !etag.is_empty());
    let etag = etag.ok_or(Obstacle::Defer(Reason::NoEtag))?;
    Ok(Checked { judgement, etag, clearance })
}

/// Asks the guards about this copy and the node as it is known now.
pub(crate) fn judge(
    parts: &Parts,
    fresh: &Versioned<Nic>,
    basis: Basis,
    verdict: Option<&Verdict>,
    hold: Option<&crate::holds::Hold>,
) -> Judgement {
    let own = parts.gate.identity().unwrap_or_default().macs;
    parts.node.with(|inventory| {
        let (local, own, policy) = (&inventory.view, &own, &parts.config.policy);
        let source = Source::Fresh(fresh.etag.as_deref());
        let facts = Facts { local, own, now: fresh.date, verdict, hold, basis, source, policy };
        reap::judge(&fresh.value, &facts)
    })
}

/// G10 at this moment. A pass has asked it about all its records; what happened since counts here:
/// an approved record that changed, a node that shrank. Departures are measured all together.
fn cleared(
    parts: &Parts,
    fresh: &Versioned<Nic>,
    basis: Basis,
    verdict: Option<&Verdict>,
) -> Result<Clearance, Tripped> {
    if parts.brake.is_approved(fresh.value.mac, fresh.etag.as_deref()) {
        return Ok(Clearance::Approved);
    }
    let left = basis == Basis::LeftVm && matches!(verdict, Some(Verdict::Alive { .. }));
    let confirmed = left || verdict.is_some_and(|v| v.confirms(&parts.config.policy.cn_uuid));
    if let Some(why) = parts.brake.is_on(BrakeOf::Napi).filter(|_| !confirmed) {
        return Err(why);
    }
    let departures = parts.departures.count().max(1);
    let scale = parts.node.with(|inventory| parts.scale(&inventory.view, departures));
    match basis {
        Basis::Pass { clearance: Clearance::Approved, .. } => Err(Tripped::NotApproved),
        Basis::Pass { clearance: Clearance::Exempted, .. } if !scale.exempts() => {
            Err(scale.no_second_witness(Tripped::Fell))
        }
        Basis::Pass { clearance, .. } => scale.too_little(confirmed).map_or(Ok(clearance), Err),
        Basis::Witnessed | Basis::LeftVm | Basis::Remembered => {
            let cleared = scale.clear(confirmed);
            if let Err(why) = &cleared {
                parts.brake.set(BrakeOf::Departures, Some(why.clone()));
            }
            cleared
        }
    }
}

/// The check right before a delete: asks vminfod for the VM now. Returns none if it (or the NIC) is
/// not there.
async fn present(parts: &Parts, vm: &str, mac: MacAddr, basis: Basis) -> Option<Outcome> {
    match parts.clients.vminfod.vm(vm, true).await {
        // The NIC left a VM that stays, and VMAPI was understood so. If the VM went too, without an
        // event so far, that has to be judged again.
        Err(err) if err.is_not_found_resource() && basis == Basis::LeftVm => {
            let stays = parts.node.with(|inventory| inventory.view.has_vm(vm));
            stays.then(|| deferred(parts, Reason::VmGoneToo))
        }
        Err(err) if err.is_not_found_resource() => dataset_left(parts, vm).await,
        Err(err) => Some(unanswered(parts, &err)),
        Ok(object) => {
            let here = LocalVm::read(&object);
            parts.node.shown(here.iter().map(|(here, _)| here));
            let lacks = |here: &LocalVm| !here.hidden && !here.has(mac);
            match here {
                Some((here, true)) if basis == Basis::LeftVm && lacks(&here) => None,
                _ => Some(left(parts, Reason::VmHere(vm.to_owned()))),
            }
        }
    }
}

/// Returns what follows if nobody has seen the VM's zone go and its dataset is there.
async fn dataset_left(parts: &Parts, vm: &str) -> Option<Outcome> {
    match parts.clients.vminfod.left(vm).await {
        Ok(found) if found.has_zone => Some(left(parts, Reason::VmHere(vm.to_owned()))),
        Ok(found) => found.holds().map(|_| deferred(parts, Reason::DatasetLeft(Left::shows(vm)))),
        Err(err) => Some(unanswered(parts, &err)),
    }
}

fn unanswered(parts: &Parts, err: &Error) -> Outcome {
    deferred(parts, Reason::Request(format!("vminfod: {}", daemon::log::chain(err))))
}

fn sentences(judgement: &Judgement) -> String {
    let all: Vec<_> = judgement.evidence.iter().map(|e| e.reason().to_string()).collect();
    all.join("; ")
}
