// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The routes that only the page of the data centre has.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::routing::get;
use bytes::Bytes;
use daemon::Shutdown;
use daemon::http::{Body, Router, refuse, reply, reply_json};
use daemon::metrics::{gauges, size};
use futures_util::{StreamExt as _, stream};
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast};
use tokio::time::Instant;

use super::board::Board;
use crate::http::{no_path, with_page};
use crate::page;
use crate::relay::Relay;

/// Browsers at once.
const STREAMS: usize = 64;

struct Api {
    board: Arc<Board>,
    feed: Vec<String>,
    streams: Arc<Semaphore>,
    shutdown: Shutdown,
    started: Instant,
}

type Routes = State<Arc<Api>>;

/// Returns the routes of the page.
pub(super) fn router(
    board: Arc<Board>,
    feed: Vec<String>,
    relay: Relay,
    shutdown: Shutdown,
) -> Router {
    let streams = Arc::new(Semaphore::new(STREAMS));
    let api = Arc::new(Api { board, feed, streams, shutdown, started: Instant::now() });
    let own = Router::new()
        .route("/status", get(async |State(api): Routes| api.status()))
        .route("/metrics", get(async |State(api): Routes| api.metrics()))
        .route("/ui/fleet/feed", get(async |State(api): Routes| api.stream()))
        .route("/ui/fleet/vms/{uuid}", get(one))
        .with_state(api);
    with_page(own, page::CENTRE, relay)
}

async fn one(State(api): Routes, Path(uuid): Path<String>) -> Response<Body> {
    let copies = api.board.vm(&uuid);
    match copies.as_array().is_some_and(|all| !all.is_empty()) {
        true => reply_json(StatusCode::OK, &copies),
        false => no_path(),
    }
}

impl Api {
    fn status(&self) -> Response<Body> {
        let (nodes, vms, lost) = self.board.sums();
        let body = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "pid": std::process::id(),
            "up_s": self.started.elapsed().as_secs(),
            "feed": lost.unwrap_or_else(|| self.feed.join(" ")),
            "nodes": nodes,
            "vms": vms,
            "streams": self.open_streams(),
        });
        reply_json(StatusCode::OK, &body)
    }

    fn open_streams(&self) -> usize {
        STREAMS - self.streams.available_permits()
    }

    fn metrics(&self) -> Response<Body> {
        let (streams, up) = (size(self.open_streams()), self.started.elapsed());
        daemon::metrics::answer(&daemon::metrics::registry("console", |registry| {
            gauges(
                registry,
                [
                    ("streams", "Streams of events and VMs that are open", streams),
                    ("uptime_seconds", "Time since the start", up.as_secs_f64()),
                ],
            );
        }))
    }

    /// All lines, then each that changes, until the browser goes or is too far behind.
    fn stream(&self) -> Response<Body> {
        let Ok(permit) = Arc::clone(&self.streams).try_acquire_owned() else {
            let message = format!("{STREAMS} streams are open already");
            return refuse(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", &message);
        };
        let (all, news) = self.board.listen();
        // One piece: a snapshot in ten thousand pieces is ten thousand writes.
        let all = stream::once(std::future::ready(Bytes::from(all.concat())));
        let news = stream::unfold((news, permit), next);
        let shutdown = self.shutdown.clone();
        let lines = all.chain(news).take_until(async move { shutdown.wait().await });
        let body = Body::from_stream(lines.map(Ok::<_, Infallible>));
        let mut response = reply(StatusCode::OK, body);
        let kind = HeaderValue::from_static("application/x-ndjson");
        response.headers_mut().insert(CONTENT_TYPE, kind);
        response
    }
}

type Reading = (broadcast::Receiver<Bytes>, OwnedSemaphorePermit);

async fn next((mut news, permit): Reading) -> Option<(Bytes, Reading)> {
    let line = news.recv().await.ok()?;
    Some((line, (news, permit)))
}
