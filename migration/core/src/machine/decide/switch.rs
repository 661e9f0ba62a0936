// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Switch: the VM goes on on the target (RFD 34, R6).

use super::restore;
use super::stage::{
    Stage, alike, connected, copy, failed, forgotten, hidden, is_dead, moved, powered, protected,
    quota, shown, stopped, unless,
};
use super::sync;
use crate::intent::{End, Intent, Power};
use crate::machine::facts::{Copy, Facts, Report, SettingsMatch};
use crate::machine::next::{Ending, Next, Note, Reason, Step};
use crate::record::Record;

/// What is assumed of a VM whose node died before it was asked.
const UNKNOWN: Power = Power { running: true, autoboot: true };

/// Returns what follows, or the ending.
pub fn next(record: &Record, facts: &Facts) -> Stage<Ending> {
    let intent = &record.intent;
    if intent.target_shown && intent.undo.is_some() {
        return Ok(failed(record)); // the next command goes on, or rolls back
    }
    if intent.undo.is_some() {
        restore::source(record, facts)?;
        return Ok(failed(record));
    }
    if !intent.target_shown {
        source_off(record, facts)?;
        moved(intent, facts, End::Target)?;
        return Err(Next::Note(Note::TargetShown));
    }
    target_on(record, facts)?;
    Ok(Ending::Switched)
}

/// The source is stopped, sent whole and hidden, in this order.
fn source_off(record: &Record, facts: &Facts) -> Stage<()> {
    let intent = &record.intent;
    let target = copy(facts, End::Target)?;
    if target.half {
        return Err(Next::GiveUp(Reason::Half(End::Target)));
    }
    let is_dead = intent.is_dead(End::Source);
    let source = facts.copy(End::Source);
    if is_dead && (source.is_some() || facts.seen(End::Source) == &Report::Unwell) {
        return Err(Next::GiveUp(Reason::NotDead(End::Source)));
    }
    // Where the source is lost, its people may have booted the copy by hand: it starts again, with what it wrote.
    if is_dead && target.hidden {
        stopped(facts, End::Target)?;
    }
    if !target.is_off() {
        return Err(Next::GiveUp(Reason::Shown(End::Target)));
    }
    if !is_dead {
        copy(facts, End::Source)?;
    }
    alike(facts)?;
    if intent.power.is_none() && !is_dead {
        // What begin found may have been replaced since, as by an update of the agents.
        trusted(intent, facts)?;
        // Everything would be sent while the VM is down, and nothing can be set on what is not there.
        if target.bare {
            return Err(Next::GiveUp(Reason::Bare(End::Target)));
        }
        // An update that fails costs nothing as long as the VM is on. What changes later is brought over below.
        unless(facts.settings == SettingsMatch::Same, Step::BringOver)?;
        unless(facts.dated, Step::Date)?; // the target of an older service
        unless(intent.rehearsed.is_some(), Step::Rehearse)?;
    }
    if intent.power.is_none() {
        return Err(Next::Note(Note::Power(source.map_or(UNKNOWN, Copy::power))));
    }
    if let Some(number) = intent.sending
        && source.is_some_and(|it| it.running || was_started_after(it, number))
    {
        return Err(Next::GiveUp(Reason::Started));
    }
    stopped(facts, End::Source)?;
    if is_dead {
        // What all its datasets received is all there is.
        unless(!target.partial, Step::Settle(End::Target))?;
    } else {
        sync::sent(record, facts, End::Source)?;
        unless(facts.settings == SettingsMatch::Same, Step::BringOver)?;
    }
    unless(facts.reserved, Step::Reserve)?;
    hidden(facts, End::Source)
}

/// No vm-agent of the two nodes reports a hidden copy destroyed, or the operator takes that upon himself.
fn trusted(intent: &Intent, facts: &Facts) -> Stage<()> {
    let not_ours = [End::Source, End::Target].into_iter().find_map(|end| {
        let vm_agent = facts.node(end)?.vm_agent;
        vm_agent.against().map(|_| Reason::VmAgent(end, vm_agent))
    });
    match not_ours.filter(|_| intent.any_vm_agent.is_none()) {
        Some(reason) => Err(Next::GiveUp(reason)),
        None => Ok(()),
    }
}

/// The copy was started since the snapshot of this number, which it has.
fn was_started_after(copy: &Copy, number: u32) -> bool {
    copy.started_since_snapshot && copy.snapshots.last().is_some_and(|it| it.number == number)
}

/// The target is shown, runs if the source ran, and nothing of the sync is left but its last snapshot.
fn target_on(record: &Record, facts: &Facts) -> Stage<()> {
    let intent = &record.intent;
    // A rollback that failed before it began has changed nothing.
    let running = facts.copy(End::Target).filter(|_| intent.target_booted).map(Copy::power);
    let power = intent.power.or(running).unwrap_or(UNKNOWN);
    stopped(facts, End::Source)?;
    hidden(facts, End::Source)?;
    shown(intent, facts, End::Target)?;
    moved(intent, facts, End::Target)?;
    if power != (Power { running: false, autoboot: false }) && !intent.target_booted {
        return Err(Next::Note(Note::TargetBooted));
    }
    powered(intent, facts, End::Target, power)?;
    connected(facts, End::Target)?;
    let source = facts.copy(End::Source).map(|copy| copy.protection);
    let marked = facts.copy(End::Target).map(|copy| copy.marked);
    // Of a source that is dead the stream has brought the mark.
    protected(facts, End::Target, source.or(marked).unwrap_or_default())?;
    quota(facts, End::Target)?;
    quota(facts, End::Source)?;
    if is_dead(intent, facts, End::Source) {
        return Ok(());
    }
    // A rollback needs it: it stays on both sides until finalize.
    match facts.common() {
        Some(last) => {
            forgotten(facts, End::Source, Some(last.number))?;
            forgotten(facts, End::Target, Some(last.number))
        }
        None => Ok(()),
    }
}
