// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Abort: as if the migration had never begun (RFD 34, R17).

use super::restore;
use super::stage::{Stage, failed, fenced, forgotten, is_dead, node, released, stopped};
use crate::intent::End;
use crate::machine::facts::{Copy, Facts, Report};
use crate::machine::fence::MayDelete;
use crate::machine::next::{Ending, Next, Reason, Step, Wait};
use crate::record::{Record, has_made_target};

/// Returns what follows, or the ending.
pub fn next(record: &Record, facts: &Facts) -> Stage<Ending> {
    let intent = &record.intent;
    if intent.target_booted {
        return match intent.undo {
            Some(_) => Ok(failed(record)),
            None => Err(Next::GiveUp(Reason::UseRollback)),
        };
    }
    if intent.undo.is_some() {
        // What could not be removed stays. The VM is its owner's again, and a person confirmed that this is the end.
        restore::source(record, facts)?;
        forgotten(facts, End::Source, None)?;
        return Ok(match intent.discard {
            Some(_) => Ending::Aborted,
            None => failed(record),
        });
    }
    node(facts, End::Source)?;
    restore::source(record, facts)?;
    // The rest of a target whose node is declared dead stays, and is listed when the node is back.
    if record.target_server_uuid.is_some() && !is_dead(intent, facts, End::Target) {
        // An abort has waited for it once, and a person has said that the copy may stay.
        if intent.discard.is_some() && facts.seen(End::Target) == &Report::Silent {
            return Err(Next::GiveUp(Wait::Silent(End::Target).into()));
        }
        // What this migration has not made stays.
        if let Some(target) = &node(facts, End::Target)?.copy
            && has_made_target(record)
        {
            return Err(delete(record, facts, target)?);
        }
        released(facts, End::Target)?;
    }
    forgotten(facts, End::Source, None)?;
    Ok(Ending::Aborted)
}

/// What leads to the deletion of the target. Where the source is gone, a target that has received all of it once may be
/// the last copy: it is deleted only if a person confirms.
fn delete(record: &Record, facts: &Facts, target: &Copy) -> Stage<Next> {
    if !target.hidden {
        return Err(Next::GiveUp(Reason::Shown(End::Target)));
    }
    let is_last = facts.is_lost(End::Source);
    let is_empty = record.num_sync_phases == 0 && target.snapshots.is_empty();
    if is_last && !is_empty && record.intent.discard.is_none() {
        return Err(Next::GiveUp(Reason::LastCopy(End::Target)));
    }
    stopped(facts, End::Target)?;
    let permission = match is_last {
        true => MayDelete::check_last(End::Target, facts),
        false => MayDelete::check(End::Target, facts),
    };
    Ok(Next::Do(Step::Delete(fenced(permission)?)))
}
