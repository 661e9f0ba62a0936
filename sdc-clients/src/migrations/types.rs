// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Records, events and parameters. A field that has another type than it should is read as absent: one odd
//! record hides no other.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::http::Call;

fn text<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Ok(Value::deserialize(from)?.as_str().map(str::to_owned))
}

fn word<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Ok(text(from)?.unwrap_or_default())
}

/// The deployed service computes some counts as floats.
fn count<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    let value = Value::deserialize(from)?;
    let whole = value.as_f64().filter(|it| *it >= 0.0).map(|it| it as u64);
    Ok(value.as_u64().or(whole))
}

fn flag<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    Ok(Value::deserialize(from)? == Value::Bool(true))
}

fn history<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Progress>, D::Error> {
    let Value::Array(rows) = Value::deserialize(from)? else { return Ok(Vec::new()) };
    Ok(rows.into_iter().filter_map(|row| serde_json::from_value(row).ok()).collect())
}

/// A migration, as `?format=raw` shows it: the fields that this project reads, and all others as they came.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)] // the record's names
pub struct Migration {
    #[serde(deserialize_with = "word")]
    pub id: String,
    #[serde(deserialize_with = "word")]
    pub vm_uuid: String,
    /// What it is, or was last, doing: one of `x-open`, or a word that is new.
    #[cfg_attr(
        feature = "schema",
        schemars(extend("x-open" = ["begin", "sync", "switch", "abort", "rollback"]))
    )]
    #[serde(deserialize_with = "word")]
    pub phase: String,
    /// One of `x-open`, or a word that is new.
    #[cfg_attr(
        feature = "schema",
        schemars(extend("x-open" =
            ["queued", "running", "paused", "scheduled", "failed", "successful", "aborted"]))
    )]
    #[serde(deserialize_with = "word")]
    pub state: String,
    #[serde(deserialize_with = "flag")]
    pub automatic: bool,
    #[serde(deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub source_server_uuid: Option<String>,
    #[serde(deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub target_server_uuid: Option<String>,
    #[serde(deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub created_timestamp: Option<String>,
    #[serde(deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub scheduled_timestamp: Option<String>,
    #[serde(deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub finished_timestamp: Option<String>,
    /// Of all entries of the history together.
    #[serde(deserialize_with = "count", skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    #[serde(deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The phases that ran or run, in their order.
    #[serde(deserialize_with = "history")]
    pub progress_history: Vec<Progress>,
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// An entry of a history, or an event of a watch.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)] // the record's names
pub struct Progress {
    #[serde(deserialize_with = "word")]
    pub phase: String,
    #[serde(deserialize_with = "word")]
    pub state: String,
    #[serde(deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Percent, or bytes where there is a rate.
    #[serde(deserialize_with = "count", skip_serializing_if = "Option::is_none")]
    pub current_progress: Option<u64>,
    #[serde(deserialize_with = "count", skip_serializing_if = "Option::is_none")]
    pub total_progress: Option<u64>,
    /// Only entries have it.
    #[serde(deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub started_timestamp: Option<String>,
    #[serde(deserialize_with = "count", skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    #[serde(deserialize_with = "count", skip_serializing_if = "Option::is_none")]
    pub eta_ms: Option<u64>,
    #[serde(deserialize_with = "count", skip_serializing_if = "Option::is_none")]
    pub transfer_bytes_second: Option<u64>,
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// A line of a watch.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// How far it is.
    Progress(Box<Progress>),
    /// Nothing runs any more.
    End {
        /// The last phase.
        phase: String,
        /// The state that it ended in; `unknown` where the record went.
        state: String,
        /// Why it failed.
        message: Option<String>,
    },
    /// Something to tell people, such as a warning; an open set of types.
    Other(Map<String, Value>),
}

impl Event {
    /// Reads a line.
    pub(super) fn read(line: &[u8]) -> Result<Event, serde_json::Error> {
        let object: Map<String, Value> = serde_json::from_slice(line)?;
        let text = |key: &str| object.get(key).and_then(Value::as_str).map(str::to_owned);
        Ok(match object.get("type").and_then(Value::as_str) {
            Some("progress") => Event::Progress(serde_json::from_value(Value::Object(object))?),
            Some("end") => Event::End {
                phase: text("phase").unwrap_or_default(),
                state: text("state").unwrap_or_default(),
                message: text("message"),
            },
            _ => Event::Other(object),
        })
    }
}

/// Which migrations to list. Unset fields are not sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MigrationQuery {
    /// In this state; `active` is all but aborted ones.
    pub state: Option<String>,
    /// From this node; also those that have moved their VM to it.
    pub source_server_uuid: Option<String>,
    /// To this node.
    pub target_server_uuid: Option<String>,
    /// Of this VM.
    pub vm_uuid: Option<String>,
    /// Of this owner's VMs.
    pub owner_uuid: Option<String>,
}

