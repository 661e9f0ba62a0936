// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The chain of a node's events: each names the one that was published before it, so that a follower of the whole
//! node sees what never came, whatever VM it was about and whichever program lost it. Pure.

use std::collections::BTreeMap;

use super::message::{Kind, Message, Position};

/// The last event of each node that was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chain(BTreeMap<String, Position>);

impl Chain {
    /// Reads the next message; returns true if one before it never came. The first word about a node needs none
    /// before it, and a marker says itself what is not known.
    pub fn breaks_at(&mut self, message: &Message) -> bool {
        let (labels, cn) = (&message.labels, &message.target.cn);
        if labels.compared {
            return false;
        }
        let last = self.0.get(cn);
        let is_marker = labels.kind == Kind::Resync;
        if !is_marker && last.is_some_and(|last| last.has(&labels.at)) {
            // It is published again.
            return false;
        }
        let is_broken = match (last, &labels.after) {
            (Some(last), Some(after)) => !is_marker && !last.has(after),
            _ => false,
        };
        self.0.insert(cn.clone(), labels.at.clone());
        is_broken
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::{Labels, Target};
    use super::*;

    fn message(kind: Kind, at: (&str, u64), after: Option<(&str, u64)>) -> Message {
        let position = |(epoch, seq): (&str, u64)| Position { epoch: epoch.into(), seq };
        let target = Target { cn: "cn".into(), vm: None };
        let labels = Labels { after: after.map(position), ..Labels::of(kind, position(at)) };
        Message { target, labels, seq: 0, behind: 0, body: bytes::Bytes::new() }
    }

    #[test]
    fn a_message_tells_of_the_one_that_never_came_before_it() {
        // N27
        let mut chain = Chain::default();
        let mut breaks = |kind, at, after| chain.breaks_at(&message(kind, at, after));
        let (event, marker) = (Kind::Modify, Kind::Resync);
        assert!(!breaks(event, ("a", 7), Some(("a", 6))), "the first word about the node");
        assert!(!breaks(event, ("a", 8), Some(("a", 7))));
        assert!(!breaks(event, ("a", 12), Some(("a", 8))), "what is not published leaves no hole");
        assert!(breaks(event, ("a", 14), Some(("a", 13))), "13 never came");
        assert!(!breaks(event, ("a", 13), Some(("a", 12))), "published again, late");
        assert!(!breaks(event, ("a", 15), Some(("a", 14))), "that is taken in");
        assert!(!breaks(event, ("a", 17), None), "an agent that knew none");
        assert!(!breaks(marker, ("b", 3), None), "it says so itself");
        assert!(!breaks(event, ("b", 4), Some(("b", 3))));
        assert!(!breaks(marker, ("b", 2), None), "a feed of yesterday");
        assert!(breaks(event, ("c", 9), Some(("c", 8))), "its marker never came");
    }
}
