// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Sync: both copies have a new snapshot (RFD 34, R5, R8).

use super::stage::{Stage, alike, copy, failed, forgotten, node, quota};
use crate::intent::End;
use crate::machine::facts::Facts;
use crate::machine::next::{Ending, Next, Note, Reason, Step};
use crate::record::Record;

/// Returns what follows, or the ending.
pub fn next(record: &Record, facts: &Facts) -> Stage<Ending> {
    let intent = &record.intent;
    if intent.undo.is_some() || intent.pause {
        node(facts, End::Source)?;
        quota(facts, End::Source)?;
        quota(facts, End::Target)?;
        return Ok(if intent.undo.is_some() { failed(record) } else { Ending::Paused });
    }
    copy(facts, End::Source)?;
    alike(facts)?;
    sent(record, facts, End::Source)?;
    Ok(Ending::Synced)
}

/// So often the VM's owner may take the name of a sync snapshot first: each number is twice as far ahead of his names
/// as the one before.
const MOST_LOST: u32 = 16;

/// The other copy, which is hidden and stopped, has what this one had when the snapshot was taken.
///
/// What went before is destroyed only now that both have the new snapshot.
pub fn sent(record: &Record, facts: &Facts, from: End) -> Stage<()> {
    let to = copy(facts, from.other())?;
    if to.half {
        return Err(Next::GiveUp(Reason::Half(from.other())));
    }
    if !to.is_off() {
        return Err(Next::GiveUp(Reason::Shown(from.other())));
    }
    let Some(number) = record.intent.sending else {
        let number = facts.unused_number(record.intent.names_lost);
        return Err(Next::Note(Note::Sending(Some(number))));
    };
    if facts.common().is_none_or(|it| it.number != number) {
        if facts.copy(from).is_some_and(|copy| copy.has_taken(number)) {
            let lost = record.intent.names_lost;
            return Err(match lost < MOST_LOST {
                true => Next::Note(Note::NameTaken),
                false => Next::GiveUp(Reason::NamesTaken(lost)),
            });
        }
        return Err(Next::Do(Step::Send { from, number }));
    }
    quota(facts, End::Source)?;
    quota(facts, End::Target)?;
    forgotten(facts, End::Source, Some(number))?;
    forgotten(facts, End::Target, Some(number))
}
