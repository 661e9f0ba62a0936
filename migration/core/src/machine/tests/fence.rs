// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Every permission of the fence, over everything that can be seen of the other copy.

use pretty_assertions::assert_eq;

use crate::intent::{Confirmation, End, Intent};
use crate::machine::*;

/// What can be seen of a node: silence, an answer that says nothing, no copy, and the eight copies.
fn all_seen() -> Vec<Report> {
    let mut all = vec![Report::Silent, Report::Unwell, Report::Node(Node::default())];
    for bits in 0..8 {
        let (running, hidden, autoboot) = (bits & 1 > 0, bits & 2 > 0, bits & 4 > 0);
        let copy = Copy { running, hidden, autoboot, ..Copy::default() };
        all.push(Report::Node(Node { copy: Some(copy), ..Node::default() }));
    }
    all
}

fn facts(end: End, own: &Report, other: &Report, vmapi: End) -> Facts {
    let (source, target) = match end {
        End::Source => (own, other),
        End::Target => (other, own),
    };
    let (source, target) = (source.clone(), target.clone());
    Facts {
        source,
        target,
        vmapi: Some(vmapi),
        reserved: false,
        settings: SettingsMatch::Same,
        dated: true,
    }
}

/// The intents that differ in what the fence looks at.
fn intents(end: End) -> Vec<Intent> {
    let word = Some(Confirmation { by: uuid::Uuid::nil(), at: crate::time::Time::from_millis(0) });
    let mut all = Vec::new();
    for flags in 0..8 {
        let is_dead = flags & 1 > 0;
        all.push(Intent {
            source_dead: word.clone().filter(|_| is_dead && end == End::Source),
            target_dead: word.clone().filter(|_| is_dead && end == End::Target),
            target_shown: flags & 2 > 0,
            target_booted: flags & 4 > 0,
            ..Intent::default()
        });
    }
    all
}

#[test] // M28 M102
fn a_copy_boots_and_is_shown_only_when_the_other_one_cannot_be_in_use() {
    let own = Report::Node(Node { copy: Some(Copy::default()), ..Node::default() });
    for end in [End::Source, End::Target] {
        let other = end.other();
        for intent in intents(other) {
            for seen in all_seen() {
                let facts = facts(end, &own, &seen, End::Source);
                let is_off = match &seen {
                    Report::Silent => intent.is_dead(other),
                    Report::Unwell => false,
                    Report::Node(Node { copy: None, .. }) => true,
                    Report::Node(Node { copy: Some(it), .. }) => {
                        !it.running && it.hidden && !it.autoboot
                    }
                };
                let is_source = end == End::Source;
                let is_unseen = facts.node(other).is_none();
                let never_booted = is_source && !intent.target_booted && is_unseen;
                let never_shown = is_source && !intent.target_shown;
                let is_hidden = facts.copy(other).is_none_or(|it| it.hidden);
                let may_show = if never_shown { is_hidden } else { is_off };
                let what = format!("{end} {seen:?} {intent:?}");
                let boots = MayBoot::check(end, &intent, &facts).is_ok();
                assert_eq!(boots, is_off || never_booted, "boot {what}");
                assert_eq!(MayShow::check(end, &intent, &facts).is_ok(), may_show, "show {what}");
                assert_eq!(MayMove::check(end, &intent, &facts).is_ok(), may_show, "move {what}");
            }
        }
    }
}

#[test] // M28
fn a_copy_is_deleted_only_when_it_is_off_and_the_other_one_is_in_use() {
    let mut deleted = 0;
    for end in [End::Source, End::Target] {
        for own in all_seen() {
            for other in all_seen() {
                for vmapi in [End::Source, End::Target] {
                    let facts = facts(end, &own, &other, vmapi);
                    let is_off =
                        facts.copy(end).is_some_and(|it| !it.running && it.hidden && !it.autoboot);
                    let is_used = facts.copy(end.other()).is_some_and(|it| !it.hidden);
                    let want = is_off && is_used && vmapi == end.other();
                    assert_eq!(MayDelete::check(end, &facts).is_ok(), want, "{end} {facts:?}");
                    deleted += usize::from(want);
                }
            }
        }
    }
    assert_eq!(deleted, 8); // either end; the other one runs or not, with autoboot or without
}
