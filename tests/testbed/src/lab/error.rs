// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Why the lab could not be set up, or what did not come true in it.

use std::path::PathBuf;
use std::time::Duration;

use simnode::NodeError;

/// A failure of the lab.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A file or process of the lab.
    #[error("{what}")]
    Io {
        /// What was being done.
        what: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The simulated node refused.
    #[error("the simulated node")]
    Node(#[from] NodeError),
    /// A request failed.
    #[error("{what}")]
    Request {
        /// What was being asked.
        what: String,
        /// Why it failed.
        source: sdc_clients::Error,
    },
    /// The mock would not take a record.
    #[error("seeding the mock NAPI: {0}")]
    Seed(String),
    /// The VM that moves could not be made.
    #[error("the VM that moves: {0:#}")]
    Moves(anyhow::Error),
    /// What somebody types in a lab that is up.
    #[error("{0}")]
    Broken(String),
    /// The feed of the data centre refused.
    #[error("the feed: {0}")]
    Feed(String),
    /// A program ended by itself.
    #[error("{name} ended; its last words: {last}")]
    Ended {
        name: String,
        /// The last line it printed.
        last: String,
    },
    /// Something that had to become true did not in time.
    #[error("{what} did not come true within {within:?}")]
    TooLate {
        /// What was waited for.
        what: String,
        within: Duration,
    },
    /// A command of the node failed.
    #[error("{} failed: {stderr}", program.display())]
    Command {
        program: PathBuf,
        /// What it said.
        stderr: String,
    },
    /// The generated node lacks something that the story needs.
    #[error("the node has no {0}; try another --seed or more --vms")]
    Cast(&'static str),
}

impl LabError {
    /// An I/O error and what was being done.
    pub fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// A failed request and what was being asked.
    pub fn request(what: impl Into<String>) -> impl FnOnce(sdc_clients::Error) -> Self {
        let what = what.into();
        move |source| Self::Request { what, source }
    }
}
