// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What is not done: the two forms of errors, and the requests that end the process. Pure.

use serde_json::{Map, Value, json};

/// Parameters of a request.
pub(super) type Params = Map<String, Value>;

/// Why a request is not done.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Refusal {
    /// Status, code, message.
    Coded(u16, &'static str, String),
    /// Status and the wrong fields, each with what is wrong.
    Parameters(u16, Vec<(String, String)>),
    /// An exception that nobody catches: the connection closes without an answer, and so do all others.
    Dies,
    /// The same a moment after the answer.
    DiesAfter(Box<Refusal>),
}

impl Refusal {
    /// 409 InvalidArgument.
    pub(super) fn argument(message: impl Into<String>) -> Refusal {
        Refusal::Coded(409, "InvalidArgument", message.into())
    }

    /// 404 ResourceNotFound.
    pub(super) fn not_found(message: impl Into<String>) -> Refusal {
        Refusal::Coded(404, "ResourceNotFound", message.into())
    }

    /// 500 InternalError.
    pub(super) fn internal(message: impl Into<String>) -> Refusal {
        Refusal::Coded(500, "InternalError", message.into())
    }

    /// One wrong field.
    pub(super) fn field(name: &str, message: impl Into<String>) -> Refusal {
        Refusal::Parameters(500, vec![(name.to_owned(), message.into())])
    }

    /// A server that is not known.
    pub(super) fn no_server(uuid: &str) -> Refusal {
        Refusal::not_found(format!("Server {uuid} not found"))
    }

    /// What the storage says of a filter, or of options.
    pub(super) fn storage(message: &str) -> Refusal {
        let client = r#"moray client ("127.0.0.1:49414" to "127.0.0.1:23020")"#;
        Refusal::internal(format!("{client}: request failed: server error: {message}"))
    }

    /// Status and body; nothing where the connection closes.
    pub(super) fn answer(&self) -> Option<(u16, Value)> {
        match self {
            Refusal::Coded(status, code, message) => {
                Some((*status, json!({ "code": code, "message": message })))
            }
            Refusal::Parameters(status, fields) => {
                let errors: Vec<Value> = fields
                    .iter()
                    .map(
                        |(field, why)| json!({ "field": field, "code": "Invalid", "message": why }),
                    )
                    .collect();
                let message = "Request parameters failed validation";
                let body =
                    json!({ "code": "InvalidParameters", "message": message, "errors": errors });
                Some((*status, body))
            }
            Refusal::Dies => None,
            Refusal::DiesAfter(answered) => answered.answer(),
        }
    }
}

/// What a value has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A text.
    Text,
    /// A text that neither begins nor ends with a blank.
    Trimmed,
    /// true or false.
    Flag,
    /// A number, also as a text.
    Number,
    /// An object.
    Object,
    /// An array.
    Array,
}

impl Kind {
    /// Returns what is wrong with a value.
    pub(super) fn fault(self, value: Option<&Value>) -> Option<String> {
        let is_blank = |text: &str| text.trim() != text;
        let fault = match (self, value) {
            (Kind::Text, Some(Value::String(_)))
            | (Kind::Flag, Some(Value::Bool(_)))
            | (Kind::Number, Some(Value::Number(_)))
            | (Kind::Object, Some(Value::Object(_)))
            | (Kind::Array, Some(Value::Array(_))) => return None,
            (Kind::Trimmed, Some(Value::String(text))) => {
                return is_blank(text)
                    .then(|| "value contains leading or trailing whitespace".to_owned());
            }
            (Kind::Number, Some(Value::String(text))) if text.parse::<f64>().is_ok() => {
                return None;
            }
            (Kind::Text | Kind::Trimmed, _) => "value was not a string".to_owned(),
            (Kind::Flag, _) => "value was not true or false".to_owned(),
            (Kind::Number, _) => "value was not a number".to_owned(),
            (Kind::Array, _) => "value was not an array".to_owned(),
            (Kind::Object, value) => {
                format!("value is not an object. (was: [object {}])", class(value))
            }
        };
        Some(fault)
    }
}

fn class(value: Option<&Value>) -> &'static str {
    match value {
        None => "Undefined",
        Some(Value::Null) => "Null",
        Some(Value::Bool(_)) => "Boolean",
        Some(Value::Number(_)) => "Number",
        Some(Value::String(_)) => "String",
        Some(Value::Array(_)) => "Array",
        Some(Value::Object(_)) => "Object",
    }
}

/// Checks the fields that have to be there, and those that may be.
pub(super) fn require(
    params: &Params,
    fields: &[(&'static str, Kind, bool)],
) -> Result<(), Refusal> {
    let faults: Vec<(String, String)> = fields
        .iter()
        .filter(|(name, _, must)| *must || params.contains_key(*name))
        .filter_map(|(name, kind, _)| Some(((*name).to_owned(), kind.fault(params.get(*name))?)))
        .collect();
    if faults.is_empty() { Ok(()) } else { Err(Refusal::Parameters(500, faults)) }
}

/// Refuses the first parameter that a closed list does not have.
pub(super) fn closed(params: &Params, known: &[&str]) -> Result<(), Refusal> {
    match params.keys().find(|name| !known.contains(&name.as_str())) {
        Some(name) => {
            Err(Refusal::argument(format!("{name} is not an explicitly defined parameter")))
        }
        None => Ok(()),
    }
}

/// Returns true for a uuid in either case.
pub(super) fn is_uuid(text: &str) -> bool {
    crate::restify::is_uuid(&text.to_lowercase())
}

/// Returns a text of an object.
pub(super) fn word<'a>(object: &'a Params, name: &str) -> &'a str {
    object.get(name).and_then(Value::as_str).unwrap_or_default()
}
