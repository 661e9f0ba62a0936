// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the pages of all daemons share: `/ping`, and what is said to a wrong path or method.

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{HeaderValue, Response, StatusCode, Uri, header};
use serde_json::{Value, json};

use super::reply::{refuse, reply_json};

/// Returns the answer with this page.
pub fn ok(page: &Value) -> Response<Body> {
    reply_json(StatusCode::OK, page)
}

/// Returns the refusal of a method where there is another one.
pub fn wrong_method(right: &'static str) -> Response<Body> {
    let why = format!("only {right} is allowed");
    let mut response = refuse(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowedError", &why);
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(right));
    response
}

/// Adds `/ping`, and the refusals of other paths and methods.
pub fn with_ping<S: Clone + Send + Sync + 'static>(routes: Router<S>) -> Router<S> {
    routes
        .route("/ping", get(async || ok(&json!({"ping": "pong"}))))
        .fallback(async |uri: Uri| {
            let why = format!("{} does not exist", uri.path());
            refuse(StatusCode::NOT_FOUND, "ResourceNotFound", &why)
        })
        .method_not_allowed_fallback(async || wrong_method("GET"))
}
