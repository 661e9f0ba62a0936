// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The plan: what is to be done about each record, and why.

use std::collections::BTreeMap;

use sdc_clients::MacAddr;

use super::candidate;
use super::evidence::Evidence;
use super::guard::{Answer, Guard};
use super::reason::Reason;
use super::wish::Wish;
use crate::brake::{Clearance, Tripped};

/// What to do about one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Read it alone: it is not in the list, so it may lack `cn_uuid` (R8).
    Look,
    Write(Wish),
    /// Ask VMAPI about the VM, then decide.
    AskVmapi,
    Delete,
    /// It looks leaked, but a guard says not yet, or a hold covers it.
    Defer,
    Keep,
}

impl Action {
    /// Returns its name in `/plan`.
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
    pub mac: MacAddr,
    /// The VM or server that it belongs to.
    pub vm: String,
    pub action: Action,
    pub reason: Reason,
    /// What NAPI says about it, in one line; empty if it is not in the list.
    pub napi: String,
    /// The guards' answers, if it was judged for a delete.
    pub evidence: Vec<Evidence>,
    /// Why the brake lets it go, if it is to be deleted.
    pub clearance: Clearance,
}

impl Decision {
    /// Returns true if it looks leaked as far as the node can tell (G1–G4).
    pub fn is_candidate(&self) -> bool {
        candidate::is_candidate(&self.evidence)
    }

    /// Returns true if it was judged for a delete.
    pub fn is_judged(&self) -> bool {
        !self.evidence.is_empty()
    }

    /// Returns true if the brake, and nothing else, blocks its delete.
    pub fn is_braked(&self) -> bool {
        let blocks = |e: &Evidence| e.guard == Guard::Brake && e.answer == Answer::Later;
        self.evidence.iter().any(blocks)
    }
}

/// All decisions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// One per record, writes first: nothing is deleted before the backfill (R8, D2).
    pub decisions: Vec<Decision>,
    /// G10: why some records are deleted only if the operator approves them.
    pub brake: Option<Tripped>,
}

impl Plan {
    /// Returns the decisions with this action.
    pub fn of(&self, action: Action) -> impl Iterator<Item = &Decision> {
        self.decisions.iter().filter(move |d| d.action == action)
    }

    /// Returns the records that only the brake blocks, with their VMs.
    pub fn braked(&self) -> BTreeMap<MacAddr, String> {
        let blocked = self.decisions.iter().filter(|d| d.is_braked());
        blocked.map(|d| (d.mac, d.vm.clone())).collect()
    }
}
