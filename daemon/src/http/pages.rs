// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the pages of all daemons share: `/ping`, and what is said to a wrong path, method or parameter.

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::routing::get;
use http::{HeaderName, HeaderValue, Response, StatusCode, Uri, header};
use sdc_clients::restify;
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

/// Adds `/ping`, and the refusals of other paths and methods.
pub fn with_ping<S: Clone + Send + Sync + 'static>(routes: Router<S>) -> Router<S> {
    routes
        .route("/ping", get(async || ok(&json!({"ping": "pong"}))))
        .fallback(async |uri: Uri| {
            let why = format!("{} does not exist", uri.path());
            refuse(StatusCode::NOT_FOUND, "ResourceNotFound", &why)
        })
        .method_not_allowed_fallback(async || wrong_method("GET"))
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
    use super::*;
    use crate::http::call;

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
