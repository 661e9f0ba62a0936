// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What an agent is asked.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::intent::End;
use crate::machine::Protection;

/// Which migration, which state of its record, which copy.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// The record's id.
    pub migration: Uuid,
    /// The record's revision.
    pub revision: u64,
    /// What was drawn when it was raised: a store that was restored raises to the same number with another one. None
    /// where the request is another agent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nonce: Option<u32>,
    pub vm: Uuid,
    /// Which copy the agent's node has.
    pub end: End,
}

/// Asks for the current state of a copy.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observe {
    /// The copy.
    #[serde(flatten)]
    pub about: About,
    /// What its snapshots are is not needed: on some nodes to list them takes minutes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub brief: bool,
}

/// An order to an agent.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// The copy.
    #[serde(flatten)]
    pub about: About,
    /// How long the answer may wait for the end of the order, in ms.
    pub wait_ms: u64,
    /// What to do.
    pub order: What,
    /// With `Show` and `Boot`: the other copy's node, which was declared dead. Its copy is not to be used again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instead: Option<Uuid>,
}

/// What to do. Each is done once however often it is ordered, and its effect is seen by an observation.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "snake_case")]
pub enum What {
    /// Hold net-agent for the VM, and renew the hold until it is released.
    Hold,
    /// Release that hold.
    Release,
    Autoboot {
        on: bool,
    },
    /// Stop the VM.
    Stop,
    /// Boot the VM.
    Boot,
    /// Set do_not_inventory=true.
    Hide,
    /// Set do_not_inventory=false.
    Show,
    /// Take the snapshot `vm-migration-NUMBER` of all datasets where it is missing, and bring the other copy to
    /// it. The quotas that are in the way are lifted on both nodes.
    Send {
        /// N of `vm-migration-N`.
        number: u32,
        /// The node that has it.
        to: Uuid,
        /// The limit of this migration alone, in Mbit/s.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mbps: Option<u32>,
    },
    /// Plan what `Send` of this number will do, to its end, while the VM runs: nothing is changed. What the streams will
    /// carry is the total of its progress.
    Rehearse {
        /// N of `vm-migration-N`.
        number: u32,
        /// The node that will receive.
        to: Uuid,
    },
    /// Send an image that the other node lacks, its snapshot with the same GUID.
    SendImage {
        image: Uuid,
        to: Uuid,
    },
    /// Receive what the agent of this node alone offers. Given before `Send` and `SendImage`; it ends with
    /// another order.
    Receive {
        from: Uuid,
        /// The image that is sent; none: the datasets of the VM, and no image.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        image: Option<Uuid>,
    },
    /// Set quota and reservation as they were.
    RestoreQuota,
    /// Destroy the sync snapshots other than this one.
    Forget {
        /// The number that stays; none: all go.
        keep: Option<u32>,
    },
    /// Roll all datasets back to the newest sync snapshot that all of them have.
    Settle,
    /// Bring these settings of the source's object over to the copy.
    BringOver {
        /// The payload of `vmadm update`.
        update: Map<String, Value>,
        /// The payloads of those that follow.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        then: Vec<Map<String, Value>>,
    },
    /// Set the time at which the VM was created.
    Date {
        /// `create_timestamp`
        created: String,
    },
    /// Protect these datasets against deletion.
    Protect {
        of: Protection,
    },
    /// Delete the copy, its protection against deletion first.
    Delete,
    /// The migration is over: remove what the agent keeps of it, but for its revision.
    Over,
}

impl What {
    /// Returns the name that its JSON has.
    pub fn name(&self) -> &'static str {
        match self {
            What::Hold => "hold",
            What::Release => "release",
            What::Autoboot { .. } => "autoboot",
            What::Stop => "stop",
            What::Boot => "boot",
            What::Hide => "hide",
            What::Show => "show",
            What::Send { .. } => "send",
            What::Rehearse { .. } => "rehearse",
            What::SendImage { .. } => "send_image",
            What::Receive { .. } => "receive",
            What::RestoreQuota => "restore_quota",
            What::Forget { .. } => "forget",
            What::Settle => "settle",
            What::BringOver { .. } => "bring_over",
            What::Date { .. } => "date",
            What::Protect { .. } => "protect",
            What::Delete => "delete",
            What::Over => "over",
        }
    }

    /// Returns true for the order that lasts until another one comes.
    pub fn is_receive(&self) -> bool {
        matches!(self, What::Receive { .. })
    }
}

/// Properties of datasets: dataset → name → value.
pub type Properties = BTreeMap<String, BTreeMap<String, String>>;

/// Asks the receiver's agent what there is.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Received {
    /// The receiver's copy.
    #[serde(flatten)]
    pub about: About,
    /// The datasets that are sent.
    pub datasets: Vec<String>,
    /// The snapshots that some of them are clones of.
    pub origins: Vec<String>,
    /// The sender has found that everything of a snapshot is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole: Option<Whole>,
}

/// A snapshot that is there on all datasets.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Whole {
    /// N of `vm-migration-N`.
    pub number: u32,
    /// What came along, is named as the migration's snapshots are, and is none of them.
    pub others: Vec<String>,
}

/// Tells the receiver's agent what must go before a stream.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clear {
    /// The receiver's copy. On the source's node only what a cut stream has left is cleared.
    #[serde(flatten)]
    pub about: About,
    pub dataset: String,
    pub gone: Gone,
}

/// What must go.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gone {
    /// What was received in part.
    Partial,
    /// These snapshots of the dataset, by the names behind `@`.
    Snapshots(Vec<String>),
    /// All of it: it has nothing in common with what comes.
    Dataset,
    /// Its name: it was renamed on the sender.
    Name {
        /// The new one.
        to: String,
    },
    /// That it is a clone: it was promoted on the sender.
    Origin,
}

/// Offers one stream to the receiver's agent.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// The receiver's copy.
    #[serde(flatten)]
    pub about: About,
    /// The dataset that is received into.
    pub dataset: String,
    /// The image that is sent; none: a dataset of the VM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Uuid>,
    /// What people have set on the dataset and those below it. The receiver sets it again after the stream, and
    /// checks it; quotas only when they are restored.
    pub properties: Properties,
    /// The stream brings no properties: what the dataset has besides these goes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_bare: bool,
}

/// The receiver takes the stream.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    /// Where it listens, such as `10.99.99.7:40312`.
    pub address: String,
    /// The name of the stream, which opens it once. Only the agent that has offered it does so.
    pub token: String,
}

/// The limit of all streams of a node, in and out.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    /// In Mbit/s; none is no limit.
    pub mbps: Option<u32>,
}
