// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Small responses, and request bodies read whole.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use serde_json::{Value, json};

/// The content type of everything but metrics.
pub const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Returns a response with `Content-Type: application/json`.
pub fn reply(status: StatusCode, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

/// Returns a response with this JSON.
pub fn reply_json(status: StatusCode, value: &Value) -> Response<Body> {
    reply(status, value.to_string())
}

/// Returns a refusal in the form of Triton's services: `{"code","message"}`.
pub fn refuse(status: StatusCode, code: &str, message: &str) -> Response<Body> {
    reply_json(status, &json!({"code": code, "message": message}))
}

/// Reads a request's body; returns `None` if it has more than `cap` bytes, breaks off, or takes longer
/// than `limit`.
pub async fn collect(body: Body, cap: usize, limit: Duration) -> Option<Bytes> {
    tokio::time::timeout(limit, to_bytes(body, cap)).await.ok()?.ok()
}

/// Returns the wall-clock time as event streams show it: ISO 8601, milliseconds, `Z`.
pub fn now_iso() -> String {
    format!("{:.3}", crate::wall::now())
}
