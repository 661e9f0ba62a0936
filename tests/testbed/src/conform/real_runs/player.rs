// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The services of a run as a program of ours meets them: each request is answered as recorded, and has to be the
//! recorded one. Changes come in the recorded order, with the recorded bodies; a record may be read as often as the
//! pace of the run has it, and shows what was recorded between the same two changes.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context as _;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use mocks::faults::{Mock, Reply, glob};
use mocks::transport::InProcess;
use serde::Deserialize;
use serde_json::Value;

use crate::conform::services::replay::Memory;
use crate::conform::tally::Tally;
use crate::conform::transcript::Exchange;

const ROWS: &str = include_str!("../../../fixtures/real-runs-asked.jsonl");

const NOT_RECORDED: &str = r#"{"code": "ResourceNotFound", "message": "not recorded"}"#;

/// One exchange of a run with the service that it was with.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) peer: String,
    pub(super) exchange: Exchange,
}

impl Call {
    fn is_read(&self) -> bool {
        self.exchange.request.method == "GET"
    }

    fn url(&self) -> String {
        url(&self.exchange.request.path, &self.exchange.request.query)
    }

    fn names(&self) -> String {
        format!("{} {}", self.peer, self.exchange.place("").trim_start())
    }
}

fn url(path: &str, query: &str) -> String {
    let mark = if query.is_empty() { "" } else { "?" };
    format!("{path}{mark}{query}")
}

/// What a program asks otherwise today than when the run was recorded: members of a body, or, without any, that it
/// asks this at all, or no more.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    /// The run; a `*` stands for any text, here and in the path, which has the query behind it.
    run: String,
    peer: String,
    method: String,
    url: String,
    /// The members of the body, with dots.
    #[serde(default)]
    differs: Vec<String>,
    reason: String,
}

impl Row {
    fn covers(&self, run: &str, peer: &str, method: &str, url: &str) -> bool {
        (self.peer.as_str(), self.method.as_str()) == (peer, method)
            && glob(&self.run, run)
            && glob(&self.url, url)
    }
}

/// Creates a VM where CNAPI is told to.
pub(super) type Creates = Arc<dyn Fn(Value) -> BoxFuture<'static, ()> + Send + Sync>;

/// All services of one run. Clones share them.
#[derive(Clone)]
pub(super) struct Player {
    run: Arc<str>,
    calls: Arc<[Call]>,
    rows: Arc<[Row]>,
    played: Arc<Mutex<Played>>,
}

#[derive(Default)]
struct Played {
    memory: Memory,
    done: Vec<bool>,
    /// The change that was asked for last.
    last: Option<usize>,
    /// What was asked otherwise: which call, in words, and how; and the rows that were needed.
    faults: Vec<(Option<usize>, String, String)>,
    used: Vec<bool>,
    creates: Option<Creates>,
    /// The recorder went away before it was over.
    is_cut: bool,
}

impl Player {
    /// The services at the start of a run, in which ours stand in the place of these recorded names.
    pub(super) fn new(
        run: &str,
        calls: Vec<Call>,
        names: &[(String, String)],
    ) -> anyhow::Result<Player> {
        let rows = ROWS.lines().map(|line| serde_json::from_str(line).context("a row"));
        let rows = rows.collect::<anyhow::Result<Vec<Row>>>()?;
        let mut played = Played {
            done: vec![false; calls.len()],
            used: vec![false; rows.len()],
            ..Played::default()
        };
        names.iter().for_each(|(recorded, ours)| played.memory.made(recorded, ours));
        let (calls, rows) = (calls.into(), rows.into());
        Ok(Player { run: run.into(), calls, rows, played: Arc::new(Mutex::new(played)) })
    }

    fn played(&self) -> MutexGuard<'_, Played> {
        self.played.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whoever creates the VMs of CNAPI's nodes.
    pub(super) fn creates(&self, creates: Creates) {
        self.played().creates = Some(creates);
    }

