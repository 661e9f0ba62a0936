// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The source is as it was before the operation.

use super::stage::{Stage, is_dead, moved, node, powered, quota, shown, unless};
use crate::journal::End;
use crate::machine::facts::Facts;
use crate::machine::next::{Next, Note, Step};
use crate::record::Record;

/// Quota, place in VMAPI, sight, autoboot, power and addresses of the source are what they were.
///
/// Only for a target that was never ordered to show itself. Nothing can be done for a source that is
/// declared dead or was deleted.
pub fn source(record: &Record, facts: &Facts) -> Stage<()> {
    let journal = &record.journal;
    if is_dead(journal, facts, End::Source) || facts.is_absent(End::Source) {
        return Ok(());
    }
    node(facts, End::Source)?;
    quota(facts, End::Source)?;
    quota(facts, End::Target)?;
    moved(journal, facts, End::Source)?;
    shown(journal, facts, End::Source)?;
    if let Some(power) = journal.power {
        powered(journal, facts, End::Source, power)?;
    }
    // It may wait: the VM runs first.
    unless(!facts.reserved, Step::Unreserve)?;
    match journal.power {
        Some(_) => Err(Next::Note(Note::Restored)),
        None => Ok(()),
    }
}
