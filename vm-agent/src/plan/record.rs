// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! VMAPI's record of a VM, as far as it is judged.

use jiff::{SignedDuration, Timestamp};
use sdc_clients::uuid_value;
use serde_json::{Map, Value};

/// By how much two clocks may differ.
const AHEAD: SignedDuration = SignedDuration::from_mins(5);

/// A record. Any of its fields may be missing or of a wrong type.
#[derive(Clone, Debug, PartialEq)]
pub struct Record(pub Map<String, Value>);

impl Record {
    /// Returns a text that is not empty.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(Value::as_str).filter(|text| !text.is_empty())
    }

    /// Returns the node that the VM is on.
    pub fn server(&self) -> Option<String> {
        self.text("server_uuid").map(uuid_value)
    }

    /// Returns true if the VM is on this node.
    pub fn is_on(&self, cn_uuid: &str) -> bool {
        self.server().as_deref() == Some(cn_uuid)
    }

    /// Returns destroyed or failed, if the record says so.
    pub fn over(&self) -> Option<&str> {
        self.text("state").filter(|state| matches!(*state, "destroyed" | "failed"))
    }

    /// Returns the other node that the VM lives on, if it does.
    pub fn lives_elsewhere(&self, cn_uuid: &str) -> Option<String> {
        self.server().filter(|server| server != cn_uuid && self.over().is_none())
    }

    /// Returns true if VMAPI is provisioning the VM.
    pub fn is_provisioning(&self) -> bool {
        self.text("state") == Some("provisioning")
    }

    /// Returns true if it has only the uuid and the server: what the switch of a migration leaves.
    pub fn is_bare(&self) -> bool {
        self.text("state").is_none() && self.text("owner_uuid").is_none()
    }

    /// Returns true if its state is one that the server made up, which may not be what is stored (H5).
    pub fn has_made_up_state(&self) -> bool {
        matches!(self.text("state"), Some("unknown" | "rebooting"))
    }

    /// Returns true if it was changed later than any clock that is right says.
    pub fn is_ahead(&self, now: Timestamp) -> bool {
        self.time("last_modified").is_some_and(|at| at.duration_since(now) > AHEAD)
    }

    /// Returns a time that the record names.
    pub fn time(&self, key: &str) -> Option<Timestamp> {
        time(&self.0, key)
    }
}

/// Returns a time that an object names.
pub fn time(object: &Map<String, Value>, key: &str) -> Option<Timestamp> {
    object.get(key).and_then(Value::as_str).and_then(|text| text.parse().ok())
}
