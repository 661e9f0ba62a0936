// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Whether an operator may declare a node dead: the last signs of life that CNAPI and its agent gave.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::time::Time;

/// Heartbeats of both nodes older than this mean that the clocks differ, or that CNAPI receives none.
const APART_MS: i64 = 60_000;

/// CNAPI's answer about a node's heartbeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heartbeat {
    /// The last one.
    At(Time),
    /// It has none: the node never sent one, or CNAPI was started since.
    None,
    /// CNAPI does not know the node.
    Stranger,
    /// CNAPI does not answer.
    Silent,
}

impl Heartbeat {
    /// Reads `last_heartbeat` of CNAPI's record. For a node that has only sent its sysinfo, CNAPI may answer 1970.
    pub fn read(text: Option<&str>) -> Heartbeat {
        match text.and_then(Time::parse) {
            Some(at) if at.millis() > 0 => Heartbeat::At(at),
            _ => Heartbeat::None,
        }
    }
}

/// A kind of request or answer of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Contact {
    /// The state of a copy.
    Copy,
    /// An error: it could not do or report what it was asked.
    Error,
    /// It asked whether its copies were replaced.
    Question,
}

/// An agent's last request or answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastContact {
    pub at: Time,
    pub what: Contact,
}

/// The last signs of life of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signs {
    pub cn: Uuid,
    /// Its agent has answered just now, be it with an error.
    pub answers: bool,
    pub heartbeat: Heartbeat,
    /// The last heartbeat of the migration's other node: how far CNAPI's own time has come.
    pub others: Option<Time>,
    /// Its agent's last contact; none where the store has none.
    pub last_contact: Option<LastContact>,
}

/// Why a node is not taken for dead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Alive {
    /// It answers: no confirmation makes it dead.
    Answers(Uuid),
    /// It may be alive. A person may know better.
    MayBe { signs: String, dead_after: u32 },
}

impl fmt::Display for Alive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Alive::Answers(cn) => write!(f, "The node {cn} answers: it is not dead"),
            Alive::MayBe { signs, dead_after } => write!(
                f,
                "{signs}. A node is taken for dead {dead_after} s after both; if you have seen that it is off, use --really"
            ),
        }
    }
}

impl Signs {
    /// Checks that the node may be taken for dead: it does not answer, and both signs are known and older than
    /// `dead_after` seconds. `is_really`: the operator knows that it is off. A clock that was put forward, here or at
    /// CNAPI, makes no heartbeat old, and a CNAPI that no node's heartbeat reaches says nothing of this node.
    pub fn dead(&self, dead_after: u32, is_really: bool, now: Time) -> Result<(), Alive> {
        let is_old = |at: Time| now.since(at) >= i64::from(dead_after) * 1000;
        // The other one's is some time old, too.
        let span = i64::from(dead_after) * 1000;
        let late = span - APART_MS.min(span / 2);
        let is_late = |at: Time| self.others.is_none_or(|other| other.since(at) >= late);
        let is_heartbeat_old =
            matches!(self.heartbeat, Heartbeat::At(at) if is_old(at) && is_late(at));
        let is_contact_old = self.last_contact.is_some_and(|last| is_old(last.at));
        match self.answers {
            true => Err(Alive::Answers(self.cn)),
            false if is_really || (is_heartbeat_old && is_contact_old) => Ok(()),
            false => Err(Alive::MayBe { signs: self.sentence(now), dead_after }),
        }
    }

    /// Returns the signs as a sentence without its end.
    pub fn sentence(&self, now: Time) -> String {
        let cn = self.cn;
        let heartbeat = match self.heartbeat {
            Heartbeat::At(at) => {
                let others = self.others.filter(|other| now.since(*other) >= APART_MS);
                let others =
                    others.map(|other| format!(", and that of the other node {}", ago(other, now)));
                let others = others.unwrap_or_default();
                format!("CNAPI had the last heartbeat of {cn} {}{others}", ago(at, now))
            }
            Heartbeat::None => format!(
                "CNAPI has no heartbeat of {cn}: it never sent one, or CNAPI was started since"
            ),
            Heartbeat::Stranger => format!("CNAPI does not know {cn}"),
            Heartbeat::Silent => {
                format!("CNAPI did not answer when it had the last heartbeat of {cn}")
            }
        };
        let contact = match self.last_contact {
            None => "the store has no last contact of its agent".to_owned(),
            Some(LastContact { at, what }) => {
                let what = match what {
                    Contact::Copy => "reported a copy",
                    Contact::Error => "answered with an error",
                    Contact::Question => "asked whether its copies were replaced",
                };
                format!("its agent last {what} {}", ago(at, now))
            }
        };
        format!("{heartbeat}; {contact}")
    }
}

/// Returns a time and how long ago it was.
fn ago(at: Time, now: Time) -> String {
    match now.since(at) / 1000 {
        seconds @ 0.. => format!("{seconds} s ago ({at})"),
        _ => format!("at {at}, which is in the future"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // M105
    fn a_node_is_taken_for_dead_when_both_signs_are_old_or_a_person_knows_better() {
        let now = Time::from_millis(1_800_000_000_000);
        let ago = |seconds: i64| now.plus(-1000 * seconds);
        let contact = |seconds| Some(LastContact { at: ago(seconds), what: Contact::Copy });
        let (at, none) = (|seconds| Heartbeat::At(ago(seconds)), Heartbeat::None);
        let others = None;
        let read = |text| Heartbeat::read(text);
        for (heartbeat, last_contact, is_dead, part) in [
            (at(300), contact(300), true, ""),
            (at(299), contact(300), false, "299 s ago"),
            (at(300), contact(299), false, "a copy 299 s ago"),
            (at(-3600), contact(900), false, "in the future"),
            (at(900), None, false, "no last contact"),
            (none, contact(900), false, "no heartbeat"),
            (read(None), contact(900), false, "no heartbeat"),
            (read(Some("1970-01-01T00:00:00.000Z")), contact(900), false, "no heartbeat"),
            (read(Some("2026-01-02T03:04:05.678Z")), contact(900), true, ""),
            (Heartbeat::Stranger, contact(900), false, "does not know"),
            (Heartbeat::Silent, contact(900), false, "did not answer"),
        ] {
            let signs = Signs { cn: Uuid::nil(), answers: false, heartbeat, others, last_contact };
            let dead = signs.dead(300, false, now);
            assert_eq!(dead.is_ok(), is_dead, "{signs:?}");
            let sentence = dead.err().map(|why| why.to_string()).unwrap_or_default();
            assert!(sentence.contains(part), "{sentence}");
            assert_eq!(sentence.contains("--really"), !is_dead, "{sentence}");
            assert_eq!(signs.dead(300, true, now), Ok(()));
            let signs = Signs { answers: true, ..signs };
            for is_really in [false, true] {
                let why = signs.dead(300, is_really, now).unwrap_err();
                assert!(!why.to_string().contains("--really"), "no flag helps: {why}");
            }
        }
        // The clock here was put forward by an hour, or CNAPI hears no node at all: that of a node says nothing.
        let (heartbeat, last_contact) = (at(3600), contact(3600));
        for (others, is_dead) in [(3600, false), (3361, false), (3360, true), (1, true)] {
            let others = Some(ago(others));
            let signs = Signs { cn: Uuid::nil(), answers: false, heartbeat, others, last_contact };
            let dead = signs.dead(300, false, now);
            assert_eq!(dead.is_ok(), is_dead, "{signs:?}");
            let sentence = dead.err().map(|why| why.to_string()).unwrap_or_default();
            assert!(is_dead || sentence.contains("the other node 3"), "{sentence}");
        }
    }
}
