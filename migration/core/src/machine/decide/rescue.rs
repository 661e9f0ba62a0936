// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Rescue: one of the copies is gone, by hand or with its pool, and the other one becomes the VM. Where both are gone
//! nothing of the migration is left.

use super::stage::{
    Stage, connected, copy, failed, fenced, forgotten, hidden, moved, node, powered, protected,
    quota, released, shown, stopped, unless,
};
use crate::intent::{End, Power};
use crate::machine::facts::Facts;
use crate::machine::fence::MayDelete;
use crate::machine::next::{Ending, Next, Note, Reason, Step};
use crate::record::Record;

/// What is assumed of a VM whose copy went before it was asked.
const UNKNOWN: Power = Power { running: true, autoboot: true };

/// Returns what follows, or the ending.
pub fn next(record: &Record, facts: &Facts) -> Stage<Ending> {
    let intent = &record.intent;
    if intent.undo.is_some() {
        return Ok(failed(record));
    }
    node(facts, End::Source)?;
    node(facts, End::Target)?;
    let last = match (facts.is_lost(End::Source), facts.is_lost(End::Target)) {
        (true, false) => End::Target,
        (false, true) => End::Source,
        (false, false) => return Err(Next::GiveUp(Reason::NothingLost)),
        (true, true) => {
            connected(facts, End::Source)?;
            released(facts, End::Target)?;
            return Ok(Ending::Finalized { is_gone: true });
        }
    };
    stopped(facts, last.other())?;
    hidden(facts, last.other())?;
    let kept = copy(facts, last)?;
    let was_in_use = last == End::Source || intent.target_booted;
    if !was_in_use && kept.snapshots.is_empty() {
        return Err(Next::GiveUp(Reason::Empty(last)));
    }
    if kept.is_off() {
        unless(!kept.partial || kept.snapshots.is_empty(), Step::Settle(last))?;
    }
    quota(facts, last)?;
    let note = match last {
        End::Source if intent.target_shown && !intent.source_shown => Some(Note::SourceShown),
        End::Target if !intent.target_shown => Some(Note::TargetShown),
        _ => None,
    };
    moved(intent, facts, last)?;
    if let Some(note) = note {
        return Err(Next::Note(note));
    }
    let was_hidden = kept.hidden;
    shown(intent, facts, last)?;
    let is_untouched = last == End::Source && !intent.target_shown && intent.power.is_none();
    if last == End::Target && !intent.target_booted {
        return Err(Next::Note(Note::TargetBooted));
    }
    if !is_untouched || was_hidden {
        powered(intent, facts, last, intent.power.unwrap_or(UNKNOWN))?;
    }
    connected(facts, last)?;
    protected(facts, last, kept.marked)?;
    if facts.copy(last.other()).is_some() {
        return Err(Next::Do(Step::Delete(fenced(MayDelete::check(last.other(), facts))?)));
    }
    released(facts, last.other())?;
    forgotten(facts, last, None)?;
    Ok(match last {
        End::Source => Ending::RolledBack { is_gone: true },
        End::Target => Ending::Finalized { is_gone: true },
    })
}
