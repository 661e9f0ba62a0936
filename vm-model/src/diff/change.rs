// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! One difference between two objects, as it is sent.

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// What happened to a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// It was absent before.
    Added,
    /// It is absent now.
    Removed,
    /// It has another value now.
    Changed,
}

impl Action {
    /// Returns its name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Action::Added => "added",
            Action::Removed => "removed",
            Action::Changed => "changed",
        }
    }
}

/// A value of one of the objects, not copied: a tenant's metadata may be large.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(untagged)]
pub enum Shown<'a> {
    /// The value itself.
    Value(&'a Value),
    /// The text of a whole field of [`crate::parse::config_json::FIELDS`].
    Text(&'a RawValue),
}

impl<'a> Shown<'a> {
    /// Returns the value if it is one.
    pub fn value(self) -> Option<&'a Value> {
        match self {
            Shown::Value(value) => Some(value),
            Shown::Text(_) => None,
        }
    }
}

/// One difference between two objects, as it is sent.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Change<'a> {
    /// The path as one text: `nics.*.ip`.
    pub pretty_path: String,
    /// The path, with `None` for an element of an array.
    pub path: Vec<Option<String>>,
    pub action: Action,
    /// The old value; `None` if it was absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old_value: Option<Shown<'a>>,
    /// The new value; `None` if it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_value: Option<Shown<'a>>,
    /// The identity of the element: a NIC's mac, a disk's path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ident: Option<&'a Value>,
}

impl<'a> Change<'a> {
    pub(super) fn new(
        path: &[Option<String>],
        ident: Option<&'a Value>,
        old_value: Option<Shown<'a>>,
        new_value: Option<Shown<'a>>,
    ) -> Self {
        let action = match (old_value, new_value) {
            (None, _) => Action::Added,
            (_, None) => Action::Removed,
            _ => Action::Changed,
        };
        let (pretty_path, path) = (pretty_path(path), path.to_vec());
        Change { pretty_path, path, action, old_value, new_value, ident }
    }
}

/// Returns a path as one text: joined by dots, `*` for an element, names with dots or brackets in
/// brackets.
pub fn pretty_path(path: &[Option<String>]) -> String {
    let mut text = String::new();
    for (index, part) in path.iter().enumerate() {
        let part = part.as_deref().unwrap_or("*");
        if part.contains(['.', '[', ']']) {
            text.push('[');
            for c in part.chars() {
                if matches!(c, '[' | ']') {
                    text.push('\\');
                }
                text.push(c);
            }
            text.push(']');
        } else {
            if index > 0 {
                text.push('.');
            }
            text.push_str(part);
        }
    }
    text
}
