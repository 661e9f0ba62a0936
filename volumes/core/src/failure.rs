// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Why a volume has failed.

use std::fmt;

/// The longest reason of another service that a record keeps, in bytes.
const LONGEST: usize = 1024;

/// Why a volume has failed. The record keeps the sentence, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// For longer than a reboot takes.
    Stopped,
    /// VMAPI gave up making it.
    VmFailed,
    /// Not because the volume was deleted.
    VmDestroyed,
    /// What VMAPI answered.
    Refused(String),
    /// The process that made the volume died before VMAPI had the order.
    CutOff,
    /// The storage VM was lost in the middle of a roll-back.
    RolledBack,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Failure::Stopped => "its storage VM was stopped for longer than reboot_grace",
            Failure::VmFailed => "its storage VM has the state failed",
            Failure::VmDestroyed => "its storage VM was destroyed",
            Failure::CutOff => "volapi was cut off before it ordered the storage VM",
            Failure::RolledBack => "its storage VM was lost during a roll-back",
            Failure::Refused(why) => {
                let end = why.floor_char_boundary(LONGEST);
                let why = why.get(..end).unwrap_or_default();
                return write!(f, "VMAPI did not make its storage VM: {why}");
            }
        })
    }
}
