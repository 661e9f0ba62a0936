// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Schemas of the wire types, as the documents of interfaces (OpenAPI) have them.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

/// Schemas by the names of their types.
#[derive(Debug)]
pub struct Schemas {
    generator: SchemaGenerator,
    by_hand: Map<String, Value>,
}

impl Default for Schemas {
    fn default() -> Schemas {
        // OpenAPI 3.1 has the schemas of JSON Schema as they are.
        let place = |settings: &mut SchemaSettings| {
            settings.definitions_path = "/components/schemas".into()
        };
        let generator = SchemaSettings::draft2020_12().with(place).into_generator();
        Schemas { generator, by_hand: Map::new() }
    }
}

impl Schemas {
    /// Adds a type, and those that it has.
    #[must_use]
    pub fn with<T: JsonSchema>(mut self) -> Schemas {
        let _ = self.generator.subschema_for::<T>();
        self
    }

    /// Adds an object that no type has, since its fields are read one by one: `name type` each, `name! type` where it is
    /// needed. A type is JSON's, `uuid`, `[type]`, `type?` where it may be null, `any`, or words of a closed set: `a|b`.
    #[must_use]
    pub fn fields(mut self, name: &str, fields: &[&str]) -> Schemas {
        let fields = || fields.iter().filter_map(|field| field.split_once(' '));
        let schema =
            |(name, kind): (&str, &str)| (name.trim_end_matches('!').to_owned(), kind_of(kind));
        let needed = fields().filter_map(|(name, _)| name.strip_suffix('!'));
        let properties: Map<String, Value> = fields().map(schema).collect();
        let mut object = json!({ "type": "object", "properties": properties });
        let needed: Vec<&str> = needed.collect();
        if !needed.is_empty() {
            object["required"] = json!(needed);
        }
        self.by_hand.insert(name.to_owned(), object);
        self
    }

    /// Returns all of them, and that of a refusal, which every service has.
    pub fn all(mut self) -> Map<String, Value> {
        let mut all = self.generator.take_definitions(true);
        all.extend(self.by_hand);
        let text = json!({ "type": "string" });
        let refusal = json!({ "type": "object", "properties": { "code": text, "message": text } });
        all.insert("Refusal".to_owned(), refusal);
        all
    }
}

fn kind_of(kind: &str) -> Value {
    if let Some(item) = kind.strip_prefix('[').and_then(|kind| kind.strip_suffix(']')) {
        return json!({ "type": "array", "items": kind_of(item) });
    }
    match kind {
        "any" => json!({}),
        "uuid" => json!({ "type": "string", "format": "uuid" }),
        words if words.contains('|') => {
            json!({ "type": "string", "enum": words.split('|').collect::<Vec<_>>() })
        }
        kind => match kind.strip_suffix('?') {
            Some(kind) => json!({ "type": [kind, "null"] }),
            None => json!({ "type": kind }),
        },
    }
}
