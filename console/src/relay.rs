// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Passes requests of the page on to vminfod, the agents, migration-service and volapi: GET only, only the pages
//! listed here, only to the configured addresses (loopback but for the services'), and only JSON comes back.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use daemon::Shutdown;
use daemon::command::{Paths, Spawned};
use daemon::http::{Body, query, refuse, reply, reply_json};
use daemon::smf::{Whose, whose_service};
use futures_util::StreamExt;
use http::header::{CONTENT_TYPE, HeaderMap};
use http::{Response, StatusCode};
use sdc_clients::http::{Call, Http};
use sdc_clients::{Error, http::StreamResponse};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

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
/// A program that is waited for so long is not waited for by a second request.
const LATE: Duration = Duration::from_secs(2);

/// Clients of vminfod and of each agent.
#[derive(Clone)]
pub(crate) struct Relay {
    programs: Arc<Vec<(String, Http)>>,
    commands: Arc<Spawned>,
    streams: Arc<Semaphore>,
    waits: Waits,
    shutdown: Shutdown,
}

impl Relay {
    pub(crate) fn new(
        programs: &[(String, String)],
        commands: Paths,
        shutdown: Shutdown,
    ) -> Result<Self, Error> {
        let all = programs.iter().map(|(name, url)| {
            let agent = concat!("console/", env!("CARGO_PKG_VERSION"));
            Ok((name.clone(), Http::new(url, agent)?.without_retries()))
        });
        Ok(Self {
            programs: Arc::new(all.collect::<Result<_, Error>>()?),
            commands: Arc::new(Spawned::new(commands)),
            streams: Arc::new(Semaphore::new(STREAMS)),
            waits: Waits::default(),
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
            (_, "status") => {
                return Some(self.waits.limited(program, whole(http, get(page), STATUS_CAP)).await);
            }
            (_, "plan" | "history") => get(page),
            (_, "metrics") => {
                return Some(self.waits.limited(program, text(http, get("metrics"))).await);
            }
            (HUB, "why") => Call::get(&["why", query::value(asked, "vm")?]),
            // A program that does not answer may be another of that name.
            (_, "whose") => return Some(self.whose(program).await),
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
        Some(self.waits.limited(program, whole(http, call, ANSWER_CAP)).await)
    }

    /// Answers whose program SMF starts under this name: true if it is the one that ours takes the place of.
    async fn whose(&self, program: &str) -> Response<Body> {
        match whose_service(&*self.commands, program).await {
            Ok(whose) => {
                // kvmd lies in the package hub: only node.js tells the deployed one.
                let is_other = whose == Some(Whose::Deployed);
                reply_json(StatusCode::OK, &json!({ "is_other": is_other }))
            }
            Err(error) => bad_gateway(&error.to_string()),
        }
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

/// The programs that are waited for, and since when. A browser gives a host six connections: with many tabs a program
/// that hangs would hold them all, and the page would have none left for the others.
#[derive(Clone, Default)]
struct Waits(Arc<Mutex<BTreeMap<String, Instant>>>);

impl Waits {
    /// Waits for an answer of a program; where another request does already, no longer than that one has left of `LATE`.
    async fn limited(
        &self,
        program: &str,
        answer: impl Future<Output = Response<Body>>,
    ) -> Response<Body> {
        let (left, _held) = self.begin(program);
        timeout(left, answer).await.unwrap_or_else(|_| {
            let message = format!("no answer for {} s", LATE.as_secs());
            refuse(StatusCode::GATEWAY_TIMEOUT, "GatewayTimeout", &message)
        })
    }

    fn begin(&self, program: &str) -> (Duration, Option<Held>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(since) = all.get(program) {
            return (LATE.saturating_sub(since.elapsed()), None);
        }
        all.insert(program.to_owned(), Instant::now());
        (Duration::MAX, Some(Held(self.clone(), program.to_owned())))
    }
}

/// The first that waits for a program.
struct Held(Waits, String);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.1);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_program_that_hangs_holds_one_request_and_no_other_program() {
        let (waits, began) = (Waits::default(), Instant::now());
        let hangs = || std::future::pending::<Response<Body>>();
        let first = tokio::spawn({
            let waits = waits.clone();
            async move { waits.limited("vminfod", hangs()).await }
        });
        tokio::task::yield_now().await;
        for late in [LATE, Duration::ZERO] {
            let before = Instant::now();
            let answer = waits.limited("vminfod", hangs()).await;
            assert_eq!((answer.status(), before.elapsed()), (StatusCode::GATEWAY_TIMEOUT, late));
        }
        let answers =
            async || waits.limited("net-agent", async { reply(StatusCode::OK, "") }).await;
        assert_eq!((answers().await.status(), began.elapsed()), (StatusCode::OK, LATE));
        first.abort();
        let _ended = first.await;
        assert_eq!(waits.begin("vminfod").0, Duration::MAX, "the next one waits again");
    }
}
