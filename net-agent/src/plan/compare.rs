// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Makes the plan.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

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
use crate::brake::{Scale, Tripped};
use crate::config::Policy;
use crate::holds::Holds;
use crate::listing::NicListing;
use crate::view::{Identity, LocalView};

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
    /// Candidates that this pass began with and did not delete, for the brake.
    pub candidates: usize,
    /// Deletes of the last hour; none if unknown.
    pub recent_deletes: Option<usize>,
    /// Size of the largest complete view of the last hour, or the size it has fallen from.
    pub most_vms: Option<usize>,
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
    let brake = brake(&decisions, inputs);
    if let Some(why) = &brake {
        let deletes = decisions.iter_mut().filter(|d| d.action == Action::Delete);
        for decision in deletes.filter(|d| !inputs.approved.contains(&d.mac)) {
            let (guard, answer, why) = (Guard::Brake, Answer::Later, Reason::Brake(why.clone()));
            let evidence = Evidence { guard, answer, why };
            (decision.action, decision.reason) = (Action::Defer, evidence.reason());
            decision.evidence.push(evidence);
        }
    }
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
        looks.insert(mac, Decision { mac, vm, action, reason, napi, evidence });
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
    Decision { mac: nic.mac, vm, action, reason, napi: summary(nic), evidence: Vec::new() }
}

fn reaped(nic: &Nic, inputs: &Inputs<'_>) -> Decision {
    let vm = nic.belongs_to_uuid.clone();
    let judgement = reap::judge(
        nic,
        &Facts {
            local: inputs.local,
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
    Decision { mac: nic.mac, vm, action, reason, napi: summary(nic), evidence }
}

/// Returns what NAPI says about a record.
fn summary(nic: &Nic) -> String {
    let (kind, owner, state) =
        (nic.belongs_to_type.as_str(), &nic.belongs_to_uuid, nic.state.as_str());
    let written = nic.created_timestamp.max(nic.modified_timestamp);
    let written = written.map_or_else(|| "never".to_owned(), |at| at.to_string());
    format!("{kind} {owner}, {state}, written {written}")
}

/// G10: returns why the brake is on, if it is. It stays on until VMAPI has confirmed each record
/// that nothing else blocks. A 404 of VMAPI is no confirmation here: an empty VMAPI must not vouch
/// for an empty node.
fn brake(decisions: &[Decision], inputs: &Inputs<'_>) -> Option<Tripped> {
    let scale = Scale {
        candidates: decisions.iter().filter(|d| d.is_candidate()).count().max(inputs.candidates),
        recent: inputs.recent_deletes,
        listed: inputs.listing.listed,
        local_vms: inputs.local.vms.len(),
        most_vms: inputs.most_vms,
    };
    let why = Box::new(scale.tripped()?);
    let gone = |d: &&Decision| inputs.verdicts.get(&d.vm).is_some_and(Verdict::is_gone);
    // Approved ones count too: their etags are compared at the delete, while the brake is on.
    let open = decisions.iter().filter(|d| d.is_due()).filter(|d| !gone(d)).count();
    (open > 0).then_some(Tripped::Unconfirmed { why, open })
}
