// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Which copy may do what. Each permission is a type that only the check can make, and the orders that
//! need one carry it: there is no other way to order a copy to boot, to show itself or to be deleted.

use super::facts::{Facts, Report};
use crate::intent::{End, Intent};

/// The copy may be allowed to boot: the other one is stopped and hidden, gone, or declared dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MayBoot(End);

/// The copy may be shown: the other one is hidden, gone, or declared dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MayShow(End);

/// VMAPI's record may be moved to this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MayMove(End);

/// The copy may be deleted: it is stopped and hidden, and the other one is there, shown and in VMAPI; or no VM needs
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MayDelete(End);

/// Why something is not safe now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsafe {
    /// Its agent did not answer, and no operator confirmed that it is dead.
    #[error("migration-agent on the {0}'s node does not answer")]
    Unconfirmed(End),
    /// It runs or is shown.
    #[error("the copy on the {0}'s node is not stopped and hidden")]
    Up(End),
    /// The copy that would remain is not there or not shown, or VMAPI does not have it.
    #[error("the copy on the {0}'s node is not the one that is in use")]
    NotInUse(End),
}

impl MayBoot {
    /// Returns the permission if the other copy cannot be running, now or after a reboot.
    pub fn check(end: End, intent: &Intent, facts: &Facts) -> Result<MayBoot, Unsafe> {
        if end == End::Source && !intent.target_booted && facts.node(End::Target).is_none() {
            return Ok(MayBoot(end)); // never ordered to boot, and without autoboot since it was made
        }
        off(end.other(), intent, facts).map(|()| MayBoot(end))
    }

    /// Returns the node of the copy.
    pub fn end(self) -> End {
        self.0
    }
}

impl MayShow {
    /// Returns the permission if the other copy is hidden. A target that was never ordered to show
    /// itself counts as hidden.
    pub fn check(end: End, intent: &Intent, facts: &Facts) -> Result<MayShow, Unsafe> {
        if end == End::Source && !intent.target_shown {
            return match facts.copy(End::Target) {
                Some(copy) if !copy.hidden => Err(Unsafe::Up(End::Target)),
                _ => Ok(MayShow(end)),
            };
        }
        off(end.other(), intent, facts).map(|()| MayShow(end))
    }

    /// Returns the node of the copy.
    pub fn end(self) -> End {
        self.0
    }
}

impl MayMove {
    /// Returns the permission under the same conditions as [`MayShow`]: what VMAPI names will be shown.
    pub fn check(end: End, intent: &Intent, facts: &Facts) -> Result<MayMove, Unsafe> {
        MayShow::check(end, intent, facts).map(|it| MayMove(it.end()))
    }

    /// Returns the node that the record moves to.
    pub fn end(self) -> End {
        self.0
    }
}

impl MayDelete {
    /// Returns the permission if the copy is spare.
    pub fn check(end: End, facts: &Facts) -> Result<MayDelete, Unsafe> {
        match facts.copy(end) {
            Some(copy) if copy.is_off() => {}
            Some(_) => return Err(Unsafe::Up(end)),
            None => return Err(Unsafe::Unconfirmed(end)),
        }
        let other = end.other();
        let is_shown = facts.copy(other).is_some_and(|copy| !copy.hidden && !copy.bare);
        let is_in_use = is_shown && facts.vmapi == Some(other);
        if is_in_use { Ok(MayDelete(end)) } else { Err(Unsafe::NotInUse(other)) }
    }

    /// Returns the permission for a copy that is the only one, where nothing is in it, or a person
    /// confirmed that it may be lost.
    pub fn check_last(end: End, facts: &Facts) -> Result<MayDelete, Unsafe> {
        match facts.copy(end) {
            Some(copy) if copy.is_off() && facts.is_lost(end.other()) => Ok(MayDelete(end)),
            Some(_) => Err(Unsafe::Up(end)),
            None => Err(Unsafe::Unconfirmed(end)),
        }
    }

    /// Returns the node of the copy.
    pub fn end(self) -> End {
        self.0
    }
}

/// Checks that a copy is stopped and hidden, gone, or declared dead while its node is silent.
fn off(end: End, intent: &Intent, facts: &Facts) -> Result<(), Unsafe> {
    match facts.seen(end) {
        Report::Silent if intent.is_dead(end) => Ok(()),
        Report::Silent | Report::Unwell => Err(Unsafe::Unconfirmed(end)),
        Report::Node(node) if node.copy.as_ref().is_none_or(|copy| copy.is_off()) => Ok(()),
        Report::Node(_) => Err(Unsafe::Up(end)),
    }
}
