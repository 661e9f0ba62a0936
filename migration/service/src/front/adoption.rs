// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `POST /migrations/UUID/adopt`, for operators alone: a record decides where a VM is.

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::routing::post;
use daemon::http::{Body, Table, endpoint, table};
use http::Response;

use super::answer::{Answer, ok, respond, uuid};
use crate::action_params::ActionParams;
use crate::params::Params;
use crate::refused::Refused;
use crate::state::Service;
use crate::through::Through;

/// What authenticated operators ask.
pub const ADOPTION: Table<Service> =
    table(&[endpoint("/migrations/{uuid}/adopt", "POST", || post(adopt))
        .about("operators: makes a record of a migration that the store lost")
        .does(&["POST ?other&source_dead&target_dead&really -> 200 Migration"])]);

/// Returns the route for authenticated operators.
pub fn routes(service: Service) -> Router {
    daemon::http::routes(&ADOPTION).with_state(service)
}

async fn adopt(
    State(service): State<Service>,
    Path(vm): Path<String>,
    request: Request,
) -> Response<Body> {
    let through = Through::of(request.headers());
    let params = Params::of_query(request.uri().query()).through(through);
    let adopted = async {
        let (asked, other) =
            (ActionParams::read(&params)?, params.text("other").map(uuid).transpose()?);
        let record = Box::pin(service.adopt(uuid(&vm)?, other, &asked)).await?;
        ok(&record.public(service.clock.now()))
    };
    respond(adopted.await)
}

/// Answers a caller in front of VMAPI, where callers are not authenticated.
pub fn elsewhere() -> Answer {
    let why =
        "sdc-migrate adopt asks at the service's unix socket, or with an operator's certificate";
    Err(Refused::coded(403, "NotAuthorized", why))
}
