// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! One turn of one VM: it is read afresh from the node, its record is read from VMAPI, and at most one
//! write follows. A hidden VM is in no request to VMAPI.

use std::time::Duration;

use daemon::agent::{Permit, Refusal};
use sdc_clients::Error;
use sdc_clients::vmapi::VmQuery;
use sdc_clients::vminfod::{VmFields as _, VmObject};
use serde_json::{Map, Value};

use super::absence::prove;
use crate::node::Gone;
use crate::parts::Parts;
use crate::plan::{Blocked, Decision, Reading, Reason, Record, named};
use crate::status::Count;
use crate::writer::{One, Says};

/// What is to follow a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// Nothing, until something changes.
    Settled,
    /// Another turn, after the VM's next wait.
    Later,
    /// Another turn, after this time.
    In(Duration),
}

/// What the node says about a VM.
enum Said {
    Here(VmObject),
    Gone(Gone),
    /// It is not asked about further.
    Enough(Decision),
}

/// Does one turn. Nothing is sent unless something may be said now.
#[tracing::instrument(skip(parts))]
pub(crate) async fn turn(parts: &Parts, vm: &str) -> After {
    let _admitted = parts.admission().await;
    let began = parts.clock.now();
    parts.status.count(Count::Turns);
    let decision = judge_now(parts, vm).await;
    let (why, name) = (decision.reason(), decision.name());
    let written = match &decision {
        Decision::Nothing(why) => {
            if *why == Reason::Same {
                parts.status.count(Count::Same);
            }
            parts.status.decided(vm, name, why.clone(), false);
            return settled(parts, vm, why, began);
        }
        Decision::Wait(why) => {
            // One that is missed counts as gone from now on: one that was settled may be alive for VMAPI again,
            // after a write that came late.
            match why {
                Reason::Missed(_) => {
                    parts.node.miss(vm);
                }
                Reason::Provisioning(_) => parts.node.awaited(vm),
                _ => {}
            }
            Err(why.clone())
        }
        Decision::Put(_, object) => write(parts, vm, object, Says::Present).await,
        Decision::Destroyed(object) => write(parts, vm, object, Says::Destroyed).await,
    };
    match written {
        Ok(()) => {
            let after = settled(parts, vm, &why, began);
            parts.status.decided(vm, name, why, false);
            after
        }
        Err(why) => {
            parts.status.count(Count::Deferred);
            if why.is_brake() {
                // Those that were given away are not missing; nobody has asked about the settled ones.
                let at = parts.clock.now();
                for vm in parts.node.to_ask() {
                    parts.schedule.wake(&vm, at, ());
                }
                if let Err(error) = list(parts).await {
                    parts.failed(&error);
                }
            }
            let after = wait(parts, &why);
            if after == After::Settled {
                parts.node.settle(vm, began);
            }
            let is_reported = why == Reason::Refused(Refusal::ReportMode);
            let action = if is_reported { name } else { "wait" };
            parts.status.decided(vm, action, why, after != After::Settled);
            after
        }
    }
}

/// Of VMs that left hidden nobody is asked by name: VMAPI's list of this node says which of them it has elsewhere.
async fn list(parts: &Parts) -> Result<(), Error> {
    if parts.node.is_list_due() {
        // Those that it shows destroyed here, too: that may be this node's own word.
        let (state, fields) = (None, vec!["uuid".to_owned()]);
        let all = VmQuery { state, fields, ..parts.of_node() };
        let records = parts.clients.vmapi.records(&all).await?;
        parts.node.list(&records.iter().filter_map(named).collect());
    }
    Ok(())
}

/// Returns when a VM that waits has its next turn.
fn wait(parts: &Parts, why: &Reason) -> After {
    match why {
        Reason::Refused(Refusal::ReportMode) => After::Settled,
        Reason::Provisioning(left)
        | Reason::Missed(left)
        | Reason::Unrecorded(left)
        | Reason::Twice(left)
        | Reason::Passing(left)
        | Reason::Blocked(Blocked::SecondLook { left, .. }) => After::In(*left),
        Reason::Left(_) | Reason::Blocked(Blocked::Brake(_) | Blocked::Strangers { .. }) => {
            After::In(parts.config.times.second_look)
        }
        Reason::HiddenUnknown => After::In(parts.config.times.hidden_memory),
        _ => After::Later,
    }
}

