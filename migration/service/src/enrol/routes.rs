// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The routes: for programs at the service's port for agents, and for operators at its unix socket.

use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, State};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use daemon::http::{Body, Shown, Table, endpoint, ping, reply_json, routes, table, with_refusals};
use http::{Response, StatusCode};
use sdc_clients::identity::Identity;
use serde::{Deserialize, Serialize};
use serde_json::json;
use trust::exchange::{Asks, Join};

use super::enrolment::{Enrolment, For};
use super::verbs::identity;
use crate::refused::Refused;

/// A signing request is short.
const LONGEST: usize = 64 << 10;

pub type JsonBody<T> = Result<Json<T>, JsonRejection>;
type Routes = State<Enrolment>;

/// What programs ask that are in or ask to be.
pub const OF_PROGRAMS: Table<Enrolment> = table(&[
    ping().about("whether the service answers"),
    endpoint("/trust/join", "POST", || post(join))
        .about("lets a program in that has a token, or has it wait for a person")
        .does(&["POST Join -> 200 Joined"]),
    endpoint("/trust/state", "POST", || post(state))
        .about("what is new for a program: authorities, revoked keys, its next certificate")
        .does(&["POST Asks -> 200 State"]),
]);

/// What operators ask that needs the enrolment alone.
pub const OF_OPERATORS: Table<Enrolment> = table(&[
    endpoint("/trust", "GET", || get(async |State(it): Routes| answer(it.list().await)))
        .about("operators: the authorities, who is in, and who waits")
        .does(&["GET -> 200 {}"]),
    endpoint("/trust/init", "POST", || post(async |State(it): Routes| answer(it.init().await)))
        .about("operators: makes the first authority")
        .does(&["POST -> 200 {}"]),
    endpoint("/trust/export", "GET", || get(async |State(it): Routes| answer(it.export().await)))
        .about("operators: the certificates of the authorities")
        .does(&["GET -> 200 {}"]),
    endpoint("/trust/tokens", "POST", || post(token))
        .about("operators: makes a token")
        .does(&["POST NewToken -> 200 {}"]),
    endpoint("/trust/approve", "POST", || post(approve))
        .about("operators: lets in the key that waits, in place of the one that is enrolled")
        .does(&["POST Whom -> 200 {}"]),
    endpoint("/trust/rotate", "POST", || post(rotate))
        .about("operators: begins a rotation of the authority, or ends it")
        .does(&["POST Rotation -> 200 {}"]),
]);

/// Returns the routes for programs that are in or ask to be.
pub fn agents(enrolment: Enrolment) -> Router {
    let routes = with_refusals(routes(&OF_PROGRAMS));
    routes.layer(DefaultBodyLimit::max(LONGEST)).with_state(enrolment)
}

/// Returns the routes for operators that need the enrolment alone.
pub fn operators(enrolment: Enrolment) -> Router {
    routes(&OF_OPERATORS).layer(DefaultBodyLimit::max(LONGEST)).with_state(enrolment)
}

async fn join(State(it): Routes, asked: JsonBody<Join>) -> Response<Body> {
    match asked {
        Ok(Json(join)) => answer(it.join(&join).await),
        Err(why) => invalid(&why),
    }
}

async fn state(
    State(it): Routes,
    peer: Option<Extension<Option<Identity>>>,
    shown: Option<Extension<Option<Shown>>>,
    asked: JsonBody<Asks>,
) -> Response<Body> {
    let Some(Extension(Some(peer))) = peer else {
        let why = "this is for programs that have a certificate";
        return answer::<()>(Err(Refused::coded(403, "NotAuthorized", why)));
    };
    match asked {
        Ok(Json(asks)) => {
            let shown = shown.and_then(|Extension(shown)| shown);
            answer(it.state(peer, shown.as_ref(), &asks).await)
        }
        Err(why) => invalid(&why),
    }
}

#[derive(Debug, Deserialize)]
struct NewToken {
    #[serde(rename = "for")]
    is_for: For,
    seconds: i64,
}

async fn token(State(it): Routes, asked: JsonBody<NewToken>) -> Response<Body> {
    match asked {
        Ok(Json(NewToken { is_for, seconds })) => answer(it.token(is_for, seconds).await),
        Err(why) => invalid(&why),
    }
}

#[derive(Debug, Deserialize)]
pub struct Whom {
    pub who: String,
    #[serde(default)]
    pub key: Option<String>,
}

async fn approve(State(it): Routes, asked: JsonBody<Whom>) -> Response<Body> {
    let done = match asked {
        Ok(Json(Whom { who, key })) => match identity(&who) {
            Ok(who) => it.approve(who, key.as_deref()).await,
            Err(refused) => Err(refused),
        },
        Err(why) => return invalid(&why),
    };
    answer(done)
}

#[derive(Debug, Deserialize)]
struct Rotation {
    #[serde(default)]
    without: bool,
}

async fn rotate(State(it): Routes, asked: JsonBody<Rotation>) -> Response<Body> {
    match asked {
        Ok(Json(Rotation { without })) => answer(it.rotate(without).await),
        Err(why) => invalid(&why),
    }
}

pub fn invalid(why: &JsonRejection) -> Response<Body> {
    answer::<()>(Err(Refused::coded(422, "InvalidParameters", &why.body_text())))
}

pub fn answer<T: Serialize>(done: Result<T, Refused>) -> Response<Body> {
    match done {
        Ok(done) => reply_json(StatusCode::OK, &json!(done)),
        Err(refused) => reply_json(refused.status_code(), refused.body()),
    }
}
