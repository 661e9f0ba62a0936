// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The answer of each route. What a client began is done to its end, also where the client goes away.

use std::sync::Arc;

use axum::extract::{Request, State};
use daemon::Tasks;
use daemon::http::{Body, Router, Sender};
use http::header::HeaderValue;
use http::{Method, Response, StatusCode, request};
use sdc_clients::restify::{self, Found};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::accept::answer_type;
use super::answer::{Answer, routed};
use super::endpoints::{ENDPOINTS, Route};
use super::params::{BadBody, Content, body, decoded};
use super::{networks, packages, snapshots};
use crate::service::Service;
use volumes_core::refused::Refused;
use volumes_core::requests::{self, Params};
use volumes_core::{extended, list};

/// The version of the routes.
const VERSION: [u32; 3] = [1, 0, 0];

#[derive(Clone)]
struct Shared {
    service: Arc<Service>,
    tasks: Tasks,
    host: HeaderValue,
}

/// Returns the routes over a service; what clients began is run as `tasks`.
pub fn router(service: Arc<Service>, tasks: Tasks, host: &str) -> Router {
    let host = HeaderValue::from_str(host).unwrap_or(HeaderValue::from_static("volapi"));
    Router::new().fallback(answer).with_state(Shared { service, tasks, host })
}

async fn answer(State(shared): State<Shared>, request: Request) -> Response<Body> {
    let since = Instant::now();
    let (parts, content) = request.into_parts();
    let path = parts.uri.path();
    let rfd26 = shared.service.shared.settings.rfd26;
    let found = ENDPOINTS.find(path).filter(|found| rfd26 || !found.endpoint.route.is_rfd26());
    let Some(found) = found else { return restify::no_route(&parts.method, path).map(Body::from) };
    let (endpoint, route) = (found.endpoint, found.endpoint.route);
    if !endpoint.allows(&parts.method) {
        return restify::not_allowed(&parts.method, endpoint.methods).map(Body::from);
    }
    if let Some(range) = restify::asked_version(&parts.headers)
        && !restify::version_fits(range, VERSION)
    {
        return restify::wrong_version(&parts.method, path, range).map(Body::from);
    }
    let reply = |answer, kind| routed(answer, kind, &parts.headers, since, &shared.host);
    let Some(kind) = answer_type(&parts.headers) else {
        let nothing = Answer { status: StatusCode::NOT_ACCEPTABLE, body: None };
        return reply(nothing, super::accept::Type::Json);
    };
    let creates = route == Route::Volumes && parts.method == Method::POST;
    if creates && !shared.service.creates.has_images() {
        return reply(Refused::NoImage.into(), kind);
    }
    let tags = rfd26 && route == Route::Volumes;
    let params = match params(&parts, content, found, tags).await {
        Ok(params) => params,
        Err(bad) => return reply(bad_body(bad), kind),
    };
    let (service, method) = (Arc::clone(&shared.service), parts.method.clone());
    let sender = Sender::of(&parts.headers);
    let (done, result) = oneshot::channel();
    shared.tasks.spawn("request", async move {
        // The client may have gone away.
        let _ = done.send(act(&service, route, &method, &params, &sender).await);
    });
    let answer = match result.await {
        Ok(Ok(answer)) => answer,
        Ok(Err(refused)) => refused.into(),
        Err(_panicked) => Refused::Storage("the request was not finished".to_owned()).into(),
    };
    reply(answer, kind)
}

async fn params(
    parts: &request::Parts,
    content: Body,
    found: Found<Route>,
    tags: bool,
) -> Result<Params, BadBody> {
    let mut params = match parts.method {
        Method::POST => match body(&parts.headers, content).await? {
            Content::List(items) => return Ok(items),
            Content::Fields(fields) => fields,
        },
        _ => decoded(parts.uri.query().unwrap_or_default(), tags),
    };
    if found.endpoint.route == Route::RollBack {
        snapshots::rename(&mut params);
    }
    params.extend(found.named.into_iter().map(|(name, text)| (name.to_owned(), text.into())));
    Ok(params)
}

