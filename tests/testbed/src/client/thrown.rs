// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What ends a deployed client.

/// What ends a deployed client.
#[derive(Debug, thiserror::Error)]
pub enum Thrown {
    /// No connection, or one that broke.
    #[error("request failed: {0}")]
    Request(#[from] reqwest::Error),
    /// An answer other than 200.
    #[error("bad statusCode: {0}")]
    Status(u16),
    /// The stream ended while somebody listened.
    #[error("VminfodEventStream ended prematurely")]
    Ended,
    /// No `ready` in time.
    #[error("no ready line within {0} ms")]
    NotReady(u128),
    /// A line that is no JSON text; blank ones are none.
    #[error("cannot parse line {0:?}")]
    Line(String),
    /// A line whose `date` JavaScript cannot read.
    #[error("invalid date in {0}")]
    Date(String),
    /// A failed assertion: the process aborts.
    #[error("assertion failed: {0}")]
    Assertion(String),
    /// A wait that took too long.
    #[error("{method}: timeout exceeded ({limit_ms} ms) on {stream}")]
    Timeout {
        method: &'static str,
        /// On which stream.
        stream: String,
        limit_ms: u128,
    },
    /// Reading a property of nothing.
    #[error("cannot read {0}")]
    TypeError(String),
    /// What `vmadm` prints before it exits with 1.
    #[error("{0}")]
    Message(String),
}
