// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Errors of a simulated node. Each message is one line.

use std::path::{Path, PathBuf};

/// Why an operation on a simulated node failed.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// A file operation failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The directory is not a node.
    #[error("{} is no simulated compute node: it has no {missing}", dir.display())]
    NotANode {
        dir: PathBuf,
        /// The first part that is missing.
        missing: &'static str,
    },
    /// A file of the node does not have its format.
    #[error("{}: {reason}", path.display())]
    Malformed {
        path: PathBuf,
        /// What is wrong, and where.
        reason: String,
    },
    /// No VM of the node has this name.
    #[error("no VM {0} on this node")]
    UnknownVm(String),
    /// The same, in the words of zoneadm.
    #[error("{0}: No such zone configured")]
    NoSuchZone(String),
    /// The dataset does not exist.
    #[error("cannot open '{0}': dataset does not exist")]
    NoSuchDataset(String),
    /// A stream's base is in another dataset.
    #[error("incremental source must be in same filesystem")]
    OtherFilesystem,
    /// The node's rules forbid it.
    #[error("{0}")]
    Refused(String),
    /// vmadm refuses the payload.
    #[error(transparent)]
    Payload(#[from] crate::refusal::Refusal),
    /// An invalid argument or payload value.
    #[error("invalid {field}: {reason}")]
    Invalid {
        /// The argument or payload key.
        field: String,
        /// What was expected.
        reason: String,
    },
    /// vminfod did not show the change in time.
    #[error("vminfod did not show {what} of {vm} within {} s", limit.as_secs())]
    NotSeen {
        vm: String,
        /// The expected state.
        what: String,
        /// The time limit.
        limit: std::time::Duration,
    },
    /// vminfod answered with an error.
    #[error("vminfod failed while waiting for {what} of {vm}: {reason}")]
    Vminfod {
        vm: String,
        /// The expected state.
        what: String,
        reason: String,
    },
}

impl NodeError {
    /// A failed file operation.
    pub fn io(action: &'static str, path: &Path, source: std::io::Error) -> NodeError {
        NodeError::Io { action, path: path.to_path_buf(), source }
    }

    /// A file that does not have its format.
    pub(crate) fn malformed(path: &Path, reason: impl std::fmt::Display) -> NodeError {
        NodeError::Malformed { path: path.to_path_buf(), reason: reason.to_string() }
    }

    /// A value without a meaning.
    pub(crate) fn invalid(field: impl Into<String>, reason: impl Into<String>) -> NodeError {
        NodeError::Invalid { field: field.into(), reason: reason.into() }
    }

    /// A rule that forbids it.
    pub fn refused(why: impl Into<String>) -> NodeError {
        NodeError::Refused(why.into())
    }
}
