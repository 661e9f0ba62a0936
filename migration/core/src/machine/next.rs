// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What follows from a record and the facts of a round.

use super::facts::Protection;
use super::fence::{MayBoot, MayDelete, MayMove, MayShow, Unsafe};
use crate::intent::{End, Power, Remedy};
use crate::record::Record;
use crate::vm_agent::VmAgent;

/// What to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Store this in the intent, then begin the next round.
    Note(Note),
    /// Send this order, with the record's id and revision, then begin the next round.
    Do(Step),
    /// Nothing can be done now; try again later, and give up after the retries (R15).
    Wait(Wait),
    /// The operation cannot succeed: undo it ([`super::give_up`]).
    GiveUp(Reason),
    /// The operation is over.
    End(Ending),
}

/// An entry of the intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// What the VM did before.
    Power(Power),
    /// Power and autoboot are as they were.
    Restored,
    /// The snapshot of this number is about to be taken and sent; None: it is too old, another will be.
    Sending(Option<u32>),
    /// Another program used the name of that snapshot first: another name will be tried.
    NameTaken,
    /// The target is about to be ordered to show itself: the point of no return.
    TargetShown,
    /// The target is about to be allowed to boot.
    TargetBooted,
    /// A rollback is about to order the source to show itself.
    SourceShown,
    /// A finalize is about to delete the source: there is no way back.
    SourceGoes,
}

/// An order. Each is done once however often it is given, and its effect is a fact of a later round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Step {
    /// Choose the target's node and store it in the record.
    #[error("choose a node")]
    Place,
    /// Create the hidden target from the source's object, its image first.
    #[error("create the target")]
    Create,
    /// Hold net-agent for the VM.
    #[error("hold net-agent on the {0}'s node")]
    Hold(End),
    /// Release that hold.
    #[error("release net-agent's hold on the {0}'s node")]
    Release(End),
    /// Set autoboot=false.
    #[error("turn autoboot off on the {0}'s node")]
    NoAutoboot(End),
    /// Set autoboot=true.
    #[error("turn autoboot on on the {}'s node", .0.end())]
    Autoboot(MayBoot),
    /// Stop the VM.
    #[error("stop the VM on the {0}'s node")]
    Stop(End),
    /// Boot the VM.
    #[error("boot the VM on the {}'s node", .0.end())]
    Boot(MayBoot),
    /// Take the snapshot where it is missing and bring the other copy to it, quotas lifted.
    #[error("send the datasets from the {from}'s node")]
    Send {
        /// The node that sends.
        from: End,
        /// The snapshot's number.
        number: u32,
    },
    /// Set quota and reservation as they were.
    #[error("restore quota and reservation on the {0}'s node")]
    RestoreQuota(End),
    /// Destroy the sync snapshots other than this one, which both copies have; None: all.
    #[error("destroy old sync snapshots on the {end}'s node")]
    Forget {
        /// The node of the snapshots.
        end: End,
        /// The number that stays.
        keep: Option<u32>,
    },
    /// Roll all datasets back to the newest snapshot that all of them have.
    #[error("roll the datasets back on the {0}'s node")]
    Settle(End),
    /// Bring the source's changed settings over to the target.
    #[error("bring the changed settings over to the target")]
    BringOver,
    /// Give the target the source's time of creation.
    #[error("give the target its time of creation")]
    Date,
    /// Protect the copy against deletion again.
    #[error("protect the copy on the {0}'s node against deletion")]
    Protect(End, Protection),
    /// Find out, while the VM runs, whether all that the rest of a switch needs is there.
    #[error("rehearse the rest of the switch")]
    Rehearse,
    /// Reserve the VM's addresses in NAPI.
    #[error("reserve the VM's addresses in NAPI")]
    Reserve,
    /// Remove the reservations that this migration made.
    #[error("remove the reserved addresses from NAPI")]
    Unreserve,
    /// Set do_not_inventory=true.
    #[error("hide the copy on the {0}'s node")]
    Hide(End),
    /// Set do_not_inventory=false.
    #[error("show the copy on the {}'s node", .0.end())]
    Show(MayShow),
    /// Put the object that this node's agent has just read into VMAPI, whole, and read it back.
    #[error("move VMAPI's record of the VM")]
    MoveRecord(MayMove),
    /// Delete the copy, its protection against deletion first.
    #[error("delete the copy on the {}'s node", .0.end())]
    Delete(MayDelete),
}

/// Why nothing can be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wait {
    /// The agent does not answer.
    #[error("migration-agent on the {0}'s node does not answer")]
    Silent(End),
    /// VMAPI did not answer which node has the VM.
    #[error("VMAPI did not answer which node has the VM")]
    Vmapi,
    /// A step would not be safe.
    #[error(transparent)]
    Unsafe(#[from] Unsafe),
}

impl Wait {
    /// Returns the node whose agent did not report the state of its copy.
    pub fn end(&self) -> Option<End> {
        match self {
            Wait::Silent(end) | Wait::Unsafe(Unsafe::Unconfirmed(end)) => Some(*end),
            Wait::Vmapi | Wait::Unsafe(Unsafe::Up(_) | Unsafe::NotInUse(_)) => None,
        }
    }
}

