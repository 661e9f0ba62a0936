// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A switch that is played to its end on the facts of a round, while nothing is done.

use super::decide;
use super::facts::{Copy, Facts, Report, SettingsMatch, Snapshot};
use super::next::{Ending, Next, Reason, Step};
use super::outcome::note;
use crate::intent::{End, Rehearsal};
use crate::record::Record;

/// No switch has so many steps.
const MOST: usize = 100;

/// Returns what follows from a record and the facts of a round. A switch whose rest cannot be played to its end stops
/// no VM.
pub fn next(record: &Record, facts: &Facts) -> Next {
    match decide::next(record, facts) {
        Next::Do(Step::Rehearse) => match rest(record, facts) {
            Err(against @ (Next::Wait(_) | Next::GiveUp(_))) => against,
            Err(_) => Next::GiveUp(Reason::Unplanned),
            Ok(_) => Next::Do(Step::Rehearse),
        },
        next => next,
    }
}

/// Returns the steps that are left of a switch if each of them succeeds, or what stands against it already.
pub fn rest(record: &Record, facts: &Facts) -> Result<Vec<Step>, Next> {
    let (mut record, mut facts) = (record.clone(), facts.clone());
    record.intent.rehearsed.get_or_insert(Rehearsal::default());
    let mut steps: Vec<Step> = Vec::new();
    for _ in 0..MOST {
        match decide::next(&record, &facts) {
            Next::Note(it) => note(&mut record, it),
            Next::Do(step) if steps.last() == Some(&step) => return Err(Next::Do(step)),
            Next::Do(step) => {
                play(&step, &mut facts);
                steps.push(step);
            }
            Next::End(Ending::Switched) => return Ok(steps),
            against => return Err(against),
        }
    }
    Err(Next::GiveUp(Reason::Unplanned))
}

/// Makes of the facts what a step makes of them.
fn play(step: &Step, facts: &mut Facts) {
    match *step {
        Step::Hold(end) => held(facts, end, true),
        Step::Release(end) => held(facts, end, false),
        Step::NoAutoboot(end) => of(facts, end, |copy| copy.autoboot = false),
        Step::Autoboot(may) => of(facts, may.end(), |copy| copy.autoboot = true),
        Step::Stop(end) => of(facts, end, |copy| copy.running = false),
        Step::Boot(may) => of(facts, may.end(), |copy| copy.running = true),
        Step::Hide(end) => of(facts, end, |copy| copy.hidden = true),
        Step::Show(may) => of(facts, may.end(), |copy| copy.hidden = false),
        Step::RestoreQuota(end) => of(facts, end, |copy| copy.quota_lifted = false),
        Step::Protect(end, more) => of(facts, end, |copy| {
            copy.protection.zoneroot |= more.zoneroot;
            copy.protection.delegated |= more.delegated;
        }),
        Step::Settle(end) => of(facts, end, |copy| copy.partial = false),
        Step::Forget { end, keep } => of(facts, end, |copy| {
            copy.partial &= keep.is_some();
            copy.snapshots.retain(|it| Some(it.number) == keep);
        }),
        Step::Send { number, .. } => {
            let copies = [End::Source, End::Target].into_iter().filter_map(|end| facts.copy(end));
            let guids: Vec<u64> =
                copies.flat_map(|copy| copy.snapshots.iter().map(|it| it.guid)).collect();
            let mut guid = u64::MAX;
            while guids.contains(&guid) {
                guid -= 1;
            }
            for end in [End::Source, End::Target] {
                of(facts, end, |copy| {
                    copy.snapshots.push(Snapshot { number, guid });
                    (copy.partial, copy.started_since_snapshot) = (false, false);
                    copy.quota_lifted = true;
                });
            }
        }
        Step::BringOver => facts.settings = SettingsMatch::Same,
        Step::Date => facts.dated = true,
        Step::Reserve => facts.reserved = true,
        Step::Unreserve => facts.reserved = false,
        Step::MoveRecord(may) => facts.vmapi = Some(may.end()),
        Step::Place | Step::Create | Step::Rehearse | Step::Delete(_) => {}
    }
}

fn held(facts: &mut Facts, end: End, held: bool) {
    let report = match end {
        End::Source => &mut facts.source,
        End::Target => &mut facts.target,
    };
    if let Report::Node(node) = report {
        node.held = held;
    }
}

fn of(facts: &mut Facts, end: End, change: impl FnOnce(&mut Copy)) {
    let report = match end {
        End::Source => &mut facts.source,
        End::Target => &mut facts.target,
    };
    if let Report::Node(node) = report
        && let Some(copy) = &mut node.copy
    {
        change(copy);
    }
}
