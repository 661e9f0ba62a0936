// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The transport of an agent to NAPI and VMAPI. Every write is judged when it takes effect.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::{Method, StatusCode};
use rand::RngExt;
use sdc_clients::Error;
use sdc_clients::http::{Request, Response, Transport};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::bugs::Bug;
use super::centre::Centre;
use super::cnapi::Cnapi;
use super::dice::Dice;
use super::judge::Judge;
use super::truth::Truth;
use mocks::napi::Store;
use mocks::transport::{InProcess, in_time};

/// NAPI and VMAPI as one agent reaches them.
pub struct Outside {
    store: Store,
    napi: InProcess,
    vmapi: InProcess,
    cnapi: Cnapi,
    truth: Truth,
    bug: Option<Bug>,
    lies: bool,
    judge: Judge,
    pace: Mutex<Pace>,
}

/// How fast requests go.
struct Pace {
    dice: Dice,
    /// When requests went out.
    sent: VecDeque<Instant>,
}

/// In any window of this length an agent sends at most so many requests.
const WINDOW: (Duration, usize) = (Duration::from_secs(10), 5 * 10 + 25);

/// A compute node that is none of this world.
pub const ELSEWHERE: &str = "7f2a2b6e-7a6c-4b3e-8d7a-0f5f1f1f1f1f";
/// A VM that was destroyed here, for an agent that takes capitals for another VM.
pub const ANOTHER: &str = "00000000-0000-4000-8000-00000000dead";

/// A deliberate bug: what VMAPI says of a VM that a node gave away is not heard.
pub(super) fn moved(mut answer: Response, bug: Option<Bug>, truth: &Truth) -> Response {
    let is_given = |vm: &Value| vm["uuid"].as_str().is_some_and(|uuid| truth.is_given(uuid));
    if bug == Some(Bug::CountWhoMoved)
        && serde_json::from_slice(&answer.body).is_ok_and(|vm: Value| is_given(&vm))
    {
        let body = json!({"code": "ResourceNotFound", "message": "no VM"});
        (answer.status, answer.body) = (StatusCode::NOT_FOUND, body.to_string().into());
    }
    answer
}

/// The records with some owners in capitals, or replaced by another one.
fn capitals(text: &str, is_another: bool) -> String {
    let mut parts = text.split("\"belongs_to_uuid\":\"");
    let mut changed = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        changed.push_str("\"belongs_to_uuid\":\"");
        match part.split_at_checked(36) {
            Some((owner, rest)) if owner.starts_with(['0', '4', '8', 'c', 'e']) => {
                let capitals = owner.to_uppercase();
                changed.push_str(if is_another { ANOTHER } else { &capitals });
                changed.push_str(rest);
            }
            _ => changed.push_str(part),
        }
    }
    changed
}

impl Outside {
    /// The wire of the agent on this node, whose writes are judged.
    pub fn new(centre: &Centre, judge: Judge, seed: u64) -> Self {
        Self {
            store: centre.napi.clone(),
            napi: InProcess::new(centre.napi.clone()),
            vmapi: InProcess::new(centre.vmapi.clone()),
            cnapi: Cnapi::new(centre),
            truth: centre.truth.clone(),
            bug: centre.bug,
            lies: centre.lies,
            judge,
            pace: Mutex::new(Pace { dice: Dice::new(seed), sent: VecDeque::new() }),
        }
    }

    /// Who judges its writes.
    pub fn judge(&self) -> &Judge {
        &self.judge
    }

    fn pace(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn to_napi(&self, mut request: Request) -> Result<Response, Error> {
        self.count();
        let (go, back) = {
            let question = format!("{} {}", request.method, request.target());
            let mut rng = self.pace().dice.of(question);
            let mut while_ = || Duration::from_millis(rng.random_range(1..30));
            (while_(), while_())
        };
        tokio::time::sleep(go).await;
        if self.bug == Some(Bug::DropIfMatch) {
            request.headers.remove("if-match");
        }
        let twice = (self.bug == Some(Bug::WriteTwice) && request.method == Method::PUT)
            .then(|| request.clone());
        let mut answer = self.judged(request).await;
        if let (Some(mut again), true) = (twice, answer.is_ok()) {
            again.headers.remove("if-match");
            answer = self.judged(again).await;
        }
        tokio::time::sleep(back).await;
        answer
    }

    fn count(&self) {
        let mut pace = self.pace();
        let now = Instant::now();
        pace.sent.push_back(now);
        while pace.sent.front().is_some_and(|at| now - *at > WINDOW.0) {
            pace.sent.pop_front();
        }
        if pace.sent.len() > WINDOW.1 {
            let count = pace.sent.len();
            pace.sent.clear();
            drop(pace);
            self.truth.fault("I10", format!("{count} requests within {:?}", WINDOW.0));
        }
    }

    async fn judged(&self, request: Request) -> Result<Response, Error> {
        let (method, path) = (request.method.clone(), request.url.path().to_owned());
        let mac = path.strip_prefix("/nics/").map(str::to_owned);
        let guarded = request.headers.contains_key("if-match");
        let before = mac.as_deref().and_then(|mac| self.store.nic(mac));
        let answer = self.napi.send(request).await;
        if let (true, Ok(answer)) = (mac.is_none(), &answer) {
            self.judge.note_list(&answer.body);
        }
        // What took effect shows in the data, whatever the answer says of it.
        let (Some(mac), false) = (mac, method == Method::GET) else { return answer };
        let after = self.store.nic(&mac);
        let Some(before) = before else { return answer };
        match (&method, after) {
            (&Method::DELETE, None) => self.judge.delete(&mac, &before, guarded),
            (&Method::PUT, Some(after)) if answer.as_ref().is_ok_and(|a| a.status.is_success()) => {
                self.judge.update(&mac, &before, &after);
            }
            _ => {}
        }
        answer
    }
}

impl Transport for Outside {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, Error>> {
        Box::pin(in_time(request, async |request| {
            let mut answer = match request.url.host_str() {
                Some("vmapi.sim") => {
                    self.vmapi.send(request).await.map(|it| moved(it, self.bug, &self.truth))?
                }
                Some("cnapi.sim") => self.cnapi.send(request).await?,
                _ => self.to_napi(request).await?,
            };
            let text = String::from_utf8_lossy(&answer.body);
            match self.bug {
                Some(Bug::TrustAnyServer) => {
                    answer.body = text.replace(ELSEWHERE, self.judge.cn()).into()
                }
                bug if self.lies => {
                    let is_another = bug == Some(Bug::TakeCapitalsForAnother);
                    answer.body = capitals(&text, is_another).into();
                }
                _ => {}
            }
            Ok(answer)
        }))
    }
}
