// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A mock service: faults and log around each request, and a socket.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response, header};
use serde_json::Value;

use super::http::{Listening, Mock, Reply, listen};
use super::record::{Recorder, Seen};
use super::rules::{Action, Faults, Rule};

/// A mock service: its data, rules and log, and its answers. Clones share all of it.
pub trait Service: Clone + Send + Sync + 'static {
    /// Its fault rules and its log.
    fn parts(&self) -> (&Faults, &Recorder);

    /// Answers a request below `/_mock/`.
    fn side_door(&self, request: &Request<Bytes>) -> Response<Bytes>;

    /// Makes an answer with this status and body.
    fn canned(
        &self,
        request: &Request<Bytes>,
        status: u16,
        body: Option<&Value>,
    ) -> Response<Bytes>;

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
            if uri.path().starts_with("/_mock/") {
                return Reply::Full(self.side_door(&request));
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
                let mut response = service.canned(request, *status, body.as_ref());
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
