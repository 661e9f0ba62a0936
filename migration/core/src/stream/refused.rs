// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Why a stream is not taken, or did not end well.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Something on the connection is not what an agent would send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The first bytes are no opening of this version.
    #[error("it does not begin with a stream's header")]
    Opening,
    /// No token with this id was issued, or it has expired.
    #[error("its token is unknown or has expired")]
    UnknownToken,
    /// The token has opened a stream before.
    #[error("its token was used before")]
    UsedToken,
    /// The token was issued for another node.
    #[error("its token was issued for another node")]
    WrongToken,
    /// A frame of no known kind.
    #[error("frame {number} has an unknown kind")]
    Kind {
        /// The number that was expected.
        number: u64,
    },
    /// A frame that was repeated, left out, or came out of order.
    #[error("frame {found} came where {expected} was expected")]
    Order {
        /// The number that was expected.
        expected: u64,
        /// The number that came.
        found: u64,
    },
    /// A frame that is longer than frames are, or a last one too short for its numbers.
    #[error("frame {number} has a length of {length}")]
    Length {
        /// The number of the frame.
        number: u64,
        /// Its length in bytes.
        length: u32,
    },
    /// The connection ended within a frame or before the last one.
    #[error("it ends in or before frame {number}")]
    Cut {
        /// The number of the frame that is not whole.
        number: u64,
    },
    /// The last frame's numbers are not those of what came.
    #[error("the last frame states {stated} bytes, {came} arrived")]
    Total {
        /// The total that the last frame has.
        stated: u64,
        /// The bytes that came.
        came: u64,
    },
    /// Something follows the last frame.
    #[error("data follows the last frame")]
    AfterTheEnd,
    /// The receipt is not for what was sent, or is cut.
    #[error("the receipt does not match the stream")]
    Receipt,
}

impl Refused {
    /// All reasons by the names that metrics have.
    const NAMES: [&'static str; 11] = [
        "opening",
        "unknown_token",
        "used_token",
        "wrong_token",
        "kind",
        "order",
        "length",
        "cut",
        "total",
        "after_the_end",
        "receipt",
    ];

    fn index(self) -> usize {
        match self {
            Refused::Opening => 0,
            Refused::UnknownToken => 1,
            Refused::UsedToken => 2,
            Refused::WrongToken => 3,
            Refused::Kind { .. } => 4,
            Refused::Order { .. } => 5,
            Refused::Length { .. } => 6,
            Refused::Cut { .. } => 7,
            Refused::Total { .. } => 8,
            Refused::AfterTheEnd => 9,
            Refused::Receipt => 10,
        }
    }
}

/// How often each reason was seen since the start.
#[derive(Debug, Default)]
pub struct Refusals([AtomicU64; 11]);

impl Refusals {
    /// Each reason's name and count.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Refused::NAMES.into_iter().zip(self.0.iter().map(|count| count.load(Ordering::Relaxed)))
    }

    /// Counts the reason, and returns it as an error.
    pub(super) fn count(&self, refused: Refused) -> StreamError {
        self.0[refused.index()].fetch_add(1, Ordering::Relaxed);
        StreamError::Refused(refused)
    }
}

/// Why a stream did not end well.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// What came is not what the other end would send.
    #[error("the stream is refused")]
    Refused(#[source] Refused),
    /// The connection failed.
    #[error("the connection failed")]
    Connection(#[source] io::Error),
    /// Nothing moved for this long.
    #[error("no byte moved for {} s", .0.as_secs())]
    Idle(Duration),
    /// The bytes could not be read, or their source did not end well: `zfs send`.
    #[error("the source of the stream failed")]
    Source(#[source] io::Error),
    /// The bytes could not be delivered, or their receiver did not end well: `zfs receive`.
    #[error("the receiver of the stream failed")]
    Sink(#[source] io::Error),
}
