// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What a plan consists of, and why there is none.

use super::datasets::Mode;

/// What the zfs commands of both nodes can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// `receive -s` and `send -t`.
    pub resume: bool,
    /// A bookmark can be the base of an increment.
    pub bookmarks: bool,
    /// A stream has several snapshots or datasets, or properties (`-R`, `-p`, `-I`). Of encrypted datasets `zfs` makes
    /// none: each snapshot of each dataset is a stream of its own.
    pub packages: bool,
}

/// What to do. The acts of one plan belong to different datasets, and may be done at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Take the snapshot of all datasets in one command, recursively, on the sender.
    Snapshot(Vec<String>),
    /// Destroy these snapshots on the sender: they were not taken of all datasets at once.
    DropSnapshot(Vec<String>),
    /// Forget what was received in part, on the receiver.
    DropPartial(String),
    /// Destroy the dataset on the receiver: it has nothing in common with the sender's, or is gone there.
    DestroyDataset(String),
    /// Rename the dataset on the receiver, as it was on the sender.
    Rename { from: String, to: String },
    /// Promote the clone on the receiver, as it was on the sender.
    Promote(String),
    /// Destroy these snapshots on the receiver, whose names would be taken, or which are gone on the sender.
    DestroySnapshots(Vec<String>),
    /// Send a stream.
    Send {
        /// Dataset and snapshot.
        to: String,
        /// What the receiver has already.
        base: Option<Base>,
        mode: Mode,
    },
    /// Go on with a stream that was cut.
    Resume {
        dataset: String,
        /// `receive_resume_token`.
        token: String,
    },
}

impl Act {
    /// Returns true if the sender's snapshots are others after it.
    pub fn changes_sender(&self) -> bool {
        matches!(self, Act::Snapshot(_) | Act::DropSnapshot(_))
    }

    /// Returns true if it takes as long as its bytes do.
    pub fn is_stream(&self) -> bool {
        matches!(self, Act::Send { .. } | Act::Resume { .. })
    }

    /// Returns true if the receiver's datasets or snapshots are others after it.
    pub fn changes_receiver(&self) -> bool {
        !matches!(self, Act::Snapshot(_) | Act::DropSnapshot(_))
    }
}

/// What an increment starts from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Base {
    /// A snapshot; those between it and the end are sent too (`-I`).
    Snapshot(String),
    /// A bookmark (`-i`).
    Bookmark(String),
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A dataset of the VM is gone from the sender.
    #[error("{0} does not exist on the sending node")]
    Missing(String),
    /// The image is to be installed on the receiver first.
    #[error(
        "{dataset} is a clone, and the other node does not have the snapshot that it was made of"
    )]
    NoOrigin {
        dataset: String,
        /// The GUID of the snapshot.
        guid: u64,
    },
    /// A full stream would replace a copy that must not be replaced.
    #[error("{0} has no snapshot in common with the other node's")]
    NothingInCommon(String),
    /// Somebody holds what would have to go from the receiver.
    #[error("{0} has to go from the other node, and is held there (zfs holds)")]
    Held(String),
    /// The last plans are the same again and again.
    #[error("the plan of the sync comes to no end")]
    Endless,
}