/// VMAPI has nothing to learn of this VM for now, by a turn that began then. Returns what is to follow.
fn settled(parts: &Parts, vm: &str, why: &Reason, began: Duration) -> After {
    parts.node.settle(vm, began);
    if matches!(why, Reason::Elsewhere(_)) {
        parts.node.moved(vm, began);
    }
    parts.node.recorded(vm);
    // What the operator approved counts no more.
    if parts.is_approved(vm) {
        parts.node.change(|known| known.gone.remove(vm));
    }
    if *why == Reason::Hidden {
        return After::Settled;
    }
    let looks = [parts.node.told(vm), parts.node.late(vm)];
    let look = looks.into_iter().flatten().min();
    look.map_or(After::Settled, |at| After::In(at.saturating_sub(parts.clock.now())))
}

/// Reads both sides and judges.
pub(crate) async fn judge_now(parts: &Parts, vm: &str) -> Decision {
    let said = match ask_node(parts, vm).await {
        Said::Enough(decision) => return decision,
        said => said,
    };
    let record = match parts.clients.vmapi.record(vm).await {
        Ok(record) => Some(Record(record)),
        Err(error) if error.is_not_found_resource() => None,
        Err(error) => return Decision::Wait(parts.failed(&error)),
    };
    parts.note_record(vm, record.as_ref());
    match said {
        Said::Here(object) => {
            let decision = judge_here(parts, vm, record.as_ref(), &object).await;
            match matches!(decision, Decision::Put(..))
                && is_replaced(parts, vm, record.as_ref()).await
            {
                true => Decision::Wait(Reason::Replaced),
                false => decision,
            }
        }
        Said::Enough(decision) => decision,
        // One 404 settles nothing.
        Said::Gone(_) if record.is_none() => match parts.node.unrecorded(vm) {
            Duration::ZERO => Decision::Nothing(Reason::NoRecord),
            left => Decision::Wait(Reason::Unrecorded(left)),
        },
        Said::Gone(gone) => {
            let last = gone.last.as_ref().map(|vm| vm.object());
            let decision = parts.judge().absent(record.as_ref(), last);
            if !matches!(decision, Decision::Destroyed(_)) {
                return decision;
            }
            match prove(parts, vm, &gone).await {
                Ok(()) => decision,
                Err(why) => Decision::Wait(why),
            }
        }
    }
}

/// Returns why VMAPI is asked about this VM, which it was told of before, again before it is told.
fn doubtful(
    parts: &Parts,
    record: Option<&Record>,
    object: &VmObject,
) -> Option<fn(Duration) -> Reason> {
    match (record, object.zone_state() == Some("running")) {
        // A VM that VMAPI has elsewhere would be left alone, and one 404 is no proof that it has not.
        (None, false) => Some(Reason::Unrecorded),
        // A copy that was replaced while this node was cut off runs until migration-service hides it.
        (Some(record), true) if record.lives_elsewhere(&parts.cn_uuid).is_some() => {
            Some(Reason::Twice)
        }
        _ => None,
    }
}

/// Returns true if VMAPI has the VM on another node, and its copy here may have been replaced.
async fn is_replaced(parts: &Parts, vm: &str, record: Option<&Record>) -> bool {
    let other = record.and_then(|record| record.lives_elsewhere(&parts.cn_uuid));
    match other {
        Some(server) if !parts.claims.has(&server) => parts.config.replaced.may_be(vm).await,
        _ => false,
    }
}

