// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the node says × what NAPI says → what to do, each with its evidence. Pure: no clock, no
//! I/O, no randomness, so that tables and properties can hold it to the promises. It proposes;
//! [`crate::apply`] reads again and asks the same guards before any request.

pub mod backfill;
pub mod brake;
pub mod evidence;
pub mod reap;
pub mod state;
#[cfg(test)]
mod tables;
pub mod verdict;
pub mod wish;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use sdc_clients::MacAddr;
use sdc_clients::napi::{BelongsToType, Nic};

use self::brake::Scale;
use self::reap::{Basis, Evidence, Facts, Guard, Reading, Ruling, Verdict};
use self::wish::{Upkeep, Wish};
use crate::config::{Config, VmapiChoice};
use crate::holds::Holds;
use crate::inventory::{Identity, LocalView};
use crate::remote::RemoteView;

/// The rules of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// This node.
    pub cn_uuid: String,
    /// The admin user.
    pub admin_uuid: Option<String>,
    /// G6.
    pub min_age: Duration,
    /// G5's long rule.
    pub provisioning_age: Duration,
    /// G7.
    pub second_look: Duration,
    /// Is G8 asked?
    pub ask_vmapi: bool,
    /// Mirror `stopped` too.
    pub mirror_stopped: bool,
}

impl Policy {
    /// From the configuration.
    pub fn of(config: &Config) -> Self {
        Self {
            cn_uuid: config.cn_uuid.clone(),
            admin_uuid: config.admin_uuid.clone(),
            min_age: config.min_age,
            provisioning_age: config.provisioning_age,
            second_look: config.second_look,
            ask_vmapi: config.vmapi != VmapiChoice::None,
            mirror_stopped: config.mirror_stopped,
        }
    }
}

/// What is compared.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// The node, read after the list.
    pub local: &'a LocalView,
    /// Who we are.
    pub identity: &'a Identity,
    /// NAPI's records.
    pub remote: &'a RemoteView,
    /// The operator's holds.
    pub holds: &'a Holds,
    /// VMAPI's answers so far, by VM.
    pub verdicts: &'a BTreeMap<String, Verdict>,
    /// First looks so far, by address, on the agent's clock.
    pub first_looks: &'a BTreeMap<MacAddr, Duration>,
    /// Wall clock, for the expiry of holds only.
    pub wall: Timestamp,
    /// Candidates that this pass began with and did not delete, for the brake.
    pub candidates: usize,
    /// Deletes of the last hour.
    pub recent_deletes: usize,
    /// Most VMs any complete view of the last hour showed, or the size it has fallen from.
    pub most_vms: Option<usize>,
    /// Addresses that the operator approved, whatever their etag is by now.
    pub approved: &'a BTreeSet<MacAddr>,
    /// The rules.
    pub policy: &'a Policy,
}

/// What to do about one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Read it alone: it is not in the list, so it may lack `cn_uuid` (R8).
    Look,
    /// Write these fields.
    Write(Wish),
    /// Ask VMAPI about the VM, then decide.
    AskVmapi,
    /// Delete it.
    Delete,
    /// A leak by the look of it, but not yet (which guard says so is in the evidence).
    Defer,
    /// Leave it.
    Keep,
}

impl Action {
    /// One word.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Look => "look",
            Self::Write(_) => "write",
            Self::AskVmapi => "ask-vmapi",
            Self::Delete => "delete",
            Self::Defer => "defer",
            Self::Keep => "keep",
        }
    }
}

/// One line of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The record.
    pub mac: MacAddr,
    /// The VM or server concerned.
    pub vm: String,
    /// What to do.
    pub action: Action,
    /// Why, in one line.
    pub reason: String,
    /// What NAPI said of it, in one line; nothing where it is not in the list.
    pub napi: String,
    /// The guards' answers, for records that look leaked.
    pub evidence: Vec<Evidence>,
}

