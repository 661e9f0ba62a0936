// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What an agent answers, noted field by field, and with a lie in it.

use std::collections::BTreeMap;

use serde_json::Value;

/// What a node says: of a route the fields, by JSON pointer.
pub type Said = BTreeMap<(String, String), Value>;

/// One field that is replaced in all answers of a route.
#[derive(Clone, Debug)]
pub struct Lie {
    pub route: String,
    pub pointer: String,
    pub with: Value,
}

/// An agent's answers, as they are noted, and lied about.
#[derive(Debug, Default)]
pub struct Tongue {
    pub said: Said,
    pub lie: Option<Lie>,
}

impl Tongue {
    /// Notes an answer, and replaces a field in it.
    pub fn speaks(&mut self, route: &str, body: &mut Value) {
        note(&mut self.said, route, "", body);
        if let Some(lie) = self.lie.as_ref().filter(|lie| lie.route == route)
            && let Some(field) = body.pointer_mut(&lie.pointer)
        {
            *field = lie.with.clone();
        }
    }
}

fn note(said: &mut Said, route: &str, pointer: &str, value: &Value) {
    said.entry((route.to_owned(), pointer.to_owned())).or_insert_with(|| value.clone());
    match value {
        Value::Object(all) => {
            all.iter().for_each(|(name, it)| note(said, route, &format!("{pointer}/{name}"), it));
        }
        Value::Array(all) => {
            all.iter().take(1).for_each(|it| note(said, route, &format!("{pointer}/0"), it));
        }
        _ => {}
    }
}
