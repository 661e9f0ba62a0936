// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The two transports of an agent: to the vminfod of its node, and to NAPI and VMAPI. The second
//! one checks every write when it takes effect.

mod judge;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use http::Method;
use rand::RngExt;
use sdc_clients::http::{Request, Response, StreamResponse, Transport};
use sdc_clients::{Error, Phase};
use serde_json::Value;
use tokio::time::Instant;
use vminfod::http::Api;

pub use self::judge::{PROVISIONING, age};
use super::Dice;
use super::bugs::Bug;
use super::node::Centre;
use super::truth::Truth;
use mocks::napi::Store;
use mocks::transport::InProcess;
use simnode::Node;

/// The vminfod of one node, when it runs.
#[derive(Clone, Default)]
pub struct NodeWire {
    api: Arc<Mutex<Option<Api>>>,
    /// When the node gave whole views.
    views: Arc<Mutex<Vec<Instant>>>,
    /// The first whole view, for an agent that lives on it.
    remembered: Arc<Mutex<Option<Response>>>,
    bug: Option<Bug>,
}

impl NodeWire {
    /// A wire that nobody answers yet.
    pub fn new(bug: Option<Bug>) -> Self {
        Self { bug, ..Self::default() }
    }

    /// Another vminfod answers from now on, or none.
    pub fn connect(&self, api: Option<Api>) {
        *self.api.lock().unwrap_or_else(PoisonError::into_inner) = api;
    }

    /// Who answers now.
    pub fn api(&self) -> Option<Api> {
        self.api.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// When whole views were read since then.
    fn views_since(&self, since: Instant) -> Vec<Instant> {
        let views = self.views.lock().unwrap_or_else(PoisonError::into_inner);
        views.iter().copied().filter(|at| *at >= since).collect()
    }

    async fn exchange(&self, request: Request) -> Result<StreamResponse, Error> {
        let (method, mut target) = (request.method.clone(), request.target());
        if self.bug == Some(Bug::CountOnSysevents) {
            target = target.replace("sync=true", "sync=");
        }
        let Some(api) = self.api() else {
            return Err(Error::connect(&method, target, "vminfod does not run"));
        };
        let mut forwarded = http::Request::new(String::new());
        *forwarded.method_mut() = request.method;
        *forwarded.uri_mut() = target
            .parse()
            .map_err(|_| Error::broken(&method, target.as_str(), "the target is no URI"))?;
        *forwarded.headers_mut() = request.headers;
        let (parts, body) = api.answer(forwarded).await.into_parts();
        let body = body.into_data_stream();
        let body = body.map(move |piece| {
            piece.map_err(|error| Error::broken(&method, target.as_str(), error.to_string()))
        });
        Ok(StreamResponse { status: parts.status, headers: parts.headers, body: body.boxed() })
    }
}

impl Transport for NodeWire {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, Error>> {
        Box::pin(async move {
            let (method, target, after) =
                (request.method.clone(), request.target(), request.timeout);
            let whole = async {
                let (view, began) = (request.target() == "/vms?sync=true", Instant::now());
                let remembers = view && self.bug == Some(Bug::RememberViews);
                let known = || self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
                if let (true, Some(answer)) = (remembers, known().clone()) {
                    return Ok(answer);
                }
                let StreamResponse { status, headers, mut body } = self.exchange(request).await?;
                let mut bytes = Vec::new();
                while let Some(piece) = body.next().await {
                    bytes.extend_from_slice(&piece?);
                }
                let answer = Response { status, headers, body: Bytes::from(bytes) };
                if view && status.is_success() {
                    self.views.lock().unwrap_or_else(PoisonError::into_inner).push(began);
                }
                if remembers {
                    *known() = Some(answer.clone());
                }
                Ok(answer)
            };
            tokio::time::timeout(after, whole).await.unwrap_or_else(|_| {
                Err(Error::timed_out(Phase::Answer, &method, target.as_str(), after))
            })
        })
    }

    fn stream(&self, request: Request) -> BoxFuture<'_, Result<StreamResponse, Error>> {
        Box::pin(self.exchange(request))
    }
}

/// NAPI and VMAPI as one agent reaches them.
pub struct Outside {
    /// The agent's node.
    pub cn: String,
    node: Node,
    /// NAPI's data.
    pub store: Store,
    napi: InProcess,
    vmapi: InProcess,
    truth: Truth,
    second_look: Duration,
    bug: Option<Bug>,
    vms: mocks::vmapi::Store,
    wire: NodeWire,
    judged: Mutex<Judged>,
}

struct Judged {
    dice: Dice,
    /// When a NIC was first in a list of this agent.
    listed: HashMap<String, Instant>,
    /// When requests went out.
    sent: VecDeque<Instant>,
    /// Writes that took effect.
    writes: u64,
    /// Deletes of the last hour that VMAPI had not confirmed.
    unconfirmed: VecDeque<Instant>,
}

