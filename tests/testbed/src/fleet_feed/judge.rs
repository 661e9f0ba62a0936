// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What has to be true at the end. Pure.

use std::collections::BTreeMap;

use anyhow::ensure;
use sdc_clients::fleet::{Kind, Labels, Position};

/// What somebody was told of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Told {
    /// An event, and the one of the node that its agent published before; for a consumer, whom the follower tells of a
    /// hole, none.
    Event(Position, Option<Position>),
    /// A difference that a comparison found.
    Difference,
    /// What happened before is not known; a marker says up to which event.
    Hole(Option<Position>),
}

/// What a message tells.
pub(super) fn told(labels: &Labels) -> Told {
    match (labels.kind, labels.compared) {
        (Kind::Resync, _) => Told::Hole(Some(labels.at.clone())),
        (_, true) => Told::Difference,
        (_, false) => Told::Event(labels.at.clone(), labels.after.clone()),
    }
}

/// How much was told of all nodes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// Events, each once.
    pub events: usize,
    /// Differences that stand for unknown events.
    pub differences: usize,
    /// Times that somebody was told of a hole.
    pub holes: usize,
    /// Times that a message names one before it that the servers acknowledged and do not have.
    pub lost: usize,
}

/// Checks that every event was told once and in order, or that a hole was told in its place: by a marker, or by the
/// message behind it, where the servers lost what they had acknowledged. An agent that leaves one out names one
/// before it that is there, and has told nobody. The first word about a node needs none before it.
pub(super) fn complete(all: &BTreeMap<String, Vec<Told>>) -> anyhow::Result<Counted> {
    let mut counted = Counted::default();
    for (cn, told) in all {
        let mut last: Option<&Position> = None;
        for one in told {
            match one {
                Told::Difference => counted.differences += 1,
                Told::Hole(at) => {
                    counted.holes += 1;
                    last = at.as_ref();
                }
                Told::Event(at, after) => {
                    counted.events += 1;
                    if let Some(last) = last {
                        let next = Position { epoch: last.epoch.clone(), seq: last.seq + 1 };
                        let names_lost =
                            !last.has(at) && after.as_ref().is_some_and(|after| !last.has(after));
                        ensure!(
                            *at == next || names_lost,
                            "{cn}: {at} follows {last}, and nobody was told"
                        );
                        counted.lost += usize::from(*at != next);
                    }
                    last = Some(at);
                }
            }
        }
    }
    Ok(counted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_a_repetition_and_another_start_have_to_be_told() {
        let at = |epoch: &str, seq| Position { epoch: epoch.into(), seq };
        let event = |seq| Told::Event(at("a", seq), Some(at("a", seq - 1)));
        let behind = |seq, after| Told::Event(at("a", seq), Some(at("a", after)));
        let is_complete =
            |told: &[Told]| complete(&[("cn".to_owned(), told.to_vec())].into()).is_ok();
        assert!(is_complete(&[event(4), event(5), Told::Difference, event(6)]));
        assert!(is_complete(&[event(4), event(6)]), "6 says that 5 was there");
        assert!(!is_complete(&[event(4), behind(6, 4)]), "the agent left 5 out");
        assert!(!is_complete(&[event(4), Told::Event(at("a", 6), None)]));
        assert!(is_complete(&[event(4), behind(7, 6)]));
        assert!(!is_complete(&[event(4), event(4)]));
        assert!(!is_complete(&[event(4), Told::Event(at("b", 5), None)]));
        assert!(is_complete(&[
            event(4),
            Told::Hole(Some(at("b", 9))),
            Told::Event(at("b", 10), None)
        ]));
        assert!(!is_complete(&[
            event(4),
            Told::Hole(Some(at("b", 9))),
            Told::Event(at("b", 11), None)
        ]));
        assert!(is_complete(&[event(4), Told::Hole(None), Told::Event(at("b", 10), None)]));
    }
}
