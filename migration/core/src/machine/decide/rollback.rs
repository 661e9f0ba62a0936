// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Rollback: the VM goes on on the source, with what the target wrote.

use super::stage::{
    Stage, connected, copy, failed, fenced, forgotten, hidden, is_dead, moved, node, powered,
    protected, quota, released, shown, stopped, unless,
};
use super::sync;
use crate::intent::{End, Power};
use crate::machine::facts::{Copy, Facts};
use crate::machine::fence::MayDelete;
use crate::machine::next::{Ending, Next, Note, Reason, Step};
use crate::record::Record;

/// Returns what follows, or the ending.
pub fn next(record: &Record, facts: &Facts) -> Stage<Ending> {
    let intent = &record.intent;
    if intent.undo.is_some() {
        if intent.source_shown && !facts.is_absent(End::Source) {
            in_use(record, facts)?; // only the target is left, which may not want to go
        }
        return Ok(failed(record)); // both copies stay; the next command goes on
    }
    let source = copy(facts, End::Source)?;
    if !intent.source_shown {
        if source.bare {
            return Err(Next::GiveUp(Reason::Bare(End::Source)));
        }
        target_off(record, facts)?;
        moved(intent, facts, End::Source)?;
        return Err(Next::Note(Note::SourceShown));
    }
    source_on(record, facts)?;
    Ok(Ending::RolledBack { is_gone: !is_dead(intent, facts, End::Target) })
}

/// The target is stopped, sent back if it may have written, and hidden, in this order.
fn target_off(record: &Record, facts: &Facts) -> Stage<()> {
    let intent = &record.intent;
    let is_lost = is_dead(intent, facts, End::Target) || facts.is_absent(End::Target);
    let must_return = intent.target_booted && intent.discard.is_none();
    if is_lost && must_return {
        return Err(Next::GiveUp(Reason::TargetLost));
    }
    if intent.power.is_none() {
        let power = if is_lost {
            Power { running: true, autoboot: true } // the target cannot be asked
        } else {
            copy(facts, End::Target)?.power()
        };
        return Err(Next::Note(Note::Power(power)));
    }
    // Only an operator shows or starts the source before it is its turn.
    stopped(facts, End::Source)?;
    hidden(facts, End::Source)?;
    if is_lost {
        return unless(!source_is_partial(facts), Step::Settle(End::Source));
    }
    let target = copy(facts, End::Target)?;
    if must_return && intent.sending.is_none() && facts.common().is_none() {
        return Err(Next::GiveUp(Reason::NoCommonSnapshot)); // before anything is stopped
    }
    if intent.sending.is_some() && (target.running || is_newer_than_sent(target, intent.sending)) {
        return Err(Next::Note(Note::Sending(None)));
    }
    stopped(facts, End::Target)?;
    hidden(facts, End::Target)?;
    if must_return {
        return sync::sent(record, facts, End::Target);
    }
    quota(facts, End::Source)?;
    quota(facts, End::Target)?;
    unless(!source_is_partial(facts), Step::Settle(End::Source))
}

/// The source is shown, runs if the target ran, and nothing of the migration is left.
fn source_on(record: &Record, facts: &Facts) -> Stage<()> {
    let intent = &record.intent;
    in_use(record, facts)?;
    if !is_dead(intent, facts, End::Target) {
        let target = node(facts, End::Target)?;
        if target.copy.is_some() {
            let permission = fenced(MayDelete::check(End::Target, facts))?;
            return Err(Next::Do(Step::Delete(permission)));
        }
        released(facts, End::Target)?;
    }
    forgotten(facts, End::Source, None)
}

/// The source is the VM again. The target stays off, even if an operator started it.
fn in_use(record: &Record, facts: &Facts) -> Stage<()> {
    let intent = &record.intent;
    stopped(facts, End::Target)?;
    hidden(facts, End::Target)?;
    shown(intent, facts, End::Source)?;
    moved(intent, facts, End::Source)?;
    if let Some(power) = intent.power {
        powered(intent, facts, End::Source, power)?;
    }
    connected(facts, End::Source)?;
    let target = facts.copy(End::Target).map(|copy| copy.protection);
    protected(facts, End::Source, target.unwrap_or_default())?;
    quota(facts, End::Source)
}

fn source_is_partial(facts: &Facts) -> bool {
    facts.copy(End::Source).is_some_and(|copy| copy.partial)
}

/// The copy was started since the snapshot of this number, which it has.
fn is_newer_than_sent(copy: &Copy, sending: Option<u32>) -> bool {
    let newest = copy.snapshots.last().map(|it| it.number);
    copy.started_since_snapshot && newest == sending
}
