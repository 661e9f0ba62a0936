// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Subjects, headers and bodies of the messages. Pure.

use std::fmt;
use std::str::FromStr;

use async_nats::HeaderMap;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The last token of a node's marker, which is no VM: history before it has a hole.
pub const MARKER: &str = "resync";

const TYPE: &str = "Fleet-Type";
const EPOCH: &str = "Fleet-Epoch";
const SEQ: &str = "Fleet-Seq";
const COMPARED: &str = "Fleet-Compared";
/// The event of the node before: see [`Labels::after`].
const AFTER: &str = "Fleet-After";
/// The number of the message before: see [`Message::behind`].
pub(super) const BEHIND: &str = "Fleet-Behind";
/// What a server adds to a message that it hands out by a direct get. A stored message that has it was sent on by
/// a client that did not write it.
const HANDED_OUT: &str = "Nats-Subject";

/// An event of one vminfod: its start, and the event's number.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Position {
    /// The start of vminfod.
    pub epoch: String,
    /// The number of the event since.
    pub seq: u64,
}

impl Position {
    /// Returns true if this is at or behind `other` in the same epoch.
    pub fn has(&self, other: &Position) -> bool {
        self.epoch == other.epoch && self.seq >= other.seq
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.epoch, self.seq)
    }
}

impl FromStr for Position {
    type Err = ();

    fn from_str(text: &str) -> Result<Position, ()> {
        let (epoch, seq) = text.rsplit_once(' ').ok_or(())?;
        Ok(Position { epoch: epoch.to_owned(), seq: seq.parse().map_err(|_| ())? })
    }
}

/// What a message says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The VM is new.
    Create,
    /// The VM changed.
    Modify,
    /// The VM is gone.
    Delete,
    /// What happened on this node before is not completely known.
    Resync,
}

impl Kind {
    /// Returns its name in the header.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Create => "create",
            Kind::Modify => "modify",
            Kind::Delete => "delete",
            Kind::Resync => MARKER,
        }
    }
}

impl FromStr for Kind {
    type Err = ();

    fn from_str(text: &str) -> Result<Kind, ()> {
        let all = [Kind::Create, Kind::Modify, Kind::Delete, Kind::Resync];
        all.into_iter().find(|kind| kind.name() == text).ok_or(())
    }
}

/// What the headers of a message say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Labels {
    /// What it says.
    pub kind: Kind,
    /// The event, or for what was compared and for a marker the snapshot's last event.
    pub at: Position,
    /// It is no event: it is how the VM was found to differ from the feed.
    pub compared: bool,
    /// Of an event, the last one of the node, whatever its VM, that its agent published before: a follower that has
    /// not seen that one missed it. None where the agent knew none, for what was compared, and for a marker.
    pub after: Option<Position>,
}

impl Labels {
    /// Of an event, or of a marker.
    pub fn of(kind: Kind, at: Position) -> Labels {
        Labels { kind, at, compared: false, after: None }
    }

    /// Of what was found by comparison.
    pub fn compared(kind: Kind, at: Position) -> Labels {
        Labels { kind, at, compared: true, after: None }
    }

    /// Returns the event behind which publishing goes on, if everything up to it is published.
    pub fn resume(&self) -> Option<&Position> {
        (!self.compared).then_some(&self.at)
    }

    /// Returns the id by which JetStream knows a message that was sent twice: of an event its node, epoch and number;
    /// of what was compared, and of a marker, also the message that it replaces, since that may be damaged and replaced
    /// again, or be a marker of what was found before.
    pub fn id(&self, subject: &str, expected: u64) -> String {
        let Position { epoch, seq } = &self.at;
        match self.compared || self.kind == Kind::Resync {
            false => format!("{subject}-{epoch}-{seq}"),
            true => format!("{subject}-{epoch}-{seq}-compared-{expected}"),
        }
    }

    /// Writes the headers.
    pub fn write(&self, headers: &mut HeaderMap) {
        headers.insert(TYPE, self.kind.name());
        headers.insert(EPOCH, self.at.epoch.as_str());
        headers.insert(SEQ, self.at.seq.to_string());
        if self.compared {
            headers.insert(COMPARED, "true");
        }
        if let Some(after) = &self.after {
            headers.insert(AFTER, after.to_string());
        }
    }

