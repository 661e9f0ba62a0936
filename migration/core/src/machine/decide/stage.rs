// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The stages that operations are made of. A stage is passed when the facts show that it is done;
//! otherwise it returns what has to follow.

use crate::intent::{End, Intent, Power};
use crate::machine::facts::{Copy, Facts, Node, Protection, Report, SettingsMatch};
use crate::machine::fence::{MayBoot, MayMove, MayShow, Unsafe};
use crate::machine::next::{Ending, Next, Reason, Step, Wait};
use crate::record::Record;

/// Passed, or what has to follow first.
pub type Stage<T> = Result<T, Next>;

/// The ending of an operation that was given up and undone.
pub fn failed(record: &Record) -> Ending {
    Ending::Failed(record.intent.undo.clone().unwrap_or_default())
}

/// An order that has to succeed first, unless the facts show that it has.
pub fn unless(done: bool, step: Step) -> Stage<()> {
    if done { Ok(()) } else { Err(Next::Do(step)) }
}

/// The node answers.
pub fn node(facts: &Facts, end: End) -> Stage<&Node> {
    facts.node(end).ok_or(Next::Wait(Wait::Silent(end)))
}

/// The node answers and has a copy.
pub fn copy(facts: &Facts, end: End) -> Stage<&Copy> {
    node(facts, end)?.copy.as_ref().ok_or(Next::GiveUp(Reason::Absent(end)))
}

/// The source is still what the target was made of.
pub fn alike(facts: &Facts) -> Stage<()> {
    match facts.settings {
        SettingsMatch::Remade => Err(Next::GiveUp(Reason::Remade)),
        SettingsMatch::Same | SettingsMatch::Differ => Ok(()),
    }
}

/// A permission of the fence, or waiting for it.
pub fn fenced<T>(check: Result<T, Unsafe>) -> Stage<T> {
    check.map_err(|unsafe_| Next::Wait(unsafe_.into()))
}

/// The node is silent, an operator confirmed that it is dead, and it has not come back since.
pub fn is_dead(intent: &Intent, facts: &Facts, end: End) -> bool {
    facts.seen(end) == &Report::Silent && intent.is_dead(end) && intent.returned.is_none()
}

/// The copy, if its node shows one, is stopped for good. Autoboot goes first, or a reboot starts it again.
pub fn stopped(facts: &Facts, end: End) -> Stage<()> {
    let Some(copy) = facts.copy(end) else { return Ok(()) };
    unless(!copy.autoboot, Step::NoAutoboot(end))?;
    unless(!copy.running, Step::Stop(end))
}

/// The copy, if its node shows one, is hidden, and net-agent does not take it for gone.
pub fn hidden(facts: &Facts, end: End) -> Stage<()> {
    let Some(node) = facts.node(end) else { return Ok(()) };
    let Some(copy) = &node.copy else { return Ok(()) };
    unless(node.held, Step::Hold(end))?;
    unless(copy.hidden, Step::Hide(end))
}

/// The copy is shown.
pub fn shown(intent: &Intent, facts: &Facts, end: End) -> Stage<()> {
    if copy(facts, end)?.hidden {
        let permission = fenced(MayShow::check(end, intent, facts))?;
        return Err(Next::Do(Step::Show(permission)));
    }
    Ok(())
}

/// No address is reserved for the migration any more, and then net-agent works for the copy: NAPI refuses what it writes
/// of a NIC while the NIC's address is written. What NAPI delays may wait: the VM runs first.
pub fn connected(facts: &Facts, end: End) -> Stage<()> {
    unless(!facts.reserved, Step::Unreserve)?;
    released(facts, end)
}

/// The node, if it answers, does not hold net-agent.
pub fn released(facts: &Facts, end: End) -> Stage<()> {
    unless(facts.node(end).is_none_or(|node| !node.held), Step::Release(end))
}

/// Autoboot and power are as wanted; a copy that is not wanted to run is left as it is.
pub fn powered(intent: &Intent, facts: &Facts, end: End, want: Power) -> Stage<()> {
    let copy = copy(facts, end)?;
    if want.autoboot && !copy.autoboot {
        return Err(Next::Do(Step::Autoboot(fenced(MayBoot::check(end, intent, facts))?)));
    }
    if want.running && !copy.running {
        return Err(Next::Do(Step::Boot(fenced(MayBoot::check(end, intent, facts))?)));
    }
    Ok(())
}

/// VMAPI has the VM on this node.
pub fn moved(intent: &Intent, facts: &Facts, end: End) -> Stage<()> {
    match facts.vmapi {
        Some(there) if there == end => Ok(()),
        Some(_) => {
            let permission = fenced(MayMove::check(end, intent, facts))?;
            Err(Next::Do(Step::MoveRecord(permission)))
        }
        None => Err(Next::Wait(Wait::Vmapi)),
    }
}

/// The quota of the copy, if its node shows one, is what it was.
pub fn quota(facts: &Facts, end: End) -> Stage<()> {
    let is_lifted = facts.copy(end).is_some_and(|copy| copy.quota_lifted);
    unless(!is_lifted, Step::RestoreQuota(end))
}

/// The copy, if its node shows one, is protected against deletion as this says, or more. Nothing here lifts a
/// protection: only the deletion of a copy does.
pub fn protected(facts: &Facts, end: End, want: Protection) -> Stage<()> {
    let Some(copy) = facts.copy(end) else { return Ok(()) };
    let lacks = want.without(copy.protection);
    unless(lacks == Protection::default(), Step::Protect(end, lacks))
}

/// The copy, if its node shows one, has no sync snapshot but this one.
pub fn forgotten(facts: &Facts, end: End, keep: Option<u32>) -> Stage<()> {
    let Some(copy) = facts.copy(end) else { return Ok(()) };
    // Where all go, what only some datasets still have goes too: an agent may have died half way.
    let is_done = !copy.unlisted
        && copy.snapshots.iter().all(|it| Some(it.number) == keep)
        && (keep.is_some() || !copy.partial);
    unless(is_done, Step::Forget { end, keep })
}
