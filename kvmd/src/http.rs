// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The interface on 127.0.0.1:5312: `/ping`, `/status`, `/events`, `/metrics`. Connections, their
//! caps and their deadlines, the framing and the resume of streams are `daemon::http`'s.
//!
//! Only reads. What changes anything here is the node's own business: files.

use std::sync::Arc;

use bytes::Bytes;
use daemon::Shutdown;
use daemon::http::events::{self, Follow};
use daemon::http::{Body, Counts, Listeners, Start, now_iso, refuse, reply, reply_json};
use futures_util::stream;
use http::header::USER_AGENT;
use http::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::ledger::{Ledger, Snapshot};
use crate::metrics;
use crate::verdict::Rule;

/// What the routes need.
#[derive(Clone)]
pub struct Api {
    ledger: Ledger,
    rule: Rule,
    started: Instant,
    counts: Arc<Counts>,
    listeners: Listeners,
    shutdown: Shutdown,
}

impl Api {
    /// The routes over these.
    pub fn new(ledger: Ledger, rule: Rule, counts: Arc<Counts>, shutdown: Shutdown) -> Self {
        let (started, listeners) = (Instant::now(), Listeners::default());
        Self { ledger, rule, started, counts, listeners, shutdown }
    }

    /// Answers one request.
    pub async fn answer<B>(self, request: Request<B>) -> Response<Body> {
        if request.method() != Method::GET {
            return refuse(StatusCode::METHOD_NOT_ALLOWED, "BadMethod", "only GET is served");
        }
        match request.uri().path() {
            "/ping" => reply_json(StatusCode::OK, &json!({"ping": "pong"})),
            "/status" => self.status(),
            "/metrics" => self.metrics(),
            "/events" => self.events(&request),
            _ => refuse(StatusCode::NOT_FOUND, "ResourceNotFound", "no such path"),
        }
    }

    fn metrics(&self) -> Response<Body> {
        let (listeners, up) = (self.listeners.list().len(), self.started.elapsed().as_secs());
        daemon::metrics::answer(&metrics::registry(&self.ledger.snapshot(), listeners, up))
    }

    fn status(&self) -> Response<Body> {
        let snapshot = self.ledger.snapshot();
        let head = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "pid": std::process::id(),
            "up_s": self.started.elapsed().as_secs(),
            "rule": self.rule,
            "counts": snapshot.counts,
            "listeners": self.listeners.list().len(),
        });
        reply(StatusCode::OK, Body::once(told(head, &snapshot, &self.ledger.epoch)))
    }

    fn events<B>(&self, request: &Request<B>) -> Response<Body> {
        let (epoch, journal) = (&*self.ledger.epoch, &self.ledger.journal);
        let start = match Start::of(request.uri().query(), epoch, journal) {
            Ok(start) => start,
            Err(gone) => return reply_json(StatusCode::GONE, &gone.body(epoch)),
        };
        let agent = request.headers().get(USER_AGENT);
        let agent = agent.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        let keep = self.listeners.enter(agent.unwrap_or_default());
        let (lead, cursor) = match start {
            Start::Now => {
                let snapshot = self.ledger.snapshot();
                (ready(&snapshot, &keep.uuid, epoch), snapshot.seq)
            }
            Start::After(since) => (events::resume_line(epoch, since, journal.span().1), since),
        };
        let follow = Follow {
            journal: Arc::clone(journal),
            cursor,
            lens: None,
            keep,
            counts: Arc::clone(&self.counts),
            shutdown: self.shutdown.clone(),
        };
        reply(StatusCode::OK, events::open(stream::iter([lead]), follow))
    }
}

/// The first line of a stream: everything up to `seq`.
fn ready(snapshot: &Snapshot, uuid: &str, epoch: &str) -> Bytes {
    told(json!({"type": "ready", "date": now_iso(), "uuid": uuid}), snapshot, epoch)
}

/// An object with what is known. The verdicts are in it as they were told: nobody reads and
/// writes thousands of them again for each who asks.
fn told(head: Value, snapshot: &Snapshot, epoch: &str) -> Bytes {
    let mut fields = head;
    if let Some(fields) = fields.as_object_mut() {
        fields.insert("seq".to_owned(), snapshot.seq.into());
        fields.insert("epoch".to_owned(), epoch.into());
        fields.insert("instances".to_owned(), json!(snapshot.instances));
    }
    let mut text = fields.to_string();
    text.truncate(text.len().saturating_sub(1));
    text.push_str(",\"verdicts\":[");
    for (n, line) in snapshot.lines.iter().enumerate() {
        if n > 0 {
            text.push(',');
        }
        text.push_str(String::from_utf8_lossy(line).trim_end());
    }
    text.push_str("]}\n");
    Bytes::from(text)
}
