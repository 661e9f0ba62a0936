// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the mocks add to the dialect of the real services: a clock of their own, and the types of answers.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, header};
pub(crate) use sdc_clients::restify::*;
use serde_json::Value;

/// The types of answers that servers of this library have, as a 406 names them.
pub(crate) const SERVES: &str =
    "Server accepts: application/json,text/plain,application/octet-stream,application/javascript";

/// Returns a time as JSON texts have it.
pub(crate) fn iso(ms: i64) -> String {
    let at = jiff::Timestamp::from_millisecond(ms).unwrap_or_default();
    at.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

/// An answer of a handled route, with the headers that those have.
pub(crate) fn routed(
    request: &Request<Bytes>,
    server: &'static str,
    now_ms: i64,
    (status, body): (u16, Option<&Value>),
) -> Response<Bytes> {
    let mut response = build(request.method(), status, body);
    let headers = response.headers_mut();
    let host = HeaderValue::from_static("mock");
    dress(headers, request_id(request.headers()), server, Duration::from_millis(1), &host);
    let at = jiff::Timestamp::from_millisecond(now_ms).unwrap_or_default();
    if let Ok(date) = at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string().parse() {
        headers.insert(header::DATE, date);
    }
    response
}