/// Why an operation cannot succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// There is no copy where one must be.
    #[error("the {0}'s node has no copy of the VM")]
    Absent(End),
    /// A copy that must be hidden and stopped is shown, or runs.
    #[error("the copy on the {0}'s node is shown or runs")]
    Shown(End),
    /// A copy that must be shown is hidden.
    #[error("the copy on the {0}'s node is hidden")]
    Hidden(End),
    /// A node that was declared dead answers: its copy is the newer one.
    #[error("the {0}'s node answers: it is not dead")]
    NotDead(End),
    /// Somebody's datasets have the names of those that are about to be made.
    #[error("datasets of the VM's name are on the {0}'s node, which this migration has not made")]
    InTheWay(End),
    /// The copy is another program's, or a person's.
    #[error("the copy on the {0}'s node is none that this migration has made")]
    NotMade(End),
    /// Its creation has failed half way: it cannot boot.
    #[error("the zone of the copy on the {0}'s node was never installed: abort, and begin again")]
    Half(End),
    /// An operator destroyed the datasets of a copy.
    #[error("the copy on the {0}'s node has lost its datasets")]
    Bare(End),
    /// The only copy that is left would be deleted.
    #[error(
        "the other node has no copy of the VM, and that on the {0}'s node may be the last one: migration rescue shows and \
         starts it, a second abort with force deletes it"
    )]
    LastCopy(End),
    /// What the nodes show leads to no end of the switch.
    #[error("the rest of the switch cannot be planned from what the nodes show")]
    Unplanned,
    /// Both copies are there.
    #[error("both nodes have a copy of the VM: there is nothing to rescue")]
    NothingLost,
    /// The only copy that is left never received all of the VM.
    #[error("the copy on the {0}'s node never received all of the VM: use migration abort")]
    Empty(End),
    /// The VM was started after it was stopped for the last sync.
    #[error("the VM was started during the final sync")]
    Started,
    /// The VM was reprovisioned, or got or lost a disk, since the target was made.
    #[error("the VM's image, brand or disks have changed since the begin: abort, and begin again")]
    Remade,
    /// Both copies have no snapshot in common, so that the target's changes cannot be sent back.
    #[error("the copies have no snapshot in common; use --discard to lose what the target wrote")]
    NoCommonSnapshot,
    /// The target's node is declared dead, and what it wrote would be lost.
    #[error("the target's changes since the switch cannot be read; use --discard to lose them")]
    TargetLost,
    /// The target may have written since it was allowed to boot, so that it is no rest to be removed.
    #[error("the target may have run: use migration rollback")]
    UseRollback,
    /// The names of sync snapshots are taken again and again before they can be made.
    #[error(
        "the VM's owner made snapshots named vm-migration-N {0} times before the sync could make its own"
    )]
    NamesTaken(u32),
    /// A restart of that vm-agent would have VMAPI believe that the VM is destroyed while its copy is hidden.
    #[error("vm-agent on the {0}'s node {why}", why = .1.against().unwrap_or_default())]
    VmAgent(End, VmAgent),
    /// The retries are used up.
    #[error(transparent)]
    Waited(#[from] Wait),
}

impl Reason {
    /// Returns what ends a migration whose operation failed for this, where a repeat of the operation cannot.
    pub fn remedy(self, record: &Record) -> Option<Remedy> {
        let is_switched = record.intent.target_shown;
        match self {
            Reason::Absent(_) if is_switched => Some(Remedy::Rescue),
            Reason::Absent(End::Source) if record.num_sync_phases > 0 => Some(Remedy::Rescue),
            Reason::Absent(_) | Reason::Remade | Reason::Half(_) => Some(Remedy::Anew),
            Reason::InTheWay(_) | Reason::NotMade(_) => Some(Remedy::Anew),
            Reason::Shown(End::Target) if !is_switched => Some(Remedy::Anew),
            Reason::Bare(End::Target) if !is_switched => Some(Remedy::Resend),
            Reason::Bare(_) | Reason::LastCopy(_) => Some(Remedy::Rescue),
            Reason::NoCommonSnapshot | Reason::TargetLost => Some(Remedy::Stay),
            _ => None,
        }
    }
}

/// How an operation ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ending {
    /// The hidden target is there.
    #[error("begun")]
    Begun,
    /// Both copies have the snapshot.
    #[error("synced")]
    Synced,
    /// The sync was stopped by pause.
    #[error("paused")]
    Paused,
    /// The VM is on the target.
    #[error("switched")]
    Switched,
    /// The VM is on the source.
    #[error("rolled back{}", if *is_gone { "" } else { ", but for the target on a dead node" })]
    RolledBack {
        /// The target is gone; otherwise its node is dead, and the copy may come back with it.
        is_gone: bool,
    },
    /// As if the migration had never begun.
    #[error("aborted")]
    Aborted,
    /// The VM is on the target.
    #[error("finalized{}", if *is_gone { "" } else { ", but for the source on a dead node" })]
    Finalized {
        /// As for a rollback, of the source.
        is_gone: bool,
    },
    /// The operation failed, and what could be undone was.
    #[error("failed: {0}")]
    Failed(String),
}

impl Step {
    /// Returns true if it is an order to the agent of this end.
    pub fn is_of(&self, end: End) -> bool {
        let of = match self {
            Step::Send { .. } => return true,
            Step::Place | Step::Create | Step::Reserve | Step::Unreserve | Step::MoveRecord(_) => {
                return false;
            }
            Step::Hold(of)
            | Step::Release(of)
            | Step::NoAutoboot(of)
            | Step::Stop(of)
            | Step::RestoreQuota(of)
            | Step::Forget { end: of, .. }
            | Step::Settle(of)
            | Step::Protect(of, _)
            | Step::Hide(of) => *of,
            Step::BringOver | Step::Date => End::Target,
            Step::Rehearse => End::Source,
            Step::Autoboot(may) | Step::Boot(may) => may.end(),
            Step::Show(may) => may.end(),
            Step::Delete(may) => may.end(),
        };
        of == end
    }
}

impl Ending {
    /// After this nothing is left to be done on the nodes.
    pub fn is_last(&self) -> bool {
        matches!(self, Ending::Aborted | Ending::RolledBack { .. } | Ending::Finalized { .. })
    }
}
