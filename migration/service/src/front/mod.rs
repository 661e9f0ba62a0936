// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The routes in front of VMAPI. What is not listed here goes to VMAPI as it came.

// Blank lines keep the modules in layer order.

#[cfg(test)]
mod tests;

mod watch;

mod migrations;

mod deployed;

mod jobs;

mod settings;

mod replaced;

mod pass;

mod action;

mod reading;

mod shared;

mod upstream;

mod answer;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::routing::{any, get, post};
use bytes::BytesMut;
use daemon::http::Body;
use daemon::http::first_line::escape;
use http::{HeaderName, HeaderValue, Response};
use tokio::time::Instant;

use super::refused::Refused;
use super::state::Service;
use answer::respond;
use shared::Front;

pub use replaced::{AUDIENCE, routes as signed_routes};
pub use upstream::Upstream;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Returns the routes.
pub fn router(service: Service, upstream: Upstream) -> Router {
    let own = Router::new()
        .route("/migrations", any(migrations::all))
        .route("/migrations/{uuid}", any(migrations::of_vm))
        .route("/migrations/{uuid}/watch", get(watch::watch))
        .route("/migrations/{uuid}/verify", get(migrations::verify))
        .route("/migrations/{uuid}/adopt", post(migrations::adopt))
        .route("/migrations/{uuid}/store", post(deployed::store))
        .route("/migrations/{uuid}/progress", post(deployed::progress))
        .route("/migrations/{uuid}/updateVmServerUuid", post(deployed::update_server))
        .route("/jobs/{uuid}", get(jobs::one))
        .route("/settings", get(settings::all).put(settings::change_all))
        .route("/settings/{cn}", get(settings::of_cn).put(settings::change_of_cn))
        .fallback(pass::on);
    own.layer(from_fn(clear)).layer(from_fn(dressed)).with_state(Front { service, upstream })
}

/// Edits the first line of a connection: VMAPI takes quotes and angle brackets in a query, such as those of a
/// predicate, as they are.
pub fn first_line(held: &mut BytesMut) -> bool {
    escape(held, b"\"<>`")
}

/// Refuses a path that VMAPI could take for another one.
async fn clear(request: Request, next: Next) -> Response<Body> {
    match reading::clear(request.uri().path()) {
        Ok(()) => next.run(request).await,
        Err(unclear) => respond(Err(Refused::coded(
            400,
            "InvalidPath",
            &format!("{unclear}; write it plainly"),
        ))),
    }
}

/// Adds the headers that VMAPI's own answers have, unless VMAPI has added them.
async fn dressed(mut request: Request, next: Next) -> Response<Body> {
    let began = Instant::now();
    let sent = request.headers().get("request-id").or(request.headers().get(REQUEST_ID)).cloned();
    let id = sent.or_else(|| uuid::Uuid::new_v4().to_string().parse().ok());
    if let Some(id) = &id {
        request.headers_mut().insert(REQUEST_ID, id.clone());
    }
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    if let Some(id) = id {
        headers.entry(REQUEST_ID).or_insert(id);
    }
    let server = concat!("migration-service/", env!("CARGO_PKG_VERSION"));
    headers.entry("server").or_insert(HeaderValue::from_static(server));
    let took = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    headers.entry("x-response-time").or_insert(took.into());
    headers.entry("x-server-name").or_insert(HeaderValue::from_static("migration-service"));
    response
}
