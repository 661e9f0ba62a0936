// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What is to be published, given what the feed has, what vminfod tells and what it shows. Pure.

use bytes::Bytes;
use sdc_clients::fleet::{Kind, Labels, Position, Stored};
use sdc_clients::uuid_value;
use sdc_clients::vminfod::{Incomplete, VmFields as _, VmObject};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::redact::Redaction;

/// Why a node is compared with the feed, instead of going on behind the last event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Why {
    /// The feed has nothing of this node.
    #[error("the feed has no event of this node")]
    Nothing,
    /// A comparison was not finished.
    #[error("the last comparison did not finish")]
    Unfinished,
    /// vminfod does not have the events behind the last one any more.
    #[error("vminfod does not have the events behind the last one")]
    Gone,
    /// The feed has lost what it acknowledged, or gives numbers that it has given already.
    #[error("the feed was recreated or restored, or has lost what it acknowledged")]
    WentBack,
    /// It is time to.
    #[error("the regular comparison is due")]
    Audit,
}

/// Where publishing begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// Behind this event.
    Behind(Position),
    /// With a comparison.
    Compare(Why),
}

/// Returns where publishing begins, given the last message of the node's subjects.
pub(crate) fn start(last: Option<&Stored>) -> Start {
    let Some(stored) = last else { return Start::Compare(Why::Nothing) };
    match stored.labels.as_ref().and_then(Labels::resume) {
        Some(at) => Start::Behind(at.clone()),
        None => Start::Compare(Why::Unfinished),
    }
}

/// A message to be published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outgoing {
    /// The VM; none for the node's marker.
    pub(crate) vm: Option<String>,
    pub(crate) labels: Labels,
    pub(crate) body: Bytes,
}

/// A line of vminfod's stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// An event, to be published.
    Event(Outgoing),
    /// An event of a zone without a uuid: it has no subject.
    Nameless(Position),
    /// The first line of a stream that goes on behind this event.
    Resume(Position),
    /// Neither.
    Other,
}

/// Reads a line. None: it is no event, and cannot be one.
pub(crate) fn line(text: &[u8], redaction: &Redaction) -> Option<Line> {
    let mut line: Map<String, Value> = serde_json::from_slice(text).ok()?;
    let kind = line.get("type")?.as_str()?;
    let at = || {
        let epoch = line.get("epoch")?.as_str()?.to_owned();
        Some(Position { epoch, seq: line.get("seq")?.as_u64()? })
    };
    let kind = match kind {
        "create" => Kind::Create,
        "modify" => Kind::Modify,
        "delete" => Kind::Delete,
        "resume" => return Some(Line::Resume(at()?)),
        _ => return Some(Line::Other),
    };
    let at = at()?;
    let uuid = line.get("vm").and_then(|vm| vm.get("uuid")).or_else(|| line.get("uuid"));
    let Some(vm) = uuid.and_then(Value::as_str).and_then(vm_uuid) else {
        return Some(Line::Nameless(at));
    };
    redaction.event(&mut line);
    let body = Value::Object(line).to_string().into();
    let labels = Labels::of(kind, at);
    Some(Line::Event(Outgoing { vm: Some(vm), labels, body }))
}

/// Returns a uuid as subjects have it; none if it is none.
pub(crate) fn vm_uuid(text: &str) -> Option<String> {
    Uuid::try_parse(text).is_ok().then(|| uuid_value(text))
}

/// What follows from the message that a subject turned out to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// It is this event, or one that contains it.
    Already,
    /// It is an earlier one: publish behind it.
    Before(u64),
}

/// Judges the last message of an event's subject.
pub(crate) fn found(event: &Labels, stored: Option<&Stored>) -> Found {
    match stored {
        Some(Stored { labels: Some(labels), .. }) if labels.at.has(&event.at) => Found::Already,
        Some(stored) => Found::Before(stored.seq),
        None => Found::Before(0),
    }
}

/// A snapshot that is compared with the feed.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// The last event that it contains.
    pub(crate) at: Position,
    /// When it was taken.
    pub(crate) date: String,
    pub(crate) incomplete: Incomplete,
}

