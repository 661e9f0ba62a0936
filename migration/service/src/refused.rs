// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Replies that are no success: status and body, in the forms of VMAPI.

use http::StatusCode;
use serde_json::{Value, json};
use uuid::Uuid;

use migration_core::checks::Findings;
use migration_core::machine::Refusal;
use migration_core::permit::Denied;
use migration_core::record::Invalid;

/// A refusal.
#[derive(Clone, Debug, PartialEq)]
pub struct Refused {
    status: u16,
    body: Value,
}

impl Refused {
    /// A refusal with a code and a message.
    pub fn coded(status: u16, code: &str, message: &str) -> Refused {
        Refused { status, body: json!({"code": code, "message": message}) }
    }

    /// A bad argument.
    pub fn argument(message: &str) -> Refused {
        Refused::coded(409, "InvalidArgument", message)
    }

    /// A thing that is not there.
    pub fn not_found(message: &str) -> Refused {
        Refused::coded(404, "ResourceNotFound", message)
    }

    /// A migration whose record is not there, and of which a copy that was replaced is, on a node that is back.
    pub fn replaced(cn: Uuid, vm: Uuid) -> Refused {
        let what = "was replaced, and its node is back: it must not be used; to delete it";
        let message = format!("the copy on {cn} {what}: sdc-migrate finalize {vm}");
        let mut refused = Refused::not_found("migration not found");
        refused.body["errors"] =
            json!([{"field": "replaced", "code": "Returned", "message": message}]);
        refused
    }

    /// A condition that does not hold.
    pub fn precondition(message: &str) -> Refused {
        Refused::coded(412, "PreconditionFailed", message)
    }

    /// A failure of this service, or of one that it needs.
    pub fn internal(message: &str) -> Refused {
        Refused::coded(500, "InternalError", message)
    }

    /// A parameter with a bad value, as `Invalid Parameters` names it.
    pub fn parameter(field: &str, message: &str) -> Refused {
        Refused::parameters("Invalid Parameters", field, message)
    }

    /// A parameter with a bad value, under a sentence of its own.
    pub fn parameters(sentence: &str, field: &str, message: &str) -> Refused {
        let errors = json!([{"field": field, "code": "Invalid", "message": message}]);
        let body = json!({"code": "ValidationFailed", "message": sentence, "errors": errors});
        Refused { status: 409, body }
    }

    /// The answer of another service, passed on.
    pub fn passed(status: u16, body: Value) -> Refused {
        Refused { status, body }
    }

    /// All obstacles as one refusal; none if there is none.
    pub fn obstacles(findings: &Findings) -> Option<Refused> {
        let mut lasting = findings.obstacles.iter().filter(|obstacle| !obstacle.passes());
        let first = lasting.next().or(findings.obstacles.first())?;
        let texts: Vec<String> = findings.obstacles.iter().map(ToString::to_string).collect();
        let mut refused = Refused::coded(first.status(), first.code(), &texts.join("; "));
        if texts.len() > 1 {
            refused.body["errors"] = json!(texts);
        }
        Some(refused)
    }

    /// Returns the status.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Returns the status as the HTTP library has it.
    pub fn status_code(&self) -> StatusCode {
        StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// Returns the body.
    pub fn body(&self) -> &Value {
        &self.body
    }

    /// Returns the message of the body.
    pub fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Refused {
        Refused::coded(refusal.status(), refusal.code(), &refusal.to_string())
    }
}

impl From<Denied> for Refused {
    fn from(denied: Denied) -> Refused {
        Refused::coded(denied.status(), denied.code(), &denied.to_string())
    }
}

impl From<Invalid> for Refused {
    fn from(invalid: Invalid) -> Refused {
        Refused::argument(&invalid.to_string())
    }
}

impl From<store::Error> for Refused {
    fn from(error: store::Error) -> Refused {
        tracing::error!(reason = %error, "a request to the store failed; answering with an error");
        match error.is_away() {
            true => Refused::coded(503, "ServiceUnavailableError", &error.to_string()),
            false => Refused::internal(&error.to_string()),
        }
    }
}

/// What another service answered is passed on; silence is its own 503.
impl From<sdc_clients::Error> for Refused {
    fn from(error: sdc_clients::Error) -> Refused {
        let Some(status) = error.status().filter(|status| *status >= 400) else {
            return Refused::coded(503, "ServiceUnavailableError", &error.to_string());
        };
        let mut body = json!({});
        if let Some(code) = error.code() {
            body["code"] = json!(code);
        }
        body["message"] = json!(error.message_with_fields());
        if !error.errors().is_empty() {
            body["errors"] = json!(error.errors());
        }
        Refused { status, body }
    }
}
