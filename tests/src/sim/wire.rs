// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The two wires of an agent: to the vminfod of its node, and to NAPI and VMAPI. The second one
//! judges every write that took effect, at the moment at which it did.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use http::Method;
use http_body_util::BodyExt;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sdc_clients::http::{Request, Response, StreamResponse, Transport};
use sdc_clients::{Error, Phase};
use serde_json::Value;
use tokio::time::Instant;
use vminfod::http::Api;

use super::bugs::Bug;
use super::truth::{Life, Truth};
use crate::napi::{InProcess, Store};
use crate::node::Node;

/// The vminfod of one node, when it runs.
#[derive(Clone, Default)]
pub struct NodeWire {
    api: Arc<Mutex<Option<Api>>>,
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

    async fn exchange(&self, request: Request) -> Result<StreamResponse, Error> {
        let (method, mut target) = (request.method.clone(), request.target());
        if self.bug == Some(Bug::CountOnSysevents) {
            target = target.replace("sync=true", "sync=");
        }
        let Some(api) = self.api() else {
            return Err(Error::connect(&method, target, "vminfod does not run"));
        };
        let mut forwarded = http::Request::new(());
        *forwarded.method_mut() = request.method;
        *forwarded.uri_mut() = target
            .parse()
            .map_err(|_| Error::broken(&method, target.as_str(), "the target is no URI"))?;
        *forwarded.headers_mut() = request.headers;
        let (parts, body) = api.answer(forwarded).await.into_parts();
        let body = body.into_data_stream().map(|piece| match piece {
            Ok(bytes) => Ok(bytes),
            Err(never) => match never {},
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
                let StreamResponse { status, headers, mut body } = self.exchange(request).await?;
                let mut bytes = Vec::new();
                while let Some(piece) = body.next().await {
                    bytes.extend_from_slice(&piece?);
                }
                Ok(Response { status, headers, body: Bytes::from(bytes) })
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
    judged: Mutex<Judged>,
}

struct Judged {
    rng: StdRng,
    /// When a NIC was first in a list of this agent.
    listed: HashMap<String, Instant>,
    /// When requests went out.
    sent: VecDeque<Instant>,
    /// Writes that took effect.
    writes: u64,
}

/// In any window of this length an agent sends at most so many requests.
const WINDOW: (Duration, usize) = (Duration::from_secs(10), 5 * 10 + 25);
/// A record that is still being provisioned may go after this, when VMAPI gave its VM up.
pub const PROVISIONING: Duration = Duration::from_secs(7200);
/// An update may be under way this long after its VM has gone: while vminfod has not noticed.
const UNDER_WAY: Duration = Duration::from_secs(400);

impl Outside {
    /// The wire of the agent on this node; a leaked NIC is looked at twice, so far apart.
    pub fn new(
        node: &Node,
        store: &Store,
        vmapi: &crate::vmapi::Store,
        truth: &Truth,
        second_look: Duration,
        (seed, bug): (u64, Option<Bug>),
    ) -> Self {
        let judged = Judged {
            rng: StdRng::seed_from_u64(seed),
            listed: HashMap::new(),
            sent: VecDeque::new(),
            writes: 0,
        };
        Self {
            cn: node.cn_uuid().to_owned(),
            node: node.clone(),
            napi: InProcess::new(store.clone()),
            vmapi: InProcess::new(vmapi.clone()),
            store: store.clone(),
            truth: truth.clone(),
            second_look,
            bug,
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
            let rng = &mut self.judged().rng;
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

    fn judge_delete(&self, mac: &str, nic: &Value, guarded: bool) {
        self.judged().writes += 1;
        let vm = nic["belongs_to_uuid"].as_str().unwrap_or_default();
        let life = self.truth.life(vm);
        self.truth.note(format!("DELETE {mac} of {vm} ({life:?})"));
        let broken =
            |name: &str, what: &str| self.truth.fault(name, format!("{what}: {mac} of {vm}"));
        if !guarded {
            broken("I3", "DELETE without If-Match");
        }
        match &life {
            // A NIC that was taken from a VM may go, guarded as any other; one that is in use never.
            Some(Life::On(cn)) if *cn == self.cn && !self.uses(vm, mac) => {}
            Some(Life::On(cn)) if *cn == self.cn => broken("I1", "DELETE for a VM of this node"),
            Some(Life::On(_)) => broken("I12", "DELETE for a VM of another node"),
            Some(Life::Planned) => broken("I12", "DELETE for a VM that is being provisioned"),
            Some(Life::Gone(..)) | None => {}
        }
        if nic["belongs_to_type"] != "zone" || nic["cn_uuid"].as_str() != Some(self.cn.as_str()) {
            broken("I2", "DELETE of a NIC that is not this node's");
        }
        let is_final = matches!(nic["state"].as_str(), Some("running" | "stopped"));
        if !is_final && age(&self.store, nic) < PROVISIONING {
            broken("I7", "DELETE in a state that is not final");
        }
        // A VM that this node never had was found in lists alone.
        let listed = self.judged().listed.get(&mac.replace(':', "")).copied();
        if life.is_none() && listed.is_none_or(|at| at.elapsed() < self.second_look) {
            broken("I5", "DELETE at first sight");
        }
    }

    /// Does the VM's configuration have this NIC?
    fn uses(&self, vm: &str, mac: &str) -> bool {
        let bare = |mac: &str| mac.replace(':', "").to_lowercase();
        let Ok(xml) = self.node.zone_config(vm) else { return true };
        xml.all("network").filter_map(|nic| nic.get("mac-addr")).any(|one| bare(one) == bare(mac))
    }

    fn judge_update(&self, mac: &str, before: &Value, after: &Value) {
        self.judged().writes += 1;
        let vm = before["belongs_to_uuid"].as_str().unwrap_or_default();
        let life = self.truth.life(vm);
        let plain = |nic: &Value| {
            let mut nic = nic.clone();
            if let Some(fields) = nic.as_object_mut() {
                fields.retain(|key, _| key != "modified_timestamp" && key != "etag");
            }
            nic
        };
        self.truth.note(format!("PUT {mac} of {vm}: {}", differing(before, after)));
        let broken =
            |name: &str, what: &str| self.truth.fault(name, format!("{what}: {mac} of {vm}"));
        if plain(before) == plain(after) {
            broken("I9", "PUT that changes nothing");
        }
        if before["cn_uuid"].as_str().is_some_and(|cn| cn != self.cn) {
            broken("I2", "PUT to a NIC of another node");
        }
        let server = before["belongs_to_type"] == "server" && vm == self.cn;
        let ours = match life {
            Some(Life::On(cn)) => cn == self.cn,
            Some(Life::Gone(at, cn)) => cn == self.cn && at.elapsed() < UNDER_WAY,
            Some(Life::Planned) | None => false,
        };
        if !server && !ours {
            broken("I2", "PUT for a VM that is not on this node");
        }
        if let (true, false, Ok(zone)) = (self.truth.is_quiet(), server, self.node.zone(vm)) {
            let lives = if zone.state.is_active() { "running" } else { "stopped" };
            if after["state"] != lives || after["cn_uuid"] != self.cn.as_str() {
                broken("I11", "the record is not what the node says, though nothing changes");
            }
        }
    }
}

/// How long ago a record was written, by NAPI's clock.
pub fn age(napi: &Store, nic: &Value) -> Duration {
    let at = nic["modified_timestamp"].as_str().and_then(|at| at.parse().ok());
    let at = at.map_or(i64::MAX, |at: jiff::Timestamp| at.as_millisecond());
    Duration::from_millis(u64::try_from(napi.now_ms().saturating_sub(at)).unwrap_or(0))
}

/// What an update changed, for whoever replays the seed.
fn differing(before: &Value, after: &Value) -> String {
    let fields = after.as_object().into_iter().flatten();
    let news = fields.filter(|(key, value)| before[key.as_str()] != **value);
    let news = news.filter(|(key, _)| !matches!(key.as_str(), "modified_timestamp" | "etag"));
    news.map(|(key, value)| format!("{key} {} → {value}", before[key.as_str()]))
        .collect::<Vec<_>>()
        .join(", ")
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
