// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Abort: as if the migration had never begun (RFD 34, R17).

use super::restore;
use super::stage::{Stage, copy, failed, fenced, forgotten, is_dead, node, released, stopped};
use crate::journal::End;
use crate::machine::facts::Facts;
use crate::machine::fence::MayDelete;
use crate::machine::next::{Ending, Next, Reason, Step};
use crate::record::Record;

/// Returns what follows, or the ending.
pub fn next(record: &Record, facts: &Facts) -> Stage<Ending> {
    let journal = &record.journal;
    if journal.undo.is_some() {
        return Ok(failed(record));
    }
    if journal.target_booted {
        return Err(Next::GiveUp(Reason::UseRollback));
    }
    copy(facts, End::Source)?;
    restore::source(record, facts)?;
    // The rest of a target whose node is declared dead stays, and is listed when the node is back.
    if record.target_server_uuid.is_some() && !is_dead(journal, facts, End::Target) {
        if let Some(target) = &node(facts, End::Target)?.copy {
            if !target.hidden {
                return Err(Next::GiveUp(Reason::Shown(End::Target)));
            }
            stopped(facts, End::Target)?;
            let permission = fenced(MayDelete::check(End::Target, facts))?;
            return Err(Next::Do(Step::Delete(permission)));
        }
        released(facts, End::Target)?;
    }
    forgotten(facts, End::Source, None)?;
    Ok(Ending::Aborted)
}