fn bad_body(bad: BadBody) -> Answer {
    let (status, code, message) = match bad {
        BadBody::Syntax(why) => {
            (StatusCode::BAD_REQUEST, "InvalidContent", format!("Invalid JSON: {why}"))
        }
        BadBody::Form(why) => (StatusCode::BAD_REQUEST, "BadRequestError", why),
        BadBody::Digest(sent, found) => {
            let what = format!("Content-MD5 '{sent}' didn't match '{found}'");
            (StatusCode::BAD_REQUEST, "BadDigest", what)
        }
        BadBody::Length => {
            let what = "the body is too long or did not arrive in time".to_owned();
            (StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", what)
        }
    };
    Answer::with(status, json!({"code": code, "message": message}))
}

async fn act(
    service: &Service,
    route: Route,
    method: &Method,
    params: &Params,
    sender: &Sender,
) -> Result<Answer, Refused> {
    let ok = |body: Value| Answer::with(StatusCode::OK, body);
    let is_post = method == Method::POST;
    let rfd26 = service.shared.settings.rfd26;
    Ok(match route {
        Route::MakeSnapshot
        | Route::Snapshots
        | Route::Snapshot
        | Route::RollBack
        | Route::History => snapshots::act(route, service, method, params, sender).await?,
        Route::Ping => {
            requests::none(params)?;
            ping(service).await
        }
        Route::Sizes => {
            requests::sizes(params)?;
            ok(service.sizes().await?)
        }
        Route::Volumes if is_post => {
            let asked = if rfd26 { extended::create(params) } else { requests::create(params) }?;
            Answer::with(StatusCode::CREATED, service.creates.create(&asked).await?)
        }
        Route::Volumes => ok(service.list(&list::read(params, rfd26)?).await?),
        Route::Volume if is_post => {
            let asked = if rfd26 { extended::update(params) } else { requests::update(params) }?;
            let renamed = service.updates.rename(&asked).await?;
            ok(match &asked.tags {
                Some(tags) => service.updates.set_tags(&asked.uuid, tags).await?,
                None => renamed,
            })
        }
        Route::Volume if method == Method::DELETE => {
            service.deletes.delete(&requests::delete(params)?).await?;
            Answer::empty()
        }
        Route::Volume => ok(service.get(&requests::get(params)?).await?),
        Route::References => ok(service.references.of(&requests::references(params)?).await?),
        Route::AddReference => {
            service.references.add(&requests::reference(params)?).await?;
            Answer::empty()
        }
        Route::RemoveReference => {
            service.references.remove(&requests::reference(params)?).await?;
            Answer::empty()
        }
        Route::Reservations if is_post => {
            let asked = requests::reserve(params)?;
            Answer::with(StatusCode::CREATED, service.references.reserve(&asked).await?)
        }
        Route::Reservations => {
            ok(service.references.reservations(&requests::reservations(params)?).await?)
        }
        Route::Reservation => {
            let (uuid, owner) = requests::release(params)?;
            service.references.release(&uuid, &owner).await?;
            Answer::empty()
        }
        Route::Packages => packages::all(service, method, params).await?,
        Route::Package => packages::one(service, method, params).await?,
        Route::Network(way) => networks::change(service, way, params).await?,
        Route::Document => ok(super::endpoints::document()),
    })
}

async fn ping(service: &Service) -> Answer {
    let pid = std::process::id();
    if service.shared.is_healthy().await {
        return Answer::with(StatusCode::OK, json!({"pid": pid, "status": "OK", "healthy": true}));
    }
    let body = json!({"pid": pid, "status": "the storage is away", "healthy": false});
    Answer::with(StatusCode::SERVICE_UNAVAILABLE, body)
}
