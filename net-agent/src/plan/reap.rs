// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! May this NIC record be deleted? The guards G1–G9 and the hold, as one pure function that is
//! asked twice: about a listed record, and about the fresh copy right before the request. No guard
//! can be switched off; `vmapi = "none"` is the one choice the operator has, and it never lets a
//! record in `provisioning` go.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use sdc_clients::napi::{Nic, NicState};

use super::candidate::{self, OwnMacs};
use super::evidence::Evidence;
use super::guard::{Answer, Guard};
use super::reason::{Reason, Refusal};
use super::verdict::Verdict;
use crate::brake::Clearance;
use crate::config::Policy;
use crate::holds::Hold;
use crate::view::LocalView;

/// Why a delete is considered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Basis {
    Pass {
        /// When the record was first a candidate, on the agent's clock.
        first_look: Option<Duration>,
        /// Why the brake let it go when the pass was measured.
        clearance: Clearance,
    },
    /// An event said that the VM was deleted: the settle delay and a fresh check of its absence
    /// replace age and second look.
    Witnessed,
    /// An event said that the NIC left a VM which stays; likewise.
    LeftVm,
    /// The VM went during an earlier run of this agent, or without an event: it was looked for
    /// again after the time of a second look. The record may have been written since, so its age
    /// counts.
    Remembered,
}

impl Basis {
    /// A listed record, first seen then.
    pub(crate) fn pass(first_look: Option<Duration>) -> Self {
        Self::Pass { first_look, clearance: Clearance::Few }
    }

    /// The rule's name in the audit log.
    pub(crate) fn rule(self) -> &'static str {
        match self {
            Self::Pass { .. } => "reap",
            Self::Witnessed | Self::Remembered => "vm-deleted",
            Self::LeftVm => "nic-removed",
        }
    }
}

/// Where the judged copy comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source<'a> {
    /// An element of a list: lists carry no etag.
    Listed,
    /// A fresh copy with its etag, if the server sent one.
    Fresh(Option<&'a str>),
}

/// Everything the guards look at besides the record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts<'a> {
    /// The node, hidden VMs included.
    pub local: &'a LocalView,
    /// The node's own MACs.
    pub own: &'a OwnMacs,
    pub now: Option<Timestamp>,
    pub verdict: Option<&'a Verdict>,
    /// A hold that covers the VM or the node.
    pub hold: Option<&'a Hold>,
    pub basis: Basis,
    pub source: Source<'a>,
    pub policy: &'a Policy,
}

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ruling {
    Delete,
    /// Every guard before VMAPI passes; it has to be asked.
    AskVmapi,
    Defer,
    Keep,
}

/// The answer with its reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Judgement {
    pub ruling: Ruling,
    /// All guards that were asked, in order.
    pub evidence: Vec<Evidence>,
}

impl Judgement {
    /// Returns the first guard that did not pass.
    pub(crate) fn obstacle(&self) -> Option<&Evidence> {
        self.evidence.iter().find(|e| e.answer != Answer::Pass)
    }

    /// Returns why it is not deleted, or that it is leaked.
    pub(crate) fn reason(&self) -> Reason {
        self.obstacle().map_or(Reason::Leaked, Evidence::reason)
    }
}

/// Asks all guards but the brake, which concerns the pass as a whole.
pub(crate) fn judge(nic: &Nic, facts: &Facts<'_>) -> Judgement {
    let left_vm = facts.basis == Basis::LeftVm;
    let mut evidence =
        candidate::evidence(nic, facts.local, facts.own, left_vm, facts.policy).to_vec();
    let mut says = |guard, (answer, why)| evidence.push(Evidence { guard, answer, why });
    says(Guard::SettledState, settled_state(nic, facts));
    says(Guard::OldEnough, old_enough(nic, facts));
    says(Guard::SeenTwice, seen_twice(facts));
    says(Guard::Hold, hold(facts.hold));
    if ruling(&evidence).is_none() && facts.policy.ask_vmapi && facts.verdict.is_none() {
        let (guard, answer, why) = (Guard::VmapiConfirms, Answer::Later, Reason::VmapiNotAsked);
        evidence.push(Evidence { guard, answer, why });
        return Judgement { ruling: Ruling::AskVmapi, evidence };
    }
    let mut says = |guard, (answer, why)| evidence.push(Evidence { guard, answer, why });
    says(Guard::VmapiConfirms, vmapi_confirms(nic, facts));
    says(Guard::EtagKnown, etag_known(facts.source));
    Judgement { ruling: ruling(&evidence).unwrap_or(Ruling::Delete), evidence }
}

fn ruling(evidence: &[Evidence]) -> Option<Ruling> {
    let says = |answer| evidence.iter().any(|e| e.answer == answer);
    match () {
        () if says(Answer::Never) => Some(Ruling::Keep),
        () if says(Answer::Later) => Some(Ruling::Defer),
        () => None,
    }
}

type Says = (Answer, Reason);

