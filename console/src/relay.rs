// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Passes requests of the page on to vminfod, the agents, migration-service and volapi: GET only, only the pages
//! listed here, only to the configured addresses (loopback but for the services'), and only JSON comes back.

use std::sync::Arc;

use daemon::Shutdown;
use daemon::http::{Body, query, refuse, reply, reply_json};
use futures_util::StreamExt;
use http::header::{CONTENT_TYPE, HeaderMap};
use http::{Response, StatusCode};
use sdc_clients::http::{Call, Http};
use sdc_clients::{Error, http::StreamResponse};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::config::{HUB, MIGRATIONS, VOLUMES};

/// Largest answer that is held in memory.
const ANSWER_CAP: usize = 16 << 20;
/// Largest status of a program of the node: a page asks for it every two seconds.
const STATUS_CAP: usize = 4 << 20;
/// Streams at once; more are refused with 503. One holds two connections and the buffers of the HTTP
/// libraries (less than 1 MiB): a slow reader stops the reading from vminfod.
const STREAMS: usize = 64;
/// The entries of the history that a page shows.
const ENTRIES: u32 = 100;

/// Clients of vminfod and of each agent.
#[derive(Clone)]
pub(crate) struct Relay {
    programs: Arc<Vec<(String, Http)>>,
    streams: Arc<Semaphore>,
    shutdown: Shutdown,
}

impl Relay {
    pub(crate) fn new(programs: &[(String, String)], shutdown: Shutdown) -> Result<Self, Error> {
        let all = programs.iter().map(|(name, url)| {
            let agent = concat!("console/", env!("CARGO_PKG_VERSION"));
            Ok((name.clone(), Http::new(url, agent)?.without_retries()))
        });
        Ok(Self {
            programs: Arc::new(all.collect::<Result<_, Error>>()?),
            streams: Arc::new(Semaphore::new(STREAMS)),
            shutdown,
        })
    }

    /// The names of the programs, vminfod first.
    pub(crate) fn names(&self) -> Response<Body> {
        reply_json(StatusCode::OK, &self.programs.iter().map(|(name, _)| json!(name)).collect())
    }

    /// How many streams are open.
    pub(crate) fn open_streams(&self) -> usize {
        STREAMS - self.streams.available_permits()
    }

    /// Answers `page` of `program`; `None` if the page is not one that is passed on.
    pub(crate) async fn answer(
        &self,
        program: &str,
        page: &str,
        asked: Option<&str>,
    ) -> Option<Response<Body>> {
        let (_, http) = self.programs.iter().find(|(name, _)| name == program)?;
        let get = |path: &str| Call::get(&[path]);
        let call = match (program, page) {
            (MIGRATIONS, "status") => get("migrations").query("format", "raw"),
            (MIGRATIONS, "history") => get("migrations")
                .query("format", "history")
                .query("limit", ENTRIES)
                .query_opt("vm_uuid", query::value(asked, "vm")),
            (VOLUMES, "status") => get("status"),
            (VOLUMES, "plan") => get("volumes"),
            (MIGRATIONS | VOLUMES, _) => return None,
            (_, "status") => return Some(whole(http, get(page), STATUS_CAP).await),
            (_, "plan" | "history") => get(page),
            (_, "metrics") => return Some(text(http, get("metrics")).await),
            (HUB, "why") => Call::get(&["why", query::value(asked, "vm")?]),
            (HUB, "sysinfo") => get("sysinfo"),
            (HUB, "vms") => return Some(self.stream(http, get("vms")).await),
            (HUB, "events") => {
                let call = get("events")
                    .query_opt("epoch", query::value(asked, "epoch"))
                    .query_opt("since", query::value(asked, "since"));
                return Some(self.stream(http, call).await);
            }
            _ => return None,
        };
        Some(whole(http, call, ANSWER_CAP).await)
    }

    /// Passes a body on as it comes.
    async fn stream(&self, http: &Http, call: Call) -> Response<Body> {
        let Ok(permit) = Arc::clone(&self.streams).try_acquire_owned() else {
            let message = format!("{STREAMS} streams are open already");
            return refuse(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", &message);
        };
        let StreamResponse { headers, body, .. } = match http.open(call).await {
            Ok(answer) => answer,
            // The page then asks for a new snapshot.
            Err(error) if error.status() == Some(StatusCode::GONE.as_u16()) => {
                return refuse(StatusCode::GONE, "Gone", error.message());
            }
            Err(error) => return bad_gateway(&error.to_string()),
        };
        if !is_json(&headers) {
            return bad_gateway("the answer is not JSON");
        }
        let shutdown = self.shutdown.clone();
        let pieces = body
            .take_while(|piece| std::future::ready(piece.is_ok()))
            .filter_map(|piece| std::future::ready(piece.ok()))
            .take_until(async move { shutdown.wait().await })
            .map(move |piece| {
                let _held = &permit;
                piece
            });
        reply(StatusCode::OK, Body::from_stream(pieces.map(Ok::<_, std::convert::Infallible>)))
    }
}

/// Reads the whole answer and writes it anew, so that nothing but JSON is passed on.
async fn whole(http: &Http, call: Call, most: usize) -> Response<Body> {
    let answer = http.execute(call.body_cap(most)).await;
    passed(answer.and_then(|answer| answer.json::<Value>("JSON")))
}

/// The same of a text, as one JSON string.
async fn text(http: &Http, call: Call) -> Response<Body> {
    let answer = http.execute(call.body_cap(ANSWER_CAP)).await;
    passed(answer.map(|answer| String::from_utf8_lossy(answer.body()).into()))
}

fn passed(answer: Result<Value, Error>) -> Response<Body> {
    match answer {
        Ok(value) => reply_json(StatusCode::OK, &value),
        Err(error) => bad_gateway(&error.to_string()),
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"))
}

fn bad_gateway(message: &str) -> Response<Body> {
    refuse(StatusCode::BAD_GATEWAY, "BadGateway", message)
}
