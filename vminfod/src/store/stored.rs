// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! One VM as it is stored.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use vm_model::VmObject;
use vm_model::js::write_ascii;
use vm_model::outline::Outline;

use super::note::Traits;

/// Most objects are no longer than this, in bytes, beside what is in their configuration files.
const USUAL: usize = 4096;

/// One VM as readers see it: its bytes, and what is needed without parsing them.
#[derive(Debug)]
pub struct StoredVm {
    json: Bytes,
    /// `uuid`, if it is a string other than the zone's name.
    pub uuid: Option<Box<str>>,
    /// What filters need.
    pub traits: Traits,
}

impl StoredVm {
    /// The object as ASCII JSON.
    pub fn json(&self) -> Bytes {
        self.json.clone()
    }

    /// Parses the object.
    pub fn object(&self) -> VmObject {
        serde_json::from_slice(&self.json).unwrap_or_default()
    }
}

/// An object as it is stored.
pub fn stored(object: &Outline) -> Arc<StoredVm> {
    let config: usize = object.config.texts().map(|(_, text)| text.len()).sum();
    let mut json = Vec::with_capacity(USUAL + config);
    write_ascii(&mut json, object);
    // An exact copy: the buffer may be twice as large.
    let json = Bytes::from(Box::<[u8]>::from(json.as_slice()));
    let text = |name: &str| object.fields.get(name).and_then(Value::as_str);
    let uuid = text("uuid").filter(|uuid| text("zonename") != Some(uuid)).map(Box::from);
    Arc::new(StoredVm { json, uuid, traits: Traits::of(&object.fields) })
}
