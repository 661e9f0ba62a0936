// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Answers, and the parts of requests that all routes read.

use std::time::Duration;

use axum::extract::Request;
use daemon::http::{Body, collect, reply, reply_json};
use http::request::Parts;
use http::{Response, StatusCode};
use serde_json::Value;
use uuid::Uuid;

use crate::action_params::lower_uuid;
use crate::params::Params;
use crate::refused::Refused;

/// The longest body that is read for its parameters.
pub const READ: usize = 1 << 20;
/// How long a body may take.
const BODY_TIME: Duration = Duration::from_secs(60);

/// The answer of a route.
pub type Answer = Result<Response<Body>, Refused>;

/// Returns the response of an answer.
pub fn respond(answer: Answer) -> Response<Body> {
    answer.unwrap_or_else(|refused| reply_json(refused.status_code(), refused.body()))
}

/// 200 with this JSON.
pub fn ok(value: &Value) -> Answer {
    Ok(reply_json(StatusCode::OK, value))
}

/// 200 without a body.
pub fn done() -> Answer {
    Ok(Response::new(Body::empty()))
}

/// Reads a request whole.
/// Refuses with 413 for a body that is too long or too slow.
pub async fn whole(request: Request, longest: usize) -> Result<(Parts, bytes::Bytes), Refused> {
    let (parts, body) = request.into_parts();
    match collect(body, longest, BODY_TIME).await {
        Some(bytes) => Ok((parts, bytes)),
        None => {
            let why = format!("the body has more than {longest} bytes or did not arrive in time");
            Err(Refused::coded(413, "RequestEntityTooLarge", &why))
        }
    }
}

/// Reads the parameters of a request.
pub async fn params(request: Request) -> Result<Params, Refused> {
    let (parts, body) = whole(request, READ).await?;
    Params::of(None, parts.uri.query(), &parts.headers, &body)
}

/// Reads the uuid of a path.
/// Refuses with 409 in VMAPI's form.
pub fn uuid(text: &str) -> Result<Uuid, Refused> {
    lower_uuid(text).ok_or_else(|| Refused::parameter("uuid", "Invalid UUID"))
}

/// A response with another content type than JSON.
pub fn streamed(kind: &'static str, body: Body) -> Response<Body> {
    let mut response = reply(StatusCode::OK, body);
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(kind));
    response
}
