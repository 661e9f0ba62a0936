// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The records that vminfod writes and its clients read.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

/// One VM, in the order of keys in which vminfod prints it.
pub type VmObject = Map<String, Value>;

/// What happened to a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// It was not there before.
    Added,
    /// It is no longer there.
    Removed,
    /// It is another.
    Changed,
}

/// One difference between two readings of a VM.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// The path for people: `nics.*.ip`.
    pub pretty_path: String,
    /// The path, with `None` for "some element of this array".
    pub path: Vec<Option<String>>,
    /// What happened.
    pub action: Action,
    /// The old value; absent for what was added.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub old_value: Option<Value>,
    /// The new value; absent for what was removed.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub new_value: Option<Value>,
    /// Which element of a keyed array: a NIC's mac, a disk's path.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub ident: Option<Value>,
}

/// A key that is there, even with the value null.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// One line of `/events`.
#[derive(Debug, Clone, PartialEq)]
pub enum Record {
    /// The first line: every VM.
    Ready {
        /// This listener.
        uuid: Option<String>,
        /// The VMs, in the service's order.
        vms: Vec<VmObject>,
        /// The last event that is contained.
        seq: Option<u64>,
        /// The start of the service that counts by `seq`.
        epoch: Option<String>,
    },
    /// The first line of a stream that goes on where an earlier one ended.
    Resume {
        /// The last event of the earlier stream.
        seq: u64,
        /// The newest event at this moment: the view is complete with it.
        newest: Option<u64>,
        /// The start of the service that counts by `seq`.
        epoch: String,
    },
    /// A VM is new.
    Create {
        /// Its zone name.
        zonename: String,
        /// The VM.
        vm: VmObject,
        /// Its number.
        seq: Option<u64>,
    },
    /// A VM changed.
    Modify {
        /// Its zone name.
        zonename: String,
        /// The VM after the change.
        vm: VmObject,
        /// What changed.
        changes: Vec<Change>,
        /// Its number.
        seq: Option<u64>,
    },
    /// A VM is gone.
    Delete {
        /// Its zone name.
        zonename: String,
        /// Its number.
        seq: Option<u64>,
    },
    /// A type this version does not know.
    Other(String),
}

impl Record {
    /// The number of the event, where the service counts.
    pub fn seq(&self) -> Option<u64> {
        match self {
            Record::Ready { seq, .. }
            | Record::Create { seq, .. }
            | Record::Modify { seq, .. }
            | Record::Delete { seq, .. } => *seq,
            Record::Resume { seq, .. } => Some(*seq),
            Record::Other(_) => None,
        }
    }
}

/// A line of the stream that cannot be understood.
#[derive(Debug, thiserror::Error)]
pub enum BadLine {
    /// Not JSON of the known shape.
    #[error("not an event ({length} bytes)")]
    Json {
        /// The length of the line.
        length: usize,
        /// Where and why.
        #[source]
        source: serde_json::Error,
    },
    /// A key that the type needs is missing.
    #[error("{kind} event without {key}")]
    Missing {
        /// The event's type.
        kind: &'static str,
        /// The missing key.
        key: &'static str,
    },
    /// `ready.vms` is neither a string, an array nor an object of VMs.
    #[error("ready.vms holds no list of VMs")]
    Vms,
}

#[derive(Deserialize)]
struct Wire {
    #[serde(rename = "type")]
    kind: String,
    zonename: Option<String>,
    uuid: Option<String>,
    vm: Option<VmObject>,
    vms: Option<Value>,
    changes: Option<Vec<Change>>,
    seq: Option<u64>,
    epoch: Option<String>,
    newest: Option<u64>,
}

/// Reads one line of `/events`.
pub fn parse_line(line: &[u8]) -> Result<Record, BadLine> {
    let wire: Wire = serde_json::from_slice(line)
        .map_err(|source| BadLine::Json { length: line.len(), source })?;
    let (zonename, uuid, seq) = (wire.zonename, wire.uuid, wire.seq);
    let vm = |kind| wire.vm.ok_or(BadLine::Missing { kind, key: "vm" });
    let name = |kind, vm: Option<&VmObject>| {
        zonename
            .or_else(|| vm.and_then(key_of).map(str::to_owned))
            .or_else(|| uuid.clone())
            .ok_or(BadLine::Missing { kind, key: "zonename" })
    };
    Ok(match wire.kind.as_str() {
        "ready" => {
            let vms = wire.vms.ok_or(BadLine::Missing { kind: "ready", key: "vms" })?;
            Record::Ready { uuid, vms: parse_ready(vms)?, seq, epoch: wire.epoch }
        }
        "resume" => {
            let missing = |key| BadLine::Missing { kind: "resume", key };
            let seq = seq.ok_or(missing("seq"))?;
            let epoch = wire.epoch.ok_or(missing("epoch"))?;
            Record::Resume { seq, newest: wire.newest, epoch }
        }
        "create" => {
            let vm = vm("create")?;
            Record::Create { zonename: name("create", Some(&vm))?, vm, seq }
        }
        "modify" => {
            let vm = vm("modify")?;
            let changes = wire.changes.unwrap_or_default();
            Record::Modify { zonename: name("modify", Some(&vm))?, vm, changes, seq }
        }
        "delete" => Record::Delete { zonename: name("delete", None)?, seq },
        _ => Record::Other(wire.kind),
    })
}

/// Reads `ready.vms`: JSON text of an array as shipped, or the array itself,
/// or an object by zone name.
pub fn parse_ready(vms: Value) -> Result<Vec<VmObject>, BadLine> {
    let list: Vec<Value> = match vms {
        Value::String(text) => {
            return match serde_json::from_str(&text) {
                Ok(Value::String(_)) => Err(BadLine::Vms),
                Ok(inner) => parse_ready(inner),
                Err(source) => Err(BadLine::Json { length: text.len(), source }),
            };
        }
        Value::Array(list) => list,
        Value::Object(map) => map.into_iter().map(|(_, vm)| vm).collect(),
        _ => return Err(BadLine::Vms),
    };
    let objects = list.into_iter().map(|vm| match vm {
        Value::Object(vm) if key_of(&vm).is_some() => Ok(vm),
        _ => Err(BadLine::Vms),
    });
    objects.collect()
}

/// The key of a VM: its zone name, or its uuid where it has no name.
pub fn key_of(vm: &VmObject) -> Option<&str> {
    ["zonename", "uuid"].iter().find_map(|key| vm.get(*key).and_then(Value::as_str))
}
