// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A VM object whose metadata, tags and routes are text: a tenant decides how large they are.

use std::sync::Arc;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;

use crate::object::VmObject;
use crate::parse::config_json::{self, ConfigJson};

/// The object. It serialises as the whole one does.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outline {
    /// The fields; null for those whose text is in `config`.
    pub fields: VmObject,
    /// Metadata, tags, routes.
    pub config: Arc<ConfigJson>,
}

impl Outline {
    /// Returns the object with all its values.
    pub fn whole(self) -> VmObject {
        let Outline { mut fields, config } = self;
        for (field, text) in config.texts() {
            fields.insert(field.to_owned(), config_json::value(text));
        }
        fields
    }
}

impl From<VmObject> for Outline {
    fn from(fields: VmObject) -> Self {
        Outline { fields, config: Arc::default() }
    }
}

impl Serialize for Outline {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let mut map = out.serialize_map(Some(self.fields.len()))?;
        for (key, value) in &self.fields {
            match self.config.raw(key) {
                Some(text) => map.serialize_entry(key, text)?,
                None => map.serialize_entry::<_, Value>(key, value)?,
            }
        }
        map.end()
    }
}
