// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `/metrics`: a registry as a response in the OpenMetrics text format.

use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use crate::http::{Body, refuse, reply};

const CONTENT: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");

/// Returns the registry as a response.
pub fn answer(registry: &Registry) -> Response<Body> {
    let mut text = String::new();
    if encode(&mut text, registry).is_err() {
        return refuse(
            StatusCode::INTERNAL_SERVER_ERROR,
            "InternalError",
            "metrics cannot be written",
        );
    }
    let mut response = reply(StatusCode::OK, text);
    response.headers_mut().insert(CONTENT_TYPE, CONTENT);
    response
}