    /// What is asked behind the last change of the run was not recorded.
    pub(super) fn is_cut(&self) {
        self.played().is_cut = true;
    }

    /// Nobody creates VMs any more.
    pub(super) fn forget(&self) {
        self.played().creates = None;
    }

    /// The way to one of the services.
    pub(super) fn peer(&self, peer: &'static str) -> InProcess {
        InProcess::new(Peer { peer, player: self.clone() })
    }

    /// The recorded value with our names.
    pub(super) fn ours(&self, recorded: &Value) -> Value {
        self.played().memory.ours_of(recorded)
    }

    /// Returns true if nothing is left to be asked.
    pub(super) fn is_over(&self) -> bool {
        self.played().done.iter().all(|done| *done)
    }

    /// Returns true if all changes have been asked for.
    pub(super) fn is_changed(&self) -> bool {
        let done = &self.played().done;
        self.calls.iter().zip(done).all(|(call, done)| *done || call.is_read())
    }

    /// Counts the exchanges of the run, and what is wrong with them.
    pub(super) fn enter(&self, tally: &mut Tally) {
        let mut played = self.played();
        for (at, call) in self.calls.iter().enumerate() {
            let method = &call.exchange.request.method;
            // Whoever reads again reads the same.
            let is_same = |other: &Call| {
                call.is_read()
                    && (&other.peer, &other.exchange.request.method) == (&call.peer, method)
                    && other.url() == call.url()
            };
            let mut all = self.calls.iter().zip(&played.done);
            let is_asked = played.done[at] || all.any(|(other, done)| *done && is_same(other));
            if !is_asked && !self.is_meant(&mut played, &call.peer, method, &call.url()) {
                played.faults.push((Some(at), call.names(), "it is asked no more".to_owned()));
            }
        }
        let failed: BTreeSet<usize> = played.faults.iter().filter_map(|it| it.0).collect();
        tally.passed += self.calls.len() - failed.len();
        for (_, place, what) in std::mem::take(&mut played.faults) {
            tally.case(&format!("{} again: {place}", self.run), &[what]);
        }
        for (row, used) in self.rows.iter().zip(&played.used) {
            match used {
                true => tally.notes.push(format!("asked otherwise on purpose: {}", row.reason)),
                false if row.run == *self.run => {
                    tally.notes.push(format!("a row is not needed: {}", row.reason));
                }
                false => {}
            }
        }
    }

    /// Returns true if a row says that this is asked, or not, unlike in the run.
    fn is_meant(&self, played: &mut Played, peer: &str, method: &str, url: &str) -> bool {
        let is_it = |row: &Row| row.differs.is_empty() && row.covers(&self.run, peer, method, url);
        let row = self.rows.iter().position(is_it);
        row.inspect(|at| played.used[*at] = true).is_some()
    }