/// Judges a VM that is here. What a record says of its time decides nothing: where it says that it is
/// newer, the node is read once more.
async fn judge_here(
    parts: &Parts,
    vm: &str,
    record: Option<&Record>,
    object: &VmObject,
) -> Decision {
    // VMAPI has it on the node that this machine was.
    let is_claimed =
        record.and_then(Record::server).is_some_and(|server| parts.claims.has(&server));
    let is_new = is_claimed || parts.node.with(|known| !known.told.contains(vm));
    if !is_new && let Some(why) = doubtful(parts, record, object) {
        let left = parts.node.unrecorded(vm);
        if !left.is_zero() {
            return Decision::Wait(why(left));
        }
    }
    let judged = |object: &VmObject, is_after| {
        let lasts_in = parts.node.lasts_in(vm, object);
        parts.judge().present(record, object, Reading { is_new, is_after, lasts_in })
    };
    let decision = judged(object, false);
    if !matches!(decision, Decision::Wait(Reason::Older { .. })) {
        return decision;
    }
    match ask_node(parts, vm).await {
        Said::Here(object) => judged(&object, true),
        Said::Enough(decision) => decision,
        Said::Gone(_) => Decision::Wait(Reason::Overtaken),
    }
}

/// Asks vminfod for a reading of the VM that begins now.
async fn ask_node(parts: &Parts, vm: &str) -> Said {
    let wait = |why| Said::Enough(Decision::Wait(why));
    match parts.clients.vminfod.vm(vm, true).await {
        Ok(object) if object.is_hidden() => {
            parts.node.hide(vm);
            Said::Enough(Decision::Nothing(Reason::Hidden))
        }
        Ok(object) => Said::Here(object),
        Err(error) if error.is_not_found_resource() => {
            let now = parts.clock.now();
            parts.node.with(|known| match known.was_hidden(vm, now) {
                Some(true) => Said::Enough(Decision::Nothing(Reason::LatelyHidden)),
                None => wait(Reason::HiddenUnknown),
                // The stream has not said so yet: its word is awaited.
                Some(false) if known.here.contains_key(vm) => wait(Reason::Overtaken),
                Some(false) => {
                    let missed = || known.missed(vm, now);
                    Said::Gone(known.gone.get(vm).cloned().unwrap_or_else(missed))
                }
            })
        }
        Err(error) => wait(parts.failed(&error)),
    }
}

/// Writes the record, unless what is known of the node has changed meanwhile.
async fn write(
    parts: &Parts,
    vm: &str,
    object: &Map<String, Value>,
    says: Says,
) -> Result<(), Reason> {
    let decide = |permit: Permit<'_, One>| {
        let is_so = parts.node.with(|known| match says {
            Says::Destroyed => {
                !known.here.contains_key(vm)
                    && known.was_hidden(vm, parts.clock.now()) == Some(false)
            }
            // One that went meanwhile may have been hidden before it went.
            Says::Present => known.shows(vm),
        });
        if !is_so {
            return Err(Reason::Overtaken);
        }
        if says == Says::Destroyed && !parts.is_approved(vm) {
            parts.node.count_stranger(vm);
        }
        Ok(parts.clients.writer.put(permit, object))
    };
    let action = says.name();
    let sent = match parts.gate.write(One(vm.to_owned()), decide).await {
        Ok(sent) => sent?,
        Err(Refusal::ReportMode) => {
            parts.status.count(Count::Reported);
            tracing::info!(action, "report mode: would write the record");
            return Err(Refusal::ReportMode.into());
        }
        Err(refusal) => return Err(refusal.into()),
    };
    if let Err(error) = sent {
        parts.unanswered(&error, [vm]);
        return Err(parts.failed(&error));
    }
    let written = match says {
        Says::Destroyed => {
            parts.status.count(Count::Destroyed);
            parts.settled(vm);
            None
        }
        Says::Present => {
            parts.status.count(Count::Puts);
            Some(Record(object.clone()))
        }
    };
    parts.note_record(vm, written.as_ref());
    parts.status.wrote(vm, action);
    tracing::info!(action, "wrote the record");
    Ok(())
}
