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

mod endpoints;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::routing::{any, get, post};
use bytes::BytesMut;
use daemon::http::Body;
use daemon::http::first_line::escape;
use http::{HeaderValue, Response};
use sdc_clients::restify::{self, REQUEST_ID};
use tokio::time::Instant;

use super::refused::Refused;
use super::state::Service;
use answer::respond;
use endpoints::Route;
use shared::Front;

pub use endpoints::ENDPOINTS;
pub use replaced::{AUDIENCE, routes as signed_routes};
pub use upstream::Upstream;

/// Returns the routes.
pub fn router(service: Service, upstream: Upstream) -> Router {
    let own = ENDPOINTS.all.iter().fold(Router::new(), |router, endpoint| {
        let route = match endpoint.route {
            Route::Migrations => any(migrations::all),
            Route::Migration => any(migrations::of_vm),
            Route::Watch => get(watch::watch),
            Route::Verify => get(migrations::verify),
            Route::Adopt => post(migrations::adopt),
            Route::Store => post(deployed::store),
            Route::Progress => post(deployed::progress),
            Route::Move => post(deployed::update_server),
            Route::Job => get(jobs::one),
            Route::Settings => get(settings::all).put(settings::change_all),
            Route::SettingsOfCn => get(settings::of_cn).put(settings::change_of_cn),
        };
        router.route(endpoint.path, route)
    });
    let own = own.fallback(pass::on).layer(from_fn(clear)).layer(from_fn(dressed));
    own.with_state(Front { service, upstream })
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
    let id = restify::request_id(request.headers());
    if let Some(id) = &id {
        request.headers_mut().insert(REQUEST_ID, id.clone());
    }
    let mut response = next.run(request).await;
    let server = concat!("migration-service/", env!("CARGO_PKG_VERSION"));
    let host = HeaderValue::from_static("migration-service");
    restify::dress(response.headers_mut(), id, server, began.elapsed(), &host);
    response
}