impl Snapshot {
    /// Returns what has to be published for the feed to show this VM, whose object has no values that stay on the node.
    pub(crate) fn difference(
        &self,
        uuid: &str,
        vm: &VmObject,
        stored: Option<&Stored>,
    ) -> Option<Outgoing> {
        let kind = match stored.and_then(object) {
            Some(Shown::Vm(old)) if old == *vm => return None,
            // Both are too large: that one changed would be an event.
            Some(Shown::TooLarge(old)) if old == size(vm) => return None,
            Some(_) => Kind::Modify,
            None => Kind::Create,
        };
        let name = vm.zonename().unwrap_or(uuid);
        let body = json!({"type": kind.name(), "date": self.date, "zonename": name, "uuid": uuid, "vm": vm});
        Some(self.compared(uuid, kind, &body))
    }

    /// Returns the tombstone of a VM that the node does not have. None if the feed has no VM there, or if the snapshot
    /// may not show all that there is.
    pub(crate) fn ghost(&self, uuid: &str, stored: Option<&Stored>) -> Option<Outgoing> {
        let stored = stored?;
        if stored.labels.as_ref().is_some_and(|labels| labels.kind == Kind::Delete) {
            return None;
        }
        let name = match object(stored) {
            Some(Shown::Vm(vm)) => vm.zonename().unwrap_or(uuid).to_owned(),
            _ => uuid.to_owned(),
        };
        if self.incomplete.has(&name) {
            return None;
        }
        let body = json!({"type": "delete", "date": self.date, "zonename": name, "uuid": uuid});
        Some(self.compared(uuid, Kind::Delete, &body))
    }

    /// Returns the marker: what happened before is not completely known, what the feed shows now is.
    pub(crate) fn marker(&self, why: Why) -> Outgoing {
        let Position { epoch, seq } = &self.at;
        let body = json!({"type": Kind::Resync.name(), "date": self.date, "reason": why.to_string(),
            "seq": seq, "epoch": epoch});
        let labels = Labels::of(Kind::Resync, self.at.clone());
        Outgoing { vm: None, labels, body: body.to_string().into() }
    }

    fn compared(&self, uuid: &str, kind: Kind, body: &Value) -> Outgoing {
        let labels = Labels::compared(kind, self.at.clone());
        Outgoing { vm: Some(uuid.to_owned()), labels, body: body.to_string().into() }
    }
}

/// What a stored message shows.
enum Shown {
    Vm(VmObject),
    /// Only its size.
    TooLarge(u64),
}

/// Returns what a message shows; none for a tombstone and for what no agent wrote.
fn object(stored: &Stored) -> Option<Shown> {
    let labels = stored.labels.as_ref()?;
    if !matches!(labels.kind, Kind::Create | Kind::Modify) {
        return None;
    }
    let mut line: Map<String, Value> = serde_json::from_slice(&stored.body).ok()?;
    match line.remove("vm") {
        Some(Value::Object(vm)) => Some(Shown::Vm(vm)),
        _ => line.get(OMITTED)?.as_u64().map(Shown::TooLarge),
    }
}

/// The key that says how large an object is that is not published.
const OMITTED: &str = "vm_bytes";

fn size(vm: &VmObject) -> u64 {
    serde_json::to_vec(vm).map_or(0, |text| text.len() as u64)
}

impl Outgoing {
    /// Returns the message in at most `most` bytes: without its records of changes, and where that is not enough
    /// without its object, of which only the size remains.
    pub(crate) fn fitted(self, most: usize) -> Self {
        if self.body.len() <= most {
            return self;
        }
        let Ok(mut line) = serde_json::from_slice::<Map<String, Value>>(&self.body) else {
            return self;
        };
        if let Some(changes) = line.get_mut("changes") {
            *changes = json!([]);
        }
        let mut body = Value::Object(line).to_string();
        if body.len() > most
            && let Ok(Value::Object(mut line)) = serde_json::from_str(&body)
        {
            if let Some(Value::Object(vm)) = line.insert("vm".to_owned(), Value::Null) {
                line.insert(OMITTED.to_owned(), size(&vm).into());
            }
            body = Value::Object(line).to_string();
        }
        Self { body: body.into(), ..self }
    }
}

#[cfg(test)]
mod tests;
