// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What is between the parties: requests and the store. Everything passes a point, where it
//! can be lost, be late, or be the last thing that somebody did.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use http::Method;
use migration_core::intent::End;
use migration_core::time::Time;
use migration_service::clock::Clock;
use mocks::transport::InProcess;
use sdc_clients::http::{Request, Response, StreamResponse, Transport};
use sdc_clients::identity::Identity;
use sdc_clients::{Error, Phase};
use simnode::Node;
use store::{Call, Fault as StoreFault, Faults};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use vminfod::http::Api;

use super::bugs::Bug;
use super::names::{Calls, identity_of, uuid};
use super::points::{Fate, Life, Party, Points, STORE};
use super::vault::Vault;
use crate::moving::judge::Judge;
use crate::moving::subject::VM;

/// What is late is done so much later.
const LATE: Duration = Duration::from_secs(90);

/// Who answers under a name.
#[derive(Clone)]
enum Host {
    Mock(InProcess),
    Routes(Router, Life),
    Vminfod(Api, Life),
}

pub struct Net {
    /// The points of the run.
    pub points: Points,
    /// Who looks at the world at each of them.
    pub judge: Arc<Judge>,
    hosts: Mutex<BTreeMap<String, Host>>,
    /// Who takes connections for data, by name.
    pub ports: Mutex<BTreeMap<String, mpsc::Sender<Calls>>>,
    /// The time of day of all that compare it with others'.
    pub clock: Clock,
    /// A deliberate bug.
    pub bug: Option<Bug>,
    /// For a bug: the first stream that went over the network.
    pub recorded: Arc<Mutex<Option<Vec<u8>>>>,
    /// The target's node, for a bug that boots it early.
    early: Mutex<Option<Node>>,
    /// The highest revision that agents were told.
    newest: AtomicU64,
    /// For a bug: what is late until the source shows itself again.
    kept: Mutex<Vec<Request>>,
    /// For a bug: the VM as the source's agent saw it last.
    seen: Mutex<Option<Response>>,
}

impl Net {
    /// A network without hosts.
    pub fn new(points: &Points, judge: &Arc<Judge>, bug: Option<Bug>) -> Arc<Net> {
        Net::at(points, judge, bug, Clock::System.now())
    }

    /// The same at this time of day.
    pub fn at(points: &Points, judge: &Arc<Judge>, bug: Option<Bug>, now: Time) -> Arc<Net> {
        let (hosts, ports, early, newest, kept, recorded, seen) = Default::default();
        let (points, judge) = (points.clone(), Arc::clone(judge));
        let clock = Clock::simulated(now);
        Arc::new(Net {
            points,
            judge,
            hosts,
            ports,
            clock,
            bug,
            early,
            newest,
            kept,
            recorded,
            seen,
        })
    }

    fn hosts(&self) -> MutexGuard<'_, BTreeMap<String, Host>> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept(&self) -> MutexGuard<'_, Vec<Request>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does later what was asked.
    fn keep(self: &Arc<Self>, request: Request, from: Option<Identity>) {
        if self.bug == Some(Bug::OldOrderObeyed) {
            self.kept().push(request);
            return;
        }
        let net = Arc::clone(self);
        tokio::spawn(async move {
            sleep(LATE).await;
            drop(net.exchange(request, from).await);
            net.judge.check("late");
        });
    }

    /// The node that a bug boots early.
    pub fn early(&self, node: &Node) {
        *self.early.lock().unwrap_or_else(PoisonError::into_inner) = Some(node.clone());
    }

    /// What deliberate bugs do with a request.
    fn misbehave(&self, request: &Request) {
        let host = request.url.host_str().unwrap_or_default();
        if self.bug == Some(Bug::BootedBeforeMove)
            && host == "vmapi.sim"
            && request.method == Method::PUT
        {
            let node = self.early.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if let Some(node) = node {
                drop(node.zone_boot(VM));
            }
        }
    }

