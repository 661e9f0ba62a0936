// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Every reason for which something is done, left or put off. Decisions compare variants; the
//! sentences are for people only.

use daemon::agent;
use jiff::Timestamp;
use sdc_clients::MacAddr;
use sdc_clients::napi::Nic;
use sdc_clients::shown::ShownCommand;

use super::guard::Guard;
use super::verdict::Verdict;
use super::wish::Wish;
use crate::brake::Tripped;
use crate::holds::Hold;
use crate::view::VmState;

/// Why this record may not be written now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No agent may write.
    #[error(transparent)]
    Agent(#[from] agent::Refusal),
    /// Deletes only: they could not be counted across a restart.
    #[error("{0}")]
    StateFile(String),
    /// A hold covers the VM or the node.
    #[error("held: {}", .0.reason)]
    Held(Hold),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    // What the guards find.
    #[error("belongs_to_type is {0}")]
    Kind(String),
    #[error("it belongs to this node, not to a VM")]
    NodeItself,
    #[error("cn_uuid is this node")]
    CnHere,
    #[error("cn_uuid is {0}")]
    CnElsewhere(String),
    #[error("no cn_uuid")]
    NoCn,
    #[error("VM {0} has do_not_inventory")]
    VmHidden(String),
    #[error("it left VM {0}, which stays")]
    LeftVm(String),
    #[error("VM {0} is on this node")]
    VmHere(String),
    #[error("VM {0} was hidden here a short while ago")]
    LatelyHidden(String),
    #[error("what was hidden here a short while ago is not known")]
    HiddenUnknown,
    #[error("the view of the node is not complete")]
    ViewIncomplete,
    #[error("the NICs of zone {name} {}are not known", more_zones(*.more))]
    Unread { name: String, more: usize },
    #[error("VM {vm} is not among the {vms} here")]
    VmAbsent { vm: String, vms: usize },
    #[error("VM {0} here has this address")]
    MacHere(String),
    #[error("this node itself has this address")]
    MacOfNode,
    #[error("no VM here has this address")]
    MacAbsent,
    #[error("state is {0}")]
    State(String),
    #[error("state {0} is not known")]
    StateUnknown(String),
    #[error("state is provisioning and there is no VMAPI to ask")]
    ProvisioningNoVmapi,
    #[error("provisioning for {0} s")]
    ProvisioningFor(i64),
    #[error("state is provisioning, only {0} s old: its VM may still be created")]
    ProvisioningYoung(i64),
    #[error("state is provisioning, age unknown")]
    ProvisioningAgeUnknown,
    #[error("an event reported its end, and the settle delay has passed")]
    Witnessed,
    #[error("unchanged for {0} s")]
    Unchanged(i64),
    #[error("written only {0} s ago")]
    WrittenAgo(i64),
    #[error("its age, or NAPI's time, is unknown")]
    AgeUnknown,
    #[error("an event reported its end; its absence is checked again before the delete")]
    WitnessedAbsence,
    #[error("it left before a restart or without an event; a second look found it absent")]
    LookedAgain,
    #[error("first look")]
    FirstLook,
    #[error("absent in two looks {} s apart", .0.as_secs())]
    TwoLooks(std::time::Duration),
    #[error("second look due: {} s since the first", .0.as_secs())]
    SecondLookDue(std::time::Duration),
    #[error("no VMAPI by the operator's choice")]
    NoVmapi,
    #[error("VMAPI not asked yet")]
    VmapiNotAsked,
    #[error("VMAPI not asked: another guard comes first")]
    VmapiNotNeeded,
    #[error("{0}")]
    Vmapi(Verdict),
    #[error("etag: to be read right before the delete")]
    EtagLater,
    #[error("etag {0}")]
    Etag(String),
    #[error("NAPI sent no etag: the request would be unconditional")]
    NoEtag,
    #[error("no hold")]
    NoHold,
    #[error("{0}")]
    Brake(Tripped),
    #[error("enough deletes that only VMAPI vouches for in the last ten minutes")]
    Paced,

    // Why a record is kept or written.
    #[error("leaked")]
    Leaked,
    #[error("{guard}: {why}")]
    Guard { guard: Guard, why: Box<Reason> },
    #[error("record and node agree")]
    Agrees,
    #[error("NAPI's list for this node lacks it")]
    Unlisted,
    #[error("{0}")]
    Wish(Wish),
    #[error("two VMs here have this address")]
    TwoHolders,
    #[error("VM {vm} is {state}")]
    VmState { vm: String, state: VmState },
    #[error("it belongs to {kind} {owner}")]
    BelongsTo { kind: String, owner: String },
    #[error("it belongs to {kind} {owner}, not to VM {vm}")]
    BelongsElsewhere { kind: String, owner: String, vm: String },
    #[error("cn_uuid is {cn}; {verdict}")]
    ForeignCn { cn: String, verdict: Verdict },
    #[error("cn_uuid is {0} and there is no VMAPI to ask")]
    ForeignCnNoVmapi(String),
    #[error("cn_uuid is another node's")]
    ForeignCnAsk,
    #[error("made for node {cn} only {age} s ago")]
    MadeElsewhere { cn: String, age: i64 },
    #[error("made for node {0} at an unknown time")]
    MadeElsewhereUnknown(String),
    #[error(
        "cn_uuid is another node's, its VM's migration is open here, and migration-agent does not answer: the VM may \
         have been replaced (svcs -xv migration-agent)"
    )]
    MayBeReplaced,
    #[error("an other NIC whose address this node does not have")]
    OtherNotHere,

    // What came of a request.
    #[error("{0}")]
    Refused(#[from] Refusal),
    #[error("NAPI has no record of it")]
    NoRecord,
    #[error("NAPI has no record of it: this agent deleted it at {at:.0} by rule {rule}: {why}")]
    DeletedHere { at: Timestamp, rule: String, why: String },
    #[error("the record was deleted meanwhile")]
    RecordGone,
    #[error("it came back")]
    CameBack,
    #[error("the VM it left is gone too: it is judged again")]
    VmGoneToo,
    #[error("its VM's zone is not there, and nobody saw it go, but the dataset is: see {0}")]
    DatasetLeft(ShownCommand),
    #[error("VMAPI does not say that the VM was destroyed on this node")]
    NotDestroyedHere,
    #[error("{0} changed under five attempts in a row")]
    Changed(MacAddr),
    #[error("asked for {asked}, got {got}")]
    WrongRecord { asked: MacAddr, got: MacAddr },
    #[error("{0}")]
    Request(String),

    // Why a departure waits.
    #[error("waiting for the settle delay")]
    Settling,
    #[error("{0}")]
    LastRun(String),
}

fn more_zones(more: usize) -> String {
    if more == 0 { String::new() } else { format!("and {more} more ") }
}

impl Reason {
    /// The record belongs to somebody else.
    pub(crate) fn belongs_to(nic: &Nic) -> Self {
        let (kind, owner) = (nic.belongs_to_type.as_str().to_owned(), nic.belongs_to_uuid.clone());
        Self::BelongsTo { kind, owner }
    }
}