    fn answer(&self, peer: &str, request: &http::Request<Bytes>) -> Reply {
        let played = &mut *self.played();
        let (method, path) = (request.method().as_str(), request.uri().path());
        let query = request.uri().query().unwrap_or_default();
        let is_it = |(_, call): &(usize, &Call)| {
            let asked = &call.exchange.request;
            (call.peer.as_str(), asked.method.as_str()) == (peer, method)
                && played.memory.ours(&asked.path) == path
                && played.memory.ours(&asked.query) == query
        };
        let found: Vec<usize> =
            self.calls.iter().enumerate().filter(is_it).map(|(at, _)| at).collect();
        let is_due = |at: &usize| !played.done[*at] && !self.calls[*at].is_read();
        let due = (0..self.calls.len()).find(is_due).unwrap_or(self.calls.len());
        let at = match method {
            "GET" => {
                let is_now = |at: &&usize| played.last.is_none_or(|last| **at > last) && **at < due;
                let fresh = found.iter().find(|at| is_now(at) && !played.done[**at]);
                let known = || found.iter().rev().find(|at| **at < due);
                fresh.or_else(known).or_else(|| found.first()).copied()
            }
            _ => found.iter().find(|at| !played.done[**at]).copied(),
        };
        let Some(at) = at else {
            // Behind its last change the recorder saw only the beginning of more.
            let is_behind = played.is_cut && due == self.calls.len();
            let asked = url(path, query);
            if !is_behind && !self.is_meant(played, peer, method, &asked) {
                let what = "the run does not have it, or not so often".to_owned();
                let body = String::from_utf8_lossy(request.body());
                played.faults.push((None, format!("{peer} {method} {asked} {body}"), what));
            }
            return reply(404, NOT_RECORDED.into(), None);
        };
        let call = &self.calls[at];
        if method != "GET" {
            self.compare(played, at, due, request.body());
            played.last = Some(at);
        }
        played.done[at] = true;
        let answer = &call.exchange.response;
        let Some(status) = answer.status else { return Reply::Cut };
        let body = answer.body.as_ref().filter(|body| !body.is_null());
        let body = body.map(|body| played.memory.ours_of(body).to_string()).unwrap_or_default();
        reply(status, body.into(), answer.header("etag"))
    }

    /// Compares a change with the recorded one; `due` is the one that was asked for next.
    fn compare(&self, played: &mut Played, at: usize, due: usize, body: &Bytes) {
        let call = &self.calls[at];
        let mut fault = |what: String| played.faults.push((Some(at), call.names(), what));
        if let Some(due) = self.calls.get(due).filter(|_| at != due) {
            fault(format!("it is asked before {}", due.names()));
        }
        let asked = &call.exchange.request;
        let mut want = asked.body.clone().unwrap_or_default();
        let mut got = serde_json::from_slice(body).unwrap_or_default();
        for (row, used) in self.rows.iter().zip(&mut played.used) {
            if row.covers(&self.run, &call.peer, &asked.method, &call.url()) {
                for member in &row.differs {
                    *used |= without(&mut want, member) != without(&mut got, member);
                }
            }
        }
        // A name that no answer has given is ours to give.
        let before = &self.calls[..at];
        let given = |name: &str| {
            let has = |body: &Value| body.to_string().contains(name);
            before.iter().any(|call| call.exchange.response.body.as_ref().is_some_and(has))
        };
        played.memory.adopt(&want, &got, &given);
        if let Err(what) = played.memory.value("body", "", &want, &got) {
            played.faults.push((Some(at), call.names(), what));
        }
    }
}

/// Takes a member out of a body and returns it.
fn without(body: &mut Value, member: &str) -> Option<Value> {
    match (member.split_once('.'), body) {
        (Some((at, rest)), Value::Array(all)) => {
            without(all.get_mut(at.parse::<usize>().ok()?)?, rest)
        }
        (Some((first, rest)), body) => without(body.get_mut(first)?, rest),
        (None, body) => body.as_object_mut()?.remove(member),
    }
}

fn reply(status: u16, body: Bytes, etag: Option<&str>) -> Reply {
    let mut answer = http::Response::builder().status(status);
    if !body.is_empty() {
        answer = answer.header("content-type", "application/json");
    }
    if let Some(etag) = etag {
        answer = answer.header("etag", etag);
    }
    answer.body(body).map_or(Reply::Cut, Reply::Full)
}

/// One of the services.
struct Peer {
    peer: &'static str,
    player: Player,
}

impl Mock for Peer {
    fn handle(&self, request: http::Request<Bytes>) -> BoxFuture<'_, Reply> {
        Box::pin(async move {
            let is_creation = self.peer == "cnapi"
                && request.method() == http::Method::POST
                && request.uri().path().ends_with("/vms");
            let creates = self.player.played().creates.clone().filter(|_| is_creation);
            if let (Some(creates), Ok(body)) = (creates, serde_json::from_slice(request.body())) {
                creates(body).await;
            }
            self.player.answer(self.peer, &request)
        })
    }
}
