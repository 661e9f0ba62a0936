// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The answer of each route. What a client began is done to its end, also where the client goes away.

use std::sync::Arc;

use axum::extract::{Request, State};
use daemon::Tasks;
use daemon::http::{Body, Router};
use http::header::HeaderValue;
use http::{Method, Response, StatusCode, request};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::accept::{answer_type, wrong_version};
use super::answer::{self, Answer, routed};
use super::params::{BadBody, Content, body, decoded};
use super::{networks, packages, snapshots};
use crate::service::Service;
use volumes_core::networks::Way;
use volumes_core::refused::Refused;
use volumes_core::requests::{self, Params};
use volumes_core::{extended, list};

/// What a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    Ping,
    Volumes,
    Volume,
    Sizes,
    References,
    AddReference,
    RemoveReference,
    Reservations,
    Reservation,
    Snapshots(snapshots::Route),
    Packages,
    Package,
    Network(Way),
}

/// The parameters in a path, not checked.
type Named = Vec<(&'static str, String)>;

impl Route {
    /// Returns the route of a path, and the parameters in it.
    fn of(path: &str, rfd26: bool) -> Option<(Route, Named)> {
        Route::of_any(path).filter(|(route, _)| rfd26 || !route.is_rfd26())
    }

    /// Returns true for what the deployed service does not have.
    fn is_rfd26(self) -> bool {
        matches!(self, Route::Packages | Route::Package | Route::Network(_) | Route::Snapshots(_))
    }

    fn of_any(path: &str) -> Option<(Route, Named)> {
        // More than one slash at the beginning is one.
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let named = |name: &'static str, part: &str| {
            let text = url::form_urlencoded::parse(part.replace('+', "%2B").as_bytes())
                .next()
                .map(|(name, _)| name.into_owned());
            text.filter(|_| !part.is_empty()).map(|text| (name, text))
        };
        let uuid = |part: &str| named("uuid", part).map(|uuid| vec![uuid]);
        Some(match &parts[..] {
            ["ping"] => (Route::Ping, vec![]),
            ["volumes"] => (Route::Volumes, vec![]),
            ["volumesizes"] => (Route::Sizes, vec![]),
            ["volumepackages"] => (Route::Packages, vec![]),
            ["volumepackages", one] => (Route::Package, uuid(one)?),
            ["volumereservations"] => (Route::Reservations, vec![]),
            ["volumereservations", one] => (Route::Reservation, uuid(one)?),
            ["volumes", one] => (Route::Volume, uuid(one)?),
            ["volumes", one, "references"] => (Route::References, uuid(one)?),
            ["volumes", one, "addreference"] => (Route::AddReference, uuid(one)?),
            ["volumes", one, "removereference"] => (Route::RemoveReference, uuid(one)?),
            ["volumes", one, "attachtonetwork"] => (Route::Network(Way::Attach), uuid(one)?),
            ["volumes", one, "detachfromnetwork"] => (Route::Network(Way::Detach), uuid(one)?),
            ["volumes", one, rest @ ..] => {
                let (route, name) = snapshots::Route::of(rest)?;
                let mut all = uuid(one)?;
                if let Some(name) = name {
                    all.push(named("name", name)?);
                }
                (Route::Snapshots(route), all)
            }
            _ => return None,
        })
    }

    fn methods(self) -> &'static str {
        match self {
            Route::Ping | Route::Sizes | Route::References => "GET",
            Route::Volumes | Route::Reservations | Route::Packages => "POST, GET",
            Route::Package => "GET, POST",
            Route::Volume => "GET, DELETE, POST",
            Route::AddReference | Route::RemoveReference | Route::Network(_) => "POST",
            Route::Reservation => "DELETE",
            Route::Snapshots(route) => route.methods(),
        }
    }
}

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
    let Some((route, named)) = Route::of(path, rfd26) else { return answer::no_route(path) };
    let allowed = route.methods();
    if !allowed.split(", ").any(|method| parts.method == method) {
        return answer::wrong_method(&parts.method, allowed);
    }
    if let Some(range) = wrong_version(&parts.headers) {
        return answer::wrong_version(range, &parts.method, path);
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
    let params = match params(&parts, content, (route, named), tags).await {
        Ok(params) => params,
        Err(bad) => return reply(bad_body(bad), kind),
    };
    let (service, method) = (Arc::clone(&shared.service), parts.method.clone());
    let (done, result) = oneshot::channel();
    shared.tasks.spawn("request", async move {
        // The client may have gone away.
        let _ = done.send(act(&service, route, &method, &params).await);
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
    (route, named): (Route, Named),
    tags: bool,
) -> Result<Params, BadBody> {
    let mut params = match parts.method {
        Method::POST => match body(&parts.headers, content).await? {
            Content::List(items) => return Ok(items),
            Content::Fields(fields) => fields,
        },
        _ => decoded(parts.uri.query().unwrap_or_default(), tags),
    };
    if let Route::Snapshots(route) = route {
        route.rename(&mut params);
    }
    params.extend(named.into_iter().map(|(name, text)| (name.to_owned(), text.into())));
    Ok(params)
}

fn bad_body(bad: BadBody) -> Answer {
    let (status, code, message) = match bad {
        BadBody::Syntax(why) => {
            (StatusCode::BAD_REQUEST, "InvalidContent", format!("Invalid JSON: {why}"))
        }
        BadBody::Form(why) => (StatusCode::BAD_REQUEST, "BadRequest", why),
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
) -> Result<Answer, Refused> {
    let ok = |body: Value| Answer::with(StatusCode::OK, body);
    let is_post = method == Method::POST;
    let rfd26 = service.shared.settings.rfd26;
    Ok(match route {
        Route::Snapshots(route) => route.act(service, method, params).await?,
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
