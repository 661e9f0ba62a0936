// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The guards by name, and their answers.

use std::fmt;

/// The guards. The numbers are those of RFD 58's reap predicate in the docs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Guard {
    /// G1: the record belongs to a zone.
    ZoneNic,
    /// G2: its `cn_uuid` is this node.
    CnHere,
    /// G3: its VM is not here.
    VmAbsent,
    /// G4: no VM here has its MAC.
    MacAbsent,
    /// G5: its state is running or stopped, or it has been provisioning for long.
    SettledState,
    /// G6: it is old enough.
    OldEnough,
    /// G7: it was a candidate twice, a grace period apart.
    SeenTwice,
    /// G8: VMAPI confirms.
    VmapiConfirms,
    /// G9: the fresh copy has an etag.
    EtagKnown,
    /// G10: the mass-delete brake.
    Brake,
    Hold,
}

impl fmt::Display for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ZoneNic => "zone_nic",
            Self::CnHere => "cn_here",
            Self::VmAbsent => "vm_absent",
            Self::MacAbsent => "mac_absent",
            Self::SettledState => "settled_state",
            Self::OldEnough => "old_enough",
            Self::SeenTwice => "seen_twice",
            Self::VmapiConfirms => "vmapi_confirms",
            Self::EtagKnown => "etag_known",
            Self::Brake => "brake",
            Self::Hold => "hold",
        })
    }
}

/// How a guard answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Pass,
    Later,
    Never,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pass => "pass",
            Self::Later => "later",
            Self::Never => "never",
        })
    }
}
