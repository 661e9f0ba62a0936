// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The interface on 127.0.0.1:5312, which only reads: `/ping`, `/status`, `/events`, `/metrics`, `/openapi.json`.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::response::Response;
use axum::routing::get;
use bytes::Bytes;
use daemon::Shutdown;
use daemon::http::events::{self, Follow};
use daemon::http::{
    Counts, Gone, Listeners, Router, Start, Table, endpoint, name_ignored, now_iso, ok, ping,
    reply, routes, table, with_refusals,
};
use futures_util::stream;
use http::header::USER_AGENT;
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::ledger::{Counts as Counted, Instance, Ledger, Snapshot, VerdictEvent};
use crate::metrics;
use crate::verdict::Rule;

/// The paths of the port, and what answers them.
const ENDPOINTS: Table<Arc<Api>> = table(&[
    ping().about("whether kvmd answers"),
    endpoint("/status", "GET", || get(async |State(api): Routes| api.status()))
        .about("what it watches, and the last verdict on each instance")
        .does(&["GET -> 200 Status"]),
    endpoint("/events", "GET", || get(events))
        .about(
            "verdicts as they come, a line of JSON each; since= and epoch= resume after an event",
        )
        .does(&["GET ?epoch&since -> 200 lines VerdictEvent"]),
    endpoint("/metrics", "GET", || get(async |State(api): Routes| api.metrics()))
        .about("its metrics, as OpenMetrics has them")
        .does(&["GET -> 200 text"]),
    endpoint("/openapi.json", "GET", || get(async || reply(StatusCode::OK, DOCUMENT)))
        .about("this document")
        .does(&["GET -> 200 {}"]),
]);

/// Returns the document of these paths, with the schemas of [`Status`].
pub fn document(schemas: Map<String, Value>) -> Value {
    ENDPOINTS.openapi("kvmd", env!("CARGO_PKG_VERSION"), schemas)
}

/// The same as OpenAPI has it, which `testbed openapi kvmd` makes of the table and the types.
const DOCUMENT: &str = include_str!("../../docs/kvmd.openapi.json");

/// The header that names the parameters of a request for a page that takes none.
const IGNORED: &str = "kvmd-ignored";

/// `/status`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Status {
    /// The program's version.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// Seconds since its start.
    pub up_s: u64,
    /// The rule that decides about markers.
    pub rule: Rule,
    /// What it has done since its start.
    pub counts: Counted,
    /// Open streams of events.
    pub listeners: usize,
    /// The last event that this contains.
    pub seq: u64,
    /// This start of the daemon.
    pub epoch: String,
    /// The watched instances by name.
    pub instances: BTreeMap<String, Instance>,
    /// The last verdict on each name, the oldest first.
    pub verdicts: Vec<VerdictEvent>,
}

type Routes = State<Arc<Api>>;

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
    let routes = with_refusals(routes(&ENDPOINTS)).with_state(api);
    name_ignored(routes, IGNORED, |path| path != "/events")
}

async fn events(
    State(api): Routes,
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
        let page = Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            up_s: self.started.elapsed().as_secs(),
            rule: self.rule,
            counts: snapshot.counts,
            listeners: self.listeners.list().len(),
            seq: snapshot.seq,
            epoch: self.ledger.epoch.to_string(),
            verdicts: snapshot.told(),
            instances: snapshot.instances,
        };
        ok(&json!(page))
    }
}

/// Returns the first line of a stream: everything up to `seq`. The verdicts are copied as the text they were
/// published with.
fn ready(snapshot: &Snapshot, uuid: &str, epoch: &str) -> Bytes {
    let head = json!({
        "type": "ready", "date": now_iso(), "uuid": uuid, "seq": snapshot.seq, "epoch": epoch,
        "instances": snapshot.instances,
    });
    let mut text = head.to_string();
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
