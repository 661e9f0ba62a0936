// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Schemas of the wire types, as the documents of interfaces (OpenAPI) have them.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

/// Schemas by the names of their types.
#[derive(Debug)]
pub struct Schemas(SchemaGenerator);

impl Default for Schemas {
    fn default() -> Schemas {
        // OpenAPI 3.1 has the schemas of JSON Schema as they are.
        let place = |settings: &mut SchemaSettings| {
            settings.definitions_path = "/components/schemas".into()
        };
        Schemas(SchemaSettings::draft2020_12().with(place).into_generator())
    }
}

impl Schemas {
    /// Adds a type, and those that it has.
    #[must_use]
    pub fn with<T: JsonSchema>(mut self) -> Schemas {
        let _ = self.0.subschema_for::<T>();
        self
    }

    /// Returns all of them, and that of a refusal, which every service has.
    pub fn all(mut self) -> Map<String, Value> {
        let mut all = self.0.take_definitions(true);
        let text = json!({ "type": "string" });
        let refusal = json!({ "type": "object", "properties": { "code": text, "message": text } });
        all.insert("Refusal".to_owned(), refusal);
        all
    }
}