/// In any window of this length an agent sends at most so many requests.
const WINDOW: (Duration, usize) = (Duration::from_secs(10), 5 * 10 + 25);

impl Outside {
    /// The wire of the agent on this node; a leaked NIC is looked at twice, so far apart.
    pub fn new(
        node: &Node,
        centre: &Centre,
        wire: &NodeWire,
        second_look: Duration,
        seed: u64,
    ) -> Self {
        let judged = Judged {
            dice: Dice::new(seed),
            listed: HashMap::new(),
            sent: VecDeque::new(),
            writes: 0,
            unconfirmed: VecDeque::new(),
        };
        Self {
            cn: node.cn_uuid().to_owned(),
            node: node.clone(),
            napi: InProcess::new(centre.napi.clone()),
            vmapi: InProcess::new(centre.vmapi.clone()),
            store: centre.napi.clone(),
            truth: centre.truth.clone(),
            second_look,
            bug: centre.bug,
            vms: centre.vmapi.clone(),
            wire: wire.clone(),
            judged: Mutex::new(judged),
        }
    }

    fn judged(&self) -> std::sync::MutexGuard<'_, Judged> {
        self.judged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes that took effect so far.
    pub fn writes(&self) -> u64 {
        self.judged().writes
    }

    /// The agent starts anew and knows nothing.
    pub fn restart(&self) {
        self.judged().listed.clear();
    }

    async fn to_napi(&self, mut request: Request) -> Result<Response, Error> {
        self.count();
        let (go, back) = {
            let question = format!("{} {}", request.method, request.target());
            let mut rng = self.judged().dice.of(question);
            let mut while_ = || Duration::from_millis(rng.random_range(1..30));
            (while_(), while_())
        };
        tokio::time::sleep(go).await;
        if self.bug == Some(Bug::DropIfMatch) {
            request.headers.remove("if-match");
        }
        let twice = (self.bug == Some(Bug::WriteTwice) && request.method == Method::PUT)
            .then(|| request.clone());
        let mut answer = self.judge(request).await;
        if let (Some(mut again), true) = (twice, answer.is_ok()) {
            again.headers.remove("if-match");
            answer = self.judge(again).await;
        }
        tokio::time::sleep(back).await;
        answer
    }

    fn count(&self) {
        let mut judged = self.judged();
        let now = Instant::now();
        judged.sent.push_back(now);
        while judged.sent.front().is_some_and(|at| now - *at > WINDOW.0) {
            judged.sent.pop_front();
        }
        if judged.sent.len() > WINDOW.1 {
            let count = judged.sent.len();
            judged.sent.clear();
            drop(judged);
            self.truth.fault("I10", format!("{count} requests within {:?}", WINDOW.0));
        }
    }

    async fn judge(&self, request: Request) -> Result<Response, Error> {
        let (method, path) = (request.method.clone(), request.url.path().to_owned());
        let mac = path.strip_prefix("/nics/").map(str::to_owned);
        let guarded = request.headers.contains_key("if-match");
        let before = mac.as_deref().and_then(|mac| self.store.nic(mac));
        let answer = self.napi.send(request).await;
        if let (true, Ok(answer)) = (mac.is_none(), &answer) {
            self.note_list(&answer.body);
        }
        // What took effect shows in the data, whatever the answer says of it.
        let (Some(mac), false) = (mac, method == Method::GET) else { return answer };
        let after = self.store.nic(&mac);
        let Some(before) = before else { return answer };
        match (&method, after) {
            (&Method::DELETE, None) => self.judge_delete(&mac, &before, guarded),
            (&Method::PUT, Some(after)) if answer.as_ref().is_ok_and(|a| a.status.is_success()) => {
                self.judge_update(&mac, &before, &after);
            }
            _ => {}
        }
        answer
    }

    fn note_list(&self, body: &[u8]) {
        let rows: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
        let now = Instant::now();
        let mut judged = self.judged();
        for mac in rows.as_array().into_iter().flatten().filter_map(|row| row["mac"].as_str()) {
            judged.listed.entry(mac.replace(':', "")).or_insert(now);
        }
    }
}

impl Transport for Outside {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, Error>> {
        Box::pin(async move {
            let (method, target, after) =
                (request.method.clone(), request.target(), request.timeout);
            let whole = async {
                match request.url.host_str() {
                    Some("vmapi.sim") => self.vmapi.send(request).await,
                    _ => self.to_napi(request).await,
                }
            };
            tokio::time::timeout(after, whole).await.unwrap_or_else(|_| {
                Err(Error::timed_out(Phase::Answer, &method, target.as_str(), after))
            })
        })
    }
}
