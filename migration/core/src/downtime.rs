// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! How long a VM is down while it is switched or rolled back. Only people read it: no decision depends on it.

use crate::intent::{Down, End};
use crate::machine::{Facts, Note};
use crate::record::{Phase, Record};
use crate::time::Time;

/// Takes a note that is about to be stored: a VM that runs is about to be stopped, or is as it was.
pub fn noted(record: &mut Record, note: Note, now: Time) {
    let down = &mut record.intent.down;
    match note {
        // One that was down when the last operation failed is down since then.
        Note::Power(power) if power.running && down.is_none_or(|it| it.until.is_some()) => {
            *down = Some(Down { since: now, until: None });
        }
        Note::Restored => *down = down.map(|it| Down { until: it.until.or(Some(now)), ..it }),
        _ => {}
    }
}

/// Returns true if the VM was down and is now seen running where it belongs, which is written down.
pub fn seen(record: &mut Record, facts: &Facts, now: Time) -> bool {
    let (phase, intent) = (record.phase, &mut record.intent);
    let place = match phase {
        Phase::Rollback => intent.source_shown.then_some(End::Source),
        _ => (intent.target_booted && !intent.source_shown).then_some(End::Target),
    };
    let runs = place.and_then(|end| facts.copy(end)).is_some_and(|copy| copy.running);
    match &mut intent.down {
        Some(down) if down.until.is_none() && runs => {
            down.until = Some(now);
            true
        }
        _ => false,
    }
}

/// Returns how long the VM was down, in ms, and forgets it; none of one that did not run, or is down still.
pub fn taken(record: &mut Record) -> Option<u64> {
    let Down { since, until } = record.intent.down?;
    let span = u64::try_from(until?.since(since)).unwrap_or(0);
    record.intent.down = None;
    Some(span)
}
