// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Why an order was not done.

use std::io;

use sdc_clients::Error;

use super::memory::NotTaken;
use super::node::NodeError;
use super::zfs::{Cause, ZfsError};
use migration_core::protocol::Failure;
use uuid::Uuid;

use migration_core::stream::{NoToken, StreamError};
use migration_core::sync_plan::Refusal;

/// Why an order was not done.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// A program or vminfod.
    #[error(transparent)]
    Node(#[from] NodeError),
    #[error(transparent)]
    Zfs(#[from] ZfsError),
    /// There is no plan for the sync.
    #[error(transparent)]
    Plan(#[from] Refusal),
    /// The state file.
    #[error(transparent)]
    NotTaken(#[from] NotTaken),
    /// The other node's agent did not answer, or refused.
    #[error("the other node's agent: {}", .0.in_words())]
    Peer(#[source] Error),
    /// The reason that the other node's agent gave.
    #[error("the other node: {}", .0.error)]
    Other(Failure),
    /// The other node's agent sent no token.
    #[error("the other node's agent: {0}")]
    Token(#[from] NoToken),
    /// The other node cannot be reached for data.
    #[error("no connection to {address}: {source}")]
    Unreached {
        /// Where it listens.
        address: String,
        /// The system's error.
        source: io::Error,
    },
    /// The stream did not end well.
    #[error("the stream of {dataset}: {}", chain(source))]
    Stream { dataset: String, source: StreamError },
    /// `zfs send` or `zfs receive`.
    #[error("{verb} of {dataset}: {message}")]
    Command {
        /// send or receive.
        verb: &'static str,
        dataset: String,
        message: String,
    },
    /// A step was done, and the next plan is the same.
    #[error("a step of the sync had no effect")]
    Stuck,
    /// Another order came.
    #[error("a later order replaced this one")]
    Cancelled,
    /// The order to receive names another node.
    #[error("this node does not expect a stream from {0}")]
    NotSender(Uuid),
    /// vmadm does not delete the copy.
    #[error("the copy cannot be deleted: {0}")]
    NotDeleted(#[source] NodeError),
    /// The copy runs or is shown.
    #[error("the copy is not stopped and hidden")]
    NotOff,
    /// Something that belongs to another VM, or to the source.
    #[error("{0} must not be touched by this migration")]
    Foreign(String),
    /// Datasets are older than the zone that would be deleted with them.
    #[error(
        "the copy is not deleted: {0} was there before its zone was configured, and no migration has made it"
    )]
    NotMade(String),
    /// What came leads elsewhere than a file system is to be mounted.
    #[error("{dataset} is not mounted: there is a link on the way to {place}")]
    Linked { dataset: String, place: String },
    /// An update of something that migrations do not bring over.
    #[error("{0} is not a setting that a migration carries over")]
    NotCarried(String),
    /// The VM has no dataset.
    #[error("the VM has no dataset")]
    NoDataset,
    /// `zfs` makes no snapshot of it.
    #[error(
        "the name of {dataset} is too long for a sync snapshot: at most {room} bytes are left for it"
    )]
    LongName {
        dataset: String,
        /// How long it may be.
        room: usize,
    },
    /// Without its key, which is the owner's, it can only be sent as plain text.
    #[error("{0} is encrypted with a key of its own, which the other node does not have")]
    OwnKey(String),
    /// No sync snapshot is there on all datasets.
    #[error("no sync snapshot exists on all datasets")]
    NoSnapshot,
    /// A property does not have the value that was set.
    #[error("{property} of {dataset} is {found} and not {wanted}")]
    Property {
        dataset: String,
        property: String,
        found: String,
        /// What was set.
        wanted: String,
    },
}

/// A refusal has its reason; a body without a code does not come from an agent of ours.
impl Failed {
    /// Returns true if it is permanent: ordering it again cannot succeed.
    fn is_fatal(&self) -> bool {
        match self {
            Failed::Plan(refusal) => !matches!(refusal, Refusal::NoOrigin { .. }),
            Failed::Other(failure) => failure.fatal,
            Failed::Zfs(_) | Failed::Command { .. } => self.is_full(),
            Failed::Foreign(_) | Failed::Linked { .. } | Failed::NotCarried(_) => true,
            Failed::NoDataset | Failed::Stuck | Failed::NotMade(_) => true,
            Failed::LongName { .. } | Failed::OwnKey(_) | Failed::NotDeleted(_) => true,
            _ => false,
        }
    }

    /// Returns it for the service.
    pub fn failure(&self) -> Failure {
        Failure { error: self.to_string(), fatal: self.is_fatal(), full: self.is_full() }
    }

    fn is_full(&self) -> bool {
        match self {
            Failed::Zfs(error) => error.cause() == Cause::Full,
            Failed::Command { message, .. } => super::zfs::cause(message) == Cause::Full,
            failed => failed.is_full_there(),
        }
    }

    /// Returns true if it is the other node that has no room.
    pub fn is_full_there(&self) -> bool {
        matches!(self, Failed::Other(Failure { full: true, .. }))
    }
}

/// An error with its causes, as one line.
fn chain(error: &StreamError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text += &format!(": {inner}");
        cause = inner.source();
    }
    text
}
