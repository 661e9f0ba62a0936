// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Finalize: the hidden source goes (deployed service; RFD 34 does it in the switch).

use super::stage::{
    Stage, connected, copy, failed, fenced, forgotten, hidden, is_dead, moved, node, quota,
    released, stopped,
};
use crate::intent::End;
use crate::machine::facts::Facts;
use crate::machine::fence::MayDelete;
use crate::machine::next::{Ending, Next, Note, Reason, Step};
use crate::record::Record;

/// Returns what follows, or the ending.
pub fn next(record: &Record, facts: &Facts) -> Stage<Ending> {
    let intent = &record.intent;
    if intent.undo.is_some() {
        return Ok(failed(record));
    }
    if copy(facts, End::Target)?.hidden {
        return Err(Next::GiveUp(Reason::Hidden(End::Target)));
    }
    let is_dead = is_dead(intent, facts, End::Source);
    let source = if is_dead { None } else { node(facts, End::Source)?.copy.as_ref() };
    // The copy that was replaced stays off, even if a person has started or shown it: two copies are one too many,
    // whatever stands against the rest.
    if source.is_some() {
        stopped(facts, End::Source)?;
        hidden(facts, End::Source)?;
    }
    // Another program may have taken VMAPI's record back since the switch.
    if facts.vmapi == Some(End::Source) {
        moved(intent, facts, End::Target)?;
    }
    if !intent.source_goes {
        return Err(Next::Note(Note::SourceGoes)); // no order of this, late, must meet a rollback
    }
    if source.is_some() {
        let permission = fenced(MayDelete::check(End::Source, facts))?;
        return Err(Next::Do(Step::Delete(permission)));
    }
    connected(facts, End::Target)?;
    released(facts, End::Source)?;
    quota(facts, End::Target)?;
    forgotten(facts, End::Target, None)?;
    Ok(Ending::Finalized { is_gone: !is_dead })
}
