// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the pages of all daemons share: routes of a table, `/ping`, and what is said to a wrong path, method or
//! parameter.

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::routing::{MethodRouter, get};
use http::{HeaderName, HeaderValue, Method, Response, StatusCode, Uri, header};
use sdc_clients::restify::{self, Endpoint, Endpoints, Slashes};
use serde_json::{Value, json};

use super::reply::{refuse, reply_json};

/// Returns the answer with this page.
pub fn ok(page: &Value) -> Response<Body> {
    reply_json(StatusCode::OK, page)
}

/// Returns the refusal of a method where there is another one.
pub fn wrong_method(right: &'static str) -> Response<Body> {
    let why = format!("only {right} is allowed");
    let mut response = refuse(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowedError", &why);
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(right));
    response
}

/// What answers the methods of a path.
type Handlers<S> = fn() -> MethodRouter<S>;

/// The paths of a listener, and what answers them: [`routes`] has them as they are written, without `=uuid` and `?`.
pub type Table<S> = Endpoints<Handlers<S>>;

/// Returns a table.
pub const fn table<S: 'static>(all: &'static [Endpoint<Handlers<S>>]) -> Table<S> {
    Endpoints { all, slashes: Slashes::Kept }
}

/// Returns a path of a table.
pub const fn endpoint<S: 'static>(
    path: &'static str,
    methods: &'static str,
    handlers: Handlers<S>,
) -> Endpoint<Handlers<S>> {
    Endpoint::new(path, methods, handlers)
}

/// Returns `/ping`, for a table.
pub const fn ping<S: Clone + Send + Sync + 'static>() -> Endpoint<Handlers<S>> {
    endpoint("/ping", "GET", pong).about("whether the program answers").does(&["GET -> 200 {}"])
}

fn pong<S: Clone + Send + Sync + 'static>() -> MethodRouter<S> {
    get(async || ok(&json!({"ping": "pong"})))
}

/// Returns the routes of a table, with the refusal of other methods.
pub fn routes<S: Clone + Send + Sync + 'static>(table: &Table<S>) -> Router<S> {
    let all = table.all.iter();
    let routes = all.fold(Router::new(), |routes, it| routes.route(it.path, (it.route)()));
    routes.method_not_allowed_fallback(not_allowed)
}

/// Adds `/ping`, and the refusals of other paths and methods.
pub fn with_ping<S: Clone + Send + Sync + 'static>(routes: Router<S>) -> Router<S> {
    with_refusals(routes.route("/ping", pong()))
}

/// Adds the refusals of paths and methods that these routes do not have. It comes last: a route that is added
/// afterwards has none.
pub fn with_refusals<S: Clone + Send + Sync + 'static>(routes: Router<S>) -> Router<S> {
    let missing = async |uri: Uri| {
        let why = format!("{} does not exist", uri.path());
        refuse(StatusCode::NOT_FOUND, "ResourceNotFound", &why)
    };
    routes.fallback(missing).method_not_allowed_fallback(not_allowed)
}

/// Refuses a method; the path adds those that it has as `Allow`.
pub async fn not_allowed(method: Method) -> Response<Body> {
    let why = format!("{method} is not allowed");
    refuse(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowedError", &why)
}

/// Names the parameters of a request for a path that takes none, in this header of its answer.
pub fn name_ignored(routes: Router, header: &'static str, takes_none: fn(&str) -> bool) -> Router {
    routes.layer(from_fn(move |request: Request, next: Next| async move {
        let (path, query) = (request.uri().path(), request.uri().query());
        let names = takes_none(path).then(|| restify::ignored(query, &[])).flatten();
        let mut response = next.run(request).await;
        if let Some(names) = names {
            response.headers_mut().insert(HeaderName::from_static(header), names);
        }
        response
    }))
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use axum::routing::{post, put};

    use super::*;
    use crate::http::call;

    #[tokio::test]
    async fn every_path_refuses_other_methods_and_names_its_own() {
        const TABLE: Table<()> = table(&[
            ping(),
            endpoint("/vms/{uuid}", "PUT, DELETE", || put(async || "").delete(async || "")),
        ]);
        let pages = with_ping(Router::new().route("/status", get(async || "")));
        let mixed = with_refusals(pages.route("/claim", post(async || "")));
        let table = with_refusals(routes(&TABLE));
        for (routes, method, path, status, allowed) in [
            (&mixed, "POST", "/ping", 405, "GET,HEAD"),
            (&mixed, "DELETE", "/status", 405, "GET,HEAD"),
            (&mixed, "GET", "/claim", 405, "POST"),
            (&mixed, "GET", "/nothing", 404, ""),
            (&table, "POST", "/ping", 405, "GET,HEAD"),
            (&table, "GET", "/vms/v", 405, "PUT,DELETE"),
            (&table, "GET", "/vms", 404, ""),
        ] {
            let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
            let (head, body) = call(routes.clone(), request).await.into_parts();
            let told = head.headers.get(header::ALLOW).map_or("", |it| it.to_str().unwrap());
            assert_eq!((head.status.as_u16(), told), (status, allowed), "{method} {path}");
            let body = to_bytes(body, 1 << 10).await.unwrap();
            let body: Value = serde_json::from_slice(&body).unwrap();
            assert!(body["code"].is_string() && body["message"].is_string(), "{method} {path}");
        }
    }

    #[tokio::test]
    async fn a_page_that_takes_no_parameter_names_those_that_came() {
        let routes = name_ignored(with_ping(Router::new()), "x-ignored", |path| path == "/ping");
        for (target, named) in [
            ("/ping?state=running&a%0ab", Some("state, a?b")),
            ("/ping", None),
            ("/other?x=1", None),
        ] {
            let request = Request::get(target).body(Body::empty()).unwrap();
            let answer = call(routes.clone(), request).await;
            let told = answer.headers().get("x-ignored").map(|it| it.to_str().unwrap());
            assert_eq!(told, named, "{target}");
        }
    }
}