    /// Reads the headers of a stored message; none if an agent did not write them. `is_handed_out`: it comes by a
    /// direct get, whose own headers it has once.
    pub fn read(headers: &HeaderMap, is_handed_out: bool) -> Option<Labels> {
        let text = |name: &str| headers.get(name).map(|value| value.as_str());
        let handed_out = headers.get_all(HANDED_OUT).count();
        if handed_out > usize::from(is_handed_out) {
            return None;
        }
        let at = Position { epoch: text(EPOCH)?.to_owned(), seq: text(SEQ)?.parse().ok()? };
        let (kind, compared) = (text(TYPE)?.parse().ok()?, text(COMPARED).is_some());
        let after = text(AFTER).and_then(|after| after.parse().ok());
        Some(Labels { kind, at, compared, after })
    }
}

/// Whom a subject is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Target {
    /// The node.
    pub cn: String,
    /// The VM; none for the node's marker.
    pub vm: Option<String>,
}

/// Returns the subject of a VM, or of the node's marker.
pub fn subject(cn: &str, vm: Option<&str>) -> String {
    format!("vms.{cn}.{}", vm.unwrap_or(MARKER))
}

/// Returns the subjects of a node, for a question after its last message or after their names.
pub fn subjects_of(cn: &str) -> String {
    format!("vms.{cn}.>")
}

impl Target {
    /// Reads a subject; none if it is no VM's and no marker.
    pub fn of(subject: &str) -> Option<Target> {
        let (cn, vm) = subject.strip_prefix("vms.")?.split_once('.')?;
        (is_uuid(cn) && (vm == MARKER || is_uuid(vm)))
            .then(|| Target { cn: cn.to_owned(), vm: (vm != MARKER).then(|| vm.to_owned()) })
    }
}

/// Returns true for a uuid as subjects have it.
pub(super) fn is_uuid(text: &str) -> bool {
    Uuid::try_parse(text).is_ok_and(|it| it.to_string() == text)
}

/// A message of the feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Whom it is about.
    pub target: Target,
    /// What its headers say.
    pub labels: Labels,
    /// Its number in `CHANGES`.
    pub seq: u64,
    /// The number of the message of the same subject that its agent knew to be before it; 0 if it knew none.
    pub behind: u64,
    /// The event as vminfod wrote it, without what stays on the node.
    pub body: Bytes,
}

#[cfg(test)]
mod tests {
    use super::*;

    const CN: &str = "564d0b8e-6099-7648-351e-877faf6c56f6";
    const VM: &str = "0b4a4a3e-8b7c-4a09-9c3e-2a5d8f5e0c11";

    fn labels(kind: Kind, compared: bool) -> Labels {
        let at = |seq| Position { epoch: "0123456789abcdef".into(), seq };
        Labels { kind, at: at(7), compared, after: (!compared).then(|| at(5)) }
    }

    #[test]
    fn subjects_name_a_node_and_a_vm_or_its_marker() {
        let vm = Target { cn: CN.into(), vm: Some(VM.into()) };
        assert_eq!(Target::of(&subject(CN, Some(VM))), Some(vm));
        assert_eq!(Target::of(&subject(CN, None)), Some(Target { cn: CN.into(), vm: None }));
        for odd in ["vms", "vms.a.b", "nodes.x", &format!("vms.{CN}"), &format!("vms.{CN}.{VM}.x")]
        {
            assert_eq!(Target::of(odd), None, "{odd}");
        }
        assert_eq!(Target::of(&subject(&CN.to_uppercase(), Some(VM))), None);
    }

    #[test]
    fn headers_say_what_was_written_and_what_was_sent_on_is_not_believed() {
        for kind in [Kind::Create, Kind::Modify, Kind::Delete, Kind::Resync] {
            let written = labels(kind, kind == Kind::Create);
            let mut headers = HeaderMap::new();
            written.write(&mut headers);
            assert_eq!(Labels::read(&headers, false), Some(written.clone()));
            headers.append("Nats-Subject", "vms.a.b");
            assert_eq!(Labels::read(&headers, true), Some(written));
            assert_eq!(Labels::read(&headers, false), None);
        }
        assert_eq!(Labels::read(&HeaderMap::new(), false), None);
    }

    #[test]
    fn only_an_event_is_a_place_to_go_on_behind() {
        assert_eq!(labels(Kind::Modify, false).resume().map(|at| at.seq), Some(7));
        assert_eq!(labels(Kind::Modify, true).resume(), None);
    }
}
