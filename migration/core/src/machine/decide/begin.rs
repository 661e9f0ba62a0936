// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Begin: a hidden target on another node (RFD 34, R3, R4).

use super::stage::{Stage, copy, failed, node, unless};
use crate::intent::End;
use crate::machine::facts::Facts;
use crate::machine::next::{Ending, Next, Reason, Step};
use crate::record::Record;

/// Returns what follows, or the ending.
pub fn next(record: &Record, facts: &Facts) -> Stage<Ending> {
    if record.intent.undo.is_some() {
        return Ok(failed(record)); // nothing was changed on the source; abort removes a target
    }
    copy(facts, End::Source)?;
    unless(record.target_server_uuid.is_some(), Step::Place)?;
    let target = node(facts, End::Target)?;
    let intent = &record.intent;
    if intent.creation.is_none() {
        if target.copy.is_none() && !target.in_the_way.is_empty() {
            return Err(Next::GiveUp(Reason::InTheWay(End::Target)));
        }
        if target.copy.is_some() && !intent.made {
            return Err(Next::GiveUp(Reason::NotMade(End::Target)));
        }
    }
    // Before there is a copy: net-agent must not take its NICs for those of another node's VM.
    unless(target.held, Step::Hold(End::Target))?;
    let copy = match &target.copy {
        Some(copy) if intent.creation.is_none() => copy,
        _ => return Err(Next::Do(Step::Create)), // a copy that is being made is not one yet
    };
    if copy.half {
        return Err(Next::GiveUp(Reason::Half(End::Target)));
    }
    if !copy.hidden {
        return Err(Next::GiveUp(Reason::Shown(End::Target))); // not ours
    }
    unless(facts.dated, Step::Date)?;
    unless(!copy.autoboot, Step::NoAutoboot(End::Target))?;
    Ok(Ending::Begun)
}
