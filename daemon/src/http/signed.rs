// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Routes that only those may use who know the data centre's secret.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use http::{Response, StatusCode};
use sdc_clients::signed::Verifier;

use super::reply::{collect, refuse};

/// A body must have arrived within this time.
const BODY_TIME: Duration = Duration::from_secs(30);
/// The longest answer.
const ANSWER: usize = 64 << 20;

/// Returns the same routes for requests that this verifier takes, with bodies of at most so many bytes. Their
/// answers are signed; the others get 401 and a nonce.
pub fn signed(routes: Router, verifier: Arc<Verifier>, longest: usize) -> Router {
    routes.layer(from_fn_with_state((verifier, longest), check))
}

async fn check(
    State((verifier, longest)): State<(Arc<Verifier>, usize)>,
    request: Request,
    next: Next,
) -> Response<Body> {
    let (head, body) = request.into_parts();
    let Some(body) = collect(body, longest, BODY_TIME).await else {
        let why = "the body is too long or did not arrive in time";
        return refuse(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", why);
    };
    let target = head.uri.path_and_query().map_or("/", |it| it.as_str()).to_owned();
    let taken = verifier.take((&head.method, &target), &head.headers, &body);
    let answer = match &taken {
        Ok(_) => next.run(Request::from_parts(head, body.into())).await,
        Err(refused) => refuse(StatusCode::UNAUTHORIZED, "InvalidSignature", &refused.to_string()),
    };
    let (mut head, body) = answer.into_parts();
    let Some(body) = collect(body, ANSWER, BODY_TIME).await else {
        let why = "the answer is too long";
        return refuse(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", why);
    };
    verifier.sign(taken.as_ref().ok(), head.status, &mut head.headers, &body);
    Response::from_parts(head, body.into())
}