fn settled_state(nic: &Nic, facts: &Facts<'_>) -> Says {
    match &nic.state {
        NicState::Running | NicState::Stopped => {
            (Answer::Pass, Reason::State(nic.state.as_str().to_owned()))
        }
        NicState::Provisioning if !facts.policy.ask_vmapi => {
            (Answer::Never, Reason::ProvisioningNoVmapi)
        }
        NicState::Provisioning => match age(nic, facts.now) {
            // That VMAPI says destroyed or failed is checked by G8, which is stricter here.
            Some(age) if age >= signed(facts.policy.provisioning_age) => {
                (Answer::Pass, Reason::ProvisioningFor(age.as_secs()))
            }
            Some(age) => (Answer::Later, Reason::ProvisioningYoung(age.as_secs())),
            None => (Answer::Later, Reason::ProvisioningAgeUnknown),
        },
        NicState::Unknown(text) => (Answer::Never, Reason::StateUnknown(text.clone())),
    }
}

fn old_enough(nic: &Nic, facts: &Facts<'_>) -> Says {
    if matches!(facts.basis, Basis::Witnessed | Basis::LeftVm) {
        return (Answer::Pass, Reason::Witnessed);
    }
    match age(nic, facts.now) {
        Some(age) if age >= signed(facts.policy.min_age) => {
            (Answer::Pass, Reason::Unchanged(age.as_secs()))
        }
        Some(age) => (Answer::Later, Reason::WrittenAgo(age.as_secs())),
        None => (Answer::Later, Reason::AgeUnknown),
    }
}

fn seen_twice(facts: &Facts<'_>) -> Says {
    match facts.basis {
        Basis::Witnessed | Basis::LeftVm => (Answer::Pass, Reason::WitnessedAbsence),
        Basis::Remembered => (Answer::Pass, Reason::LookedAgain),
        Basis::Pass { first_look: None, .. } => (Answer::Later, Reason::FirstLook),
        Basis::Pass { first_look: Some(first), .. } => {
            let apart = facts.local.taken.saturating_sub(first);
            if apart >= facts.policy.second_look {
                (Answer::Pass, Reason::TwoLooks(apart))
            } else {
                (Answer::Later, Reason::SecondLookDue(apart))
            }
        }
    }
}

fn vmapi_confirms(nic: &Nic, facts: &Facts<'_>) -> Says {
    if !facts.policy.ask_vmapi {
        return (Answer::Pass, Reason::NoVmapi);
    }
    let Some(verdict) = facts.verdict else {
        return (Answer::Later, Reason::VmapiNotNeeded);
    };
    let provisioning = nic.state == NicState::Provisioning;
    let stays = facts.basis == Basis::LeftVm && facts.local.has_vm(&nic.belongs_to_uuid);
    let answer = match verdict {
        // The VM is here: what VMAPI says about it is late.
        Verdict::Gone { .. } if stays => Answer::Later,
        // Another node's late word: the VM may have come here since.
        Verdict::Gone { server: Some(server), .. } if *server != facts.policy.cn_uuid => {
            Answer::Never
        }
        Verdict::Gone { .. } => Answer::Pass,
        Verdict::Unknown if provisioning => Answer::Never,
        Verdict::Unknown => Answer::Pass,
        Verdict::Alive { server: Some(server), .. } if *server != facts.policy.cn_uuid => {
            Answer::Never
        }
        Verdict::Alive { server: Some(_), macs: Some(macs), .. }
            if stays && !provisioning && !macs.contains(&nic.mac) =>
        {
            Answer::Pass
        }
        Verdict::Alive { .. } | Verdict::Claimed | Verdict::NoAnswer(_) => Answer::Later,
    };
    (answer, Reason::Vmapi(verdict.clone()))
}

fn etag_known(source: Source<'_>) -> Says {
    match source {
        Source::Listed => (Answer::Pass, Reason::EtagLater),
        Source::Fresh(Some(etag)) if !etag.is_empty() => {
            (Answer::Pass, Reason::Etag(etag.to_owned()))
        }
        // The next copy may have one: NAPI may be on its way up or down.
        Source::Fresh(_) => (Answer::Later, Reason::NoEtag),
    }
}

fn hold(hold: Option<&Hold>) -> Says {
    match hold {
        None => (Answer::Pass, Reason::NoHold),
        Some(hold) => (Answer::Later, Reason::Refused(Refusal::Held(hold.clone()))),
    }
}

/// Returns the time since the record was last written, by NAPI's clock. Records older than the
/// timestamps carry the epoch and so count as old; a record without any timestamp has no age.
fn age(nic: &Nic, now: Option<Timestamp>) -> Option<SignedDuration> {
    let written = nic.created_timestamp.max(nic.modified_timestamp)?;
    Some(now?.duration_since(written))
}

fn signed(span: Duration) -> SignedDuration {
    SignedDuration::try_from(span).unwrap_or(SignedDuration::MAX)
}