impl Decision {
    /// Does it look leaked as far as the node can tell (G1–G4)?
    pub fn is_candidate(&self) -> bool {
        let local = [Guard::G1, Guard::G2, Guard::G3, Guard::G4];
        local.iter().all(|guard| {
            self.evidence.iter().any(|e| e.guard == *guard && e.answer == reap::Answer::Pass)
        })
    }

    /// Does nothing but VMAPI's word (or the brake) keep it?
    fn is_due(&self) -> bool {
        let others = |e: &&Evidence| !matches!(e.guard, Guard::G8 | Guard::G10);
        matches!(self.action, Action::Delete | Action::Defer | Action::AskVmapi)
            && !self.evidence.is_empty()
            && self.evidence.iter().filter(others).all(|e| e.answer == reap::Answer::Pass)
    }
}

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// One per record, writes first: nothing is deleted before the backfill (R8, D2).
    pub decisions: Vec<Decision>,
    /// G10: why nothing is deleted but what the operator approved.
    pub brake: Option<String>,
}

impl Plan {
    /// What nothing but the brake keeps, with the VMs.
    pub fn braked(&self) -> BTreeMap<MacAddr, String> {
        let kept = self.decisions.iter().filter(|d| d.action == Action::Defer && d.is_due());
        let kept = kept.filter(|_| self.brake.is_some());
        kept.map(|d| (d.mac, d.vm.clone())).collect()
    }

    /// The decisions of one kind.
    pub fn of(&self, name: &'static str) -> impl Iterator<Item = &Decision> {
        self.decisions.iter().filter(move |d| d.action.name() == name)
    }
}

/// Compares.
pub fn plan(inputs: &Inputs<'_>) -> Plan {
    let mut decisions = looks(inputs);
    for nic in &inputs.remote.nics {
        decisions.push(if nic.belongs_to_type != BelongsToType::Zone {
            let upkeep = state::of_own_nic(nic, inputs.identity, inputs.policy);
            kept_up(nic, upkeep, inputs)
        } else if inputs.local.holders(nic.mac).next().is_some() {
            let verdict = inputs.verdicts.get(&nic.belongs_to_uuid);
            let upkeep = backfill::upkeep(nic, inputs.local, verdict, false, inputs.policy);
            kept_up(nic, upkeep, inputs)
        } else {
            reaped(nic, inputs)
        });
    }
    let brake = braked(&decisions, inputs);
    if let Some(why) = &brake {
        let deletes = decisions.iter_mut().filter(|d| d.action == Action::Delete);
        for decision in deletes.filter(|d| !inputs.approved.contains(&d.mac)) {
            decision.action = Action::Defer;
            decision.reason = format!("{}: {why}", Guard::G10);
            decision.evidence.push(Evidence {
                guard: Guard::G10,
                answer: reap::Answer::Later,
                said: why.clone(),
            });
        }
    }
    decisions.sort_by_key(|d| (matches!(d.action, Action::Delete | Action::Defer), d.mac));
    Plan { decisions, brake }
}

/// R8: addresses of shown VMs that the list lacks.
fn looks(inputs: &Inputs<'_>) -> Vec<Decision> {
    if !inputs.remote.whole {
        return Vec::new();
    }
    let listed: BTreeSet<MacAddr> = inputs.remote.nics.iter().map(|nic| nic.mac).collect();
    let mut looks = BTreeMap::new();
    for (mac, vm) in inputs.local.macs().filter(|(mac, _)| !listed.contains(mac)) {
        if backfill::unwritable(vm).is_none() {
            let held = inputs.holds.covering(&vm.uuid, inputs.wall);
            let (action, reason) = match held {
                Some(hold) => (Action::Defer, format!("held: {}", hold.reason)),
                None => (Action::Look, "NAPI's list for this node lacks it".to_owned()),
            };
            looks.insert(
                mac,
                Decision {
                    mac,
                    vm: vm.uuid.clone(),
                    action,
                    reason,
                    napi: String::new(),
                    evidence: Vec::new(),
                },
            );
        }
    }
    looks.into_values().collect()
}

