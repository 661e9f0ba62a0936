// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! All runs with one fault, in an order of which each beginning is a fair sample; and pairs of faults by seed.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use migration_core::intent::End;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::points::{Fault, Moment, Party, Planned, STORE, what};
use super::runs::{Case, Ran};
use super::world::Shape;
use crate::moving::operator::Story;

/// A store that was restored lacks so many writes: one, those of a step, and those of an operation.
const ONE: usize = 1;
const FEW: usize = 3;
const MANY: usize = 25;

/// What can happen before or after a point.
fn faults(moment: Moment) -> Vec<Fault> {
    let both = [End::Source, End::Target];
    let mut parties = vec![Party::Service(1)];
    parties.extend(both.map(Party::Agent));
    parties.extend(both.map(Party::Vminfod));
    let mut all: Vec<Fault> = parties.iter().copied().map(Fault::Dies).collect();
    all.extend(parties.into_iter().map(Fault::Stops));
    all.extend(both.map(Fault::Reboots));
    all.extend(both.map(Fault::Cut));
    all.push(Fault::Loses);
    all.push(Fault::Empty);
    all.extend([ONE, FEW, MANY].map(Fault::Older));
    if moment == Moment::Before {
        all.push(Fault::Late);
    }
    all
}

/// What is tried at each point alone: a hand that somebody has in it, and what cannot be done.
const ALONE: [Fault; 2] = [Fault::Fails, Fault::Hand];

/// Returns true for what changes something. A peer that answers no question is one that does not answer.
pub fn is_step(label: &str) -> bool {
    !label.contains(": GET ") && !label.contains("/observe") && !label.ends_with(STORE)
}

/// The points of a story that no story before it has had.
fn own_points(story: Story, plain: &Ran) -> std::ops::Range<usize> {
    let begin = match story {
        Story::Finalize | Story::Automatic => 0,
        Story::Paused => plain.marks.get(1).copied().unwrap_or(0),
        Story::SourceDead | Story::CutOff | Story::Unwell | Story::Hasty | Story::Deleted => {
            plain.marks.get(2).copied().unwrap_or(0)
        }
        // The commands before the last one are those of the first story.
        Story::Rollback | Story::Abort | Story::Discard => {
            plain.marks.iter().rev().nth(1).copied().unwrap_or(0)
        }
    };
    begin..plain.marks.last().copied().unwrap_or(0)
}

/// Returns all cases with one fault, given how each story runs without any.
pub fn single(plain: &[(Story, Ran)], shape: Shape) -> Vec<Case> {
    let mut cases = Vec::new();
    for (story, ran) in plain {
        for at in own_points(*story, ran) {
            for moment in [Moment::Before, Moment::After] {
                let planned = |fault| vec![Planned { at, moment, fault }];
                let of = |fault| Case { story: *story, planned: planned(fault), shape };
                let may_fail = is_step(&ran.labels[at]);
                let alone = ALONE.into_iter().filter(|fault| {
                    moment == Moment::Before && (may_fail || *fault != Fault::Fails)
                });
                cases.extend(faults(moment).into_iter().chain(alone).map(of));
            }
        }
    }
    sample(&mut cases);
    cases
}

/// Where the part of a switch begins in which the VM is stopped.
const STOPS: &str = "source agent: vmadm stop";

/// Returns true for what may be said to be done and not be: a program of a node, and the record of a peer. What an agent
/// is ordered is done by its programs.
fn may_be_hollow(label: &str) -> bool {
    !label.contains("/orders ") && !label.contains(": POST ") && !label.contains(": DELETE ")
}

/// A sync snapshot that is not destroyed is named, and stays: no switch fails for it.
const LEFT: &str = "@vm-migration-";

/// Returns the cases of switches that fail with the VM down: each step from the stop on, once, that does not succeed
/// again before the switch is undone.
pub fn failing(plain: &[(Story, Ran)], shape: Shape) -> Vec<Case> {
    let Some((story, ran)) = plain.iter().find(|(story, _)| *story == Story::Finalize) else {
        return Vec::new();
    };
    let [_, _, from, to, ..] = ran.marks[..] else { return Vec::new() };
    let steps = ran.labels[..to].iter().enumerate().skip(from);
    let mut known = BTreeSet::new();
    let steps = steps.skip_while(|(_, label)| !label.starts_with(STOPS));
    let is_left = |label: &str| label.contains("zfs destroy") && label.contains(LEFT);
    let steps =
        steps.filter(|(_, label)| is_step(label) && !is_left(label) && known.insert(what(label)));
    let cases = steps.flat_map(|(at, label)| {
        let hollow = may_be_hollow(label).then_some(Fault::Hollow);
        [Fault::Lasts].into_iter().chain(hollow).map(move |fault| {
            let planned = vec![Planned { at, moment: Moment::Before, fault }];
            Case { story: *story, planned, shape }
        })
    });
    let mut cases: Vec<Case> = cases.collect();
    sample(&mut cases);
    cases
}

/// An order of which each beginning is a fair sample.
fn sample(cases: &mut [Case]) {
    cases.sort_by_cached_key(|case| {
        let mut hasher = DefaultHasher::new();
        format!("{case:?}").hash(&mut hasher);
        hasher.finish()
    });
}

/// Returns the case of a seed: two faults.
pub fn pair(seed: u64, plain: &[(Story, Ran)], shape: Shape) -> Case {
    let mut rng = StdRng::seed_from_u64(seed);
    let story = plain[rng.random_range(0..plain.len())].0;
    let points = plain
        .iter()
        .find(|(it, _)| *it == story)
        .map_or(1, |(_, ran)| ran.marks.last().copied().unwrap_or(0).max(1));
    let mut planned: Vec<Planned> = (0..2)
        .map(|_| {
            let moment = if rng.random() { Moment::Before } else { Moment::After };
            let all = faults(moment);
            let fault = all[rng.random_range(0..all.len())];
            Planned { at: rng.random_range(0..points), moment, fault }
        })
        .collect();
    planned.sort();
    Case { story, planned, shape }
}
