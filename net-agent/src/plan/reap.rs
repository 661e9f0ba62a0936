// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! May this NIC record be deleted? The predicate G1–G10 with VMAPI's verdict table, as one pure
//! function that is asked twice: of a listed record, and again of the fresh copy right before the
//! request. Every guard leaves its evidence. None of them can be switched off; `vmapi = "none"`
//! is the one choice the operator has, and it never lets a record in `provisioning` go.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use sdc_clients::napi::{BelongsToType, Nic, NicState};

use super::Policy;
pub use super::evidence::{Answer, Evidence, Guard};
pub use super::verdict::Verdict;
use crate::holds::Hold;
use crate::inventory::LocalView;

/// Why a delete is considered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// A pass over NAPI's list; when the record was first a candidate, on the agent's clock.
    Pass {
        /// The first look.
        first_look: Option<Duration>,
        /// The brake is on; only the operator's approval of this very record lets it go.
        on_approval: bool,
    },
    /// The node told us that the VM went away: the settle delay and a fresh absence check have
    /// taken the place of age and second look.
    Witnessed,
    /// The node told us that the NIC left a VM which stays; likewise.
    LeftVm,
    /// The node told an earlier run of this agent that the VM went away, or nobody told it and a
    /// later view lacks the VM: it was looked for once more since, after the time of a second
    /// look; but who knows what was written meanwhile, so its age counts.
    Remembered,
}

impl Basis {
    /// A listed record, first seen then.
    pub fn pass(first_look: Option<Duration>) -> Self {
        Self::Pass { first_look, on_approval: false }
    }

    /// Did this run see the end itself?
    fn is_witnessed(self) -> bool {
        matches!(self, Self::Witnessed | Self::LeftVm)
    }
}

/// The reading the question is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading<'a> {
    /// An element of a list: lists carry no etag.
    Listed,
    /// A fresh copy with its etag, if the server sent one.
    Fresh(Option<&'a str>),
}

/// Everything the predicate looks at besides the record.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The node: complete, synced, hidden VMs included.
    pub local: &'a LocalView,
    /// NAPI's own time of the reading.
    pub now: Option<Timestamp>,
    /// VMAPI's answer, once asked.
    pub verdict: Option<&'a Verdict>,
    /// A hold that covers the VM or the node.
    pub hold: Option<&'a Hold>,
    /// What the question is asked for.
    pub basis: Basis,
    /// Which reading.
    pub reading: Reading<'a>,
    /// The rules.
    pub policy: &'a Policy,
}

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ruling {
    /// Every guard passes.
    Delete,
    /// Every local guard passes; VMAPI has to be asked.
    AskVmapi,
    /// Some guard may pass later.
    Defer,
    /// Some guard forbids.
    Keep,
}

/// The answer with its reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// What follows.
    pub ruling: Ruling,
    /// All guards asked, in order.
    pub evidence: Vec<Evidence>,
}

impl Judgement {
    /// The first guard that did not pass.
    pub fn obstacle(&self) -> Option<&Evidence> {
        self.evidence.iter().find(|e| e.answer != Answer::Pass)
    }

    /// Is it a leak as far as the node can tell (G1–G4)?
    pub fn is_candidate(&self) -> bool {
        let local = [Guard::G1, Guard::G2, Guard::G3, Guard::G4];
        local.iter().all(|guard| {
            self.evidence.iter().any(|e| e.guard == *guard && e.answer == Answer::Pass)
        })
    }
}