fn kept_up(nic: &Nic, upkeep: Upkeep, inputs: &Inputs<'_>) -> Decision {
    let owner = &nic.belongs_to_uuid;
    let held = inputs.holds.covering(owner, inputs.wall);
    let (action, reason) = match (upkeep, held) {
        (Upkeep::Agrees, _) => (Action::Keep, "record and node agree".to_owned()),
        (Upkeep::Leave(why), _) => (Action::Keep, why),
        (_, Some(hold)) => (Action::Defer, format!("held: {}", hold.reason)),
        (Upkeep::AskVmapi, None) => (Action::AskVmapi, "cn_uuid is another node's".to_owned()),
        (Upkeep::Write(wish), None) => {
            let reason = describe(&wish);
            (Action::Write(wish), reason)
        }
    };
    let (mac, vm) = (nic.mac, owner.clone());
    Decision { mac, vm, action, reason, napi: said(nic), evidence: Vec::new() }
}

/// A wish in words.
pub fn describe(wish: &Wish) -> String {
    let mut parts = Vec::new();
    if let Some(cn) = &wish.cn_uuid {
        parts.push(format!("cn_uuid={cn}"));
    }
    if let Some(state) = &wish.state {
        parts.push(format!("state={}", state.as_str()));
    }
    if let Some(owner) = &wish.owner_uuid {
        parts.push(format!("owner_uuid={owner}"));
    }
    if wish.primary {
        parts.push("primary=true".to_owned());
    }
    if let Some(cn) = &wish.claim {
        parts.push(format!("belongs_to=server/{cn}"));
    }
    parts.join(" ")
}

fn reaped(nic: &Nic, inputs: &Inputs<'_>) -> Decision {
    let vm = &nic.belongs_to_uuid;
    let judgement = reap::judge(
        nic,
        &Facts {
            local: inputs.local,
            now: inputs.remote.date,
            verdict: inputs.verdicts.get(vm),
            hold: inputs.holds.covering(vm, inputs.wall),
            basis: Basis::pass(inputs.first_looks.get(&nic.mac).copied()),
            reading: Reading::Listed,
            policy: inputs.policy,
        },
    );
    let action = match judgement.ruling {
        Ruling::Delete => Action::Delete,
        Ruling::AskVmapi => Action::AskVmapi,
        Ruling::Defer => Action::Defer,
        Ruling::Keep => Action::Keep,
    };
    let reason = judgement
        .obstacle()
        .map_or_else(|| "leaked".to_owned(), |e| format!("{}: {}", e.guard, e.said));
    let (mac, vm, napi) = (nic.mac, vm.clone(), said(nic));
    Decision { mac, vm, action, reason, napi, evidence: judgement.evidence }
}

/// What NAPI said of a record.
fn said(nic: &Nic) -> String {
    let (kind, owner, state) =
        (nic.belongs_to_type.as_str(), &nic.belongs_to_uuid, nic.state.as_str());
    let written = nic.created_timestamp.max(nic.modified_timestamp);
    let written = written.map_or_else(|| "never".to_owned(), |at| at.to_string());
    format!("{kind} {owner}, {state}, written {written}")
}

/// G10: the brake is on when the scale says so, and stays on until VMAPI has confirmed each one
/// that nothing else keeps. A 404 of VMAPI is no confirmation here: an empty VMAPI must not vouch
/// for an empty node.
fn braked(decisions: &[Decision], inputs: &Inputs<'_>) -> Option<String> {
    let scale = Scale {
        candidates: decisions.iter().filter(|d| d.is_candidate()).count().max(inputs.candidates),
        recent: inputs.recent_deletes,
        listed: inputs.remote.listed,
        local_vms: inputs.local.vms.len(),
        most_vms: inputs.most_vms,
    };
    let why = scale.tripped()?;
    let gone = |d: &&Decision| matches!(inputs.verdicts.get(&d.vm), Some(Verdict::Gone(_)));
    // Approved ones count too: their etags are compared at the delete, while the brake is on.
    let open = decisions.iter().filter(|d| d.is_due()).filter(|d| !gone(d)).count();
    (open > 0).then(|| format!("{why}; VMAPI has not confirmed {open}"))
}
