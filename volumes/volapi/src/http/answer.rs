// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Answers of the routes, with their headers.

use daemon::http::Body;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Response, StatusCode};
use sdc_clients::restify;
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

    /// Done, without content.
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
    restify::dress(headers, restify::request_id(request), "VOLAPI", since.elapsed(), host);
    response
}
