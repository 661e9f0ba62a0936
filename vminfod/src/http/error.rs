// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Why a request is not answered with what it asked for. The responses are made here only.

use axum::response::{IntoResponse, Response};
use daemon::http::{Gone, reply};
use http::StatusCode;
use serde_json::json;

use super::compat;
use vm_model::js::to_ascii;

/// The reason.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The path is no route.
    UnsupportedPath,
    /// There is no VM of this name.
    NoVm(String),
    /// The answer needs something that cannot be had now: what, for people.
    Unavailable(String),
    /// A node-wide source is too old.
    Stale,
    /// The stream cannot be resumed.
    Gone(Gone),
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        match self {
            Self::UnsupportedPath => reply(StatusCode::NOT_FOUND, compat::UNSUPPORTED_PATH),
            Self::NoVm(name) => reply(StatusCode::NOT_FOUND, compat::vm_not_found(&name)),
            Self::Unavailable(message) => unavailable("ServiceUnavailable", &message),
            Self::Stale => {
                unavailable("Stale", "a node-wide source has not answered for two refreshes")
            }
            Self::Gone(gone) => gone.into_response(),
        }
    }
}

fn unavailable(code: &str, message: &str) -> Response {
    reply(StatusCode::SERVICE_UNAVAILABLE, to_ascii(&json!({"code": code, "message": message})))
}
