// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What came of one record.

use std::fmt;

use crate::brake::Tripped;
use crate::plan::{Guard, Reason};

/// What came of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Written or deleted, or already as it should be.
    Done,
    /// Left alone: nothing is to be done about it.
    Left(Reason),
    Missing,
    /// NAPI refused the request: it is looked at again after a while, and then left alone.
    Refused(Reason),
    /// Not now: something has to change first.
    Deferred(Reason),
    /// Not now: VMAPI knows the VM and does not say yet that it is destroyed.
    Undecided(Reason),
    /// Not now: the mass-delete brake blocks it (G10).
    Braked(Tripped),
    /// A request failed: it is tried again.
    Failed(Reason),
}

impl Outcome {
    /// Returns true if it has to be tried again.
    pub fn is_open(&self) -> bool {
        !matches!(self, Self::Done | Self::Left(_) | Self::Missing | Self::Refused(_))
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("done"),
            Self::Left(why) => write!(f, "left alone: {why}"),
            Self::Refused(why) => write!(f, "refused: {why}"),
            Self::Missing => write!(f, "left alone: {}", Reason::NoRecord),
            Self::Deferred(why) | Self::Undecided(why) => write!(f, "deferred: {why}"),
            Self::Braked(why) => write!(f, "deferred: {}: {why}", Guard::Brake),
            Self::Failed(why) => write!(f, "failed, to be tried again: {why}"),
        }
    }
}
