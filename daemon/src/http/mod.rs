// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! HTTP served by a daemon to its own node: our own accept loop over hyper, so that every
//! connection has caps and deadlines, on TCP or on a unix socket.
//!
//! Knows no route. A daemon gives [`Server::serve`] one async function from request to response and keeps
//! its routes to itself.

pub mod body;
pub mod events;
mod first_line;
pub mod guard;
mod lasting;
pub mod listeners;
pub mod pace;
pub mod query;
pub mod server;
mod stall;
pub mod unix;
mod wire;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use serde_json::{Value, json};

pub use self::body::{Body, Chunk, TooMuch, collect};
pub use self::events::{Gone, Start};
pub use self::guard::Guard;
pub use self::listeners::{Entered, Listener, Listeners};
pub use self::server::{Acceptor, Counts, Limits, Server};
pub use self::unix::bind as bind_unix;

/// The content type of everything but metrics.
pub const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A response with a status and a body, `Content-Type: application/json`.
pub fn reply(status: StatusCode, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

/// A response that carries this value.
pub fn reply_json(status: StatusCode, value: &Value) -> Response<Body> {
    reply(status, Body::once(Bytes::from(value.to_string())))
}

/// A refusal as Triton's services word it: `{"code","message"}`.
pub fn refuse(status: StatusCode, code: &str, message: &str) -> Response<Body> {
    reply_json(status, &json!({"code": code, "message": message}))
}

/// The wall clock as event streams show it: ISO 8601, milliseconds, `Z`.
pub fn now_iso() -> String {
    format!("{:.3}", jiff::Timestamp::now())
}