/// Asks all guards but G10, which concerns the pass as a whole.
pub fn judge(nic: &Nic, facts: &Facts<'_>) -> Judgement {
    let mut evidence = vec![
        g1(nic),
        g2(nic, facts.policy),
        g3(nic, facts),
        g4(nic, facts.local),
        g5(nic, facts),
        g6(nic, facts),
        g7(facts),
    ];
    evidence.push(hold(facts.hold));
    let worst = |list: &[Evidence]| {
        if list.iter().any(|e| e.answer == Answer::Never) {
            Some(Ruling::Keep)
        } else if list.iter().any(|e| e.answer == Answer::Later) {
            Some(Ruling::Defer)
        } else {
            None
        }
    };
    let before_verdict = worst(&evidence);
    if before_verdict.is_none() && facts.policy.ask_vmapi && facts.verdict.is_none() {
        evidence.push(Evidence {
            guard: Guard::G8,
            answer: Answer::Later,
            said: "VMAPI not asked yet".to_owned(),
        });
        return Judgement { ruling: Ruling::AskVmapi, evidence };
    }
    evidence.push(g8(nic, facts));
    evidence.push(g9(facts.reading));
    let ruling = worst(&evidence).unwrap_or(Ruling::Delete);
    Judgement { ruling, evidence }
}

fn says(guard: Guard, answer: Answer, said: impl Into<String>) -> Evidence {
    Evidence { guard, answer, said: said.into() }
}

fn g1(nic: &Nic) -> Evidence {
    let answer =
        if nic.belongs_to_type == BelongsToType::Zone { Answer::Pass } else { Answer::Never };
    says(Guard::G1, answer, format!("belongs_to_type is {}", nic.belongs_to_type.as_str()))
}

fn g2(nic: &Nic, policy: &Policy) -> Evidence {
    match nic.cn_uuid.as_deref() {
        Some(cn) if cn == policy.cn_uuid && !cn.is_empty() => {
            says(Guard::G2, Answer::Pass, "cn_uuid is this node")
        }
        Some(cn) => says(Guard::G2, Answer::Never, format!("cn_uuid is {cn}")),
        None => says(Guard::G2, Answer::Never, "no cn_uuid"),
    }
}

fn g3(nic: &Nic, facts: &Facts<'_>) -> Evidence {
    let (vm, local) = (&nic.belongs_to_uuid, facts.local);
    let stays = local.vms.get(vm).filter(|_| facts.basis == Basis::LeftVm);
    if let Some(stays) = stays {
        if stays.hidden {
            return says(Guard::G3, Answer::Never, format!("VM {vm} has do_not_inventory"));
        }
        // G4 sees to it that neither this VM nor another has the address.
        return says(Guard::G3, Answer::Pass, format!("it left VM {vm}, which stays"));
    }
    if local.has_vm(vm) {
        says(Guard::G3, Answer::Never, format!("VM {vm} is on this node"))
    } else if local.lately_hidden.contains(vm) {
        says(Guard::G3, Answer::Later, format!("VM {vm} was hidden here a short while ago"))
    } else if local.hidden_unknown {
        says(Guard::G3, Answer::Later, "what was hidden here a short while ago is not known")
    } else if !local.complete {
        says(Guard::G3, Answer::Later, "the view of the node is not complete")
    } else {
        says(Guard::G3, Answer::Pass, format!("VM {vm} is not among the {} here", local.vms.len()))
    }
}

fn g4(nic: &Nic, local: &LocalView) -> Evidence {
    match local.holders(nic.mac).next() {
        Some(vm) => says(Guard::G4, Answer::Never, format!("VM {} here has this address", vm.uuid)),
        None => says(Guard::G4, Answer::Pass, "no VM here has this address"),
    }
}

fn g5(nic: &Nic, facts: &Facts<'_>) -> Evidence {
    match &nic.state {
        NicState::Running | NicState::Stopped => {
            says(Guard::G5, Answer::Pass, format!("state is {}", nic.state.as_str()))
        }
        NicState::Provisioning if !facts.policy.ask_vmapi => {
            says(Guard::G5, Answer::Never, "state is provisioning and there is no VMAPI to ask")
        }
        NicState::Provisioning => match age(nic, facts.now) {
            Some(age) if age >= signed(facts.policy.provisioning_age) => {
                // Whether VMAPI says destroyed or failed is asked by G8, which is stricter here.
                says(Guard::G5, Answer::Pass, format!("provisioning for {}", words(age)))
            }
            Some(age) => says(
                Guard::G5,
                Answer::Later,
                format!("state is provisioning, only {} old: it may be on its way", words(age)),
            ),
            None => says(Guard::G5, Answer::Later, "state is provisioning, age unknown"),
        },
        NicState::Unknown(text) => {
            says(Guard::G5, Answer::Never, format!("state {text:?} is not known"))
        }
    }
}

