// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The error answers of NAPI.

use serde_json::{Map, Value, json};

/// An answer that is not a success.
#[derive(Debug, Clone)]
pub(super) enum ApiError {
    /// 422 with a list of elements.
    Invalid(Vec<Value>),
    /// 422 for a thing that others still use.
    InUse(String, Vec<Value>),
    /// 404 for a thing.
    NotFound(&'static str),
    /// 403.
    NotAuthorized(&'static str),
    /// 412.
    Precondition(String),
    /// 507.
    SubnetFull(String),
    /// 500 of the storage: no code.
    Storage(String),
    /// 500 of a list, one of whose records cannot be shown: no code.
    Several(usize),
    /// Any other status with a code.
    Plain(u16, &'static str, String),
    /// The process died: no answer at all.
    Died,
}

impl ApiError {
    /// One bad parameter.
    pub(super) fn invalid(field: &str, message: &str) -> Self {
        ApiError::Invalid(vec![element(field, "InvalidParameter", message)])
    }

    /// Status and body.
    pub(super) fn into_parts(self) -> (u16, Value) {
        match self {
            ApiError::Invalid(mut errors) => {
                errors.sort_by_key(|error| sort_key(&error["field"]));
                let missing = errors.iter().all(|error| error["code"] == "MissingParameter");
                let message = if missing { "Missing parameters" } else { "Invalid parameters" };
                (422, json!({ "code": "InvalidParameters", "message": message, "errors": errors }))
            }
            ApiError::InUse(message, errors) => {
                (422, json!({ "code": "InUse", "message": message, "errors": errors }))
            }
            ApiError::NotFound(what) => {
                (404, json!({ "code": "ResourceNotFound", "message": format!("{what} not found") }))
            }
            ApiError::NotAuthorized(message) => {
                (403, json!({ "code": "NotAuthorized", "message": message }))
            }
            ApiError::Precondition(message) => {
                (412, json!({ "code": "PreconditionFailed", "message": message }))
            }
            ApiError::SubnetFull(network) => (
                507,
                json!({ "code": "SubnetFull", "message": "no more free IPs", "network_uuid": network }),
            ),
            ApiError::Storage(message) => (
                500,
                json!({ "message": format!(
                    "moray client (\"127.0.0.1:40000\" to \"127.0.0.1:2020\"): request failed: server error: {message}"
                ) }),
            ),
            ApiError::Several(count) => {
                (500, json!({ "message": format!("first of {count} errors: Internal error") }))
            }
            ApiError::Plain(status, code, message) => {
                (status, json!({ "code": code, "message": message }))
            }
            ApiError::Died => (500, Value::Null),
        }
    }
}

fn sort_key(field: &Value) -> String {
    match field {
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(","),
        Value::String(name) => name.clone(),
        _ => String::new(),
    }
}

/// An element of `errors`.
pub(super) fn element(field: &str, code: &str, message: &str) -> Value {
    json!({ "field": field, "code": code, "message": message })
}

/// A missing parameter.
pub(super) fn missing(field: &str) -> Value {
    element(field, "MissingParameter", "Missing parameter")
}

/// An element with the offending values.
pub(super) fn with_invalid(field: &str, message: &str, invalid: &[String]) -> Value {
    let mut error = element(field, "InvalidParameter", message);
    if let Value::Object(map) = &mut error {
        map.insert("invalid".to_owned(), json!(invalid));
    }
    error
}

/// A request names another tag or VLAN than that of its network.
pub(super) fn differing(what: &str, asked: &str, own: &str) -> ApiError {
    let message = format!(
        "The {what} of all specified IPv4 and IPv6 networks must match (have \"{asked}\" and \"{own}\")"
    );
    ApiError::invalid("network_uuid", &message)
}

/// The element for parameters nobody knows.
pub(super) fn unknown(names: &[String]) -> Value {
    json!({
        "field": names,
        "code": "UnknownParameters",
        "message": format!("Unknown parameters: {}", names.join(", ")),
    })
}

/// The element for a user of a thing.
pub(super) fn used_by(kind: &str, id: &str, prefix: &str, field: Option<&str>) -> Value {
    let mut map = Map::new();
    map.insert("type".to_owned(), json!(kind));
    map.insert("id".to_owned(), json!(id));
    map.insert("code".to_owned(), json!("UsedBy"));
    map.insert("message".to_owned(), json!(format!("{prefix} by {kind} \"{id}\"")));
    if let Some(field) = field {
        map.insert("field".to_owned(), json!(field));
    }
    Value::Object(map)
}