impl MigrationQuery {
    pub(super) fn apply(&self, call: Call) -> Call {
        call.query("format", "raw")
            .query_opt("state", self.state.as_ref())
            .query_opt("source_server_uuid", self.source_server_uuid.as_ref())
            .query_opt("target_server_uuid", self.target_server_uuid.as_ref())
            .query_opt("vm_uuid", self.vm_uuid.as_ref())
            .query_opt("owner_uuid", self.owner_uuid.as_ref())
    }
}

/// What changes an action. Unset fields are not sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[allow(missing_docs)] // the parameters' names
pub struct Options {
    /// The account that asks; operators leave it out.
    pub owner_uuid: Option<String>,
    /// Do all phases.
    pub migration_automatic: bool,
    /// Place the VM on this node.
    pub override_server_uuid: Option<String>,
    /// Where to place the VM relative to others.
    pub affinity: Option<String>,
    /// The limit of its streams in Mbit/s, below those of the nodes; 0 is none.
    pub bwlimit: Option<u32>,
    /// A switch that would keep the VM down for longer, in seconds, is refused; 0 takes it back.
    pub max_downtime: Option<u32>,
    /// For `schedule`: ISO 8601, or a wait such as `2 days`.
    pub scheduled_timestamp: Option<String>,
    /// For `abort`: pause what runs first. For `finalize`: although the copies differ.
    pub force: bool,
    /// For `switch`: the operator's word that this node, the source's, is dead.
    pub source_dead: Option<String>,
    /// For `rollback`: the operator's word that this node, the target's, is dead.
    pub target_dead: Option<String>,
    /// For `rollback`: lose what the target wrote.
    pub discard: bool,
    /// The operator has seen that the node is off, whatever was heard of it.
    pub really: bool,
}

impl Options {
    pub(super) fn apply(&self, call: Call) -> Call {
        let set = |is_set: bool| is_set.then_some("true");
        call.query_opt("owner_uuid", self.owner_uuid.as_ref())
            .query_opt("migration_automatic", set(self.migration_automatic))
            .query_opt("override_server_uuid", self.override_server_uuid.as_ref())
            .query_opt("affinity", self.affinity.as_ref())
            .query_opt("bwlimit", self.bwlimit)
            .query_opt("max_downtime", self.max_downtime)
            .query_opt("scheduled_timestamp", self.scheduled_timestamp.as_ref())
            .query_opt("force", set(self.force))
            .query_opt("source_dead", self.source_dead.as_ref())
            .query_opt("target_dead", self.target_dead.as_ref())
            .query_opt("discard", set(self.discard))
            .query_opt("really", set(self.really))
    }
}

/// What an action is answered with.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Answer {
    /// The id of what runs now; none if the action is done.
    #[serde(deserialize_with = "text")]
    pub job_uuid: Option<String>,
    /// What is not as it was on the new node, or has to be seen to there.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// The migration; its phase is the action that was asked for.
    pub migration: Option<Migration>,
}

/// What a migration takes (`format=rfd34`).
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// From now to the end of the switch.
    pub total_seconds: u64,
    /// From the stop to the start.
    pub downtime_seconds: u64,
    /// What the streams carry from now on.
    pub size_bytes: u64,
    /// Where the VM would go, or goes; only told by [`Migrations::plan`](super::Migrations::plan).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_server_uuid: Option<String>,
    /// Every other field.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// The last signs of life of the nodes of a migration.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Signs {
    /// Of the source's node.
    pub source: Sign,
    /// Of the target's; none where it is not chosen.
    pub target: Option<Sign>,
}

/// The last signs of life of a node.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sign {
    /// The node.
    pub cn: String,
    /// Its agent answers now: it is not dead.
    pub answers: bool,
    /// CNAPI's last heartbeat, and what and when its agent said last, as a sentence.
    pub says: String,
    /// Why it is not taken for dead without the word `really`, or at all.
    pub alive: Option<String>,
}

/// The two copies of a VM, compared.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Verification {
    /// Nothing differs.
    pub equal: bool,
    /// Each dataset of either copy.
    pub datasets: Vec<Dataset>,
    /// Every other field.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// A dataset of both copies.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Dataset {
    /// Its name.
    pub name: String,
    /// The GUID of the newest common snapshot on the source; none: there is none.
    pub source_guid: Option<String>,
    /// The same on the target.
    pub target_guid: Option<String>,
    /// Bytes that it refers to on the source.
    pub source_bytes: Option<u64>,
    /// The same on the target.
    pub target_bytes: Option<u64>,
}
