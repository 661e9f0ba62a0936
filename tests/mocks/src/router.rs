// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! From a request to a route, as the HTTP library of PAPI, IMGAPI and the workflow API does it: what fits no
//! route is answered before the service sees it.

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, header};
use serde_json::{Value, json};

use crate::restify::{self, BadBody, Endpoint, Endpoints, Params, Slashes};

/// The routes of a service, and what its library does around them.
pub(crate) struct Router {
    pub(crate) endpoints: &'static [Endpoint<()>],
    /// The versions that it serves.
    pub(crate) versions: &'static [[u32; 3]],
    /// What a type of answer that it does not have is answered with; nothing: an empty 406.
    pub(crate) not_acceptable: Option<&'static str>,
    /// A path that does not exist is named with its query, unless it is read.
    pub(crate) names_query: bool,
}

/// A request that has a route.
pub(crate) struct Way {
    pub(crate) method: Method,
    /// The path as [`Router::endpoints`] has it.
    pub(crate) route: &'static str,
    /// What stands for the variable part of the path.
    pub(crate) id: String,
    /// The parameters of the query.
    pub(crate) query: Params,
    /// The parameters of query and body.
    pub(crate) given: Params,
}

impl Router {
    /// Finds the route, or the answer of a request that has none.
    pub(crate) fn way(&self, request: &Request<Bytes>) -> Result<Way, Box<Response<Bytes>>> {
        let (method, path) = (request.method(), request.uri().path());
        let endpoints = Endpoints { all: self.endpoints, slashes: Slashes::Folded };
        let Some(found) = endpoints.find(path) else {
            let query = request.uri().query().filter(|_| self.names_query && !reads(method));
            let query = query.map(|query| format!("?{query}")).unwrap_or_default();
            let message = format!("{path}{query} does not exist");
            return Err(Box::new(restify::refusal(method, 404, "ResourceNotFound", &message)));
        };
        if !found.endpoint.allows(method) {
            return Err(Box::new(restify::not_allowed(method, found.endpoint.methods)));
        }
        if let Some(range) = restify::asked_version(request.headers())
            && !self.versions.iter().any(|own| fits(range, *own))
        {
            return Err(Box::new(restify::wrong_version(method, path, range)));
        }
        let kinds = request.headers().get(header::ACCEPT).and_then(|it| it.to_str().ok());
        if kinds.is_some_and(|kinds| !kinds.split(',').any(is_served)) {
            return Err(Box::new(match self.not_acceptable {
                Some(message) => restify::refusal(method, 406, "NotAcceptableError", message),
                None => restify::build(method, 406, None),
            }));
        }
        let query = restify::from_query(request.uri().query().unwrap_or_default());
        let mut given = query.clone();
        match restify::merge_body(&mut given, request.headers(), request.body(), false) {
            Err(BadBody::Syntax(why)) => {
                let message = format!("Invalid JSON: {why}");
                return Err(Box::new(restify::refusal(method, 400, "InvalidContent", &message)));
            }
            // Its routes take no such body: they see none.
            Ok(()) | Err(BadBody::List | BadBody::NotAnObject) => {}
        }
        let id = found.named.into_iter().next().map(|(_, id)| id).unwrap_or_default();
        Ok(Way { method: method.clone(), route: found.endpoint.path, id, query, given })
    }
}

fn reads(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// Returns true if the server's version is in a range, or in one of several.
fn fits(range: &str, own: [u32; 3]) -> bool {
    range.split("||").any(|range| restify::version_fits(range, own))
}

fn is_served(kind: &str) -> bool {
    let kind = kind.split(';').next().unwrap_or_default().trim();
    let served =
        ["application/json", "text/plain", "application/octet-stream", "*/*", "application/*"];
    served.contains(&kind)
}

/// An answer of a route.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Option<Value>,
    pub(crate) headers: Vec<(&'static str, String)>,
}

impl Answer {
    /// 200 with this body.
    pub(crate) fn ok(body: Value) -> Self {
        Answer { status: 200, body: Some(body), headers: Vec::new() }
    }

    /// An answer without a body.
    pub(crate) fn empty(status: u16) -> Self {
        Answer { status, body: None, headers: Vec::new() }
    }

    /// An error.
    pub(crate) fn error(status: u16, code: &str, message: impl Into<String>) -> Self {
        let body = json!({ "code": code, "message": message.into() });
        Answer { status, body: Some(body), headers: Vec::new() }
    }

    /// 404 with this message.
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::error(404, "ResourceNotFound", message)
    }

    /// 500 of the storage, which refuses a request with these words.
    pub(crate) fn storage(why: &str) -> Self {
        let from = "moray client (\"127.0.0.1:40000\" to \"127.0.0.1:2020\"): request failed";
        Self::error(500, "InternalError", format!("{from}: server error: {why}"))
    }

    /// The real service has this route; no program that the mocks are for calls it.
    pub(crate) fn not_kept(what: &str) -> Self {
        Self::not_found(format!("this mock does not do that: {what}"))
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl ToString) -> Self {
        self.headers.push((name, value.to_string()));
        self
    }

    /// The answer in the form that the request accepts.
    pub(crate) fn response(
        self,
        request: &Request<Bytes>,
        server: &'static str,
        now_ms: i64,
    ) -> Response<Bytes> {
        let kind = request.headers().get(header::ACCEPT).and_then(|it| it.to_str().ok());
        let mut response =
            restify::routed(request, server, now_ms, (self.status, self.body.as_ref()));
        if let (Some(body), Some("application/octet-stream")) = (&self.body, kind) {
            let text = Bytes::from(as_text(body));
            let headers = response.headers_mut();
            headers
                .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
            headers.insert(header::CONTENT_LENGTH, text.len().into());
            *response.body_mut() = text;
        } else if let (Some(_), Some("text/plain")) = (&self.body, kind) {
            let plain = HeaderValue::from_static("text/plain");
            response.headers_mut().insert(header::CONTENT_TYPE, plain);
        }
        for (name, value) in self.headers {
            if let Ok(value) = value.parse() {
                response.headers_mut().insert(name, value);
            }
        }
        response
    }
}

/// A value as a program in JavaScript makes a text of it.
fn as_text(value: &Value) -> String {
    match value {
        Value::Object(_) => "[object Object]".to_owned(),
        Value::Array(items) => items.iter().map(as_text).collect::<Vec<_>>().join(","),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
