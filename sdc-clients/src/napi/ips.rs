// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! An address of a network.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What NAPI knows of an address.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ip {
    /// The address.
    pub ip: String,
    /// Whether it may be handed out.
    #[serde(default)]
    pub free: bool,
    /// Whether it is kept back, used or not.
    #[serde(default)]
    pub reserved: bool,
    /// What has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub belongs_to_uuid: Option<String>,
    /// Every other field.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// What to change about an address. Unset fields are not sent.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct IpUpdate {
    /// Whether it is kept back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserved: Option<bool>,
}
