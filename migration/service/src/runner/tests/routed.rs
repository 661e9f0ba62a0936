// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Routes as a client's transport.

use axum::Router;
use axum::body::Body;
use daemon::http::{call, collect};
use futures_util::future::BoxFuture;
use sdc_clients::Error;
use sdc_clients::http::{Request, Response, Transport};
use sdc_clients::identity::Identity;

/// Sends requests to these routes, as this program.
pub struct Routed(pub Router, pub Option<Identity>);

impl Transport for Routed {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, Error>> {
        Box::pin(async move {
            let mut asked = http::Request::builder().method(&request.method).uri(request.target());
            *asked.headers_mut().unwrap() = request.headers.clone();
            asked = asked.extension(self.1);
            let body = request.body.clone().unwrap_or_default();
            let answer = call(self.0.clone(), asked.body(Body::from(body)).unwrap()).await;
            let (parts, body) = answer.into_parts();
            let body = collect(body, 1 << 20, request.timeout).await.unwrap();
            Ok(Response { status: parts.status, headers: parts.headers, body })
        })
    }
}
