// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Answers with their headers: those of the routes, and those of the router itself.

use daemon::http::{Body, refuse};
use http::header::{ALLOW, CONTENT_TYPE, HeaderName, HeaderValue, SERVER};
use http::{HeaderMap, Method, Response, StatusCode};
use serde_json::Value;
use tokio::time::Instant;

use super::accept::Type;
use volumes_core::refused::Refused;

/// What a route answers.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Option<Value>,
}

impl Answer {
    /// A body with this status.
    pub(super) fn with(status: StatusCode, body: Value) -> Answer {
        Answer { status, body: Some(body) }
    }

    /// Done, nothing to say.
    pub(super) fn empty() -> Answer {
        Answer { status: StatusCode::NO_CONTENT, body: None }
    }
}

impl From<Refused> for Answer {
    fn from(refused: Refused) -> Answer {
        let status = StatusCode::from_u16(refused.status());
        Answer::with(status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), refused.body())
    }
}

/// Returns an answer of a route.
pub(super) fn routed(
    answer: Answer,
    kind: Type,
    request: &HeaderMap,
    since: Instant,
    host: &HeaderValue,
) -> Response<Body> {
    let text = match (&answer.body, kind) {
        (Some(body), Type::Json | Type::Text) => body.to_string(),
        _ => String::new(),
    };
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = answer.status;
    let headers = response.headers_mut();
    if answer.body.is_some() {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind.name()));
    }
    let id = request.get("request-id").or(request.get("x-request-id")).cloned();
    let made = || uuid::Uuid::new_v4().to_string().parse().ok();
    if let Some(id) = id.or_else(made) {
        headers.insert(HeaderName::from_static("x-request-id"), id);
    }
    headers.insert(SERVER, HeaderValue::from_static("VOLAPI"));
    let took = since.elapsed().as_millis();
    headers.insert(
        HeaderName::from_static("x-response-time"),
        HeaderValue::from(u64::try_from(took).unwrap_or(u64::MAX)),
    );
    headers.insert(HeaderName::from_static("x-server-name"), host.clone());
    response
}

/// There is no such route.
pub(super) fn no_route(path: &str) -> Response<Body> {
    refuse(StatusCode::NOT_FOUND, "ResourceNotFound", &format!("{path} does not exist"))
}

/// The route has other methods.
pub(super) fn wrong_method(method: &Method, allowed: &'static str) -> Response<Body> {
    let why = format!("{method} is not allowed");
    let mut response = refuse(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowedError", &why);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

/// The route has another version.
pub(super) fn wrong_version(range: &str, method: &Method, path: &str) -> Response<Body> {
    let why = format!("{range} is not supported by {method} {path}");
    refuse(StatusCode::BAD_REQUEST, "InvalidVersion", &why)
}
