// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What an agent answers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::orders::What;
use crate::intent::{self, End, Power};
use crate::machine;
use crate::sync_plan::Side;
use crate::time::Time;
use crate::vm_agent::VmAgent;

/// The answer to a question for the state of a copy.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Looked {
    /// The agent reads it still: the same question again waits for the same reading.
    Working {
        /// What is being done.
        working: Working,
    },
    Observed(Box<Observed>),
}

/// An observation that is under way.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Working {
    /// The oldest program that runs for the VM.
    pub runs: Option<Runs>,
}

/// The state of a copy.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Observed {
    /// The facts that the state machine judges.
    #[cfg_attr(feature = "schema", schemars(with = "Map<String, Value>"))]
    pub node: machine::Node,
    /// The VM's object, as vminfod has just read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<Map<String, Value>>,
    /// The last order of this migration, which runs or has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doing: Option<Doing>,
    /// The agent knows that the migration is over: it takes no order of it any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub over: bool,
}

/// How an order goes.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Doing {
    pub order: What,
    /// How it goes.
    #[serde(flatten)]
    pub state: State,
    /// How far a stream is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// What the order is done without, for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// It failed, since the node that receives has no room for what was sent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_room: bool,
    /// The oldest program that runs on the node for the VM, while the order does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs: Option<Runs>,
}

/// A program that runs on a node.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Runs {
    /// It and its arguments.
    pub command: String,
    /// Since when, in ms since 1970.
    pub since_ms: i64,
}

/// How an order goes.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum State {
    /// It is being done.
    Running,
    /// It was done.
    Done,
    /// It was not.
    Failed {
        /// Why, for people.
        error: String,
        /// Permanent: ordering it again cannot succeed.
        fatal: bool,
    },
}

/// Bytes of the streams of an order.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Bytes sent so far.
    pub current: u64,
    /// Bytes in all, as estimated; raised when it is overtaken.
    pub total: u64,
    /// Bytes per second, of the last seconds.
    pub rate: u64,
}

impl Runs {
    /// Returns the same as a record has it.
    pub fn on(self, end: End) -> intent::Runs {
        let Runs { command, since_ms } = self;
        intent::Runs { command, end, since: Time::from_millis(since_ms) }
    }
}

/// A migration that an agent has open.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Open {
    pub migration: Uuid,
    pub vm: Uuid,
    /// Which copy is here.
    pub end: End,
    /// The highest revision of the record that the agent received.
    pub revision: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nonce: Option<u32>,
    /// What the VM did here before an order of this migration took it from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power: Option<Power>,
    /// The node of the other copy, where an order has named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other: Option<Uuid>,
    /// The same, where it was declared dead, and this copy was shown or booted instead of its one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instead: Option<Uuid>,
    /// The copy runs, or is on its way up or down; none where the node does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs: Option<bool>,
}

/// What the service answers to an agent whose node comes back, or was cut off
/// (`GET /agents/CN/replaced?open=ID.REVISION.OTHER.NONCE,…`, where `OTHER` is the node of the other copy and `NONCE`
/// that of the revision; each is empty where it is not known).
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replaced {
    /// The migrations in which copies on that node were replaced.
    pub replaced: Vec<Uuid>,
    /// Which of the agent's open migrations the service knows or knew, at no lower revision than the agent received of
    /// them. It does not answer for others: its store is empty, or older than they are.
    pub known: Vec<Uuid>,
    /// Those of them that are over, which the agent does not know yet.
    #[serde(default)]
    pub over: Vec<Uuid>,
}

/// A node and its agent.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    pub cn: Uuid,
    /// The version of this protocol.
    pub version: u32,
    /// The kind of CPU: vendor, and what guests see of it.
    pub cpu: Option<String>,
    /// The platform's buildstamp.
    pub platform: Option<String>,
    /// The node's time, in ms since 1970.
    pub now_ms: i64,
    /// Both the pool and `zfs` can resume a stream.
    pub can_resume: bool,
    /// The pool has bookmarks.
    pub has_bookmarks: bool,
    /// The pool of its VMs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// The pool has limits of filesystems and of snapshots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub has_limits: Option<bool>,
    /// The pool is encrypted; none where its agent is of an earlier version.
    #[serde(default)]
    pub encrypted: Option<bool>,
    /// Free space in the pool, in bytes.
    pub free_bytes: Option<u64>,
    /// The limit of the streams, in Mbit/s.
    pub mbps: Option<u32>,
    /// The VMs of the node, hidden ones included.
    pub vms: Vec<Uuid>,
    /// Which vm-agent the node has.
    #[serde(default)]
    pub vm_agent: VmAgent,
}

/// What a VM uses.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// Of all its datasets, snapshots included, in bytes.
    pub bytes: u64,
}

/// The datasets of a copy.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Datasets {
    /// What the plan of a sync is made from.
    #[cfg_attr(feature = "schema", schemars(with = "Map<String, Value>"))]
    pub side: Side,
    /// Bytes that each dataset refers to.
    pub referenced: BTreeMap<String, u64>,
    /// Why the last stream of this migration was not taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<Failure>,
}

/// Why something was not done.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The reason, for people.
    pub error: String,
    /// Permanent: a retry cannot succeed.
    pub fatal: bool,
    /// There is no room for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub full: bool,
}

/// What a migration left on a node.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rest {
    pub vm: Uuid,
    /// The migration, where the agent knows it.
    pub migration: Option<Uuid>,
    /// Which copy it is.
    pub end: Option<End>,
    /// Bytes that it uses.
    pub bytes: u64,
}