    /// For a bug: a VM that is gone is shown as it was seen last.
    fn as_it_was(&self, target: &str, answer: Response) -> Response {
        if !target.starts_with(&format!("/vms/{VM}")) {
            return answer;
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if answer.status == http::StatusCode::NOT_FOUND {
            return seen.clone().unwrap_or(answer);
        }
        *seen = Some(answer.clone());
        answer
    }

    /// An order that was late, and is obeyed as if it were new.
    async fn obeyed(self: &Arc<Self>, request: &Request) {
        let mut body = order_of(request);
        let host = request.url.host_str().unwrap_or_default();
        if body["order"].is_null() {
            return;
        }
        // The agent obeys it and has heard no later one: those that follow are obeyed as before.
        body["revision"] = serde_json::json!(self.newest.load(Ordering::SeqCst));
        body["nonce"] = serde_json::Value::Null;
        let Some(cn) = super::names::uuid_of(host) else { return };
        let line: Arc<dyn Transport> = Line::new(self, None);
        let url = format!("https://{host}");
        if let Ok(http) = sdc_clients::Http::with_transport(&url, "late", line) {
            let http = http.to_peer(Identity::Agent(cn));
            let call = sdc_clients::http::Call::new(Method::POST, &["orders"]).json(&body);
            drop(http.without_retries().execute(call).await);
        }
    }

    /// Returns true for what the network loses: all that a node which is cut off asks, and all that it is asked. With a
    /// deliberate bug also what looks after a node that was cut off.
    fn is_lost(&self, party: Party, host: &str, target: &str) -> bool {
        let to = [End::Source, End::Target].into_iter().find(|end| host == format!("agent-{end}"));
        if self.points.is_cut(party.end(), to) {
            return true;
        }
        let is_watch =
            target.contains("/replaced") || (to == Some(End::Source) && party.end().is_none());
        self.bug == Some(Bug::NobodyWatches) && is_watch && self.points.is_mended(End::Source)
    }

    /// A mock answers under this name.
    pub fn mock(&self, name: &str, mock: InProcess) {
        self.hosts().insert(name.to_owned(), Host::Mock(mock));
    }

    /// A life of a program answers under this name.
    pub fn serve(&self, name: &str, routes: Router, life: &Life) {
        self.hosts().insert(name.to_owned(), Host::Routes(routes, life.clone()));
    }

    /// Nobody answers any more. Those who answered know this network, too: nothing would be given back otherwise.
    pub fn close(&self) {
        self.hosts().clear();
        self.ports.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// A life of a vminfod answers under this name.
    pub fn show(&self, name: &str, api: Api, life: &Life) {
        self.hosts().insert(name.to_owned(), Host::Vminfod(api, life.clone()));
    }

    /// Carries a request of somebody who has proved to be this program. A host that has to prove who it is does so.
    async fn deliver(
        &self,
        request: Request,
        from: Option<Identity>,
    ) -> Result<StreamResponse, Error> {
        let (method, target) = (request.method.clone(), request.target());
        let name = request.url.host_str().unwrap_or_default().to_owned();
        let refused =
            || Error::connect(&method, target.as_str(), format!("{name} does not listen"));
        if request.peer.is_some() && request.peer != identity_of(&name) {
            return Err(refused());
        }
        let host = self.hosts().get(&name).cloned();
        let (routes, life) = match host.ok_or_else(refused)? {
            Host::Mock(mock) => {
                let Response { status, headers, body } = mock.send(request).await?;
                let body = futures_util::stream::iter([Ok(body)]).boxed();
                return Ok(StreamResponse { status, headers, body });
            }
            Host::Routes(routes, life) => (Ok(routes), life),
            Host::Vminfod(api, life) => (Err(api), life),
        };
        if !life.lives() {
            return Err(refused());
        }
        let answered = async {
            life.pass().await;
            let answer = match routes {
                Ok(routes) => {
                    let mut request = forwarded(request, Body::from)?;
                    request.extensions_mut().insert(from);
                    daemon::http::call(routes, request).await
                }
                Err(api) => {
                    let text = |body: Bytes| String::from_utf8_lossy(&body).into_owned();
                    api.answer(forwarded(request, text)?).await
                }
            };
            life.pass().await;
            Ok(answer)
        };
        let broken = || Error::broken(&method, target.as_str(), "the connection closed");
        let answer = tokio::select! {
            biased;
            () = life.death() => return Err(broken()),
            answer = answered => answer?,
        };
        let (parts, body) = answer.into_parts();
        let over = life.clone();
        let target = target.clone();
        let body = body.into_data_stream().take_until(async move { over.death().await });
        let body = body.map(move |piece| {
            piece.map_err(|error| Error::broken(&method, target.as_str(), error.to_string()))
        });
        Ok(StreamResponse { status: parts.status, headers: parts.headers, body: body.boxed() })
    }

    async fn exchange(&self, request: Request, from: Option<Identity>) -> Result<Response, Error> {
        let (method, target, after) = (request.method.clone(), request.target(), request.timeout);
        let whole = async {
            let StreamResponse { status, headers, mut body } = self.deliver(request, from).await?;
            let mut bytes = Vec::new();
            while let Some(piece) = body.next().await {
                bytes.extend_from_slice(&piece?);
            }
            Ok(Response { status, headers, body: Bytes::from(bytes) })
        };
        let late = || Error::timed_out(Phase::Answer, &method, target.as_str(), after);
        timeout(after, whole).await.unwrap_or_else(|_| Err(late()))
    }
}

fn forwarded<B>(
    request: Request,
    body: impl FnOnce(Bytes) -> B,
) -> Result<http::Request<B>, Error> {
    let (method, target) = (request.method.clone(), request.target());
    let mut forwarded = http::Request::new(body(request.body.unwrap_or_default()));
    let uri = target.parse();
    *forwarded.uri_mut() =
        uri.map_err(|_| Error::broken(&method, target.as_str(), "the target is no URI"))?;
    *forwarded.method_mut() = request.method;
    *forwarded.headers_mut() = request.headers;
    Ok(forwarded)
}

/// The requests of one life of a party.
#[derive(Clone)]
pub struct Line {
    net: Arc<Net>,
    /// Nobody: the operator, whose requests are no points, and what a bug does in the service's name.
    life: Option<Life>,
}

impl Line {
    /// The requests of this life.
    pub fn new(net: &Arc<Net>, life: Option<&Life>) -> Arc<Line> {
        Arc::new(Line { net: Arc::clone(net), life: life.cloned() })
    }

    /// Who it is, for those who ask for a proof.
    fn identity(&self) -> Option<Identity> {
        match self.life.as_ref().map(|life| life.party) {
            Some(Party::Agent(end)) => Some(Identity::Agent(uuid(end))),
            Some(Party::Service(_)) | None => Some(Identity::Service),
            Some(_) => None,
        }
    }
}

impl Line {
    /// A change of a record that is answered as done, and that somebody else takes back at once: what it changes is as
    /// it was.
    async fn hollow(&self, request: Request, from: Option<Identity>) -> Result<Response, Error> {
        let mut before = request.clone();
        (before.method, before.body) = (Method::GET, None);
        let before = self.net.exchange(before, from).await?;
        let mut back = request.clone();
        let was: serde_json::Value = serde_json::from_slice(&before.body).unwrap_or_default();
        let changed = order_of(&request);
        let changed = changed.as_object().into_iter().flatten();
        let was = changed.map(|(key, _)| (key.clone(), was[key].clone()));
        back.body = Some(serde_json::Value::Object(was.collect()).to_string().into());
        back.headers.remove(http::header::IF_MATCH);
        let answer = self.net.exchange(request, from).await?;
        self.net.exchange(back, from).await?;
        Ok(answer)
    }
}

impl Transport for Line {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, Error>> {
        Box::pin(async move {
            let from = self.identity();
            let Some(life) = &self.life else { return self.net.exchange(request, from).await };
            let host = request.url.host_str().unwrap_or_default().to_owned();
            let (method, target, after) =
                (request.method.clone(), request.target(), request.timeout);
            // What is read of the node itself is no point: it changes nothing, and is read again.
            if host.starts_with("vminfod")
                || matches!(life.party, Party::NetAgent(_) | Party::VmAgent(_))
            {
                life.pass().await;
                if !host.starts_with("vminfod") && self.net.points.is_cut(life.party.end(), None) {
                    sleep(after).await;
                    return Err(late(&method, &target, after));
                }
                let mut answer = self.net.exchange(request, from).await;
                life.pass().await;
                if self.net.bug == Some(Bug::NoFence) && life.party == Party::Agent(End::Source) {
                    answer = answer.map(off);
                }
                if self.net.bug == Some(Bug::GoneIsThere) && life.party == Party::Agent(End::Source)
                {
                    answer = answer.map(|answer| self.net.as_it_was(&target, answer));
                }
                return answer;
            }
            let label = format!("{method} {host}{target}{}", order(&request));
            let (at, fate) = life.begin(|| label.clone()).await;
            self.net.judge.check(&label);
            let late = || late(&method, &target, after);
            if fate == Fate::Fails {
                life.end(at).await;
                return Ok(refusal());
            }
            if fate == Fate::Hollow {
                let answer = self.hollow(request, from).await;
                life.end(at).await;
                return answer;
            }
            if fate != Fate::Goes {
                if fate == Fate::Late {
                    self.net.keep(request.clone(), from);
                }
                sleep(after).await;
                life.pass().await;
                return Err(late());
            }
            if self.net.is_lost(life.party, &host, &target) {
                sleep(after).await;
                life.end(at).await;
                return Err(late());
            }
            self.net.misbehave(&request);
            let request = match self.net.bug {
                Some(Bug::InsteadForgotten) => without_instead(request),
                _ => request,
            };
            let revision = order_of(&request)["revision"].as_u64();
            let answer = self.net.exchange(request, from).await;
            if let (Some(revision), Party::Service(nth)) = (revision, life.party)
                && answer.as_ref().is_ok_and(|answer| answer.status.is_success())
            {
                self.net.newest.fetch_max(revision, Ordering::SeqCst);
                self.net.judge.acts(nth);
            }
            self.net.judge.check(&label);
            if host == "agent-source" && label.ends_with(" show") {
                let kept = std::mem::take(&mut *self.net.kept());
                for request in kept {
                    self.net.obeyed(&request).await;
                    self.net.judge.check("an old order");
                }
            }
            let answer = match target.as_str() {
                "/node" => answer.map(|answer| timed(answer, self.net.clock)),
                _ => answer,
            };
            let answer = match self.net.bug {
                Some(Bug::HeartbeatIgnored) if host == "cnapi.sim" => answer.map(old_heartbeat),
                Some(Bug::EmptyStoreAnswers) => answer.map(|answer| all_known(answer, &target)),
                Some(Bug::ErrorIsDeath) => error_is_death(answer, &host, &method, &target),
                _ => answer,
            };
            match life.end(at).await {
                Fate::Goes => answer,
                _ => Err(Error::broken(&method, target.as_str(), "the connection closed")),
            }
        })
    }

    fn stream(&self, request: Request) -> BoxFuture<'_, Result<StreamResponse, Error>> {
        Box::pin(async move {
            if let Some(life) = &self.life {
                life.pass().await;
            }
            self.net.deliver(request, self.identity()).await
        })
    }
}

/// The answer of a vminfod that shows its VM as stopped and hidden.
fn off(mut answer: Response) -> Response {
    let Ok(serde_json::Value::Object(mut vm)) = serde_json::from_slice(&answer.body) else {
        return answer;
    };
    if vm.contains_key("zone_state") {
        for (key, value) in [
            ("state", serde_json::json!("stopped")),
            ("zone_state", serde_json::json!("installed")),
            ("do_not_inventory", serde_json::json!(true)),
            ("autoboot", serde_json::json!(false)),
        ] {
            vm.insert(key.to_owned(), value);
        }
        answer.body = serde_json::Value::Object(vm).to_string().into();
    }
    answer
}

/// A node's time of day is the simulated one, too.
fn timed(mut answer: Response, clock: Clock) -> Response {
    if let Ok(mut node) = serde_json::from_slice::<serde_json::Value>(&answer.body)
        && node.get("now_ms").is_some()
    {
        node["now_ms"] = serde_json::json!(clock.now().millis());
        answer.body = node.to_string().into();
    }
    answer
}

/// For a bug: the service knows whatever the agent has open, and nothing was replaced.
fn all_known(mut answer: Response, target: &str) -> Response {
    let Some((_, open)) = target.split_once("/replaced?open=") else { return answer };
    if let Ok(mut said) = serde_json::from_slice::<serde_json::Value>(&answer.body)
        && answer.status.is_success()
    {
        let ids = open.split("%2C").filter_map(|it| it.split('.').next());
        said["known"] = ids.collect();
        said["replaced"] = serde_json::json!([]);
        answer.body = said.to_string().into();
    }
    answer
}

/// For a bug: whatever CNAPI heard of the source last, it was long ago.
fn old_heartbeat(mut answer: Response) -> Response {
    if let Ok(mut server) = serde_json::from_slice::<serde_json::Value>(&answer.body)
        && server["uuid"] == uuid(End::Source).to_string()
        && server.get("last_heartbeat").is_some()
    {
        server["last_heartbeat"] = serde_json::json!("2020-01-01T00:00:00.000Z");
        answer.body = server.to_string().into();
    }
    answer
}

/// The answer of a program that cannot do what it is asked.
fn refusal() -> Response {
    let body = serde_json::json!({"code": "InternalError", "message": "it cannot be done"});
    let status = http::StatusCode::INTERNAL_SERVER_ERROR;
    Response { status, headers: http::HeaderMap::new(), body: Bytes::from(body.to_string()) }
}

fn late(method: &Method, target: &str, after: Duration) -> Error {
    Error::timed_out(Phase::Answer, method, target, after)
}

/// For a bug: an agent that answers with an error is taken for one that does not answer.
fn error_is_death(
    answer: Result<Response, Error>,
    host: &str,
    method: &Method,
    target: &str,
) -> Result<Response, Error> {
    let is_unwell = |answer: &Response| answer.status.is_server_error() || target.contains("/ping");
    match answer {
        Ok(answer) if host == "agent-source" && is_unwell(&answer) => {
            Err(Error::connect(method, target, "it does not answer"))
        }
        answer => answer,
    }
}

/// What a request carries.
fn order_of(request: &Request) -> serde_json::Value {
    let body = request.body.clone().unwrap_or_default();
    serde_json::from_slice(&body).unwrap_or_default()
}

/// For a bug: an order that does not say whose copy is not to be used again.
fn without_instead(mut request: Request) -> Request {
    let mut body = order_of(&request);
    if let Some(order) = body.as_object_mut()
        && order.remove("instead").is_some()
    {
        request.body = Some(Bytes::from(body.to_string()));
    }
    request
}

/// The name of the order that a request carries, for people.
fn order(request: &Request) -> String {
    let body = order_of(request);
    body["order"]["name"].as_str().map(|name| format!(" {name}")).unwrap_or_default()
}

/// The store as one life of a service reaches it.
pub struct Gated {
    life: Life,
    judge: Arc<Judge>,
    vault: Vault,
    fate: Mutex<Vec<Fate>>,
}

impl std::fmt::Debug for Gated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Gated")
    }
}

