// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Records of what is here: `cn_uuid`, state, owner, primary, and the node's own NICs.

use daemon::agent;
use sdc_clients::MacAddr;

use super::record::{Attempts, Found, ask_vmapi, deferred, left, read};
use super::update::{Target, put};
use crate::outcome::Outcome;
use crate::parts::{self, Parts};
use crate::plan::{Reason, Refusal, Upkeep, Verdict, own_nic, upkeep};
use crate::status::Count;

/// Makes the record of a local VM's MAC say what the node says. With `mirror`, owner and primary
/// too.
#[tracing::instrument(name = "upkeep", skip_all, fields(nic = %mac, vm))]
pub(crate) async fn keep_up(parts: &Parts, mac: MacAddr, vm: &str, mirror: bool) -> Outcome {
    let outcome = attempts(parts, mac, vm, mirror).await;
    if let Some(pause) = parts.refused.again(mac, &outcome) {
        parts.schedule.wake(vm, parts.clock.now() + pause, parts::Upkeep(true));
    }
    outcome
}

async fn attempts(parts: &Parts, mac: MacAddr, vm: &str, mirror: bool) -> Outcome {
    let policy = &parts.config.policy;
    let mut verdict = None;
    let mut attempts = Attempts::new(parts);
    while attempts.next(parts).await {
        if let Err(held) = parts.gate.not_held(vm).await {
            return deferred(parts, held.into());
        }
        let fresh = match read(parts, mac).await {
            Ok(Found::Record(fresh)) => fresh,
            Ok(Found::Missing) => {
                parts.status.count(Count::Missing);
                left(parts, Reason::NoRecord);
                return Outcome::Missing;
            }
            Err(why) => return Outcome::Failed(why),
        };
        if fresh.value.cn_uuid.as_deref().is_some_and(|cn| parts.claims.has(cn)) {
            verdict = Some(Verdict::Claimed);
        }
        let judge = |verdict: Option<&Verdict>| {
            let view = |view: &_| upkeep::upkeep(&fresh.value, view, verdict, mirror, policy);
            parts.node.with(|inventory| view(&inventory.view))
        };
        let mut upkeep = judge(verdict.as_ref());
        if upkeep == Upkeep::AskVmapi {
            let answer = ask_vmapi(parts, vm).await;
            if let Verdict::NoAnswer(_) = answer {
                return Outcome::Failed(Reason::Vmapi(answer));
            }
            upkeep = judge(Some(&answer));
            verdict = Some(answer);
        }
        let wish = match upkeep {
            Upkeep::Agrees => return Outcome::Done,
            Upkeep::AskVmapi => return left(parts, Reason::ForeignCnAsk),
            Upkeep::Leave(why) => {
                if fresh.value.belongs_to_uuid != vm {
                    parts.status.count(Count::ForeignOwner);
                }
                return left(parts, why);
            }
            Upkeep::Write(wish) => wish,
        };
        if wish.foreign
            && let Some(why) = upkeep::made_elsewhere(&fresh.value, fresh.date, policy)
        {
            return deferred(parts, why);
        }
        if wish.foreign
            && verdict != Some(Verdict::Claimed)
            && parts.config.replaced.may_be(vm).await
        {
            return deferred(parts, Reason::MayBeReplaced);
        }
        let still = || judge(verdict.as_ref()) == Upkeep::Write(wish.clone());
        let state = parts.node.with(|i| i.view.vms.get(vm).map(|vm| vm.state.to_string()));
        let said = verdict.as_ref().map(|verdict| format!("; {verdict}"));
        let state = state.unwrap_or_else(|| "here".to_owned());
        let why =
            format!("vminfod says that VM {vm} is {state} and has it{}", said.unwrap_or_default());
        let target = Target { mac, vm, rule: "upkeep", why: &why };
        if let Some(outcome) = put(parts, target, &fresh, &wish, still).await {
            return outcome;
        }
    }
    Outcome::Failed(Reason::Changed(mac))
}

/// Makes the record of one of the node's own MACs right: claimed, and `running`.
#[tracing::instrument(name = "own-nic", skip_all, fields(nic = %mac))]
pub(crate) async fn keep_up_own(parts: &Parts, mac: MacAddr) -> Outcome {
    let policy = &parts.config.policy;
    let Some(identity) = parts.gate.identity() else {
        return Outcome::Failed(Refusal::from(agent::Refusal::IdentityUnknown).into());
    };
    let mut attempts = Attempts::new(parts);
    while attempts.next(parts).await {
        let fresh = match read(parts, mac).await {
            Ok(Found::Record(fresh)) => fresh,
            Ok(Found::Missing) => return left(parts, Reason::NoRecord),
            Err(why) => return Outcome::Failed(why),
        };
        let wish = match own_nic::upkeep(&fresh.value, &identity, policy) {
            Upkeep::Write(wish) => wish,
            Upkeep::Leave(why) => return left(parts, why),
            Upkeep::Agrees | Upkeep::AskVmapi => return Outcome::Done,
        };
        let why = "sysinfo, or NAPI's records of this node, name it as the node's own";
        let target = Target { mac, vm: &policy.cn_uuid, rule: "own-nic", why };
        if let Some(outcome) = put(parts, target, &fresh, &wish, || true).await {
            return outcome;
        }
    }
    Outcome::Failed(Reason::Changed(mac))
}
