// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What a service answers: the refusals of its router, and the headers of all other answers.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};
use serde_json::{Value, json};

/// Returns an answer with a body, or without one.
pub fn build(method: &Method, status: u16, body: Option<&Value>) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if let Some(body) = body {
        let text = Bytes::from(body.to_string());
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::CONTENT_LENGTH, text.len().into());
        if *method != Method::HEAD {
            *response.body_mut() = text;
        }
    }
    response
}

/// Returns a refusal. Those of the router itself have no [`dress`].
pub fn refusal(method: &Method, status: u16, code: &str, message: &str) -> Response<Bytes> {
    build(method, status, Some(&json!({ "code": code, "message": message })))
}

/// Returns the refusal of a path that no endpoint has.
pub fn no_route(method: &Method, path: &str) -> Response<Bytes> {
    refusal(method, 404, "ResourceNotFound", &format!("{path} does not exist"))
}

/// Returns the refusal of a method that an endpoint does not have; `allowed` are those that it has.
pub fn not_allowed(method: &Method, allowed: &'static str) -> Response<Bytes> {
    let message = format!("{method} is not allowed");
    let mut response = refusal(method, 405, "MethodNotAllowedError", &message);
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
    response
}

/// Returns the refusal of a version that a service does not have.
pub fn wrong_version(method: &Method, path: &str, range: &str) -> Response<Bytes> {
    let message = format!("{range} is not supported by {method} {path}");
    refusal(method, 400, "InvalidVersion", &message)
}

/// The header with the id of a request.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Returns the id that a request was sent with, or a new one.
pub fn request_id(request: &HeaderMap) -> Option<HeaderValue> {
    let sent = request.get("request-id").or(request.get(REQUEST_ID)).cloned();
    sent.or_else(|| uuid::Uuid::new_v4().to_string().parse().ok())
}

/// Adds the headers of an answer that it does not have yet: the request's id, who answered, and after what time.
pub fn dress(
    headers: &mut HeaderMap,
    id: Option<HeaderValue>,
    server: &'static str,
    took: Duration,
    host: &HeaderValue,
) {
    if let Some(id) = id {
        headers.entry(REQUEST_ID).or_insert(id);
    }
    headers.entry(header::SERVER).or_insert(HeaderValue::from_static(server));
    let took = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    headers.entry("x-response-time").or_insert(took.into());
    headers.entry("x-server-name").or_insert(host.clone());
}