impl Gated {
    /// The store of this life.
    pub fn new(life: &Life, judge: &Arc<Judge>, vault: &Vault) -> Arc<Gated> {
        let (life, judge, vault) = (life.clone(), Arc::clone(judge), vault.clone());
        Arc::new(Gated { life, judge, vault, fate: Mutex::default() })
    }
}

impl Faults for Gated {
    fn next(&self, call: Call) -> StoreFault {
        if call != Call::Commit {
            return StoreFault::None;
        }
        let fate = self.fate.lock().unwrap_or_else(PoisonError::into_inner).pop();
        match fate {
            None | Some(Fate::Goes) => StoreFault::None,
            Some(Fate::Lost | Fate::Fails | Fate::Hollow) => StoreFault::Before,
            Some(Fate::Late) => StoreFault::After,
        }
    }

    fn held(&self, call: Call, is_done: bool) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if call != Call::Commit {
                return self.life.pass().await;
            }
            if is_done {
                self.vault.written();
                let at = self.life.count().saturating_sub(1);
                self.life.end(at).await;
                return;
            }
            let (_, fate) = self.life.begin(|| STORE.to_owned()).await;
            self.judge.check(STORE);
            self.fate.lock().unwrap_or_else(PoisonError::into_inner).push(fate);
        })
    }
}
