// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What each guard answered and why: the plan that operators read is made of these lines.

use std::fmt;

/// The guards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Guard {
    /// It belongs to a zone.
    G1,
    /// Its `cn_uuid` is exactly this node.
    G2,
    /// Its VM is not here.
    G3,
    /// Its address is on no VM here.
    G4,
    /// Its state: running or stopped, or provisioning behind the long rule.
    G5,
    /// It is old enough.
    G6,
    /// It was a candidate twice, a grace period apart.
    G7,
    /// VMAPI's verdict.
    G8,
    /// The fresh copy has an etag.
    G9,
    /// The mass-change brake.
    G10,
    /// No hold covers it.
    Hold,
}

impl fmt::Display for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hold => f.write_str("hold"),
            guard => write!(f, "{guard:?}"),
        }
    }
}

/// How a guard answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It lets the delete pass.
    Pass,
    /// It may pass later.
    Later,
    /// It forbids.
    Never,
}

/// One guard's answer in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// Which.
    pub guard: Guard,
    /// What it answered.
    pub answer: Answer,
    /// Why.
    pub said: String,
}
