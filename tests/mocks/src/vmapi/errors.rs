// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The error answers of VMAPI.

use serde_json::{Value, json};

/// An answer that is not a success.
#[derive(Debug, Clone)]
pub(super) enum ApiError {
    /// 409 with a list of elements, under this message.
    Invalid(&'static str, Vec<Value>),
    /// 404 for a thing that is not there.
    NotFound(&'static str),
    /// Any other status with a code.
    Plain(u16, &'static str, String),
    /// 500 of the storage: no code.
    Storage(String),
    /// What another service answered, passed on.
    Passed(u16, Value),
    /// The process died: no answer at all.
    Died,
}

impl ApiError {
    /// One bad parameter.
    pub(super) fn invalid(field: &str, message: &str) -> Self {
        Self::parameters(vec![element(field, message)])
    }

    /// A parameter is not a UUID in lower case.
    pub(super) fn uuid(field: &str) -> Self {
        Self::invalid(field, "Invalid UUID")
    }

    /// Bad parameters.
    pub(super) fn parameters(errors: Vec<Value>) -> Self {
        ApiError::Invalid("Invalid Parameters", errors)
    }

    /// The storage refuses a request.
    pub(super) fn refused_by_storage(why: &str) -> Self {
        ApiError::Storage(format!(
            "moray client (\"127.0.0.1:40000\" to \"127.0.0.1:2020\"): request failed: server error: {why}"
        ))
    }

    /// Status and body; nothing if the process died.
    pub(super) fn into_parts(self) -> Option<(u16, Value)> {
        Some(match self {
            ApiError::Invalid(message, errors) => {
                (409, json!({ "code": "ValidationFailed", "message": message, "errors": errors }))
            }
            ApiError::NotFound(what) => {
                (404, json!({ "code": "ResourceNotFound", "message": format!("{what} not found") }))
            }
            ApiError::Plain(status, code, message) => {
                (status, json!({ "code": code, "message": message }))
            }
            ApiError::Storage(message) => (500, json!({ "message": message })),
            ApiError::Passed(status, body) => (status, body),
            ApiError::Died => return None,
        })
    }
}

/// An element of `errors` for a bad value.
pub(super) fn element(field: &str, message: &str) -> Value {
    json!({ "field": field, "code": "Invalid", "message": message })
}

/// An element of `errors` for a parameter that is not there.
pub(super) fn missing(field: &str) -> Value {
    json!({ "field": field, "code": "MissingParameter" })
}
