// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! An event as one listener asked for it: filtered, in the shipped format or in RFD 39's. A VM that
//! enters a filter is a create, one that leaves it a delete; `seq` is always the journal's.

use bytes::Bytes;
use daemon::http::events::Rewrite;
use daemon::journal::Entry;
use sdc_clients::vminfod::{Action, Change, VmObject};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::filter::Filter;
use crate::store::note::{Note, Traits};
use vm_model::js::to_ascii;

/// How events are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Shipped,
    /// As RFD 39 has it.
    Rfd39,
}

impl Format {
    /// Reads `?format=rfd39`.
    pub(super) fn of(query: Option<&str>) -> Self {
        match daemon::http::query::value(query, "format") {
            Some("rfd39") => Self::Rfd39,
            _ => Self::Shipped,
        }
    }
}

/// Returns what rewrites events for such a listener; `None` if it gets them as they are.
pub(super) fn rewrite(format: Format, filter: Option<Filter>) -> Option<Rewrite> {
    if format == Format::Shipped && filter.is_none() {
        return None;
    }
    Some(Box::new(move |entry| show(&entry, format, filter.as_ref())))
}

/// A line of the journal, and the shipped shape.
#[derive(Deserialize, Serialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    date: &'a str,
    zonename: String,
    uuid: String,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    vm: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<Vec<Change>>,
    seq: u64,
    epoch: &'a str,
}

/// RFD 39's shape, followed by our `seq` and `epoch`.
#[derive(Serialize)]
struct Rfd39<'a> {
    ts: &'a str,
    r#type: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    zonename: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    vm: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<Vec<FromTo>>,
    seq: u64,
    epoch: &'a str,
}

/// A change as RFD 39 has it; `null` for a side that does not exist.
#[derive(Serialize)]
struct FromTo {
    path: String,
    action: Action,
    from: Value,
    to: Value,
}

fn show(entry: &Entry, format: Format, filter: Option<&Filter>) -> Option<Bytes> {
    let mut line: Line<'_> = match serde_json::from_slice(&entry.line) {
        Ok(line) => line,
        Err(error) => {
            // It is our own line, so this cannot happen; a listener must not miss an event.
            tracing::error!(%error, "an event of the journal cannot be read again");
            return Some(entry.line.clone());
        }
    };
    let note = Note::parse(&entry.note);
    let object = |vm: &RawValue| serde_json::from_str::<VmObject>(vm.get()).unwrap_or_default();
    let (mut kind, mut chosen) = (line.kind, None);
    if let Some(filter) = filter {
        let now = line.vm.map(object);
        let was = note.was.as_ref().is_some_and(|was| filter.admits(&line.uuid, was));
        let is = now.as_ref().is_some_and(|vm| filter.admits(&line.uuid, &Traits::of(vm)));
        kind = match (was, is) {
            (false, false) => return None,
            (false, true) => "create",
            (true, false) => "delete",
            (true, true) => "modify",
        };
        if !filter.passes_type(kind) {
            return None;
        }
        chosen = now.filter(|_| filter.chooses_fields()).map(|vm| to_ascii(&filter.select(vm)));
    }
    let mut paths = note.paths.into_iter();
    let mut changes: Vec<(Change, Option<String>)> =
        line.changes.take().into_iter().flatten().map(|change| (change, paths.next())).collect();
    if let Some(filter) = filter {
        let shown = |change: &Change| {
            change.path.first().and_then(Option::as_deref).is_some_and(|key| filter.shows(key))
        };
        changes.retain(|(change, _)| shown(change));
        if kind == "modify" && changes.is_empty() {
            return None;
        }
    }
    let chosen = chosen.and_then(|text| RawValue::from_string(text).ok());
    line.kind = kind;
    line.vm = chosen.as_deref().or(line.vm).filter(|_| kind != "delete");
    let changes = (kind == "modify").then_some(changes.into_iter());
    let text = match format {
        Format::Shipped => {
            line.changes = changes.map(|all| all.map(|(change, _)| change).collect());
            to_ascii(&line)
        }
        Format::Rfd39 => to_ascii(&Rfd39 {
            ts: line.date,
            r#type: kind,
            zonename: (kind != "modify").then_some(&line.zonename),
            vm: line.vm,
            changes: changes.map(|all| all.map(from_to).collect()),
            seq: line.seq,
            epoch: line.epoch,
        }),
    };
    Some(Bytes::from(text + "\n"))
}

fn from_to((change, path): (Change, Option<String>)) -> FromTo {
    FromTo {
        path: path.unwrap_or(change.pretty_path),
        action: change.action,
        from: change.old_value.unwrap_or(Value::Null),
        to: change.new_value.unwrap_or(Value::Null),
    }
}

#[cfg(test)]
mod tests;
