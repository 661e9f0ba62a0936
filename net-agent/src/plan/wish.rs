// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The changes that may be made to a NIC record.

use std::fmt;

use sdc_clients::napi::{BelongsToType, NicState, NicUpdate};

/// The fields to write; a field that is none stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    pub cn_uuid: Option<String>,
    pub state: Option<NicState>,
    pub owner_uuid: Option<String>,
    /// `primary: true`.
    pub primary: bool,
    /// `belongs_to_type: server` and `belongs_to_uuid`: claims the node's own NIC.
    pub claim: Option<String>,
    /// The record has another node's `cn_uuid`, or none at all: only with an etag.
    pub foreign: bool,
}

impl Wish {
    /// Returns true if there is nothing to write.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns true if the wish only sets the state or an absent `cn_uuid`, which a NAPI without
    /// etags (of RFD 58's time) may be sent unconditionally (R14).
    pub fn only_fixes(&self) -> bool {
        !self.foreign && self.owner_uuid.is_none() && !self.primary && self.claim.is_none()
    }

    /// Returns the names of the fields that it sets.
    pub fn fields(&self) -> Vec<&'static str> {
        let fields = [
            ("cn_uuid", self.cn_uuid.is_some()),
            ("state", self.state.is_some()),
            ("owner_uuid", self.owner_uuid.is_some()),
            ("primary", self.primary),
            ("belongs_to_type", self.claim.is_some()),
            ("belongs_to_uuid", self.claim.is_some()),
        ];
        fields.into_iter().filter_map(|(name, is_set)| is_set.then_some(name)).collect()
    }

    /// Returns the body of the request.
    pub fn update(&self) -> NicUpdate {
        NicUpdate {
            cn_uuid: self.cn_uuid.clone(),
            state: self.state.clone(),
            belongs_to_type: self.claim.as_ref().map(|_| BelongsToType::Server),
            belongs_to_uuid: self.claim.clone(),
            owner_uuid: self.owner_uuid.clone(),
            primary: self.primary.then_some(true),
            check_owner: self.owner_uuid.as_ref().map(|_| false),
        }
    }
}

impl fmt::Display for Wish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let claim = self.claim.as_ref().map(|cn| format!("server/{cn}"));
        let fields = [
            ("cn_uuid", self.cn_uuid.as_deref()),
            ("state", self.state.as_ref().map(NicState::as_str)),
            ("owner_uuid", self.owner_uuid.as_deref()),
            ("primary", self.primary.then_some("true")),
            ("belongs_to", claim.as_deref()),
        ];
        let set = fields.iter().filter_map(|(name, value)| Some(format!("{name}={}", (*value)?)));
        f.write_str(&set.collect::<Vec<_>>().join(" "))
    }
}
