// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The source is as it was before the operation.

use super::stage::{
    Stage, connected, hidden, is_dead, moved, node, powered, quota, shown, stopped,
};
use crate::intent::End;
use crate::machine::facts::Facts;
use crate::machine::next::{Next, Note};
use crate::record::Record;

/// Quota, place in VMAPI, sight, autoboot, power and addresses of the source are what they were.
///
/// Only for a target that was never ordered to show itself. Nothing can be done for a source that is
/// declared dead or was deleted.
pub fn source(record: &Record, facts: &Facts) -> Stage<()> {
    let intent = &record.intent;
    if is_dead(intent, facts, End::Source) {
        return Ok(());
    }
    if facts.is_absent(End::Source) {
        quota(facts, End::Target)?;
        return connected(facts, End::Source);
    }
    node(facts, End::Source)?;
    quota(facts, End::Source)?;
    quota(facts, End::Target)?;
    // The target was never allowed to be shown, nor to boot: a person has done it. One that is shown beside a source
    // that is not hidden may be another program's.
    if facts.copy(End::Source).is_some_and(|copy| copy.hidden) {
        hidden(facts, End::Target)?;
    }
    if facts.copy(End::Target).is_some_and(|copy| copy.hidden) {
        stopped(facts, End::Target)?;
    }
    // VMAPI's record moves when the source is hidden. Where it is not, VMAPI has it still, and is waited for later.
    if facts.vmapi.is_none()
        && facts.copy(End::Source).is_some_and(|copy| !copy.hidden)
        && let Some(power) = intent.power
    {
        powered(intent, facts, End::Source, power)?;
    }
    moved(intent, facts, End::Source)?;
    shown(intent, facts, End::Source)?;
    if let Some(power) = intent.power {
        powered(intent, facts, End::Source, power)?;
    }
    connected(facts, End::Source)?;
    match intent.power {
        Some(_) => Err(Next::Note(Note::Restored)),
        None => Ok(()),
    }
}
