// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Makes the plan.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use daemon::agent::Identity;
use jiff::Timestamp;
use sdc_clients::MacAddr;
use sdc_clients::napi::{BelongsToType, Nic};

use super::decision::{Action, Decision, Plan};
use super::evidence::Evidence;
use super::guard::{Answer, Guard};
use super::own_nic;
use super::reap::{self, Basis, Facts, Ruling, Source};
use super::reason::{Reason, Refusal};
use super::upkeep::{self, Upkeep};
use super::verdict::Verdict;
use crate::brake::{Clearance, Scale, Tripped};
use crate::config::Policy;
use crate::holds::Holds;
use crate::listing::NicListing;
use crate::view::LocalView;

/// What is compared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inputs<'a> {
    /// The node, read after the list.
    pub local: &'a LocalView,
    pub identity: &'a Identity,
    pub listing: &'a NicListing,
    /// The operator's holds in force.
    pub holds: &'a Holds,
    /// VMAPI's answers so far, by VM.
    pub verdicts: &'a BTreeMap<String, Verdict>,
    /// When each candidate was first seen, on the agent's clock.
    pub first_looks: &'a BTreeMap<MacAddr, Duration>,
    /// The time by which holds expire.
    pub time: Timestamp,
    /// What the brake measures; of the candidates only those that this pass began with and did not
    /// delete.
    pub scale: Scale,
    /// MACs that the operator approved, whatever their etags are now.
    pub approved: &'a BTreeSet<MacAddr>,
    pub policy: &'a Policy,
}

/// Compares NAPI's records with the node.
pub(crate) fn compare(inputs: &Inputs<'_>) -> Plan {
    let mut decisions = unlisted(inputs);
    for nic in &inputs.listing.nics {
        decisions.push(if nic.belongs_to_type != BelongsToType::Zone {
            let upkeep = own_nic::upkeep(nic, inputs.identity, inputs.policy);
            kept_up(nic, upkeep, inputs)
        } else if inputs.local.holders(nic.mac).next().is_some() {
            let verdict = inputs.verdicts.get(&nic.belongs_to_uuid);
            let upkeep = upkeep::upkeep(nic, inputs.local, verdict, false, inputs.policy);
            kept_up(nic, upkeep, inputs)
        } else {
            reaped(nic, inputs)
        });
    }
    let brake = brake(&mut decisions, inputs);
    decisions.sort_by_key(|d| (matches!(d.action, Action::Delete | Action::Defer), d.mac));
    Plan { decisions, brake }
}

/// R8: MACs of shown VMs that the list lacks.
fn unlisted(inputs: &Inputs<'_>) -> Vec<Decision> {
    if !inputs.listing.whole {
        return Vec::new();
    }
    let listed: BTreeSet<MacAddr> = inputs.listing.nics.iter().map(|nic| nic.mac).collect();
    let here = inputs.local.macs().filter(|(mac, _)| !listed.contains(mac));
    let mut looks = BTreeMap::new();
    for (mac, vm) in here.filter(|(_, vm)| upkeep::unwritable(vm).is_none()) {
        let (action, reason) = match held(&vm.uuid, inputs) {
            Some(held) => (Action::Defer, held),
            None => (Action::Look, Reason::Unlisted),
        };
        let (vm, napi, evidence) = (vm.uuid.clone(), String::new(), Vec::new());
        let clearance = Clearance::Few;
        looks.insert(mac, Decision { mac, vm, action, reason, napi, evidence, clearance });
    }
    looks.into_values().collect()
}

fn held(vm: &str, inputs: &Inputs<'_>) -> Option<Reason> {
    let hold = inputs.holds.covering(vm, inputs.time)?;
    Some(Reason::Refused(Refusal::Held(hold.clone())))
}

