// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The interface on 127.0.0.1:5312, which only reads: `/ping`, `/status`, `/events`, `/metrics`.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::response::Response;
use axum::routing::get;
use bytes::Bytes;
use daemon::Shutdown;
use daemon::http::events::{self, Follow};
use daemon::http::{Counts, Gone, Listeners, Router, Start, now_iso, reply, with_ping};
use futures_util::stream;
use http::header::USER_AGENT;
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::ledger::{Ledger, Snapshot};
use crate::metrics;
use crate::verdict::Rule;

/// What the routes need.
struct Api {
    ledger: Ledger,
    rule: Rule,
    started: Instant,
    counts: Arc<Counts>,
    listeners: Listeners,
    shutdown: Shutdown,
}

/// Returns the routes.
pub(crate) fn router(
    ledger: Ledger,
    rule: Rule,
    counts: Arc<Counts>,
    shutdown: Shutdown,
) -> Router {
    let (started, listeners) = (Instant::now(), Listeners::default());
    let api = Arc::new(Api { ledger, rule, started, counts, listeners, shutdown });
    with_ping(Router::new())
        .route("/status", get(async |State(api): State<Arc<Api>>| api.status()))
        .route("/metrics", get(async |State(api): State<Arc<Api>>| api.metrics()))
        .route("/events", get(events))
        .with_state(api)
}

async fn events(
    State(api): State<Arc<Api>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Gone> {
    let (epoch, journal) = (&*api.ledger.epoch, &api.ledger.journal);
    let start = Start::of(query.as_deref(), epoch, journal)?;
    let agent = headers.get(USER_AGENT);
    let agent = agent.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let keep = api.listeners.add(agent.unwrap_or_default());
    let (lead, cursor) = match start {
        Start::Now => {
            let snapshot = api.ledger.snapshot();
            (ready(&snapshot, &keep.uuid, epoch), snapshot.seq)
        }
        Start::After(since) => (events::resume_line(epoch, since, journal.span().1), since),
    };
    let follow = Follow {
        journal: Arc::clone(journal),
        cursor,
        rewrite: None,
        keep,
        counts: Arc::clone(&api.counts),
        shutdown: api.shutdown.clone(),
    };
    Ok(reply(StatusCode::OK, events::open(stream::iter([lead]), follow)))
}

impl Api {
    fn metrics(&self) -> Response {
        let (listeners, up) = (self.listeners.list().len(), self.started.elapsed().as_secs_f64());
        daemon::metrics::answer(&metrics::registry(&self.ledger.snapshot(), listeners, up))
    }

    fn status(&self) -> Response {
        let snapshot = self.ledger.snapshot();
        let head = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "pid": std::process::id(),
            "up_s": self.started.elapsed().as_secs(),
            "rule": self.rule,
            "counts": snapshot.counts,
            "listeners": self.listeners.list().len(),
        });
        reply(StatusCode::OK, with_state(head, &snapshot, &self.ledger.epoch))
    }
}

/// Returns the first line of a stream: everything up to `seq`.
fn ready(snapshot: &Snapshot, uuid: &str, epoch: &str) -> Bytes {
    with_state(json!({"type": "ready", "date": now_iso(), "uuid": uuid}), snapshot, epoch)
}

/// Returns `head` with the instances and the verdicts added. The verdicts are copied as the text they
/// were published with.
fn with_state(head: Value, snapshot: &Snapshot, epoch: &str) -> Bytes {
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