fn g6(nic: &Nic, facts: &Facts<'_>) -> Evidence {
    if facts.basis.is_witnessed() {
        return says(Guard::G6, Answer::Pass, "its end was witnessed, and it settled");
    }
    match age(nic, facts.now) {
        Some(age) if age >= signed(facts.policy.min_age) => {
            says(Guard::G6, Answer::Pass, format!("unchanged for {}", words(age)))
        }
        Some(age) => says(Guard::G6, Answer::Later, format!("written only {} ago", words(age))),
        None => says(Guard::G6, Answer::Later, "its age, or NAPI's time, is unknown"),
    }
}

fn g7(facts: &Facts<'_>) -> Evidence {
    let first = match facts.basis {
        Basis::Witnessed | Basis::LeftVm => {
            return says(Guard::G7, Answer::Pass, "its end was witnessed, absence checked afresh");
        }
        Basis::Remembered => {
            return says(
                Guard::G7,
                Answer::Pass,
                "its end was witnessed before a restart, or found in two looks",
            );
        }
        Basis::Pass { first_look: None, .. } => {
            return says(Guard::G7, Answer::Later, "first look");
        }
        Basis::Pass { first_look: Some(first), .. } => first,
    };
    let apart = facts.local.taken.saturating_sub(first);
    if apart >= facts.policy.second_look {
        says(Guard::G7, Answer::Pass, format!("absent in two looks {apart:?} apart"))
    } else {
        says(Guard::G7, Answer::Later, format!("second look due: {apart:?} since the first"))
    }
}

fn g8(nic: &Nic, facts: &Facts<'_>) -> Evidence {
    if !facts.policy.ask_vmapi {
        return says(Guard::G8, Answer::Pass, "no VMAPI by the operator's choice");
    }
    let Some(verdict) = facts.verdict else {
        return says(Guard::G8, Answer::Later, "VMAPI not asked: another guard comes first");
    };
    let provisioning = nic.state == NicState::Provisioning;
    let stays = facts.basis == Basis::LeftVm && facts.local.has_vm(&nic.belongs_to_uuid);
    let answer = match verdict {
        // VMAPI's word about a VM that is plainly here is worth nothing yet.
        Verdict::Gone(_) if stays => Answer::Later,
        Verdict::Gone(_) => Answer::Pass,
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
        Verdict::Alive { .. } | Verdict::NoAnswer(_) => Answer::Later,
    };
    says(Guard::G8, answer, verdict.to_string())
}

fn g9(reading: Reading<'_>) -> Evidence {
    match reading {
        Reading::Listed => {
            says(Guard::G9, Answer::Pass, "etag: to be read right before the delete")
        }
        Reading::Fresh(Some(etag)) if !etag.is_empty() => {
            says(Guard::G9, Answer::Pass, format!("etag {etag}"))
        }
        Reading::Fresh(_) => {
            says(Guard::G9, Answer::Never, "NAPI sent no etag: the delete would be unconditional")
        }
    }
}

fn hold(hold: Option<&Hold>) -> Evidence {
    match hold {
        None => says(Guard::Hold, Answer::Pass, "no hold"),
        Some(hold) => says(Guard::Hold, Answer::Later, format!("held: {}", hold.reason)),
    }
}

/// Time since the record was last written, by NAPI's clock. Records older than the feature carry
/// the epoch and so count as old; a record without any timestamp has no age.
pub fn age(nic: &Nic, now: Option<Timestamp>) -> Option<SignedDuration> {
    let written = nic.created_timestamp.max(nic.modified_timestamp)?;
    Some(now?.duration_since(written))
}

fn signed(span: Duration) -> SignedDuration {
    SignedDuration::try_from(span).unwrap_or(SignedDuration::MAX)
}

fn words(age: SignedDuration) -> String {
    format!("{} s", age.as_secs())
}