fn kept_up(nic: &Nic, upkeep: Upkeep, inputs: &Inputs<'_>) -> Decision {
    let vm = nic.belongs_to_uuid.clone();
    let (action, reason) = match (upkeep, held(&vm, inputs)) {
        (Upkeep::Agrees, _) => (Action::Keep, Reason::Agrees),
        (Upkeep::Leave(why), _) => (Action::Keep, why),
        (_, Some(held)) => (Action::Defer, held),
        (Upkeep::AskVmapi, None) => (Action::AskVmapi, Reason::ForeignCnAsk),
        (Upkeep::Write(wish), None) => (Action::Write(wish.clone()), Reason::Wish(wish)),
    };
    let (evidence, clearance) = (Vec::new(), Clearance::Few);
    Decision { mac: nic.mac, vm, action, reason, napi: summary(nic), evidence, clearance }
}

fn reaped(nic: &Nic, inputs: &Inputs<'_>) -> Decision {
    let vm = nic.belongs_to_uuid.clone();
    let judgement = reap::judge(
        nic,
        &Facts {
            local: inputs.local,
            own: &inputs.identity.macs,
            now: inputs.listing.date,
            verdict: inputs.verdicts.get(&vm),
            hold: inputs.holds.covering(&vm, inputs.time),
            basis: Basis::pass(inputs.first_looks.get(&nic.mac).copied()),
            source: Source::Listed,
            policy: inputs.policy,
        },
    );
    let action = match judgement.ruling {
        Ruling::Delete => Action::Delete,
        Ruling::AskVmapi => Action::AskVmapi,
        Ruling::Defer => Action::Defer,
        Ruling::Keep => Action::Keep,
    };
    let (reason, evidence) = (judgement.reason(), judgement.evidence);
    let clearance = Clearance::Few;
    Decision { mac: nic.mac, vm, action, reason, napi: summary(nic), evidence, clearance }
}

/// Returns what NAPI says about a record.
fn summary(nic: &Nic) -> String {
    let (kind, owner, state) =
        (nic.belongs_to_type.as_str(), &nic.belongs_to_uuid, nic.state.as_str());
    let written = nic.created_timestamp.max(nic.modified_timestamp);
    let written = written.map_or_else(|| "never".to_owned(), |at| at.to_string());
    format!("{kind} {owner}, {state}, written {written}")
}

/// G10: clears each delete or defers it. Returns why the brake is on, if it is. A 404 of VMAPI is no
/// confirmation here: an empty VMAPI must not vouch for an empty node.
fn brake(decisions: &mut [Decision], inputs: &Inputs<'_>) -> Option<Tripped> {
    let cn = &inputs.policy.cn_uuid;
    let is_confirmed =
        |d: &Decision| inputs.verdicts.get(&d.vm).is_some_and(|verdict| verdict.confirms(cn));
    let candidates = || decisions.iter().filter(|d| d.is_candidate());
    let scale = Scale {
        candidates: candidates().count().max(inputs.scale.candidates),
        confirmed: candidates().filter(|d| is_confirmed(d)).count(),
        ..inputs.scale
    };
    let (mut first, mut blocked) = (None, 0);
    for decision in decisions.iter_mut().filter(|d| d.action == Action::Delete) {
        let why = match scale.clear(is_confirmed(decision)) {
            Ok(clearance) => {
                decision.clearance = clearance;
                continue;
            }
            Err(why) => why,
        };
        first.get_or_insert_with(|| Box::new(why.clone()));
        // The etag that was approved is compared at the delete.
        if inputs.approved.contains(&decision.mac) {
            decision.clearance = Clearance::Approved;
            continue;
        }
        blocked += 1;
        let (guard, answer, why) = (Guard::Brake, Answer::Later, Reason::Brake(why));
        let evidence = Evidence { guard, answer, why };
        (decision.action, decision.reason) = (Action::Defer, evidence.reason());
        decision.evidence.push(evidence);
    }
    first.map(|why| Tripped::Blocks { why, blocked })
}
