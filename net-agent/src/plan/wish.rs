// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What may be wished of a NIC record: the fields to write, and why there may be none.

use sdc_clients::napi::NicState;

/// The fields to write; what is none stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// `cn_uuid`.
    pub cn_uuid: Option<String>,
    /// `state`.
    pub state: Option<NicState>,
    /// `owner_uuid`.
    pub owner_uuid: Option<String>,
    /// `primary: true`.
    pub primary: bool,
    /// `belongs_to_type: server` and `belongs_to_uuid`: a claim of our own admin NIC.
    pub claim: Option<String>,
    /// Was a `cn_uuid` of another node there? Then never without an etag.
    pub foreign: bool,
}

impl Wish {
    /// Nothing to write?
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What follows for one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Upkeep {
    /// Record and node agree.
    Agrees,
    /// Write this.
    Write(Wish),
    /// Leave it, and why.
    Leave(String),
    /// It has another node's `cn_uuid`: VMAPI decides.
    AskVmapi,
}
