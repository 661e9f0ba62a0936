// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A mock service: faults and log around each request, and a socket.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Method, Request, Response, header};
use serde_json::{Map, Value, json};

use super::http::{Listening, Mock, Reply, listen};
use super::record::{Recorder, Seen};
use super::rules::{Action, Faults, Rule};
use crate::restify::build;

/// The answer of a side door: a body, nothing (there is no such door), or a status and a reason.
pub type Door = Result<Option<Value>, (u16, String)>;

/// A status and a body.
pub type Canned<'a> = (u16, Option<&'a Value>);

/// One line about a side door: method, name, and what it does.
pub type Listed = (&'static str, &'static str, &'static str);

/// The doors that every mock has.
const COMMON: [Listed; 6] = [
    ("GET", "", "this list"),
    ("GET", "faults", "the fault rules, each with the number of requests that it matched"),
    ("POST", "faults", "adds a fault rule, or an array of them"),
    ("DELETE", "faults", "removes the fault rules"),
    ("GET", "requests", "the requests so far, oldest first, with the status of each answer"),
    ("DELETE", "requests", "forgets the requests so far"),
];

/// 400 for a body that is not what a door expects.
pub(crate) fn bad(error: serde_json::Error) -> (u16, String) {
    (400, error.to_string())
}

/// A mock service: its data, rules and log, and its answers. Clones share all of it.
pub trait Service: Clone + Send + Sync + 'static {
    /// Its fault rules and its log.
    fn parts(&self) -> (&Faults, &Recorder);

    /// The doors of its own, as they are listed.
    const DOORS: &'static [Listed];

    /// Answers a request to one of them; nothing if there is no such door.
    fn side_door(&self, request: &Request<Bytes>, what: &str) -> Door;

    /// Makes an answer with this status and body.
    fn canned(&self, request: &Request<Bytes>, answer: Canned<'_>) -> Response<Bytes>;

    /// Handles a request, with the actions of the rules that apply to it; `None` cuts the connection.
    fn route<'a>(
        &'a self,
        request: &'a Request<Bytes>,
        actions: &'a [Action],
    ) -> BoxFuture<'a, Option<Response<Bytes>>>;
}

impl<S: Service> Mock for S {
    fn handle(&self, request: Request<Bytes>) -> BoxFuture<'_, Reply> {
        Box::pin(async move {
            let uri = request.uri();
            if let Some(what) = uri.path().strip_prefix("/_mock").filter(|rest| is_door(rest)) {
                let what = what.trim_start_matches('/');
                let (status, body) = match side_door(self, &request, what) {
                    Ok(Some(body)) => (200, body),
                    Ok(None) => {
                        let message = format!(
                            "no such side door: {} {what}; GET /_mock/ lists them",
                            request.method()
                        );
                        (404, json!({ "message": message }))
                    }
                    Err((status, message)) => (status, json!({ "message": message })),
                };
                return Reply::Full(build(request.method(), status, Some(&body)));
            }
            let (faults, log) = self.parts();
            let entry = log.begin(&request);
            let query = uri.query().unwrap_or_default();
            let actions = faults.take(request.method().as_str(), uri.path(), query);
            let reply = with_faults(self, &request, &actions).await;
            log.finish(entry, &reply);
            reply
        })
    }
}

fn is_door(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with('/')
}

/// Answers at the doors that all mocks have: the list of doors, fault rules and the log.
fn side_door<S: Service>(service: &S, request: &Request<Bytes>, what: &str) -> Door {
    let (faults, log) = service.parts();
    Ok(Some(match (request.method(), what) {
        (&Method::GET, "") => {
            let listed = COMMON.iter().chain(S::DOORS);
            let line =
                |(method, name, does): &Listed| (format!("{method} /_mock/{name}"), json!(does));
            json!({ "doors": listed.map(line).collect::<Map<_, _>>() })
        }
        (&Method::GET, "faults") => {
            let rules = faults.list();
            rules.iter().map(|(rule, seen)| json!({ "rule": rule, "seen": seen })).collect()
        }
        (&Method::POST, "faults") => {
            let rules: Vec<Rule> = match request.body().first() {
                Some(b'[') => serde_json::from_slice(request.body()).map_err(bad)?,
                _ => vec![serde_json::from_slice(request.body()).map_err(bad)?],
            };
            let added = rules.len();
            rules.into_iter().for_each(|rule| faults.add(rule));
            json!({ "added": added })
        }
        (&Method::DELETE, "faults") => {
            faults.clear();
            json!({})
        }
        (&Method::GET, "requests") => serde_json::to_value(log.all()).map_err(bad)?,
        (&Method::DELETE, "requests") => {
            log.clear();
            json!({})
        }
        _ => return service.side_door(request, what),
    }))
}

async fn with_faults(
    service: &impl Service,
    request: &Request<Bytes>,
    actions: &[Action],
) -> Reply {
    for action in actions {
        match action {
            Action::Delay { ms } => tokio::time::sleep(Duration::from_millis(*ms)).await,
            Action::Cut => return Reply::Cut,
            Action::Hang { ms } => {
                let (service, request) = (service.clone(), request.clone());
                let (ms, actions) = (Duration::from_millis(*ms), actions.to_vec());
                let later = tokio::spawn(async move {
                    tokio::time::sleep(ms).await;
                    service.route(&request, &actions).await
                });
                return later.await.ok().flatten().map_or(Reply::Cut, Reply::Full);
            }
            Action::Status { status, body, retry_after } => {
                let mut response = service.canned(request, (*status, body.as_ref()));
                if let Some(seconds) = retry_after {
                    response.headers_mut().insert(header::RETRY_AFTER, (*seconds).into());
                }
                return Reply::Full(response);
            }
            _ => {}
        }
    }
    let Some(mut response) = service.route(request, actions).await else { return Reply::Cut };
    for action in actions {
        let body = match action {
            Action::DropResponse => return Reply::Cut,
            Action::Truncate { bytes } => return Reply::Truncated(response, *bytes),
            Action::Garbage { text } => Bytes::from(text.clone()),
            Action::EmptyBody => Bytes::new(),
            _ => continue,
        };
        response.headers_mut().insert(header::CONTENT_LENGTH, body.len().into());
        *response.body_mut() = body;
    }
    Reply::Full(response)
}

/// A mock service on a socket.
#[derive(Debug)]
pub struct Server<S> {
    store: S,
    listening: Listening,
}

impl<S: Service> Server<S> {
    /// Starts to serve `store`. Port 0 takes a free port.
    pub async fn with_store(listen_on: SocketAddr, store: S) -> std::io::Result<Self> {
        let listening = listen(listen_on, Arc::new(store.clone())).await?;
        Ok(Self { store, listening })
    }

    /// The address it listens on.
    pub fn addr(&self) -> SocketAddr {
        self.listening.addr()
    }

    /// Its base URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr())
    }

    /// Its data.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<Seen> {
        self.store.parts().1.all()
    }

    /// Adds a fault rule.
    pub fn add_fault(&self, rule: Rule) {
        self.store.parts().0.add(rule);
    }

    /// Closes the port and all connections. The data lives on in the store.
    pub async fn stop(self) {
        self.listening.stop().await;
    }

    /// Serves until the task is dropped.
    pub async fn wait(self) {
        self.listening.wait().await;
    }
}
