// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The routes in front of VMAPI. What is not listed here goes to VMAPI as it came.

// Blank lines keep the modules in layer order.

#[cfg(test)]
mod tests;

mod watch;

mod migrations;

mod jobs;

mod settings;

mod evacuations;

mod adoption;

mod replaced;

mod pass;

mod action;

mod reading;

mod shared;

mod upstream;

mod answer;

mod endpoints;

use axum::Router;
use axum::extract::{Request, State};
use bytes::BytesMut;
use daemon::http::Body;
use daemon::http::first_line::escape;
use http::{HeaderName, HeaderValue, Method, Response};
use sdc_clients::restify::{self, Found, REQUEST_ID};
use tokio::time::Instant;

use super::params::Params;
use super::refused::Refused;
use super::state::Service;
use super::through::Through;
use answer::{Answer, respond};
use endpoints::Route;
use shared::{Front, Names};

pub use adoption::{ADOPTION, routes as adoption};
pub use endpoints::{ENDPOINTS, document};
pub use replaced::{OF_AGENTS, routes as agent_routes};
pub use upstream::Upstream;

/// The parameters of a path of its own that it does not know.
const IGNORED: HeaderName = HeaderName::from_static("migration-service-ignored");

/// Returns the routes.
pub fn router(service: Service, upstream: Upstream) -> Router {
    Router::new().fallback(dressed).with_state(Front { service, upstream, names: Names::default() })
}

/// Adds the headers that VMAPI's own answers have, unless VMAPI has added them.
async fn dressed(State(front): State<Front>, mut request: Request) -> Response<Body> {
    let began = Instant::now();
    let id = restify::request_id(request.headers());
    if let Some(id) = &id {
        request.headers_mut().insert(REQUEST_ID, id.clone());
    }
    let mut response = respond(front.answer(request).await);
    let server = concat!("migration-service/", env!("CARGO_PKG_VERSION"));
    let host = HeaderValue::from_static("migration-service");
    restify::dress(response.headers_mut(), id, server, began.elapsed(), &host);
    response
}

impl Front {
    /// Answers what is this service's: the rest goes to VMAPI, unless VMAPI could take its path for another one.
    async fn answer(&self, request: Request) -> Answer {
        let path = request.uri().path();
        reading::clear(path).map_err(|unclear| {
            Refused::coded(400, "InvalidPath", &format!("{unclear}; write it plainly"))
        })?;
        let method = match request.method() {
            &Method::HEAD => Method::GET,
            method => method.clone(),
        };
        let found = ENDPOINTS.find(path).filter(|found| found.endpoint.allows(&method));
        let Some(found) = found else { return self.pass(request).await };
        let ignored = found.endpoint.route.known();
        let ignored = ignored.and_then(|known| restify::ignored(request.uri().query(), known));
        let mut answer = self.own(found, method == Method::GET, request).await;
        if let (Ok(response), Some(names)) = (&mut answer, ignored) {
            response.headers_mut().insert(IGNORED, names);
        }
        answer
    }

    /// Answers a request of a path of its own.
    async fn own(&self, found: Found<Route>, is_read: bool, request: Request) -> Answer {
        let through = Through::of(request.headers());
        let params = Params::of_query(request.uri().query()).through(through);
        let uuid = found.part("uuid");
        match found.endpoint.route {
            Route::Migrations => self.list(&params).await,
            Route::Migration if is_read => self.one(uuid, &params).await,
            Route::Migration => self.remove(uuid, &params).await,
            Route::Watch => self.watch(uuid, &params).await,
            Route::Verify => self.compare(uuid, &params).await,
            Route::Signs => self.signs(uuid, &params).await,
            Route::Adopt => adoption::elsewhere(),
            Route::OfJobs => Front::written_by_jobs(),
            Route::Job => self.job(uuid, request).await,
            Route::Jobs => self.jobs(None, &params, request).await,
            Route::JobsOfVm => self.jobs(Some(uuid), &params, request).await,
            Route::Document => answer::ok(&document()),
            Route::Evacuations => self.evacuations().await,
            Route::Evacuation if is_read => self.evacuation(found.part("cn")).await,
            Route::Evacuation if request.method() == Method::DELETE => {
                self.end_evacuation(found.part("cn"), &params).await
            }
            Route::Evacuation => self.change_evacuation(found.part("cn"), request).await,
            Route::Settings if is_read => self.settings(None).await,
            Route::Settings => self.change_settings(None, request).await,
            Route::SettingsOfCn if is_read => self.settings(Some(found.part("cn"))).await,
            Route::SettingsOfCn => self.change_settings(Some(found.part("cn")), request).await,
        }
    }
}

/// Edits the first line of a connection: VMAPI takes quotes and angle brackets in a query, such as those of a
/// predicate, as they are.
pub fn first_line(held: &mut BytesMut) -> bool {
    escape(held, b"\"<>`")
}
