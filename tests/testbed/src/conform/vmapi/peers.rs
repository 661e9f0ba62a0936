// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The services that VMAPI asks, which answer what they answered when the exchange was recorded.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context;
use futures_util::future::BoxFuture;
use http::StatusCode;
use migration_core::protocol;
use sdc_clients::Error;
use sdc_clients::http::{HttpTransport, Request, Response, StreamResponse, Transport};
use sdc_clients::identity::Identity;
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

/// The name of the recording beside that of the exchanges.
pub(super) const FILE: &str = "vmapi-peer-calls.jsonl";
/// The host names by which the service knows them: PEER.sim.
const DOMAIN: &str = ".sim";

/// A call that was recorded.
#[derive(Clone, Debug, Deserialize)]
struct Call {
    peer: String,
    method: String,
    url: String,
    #[serde(default)]
    body: Value,
    #[serde(default)]
    status: Option<u16>,
    #[serde(default)]
    response: Value,
}

#[derive(Deserialize)]
struct Line {
    id: Option<String>,
    calls: Vec<Call>,
}

/// The calls of each exchange.
pub(super) type Calls = HashMap<String, Vec<Recorded>>;

/// A call that was recorded.
#[derive(Clone, Debug)]
pub(super) struct Recorded(Call);

/// Reads the recording in the directory of the exchanges.
pub(super) fn read(transcript: &Path) -> anyhow::Result<Calls> {
    let path = transcript.with_file_name(FILE);
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let mut calls = Calls::new();
    for line in text.lines() {
        let line: Line = serde_json::from_str(line)?;
        // Jobs are this service's own operations, and what jobs order through CNAPI its agents do.
        let is_step = |call: &Call| {
            call.peer == "cnapi" && (call.method != "GET" || call.url.starts_with("/tasks"))
        };
        let ours = line.calls.into_iter().filter(|call| call.peer != "wfapi" && !is_step(call));
        let ours = ours.map(Recorded);
        calls.extend(line.id.map(|id| (id, ours.collect())));
    }
    Ok(calls)
}

/// Returns the answers that were recorded at any time: for a call that this exchange had not.
fn usual(calls: &Calls) -> HashMap<String, Call> {
    let with = |status| calls.values().flatten().filter(move |it| it.0.status == Some(status));
    // Where both were recorded, what is there counts.
    let all = with(404).chain(with(200));
    all.map(|Recorded(call)| (named(&call.peer, &call.method, &call.url), call.clone())).collect()
}

/// CNAPI's waits for tasks are in seconds; the recorded service means milliseconds.
fn alike(recorded: &str, ours: &str) -> bool {
    let of_task = |url: &str| url.split_once("/wait?timeout=").map(|(task, _)| task.to_owned());
    recorded == ours || (of_task(recorded).is_some() && of_task(recorded) == of_task(ours))
}

/// A call without its query.
fn named(peer: &str, method: &str, url: &str) -> String {
    format!("{peer} {method} {}", url.split('?').next().unwrap_or_default())
}

/// Carries requests to the mock VMAPI, and answers those to the other services itself.
pub(super) struct Peers {
    vmapi: HttpTransport,
    /// Where VMAPI is.
    base: reqwest::Url,
    usual: HashMap<String, Call>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What has been recorded of the exchange, and not been asked yet.
    recorded: Vec<Recorded>,
    /// What was asked otherwise.
    faults: Vec<String>,
}

impl Peers {
    pub(super) fn new(calls: &Calls, base: reqwest::Url) -> Result<Arc<Peers>, Error> {
        let (usual, state) = (usual(calls), Mutex::default());
        Ok(Arc::new(Peers { vmapi: HttpTransport::new()?, base, usual, state }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An exchange begins, during which these calls were recorded.
    pub(super) fn begin(&self, recorded: Vec<Recorded>) {
        *self.state() = State { recorded, faults: Vec::new() };
    }

    /// Returns what was asked otherwise than recorded.
    pub(super) fn faults(&self) -> Option<String> {
        let mut state = self.state();
        let mut faults = std::mem::take(&mut state.faults);
        let rest = state.recorded.drain(..);
        faults.extend(rest.map(|Recorded(call)| {
            format!("not called: {} {} {}", call.peer, call.method, call.url)
        }));
        (!faults.is_empty()).then(|| faults.join("; "))
    }

    fn answer(&self, peer: &str, request: &Request) -> Result<Response, Error> {
        let (method, target) = (request.method.as_str(), request.target());
        let body = request.body.as_deref().unwrap_or(b"null");
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let nothing = || Error::connect(&request.method, target.as_str(), "nothing was recorded");
        if peer == "cnapi"
            && let Some(cn) = target.strip_prefix("/servers/")
        {
            return Ok(reply(StatusCode::OK, &node(cn)));
        }
        let mut state = self.state();
        let is_it = |Recorded(call): &Recorded| {
            call.peer == peer && call.method == method && alike(&call.url, &target)
        };
        let Some(at) = state.recorded.iter().position(is_it) else {
            state.faults.push(format!("called: {peer} {method} {target}"));
            let usual = self.usual.get(&named(peer, method, &target));
            return usual.map(answered).ok_or_else(nothing);
        };
        let Recorded(call) = state.recorded.remove(at);
        if at > 0 || call.body["action"] != body["action"] || call.body.is_null() != body.is_null()
        {
            state.faults.push(format!("called otherwise: {peer} {method} {target} {body}"));
        }
        Ok(answered(&call))
    }

    /// What an agent answers to a begin: the node, and the VM's object, which VMAPI has too. Nothing is measured.
    async fn of_agent(&self, cn: Uuid, mut request: Request) -> Result<Response, Error> {
        match request.url.path().split('/').collect::<Vec<_>>()[..] {
            ["", "node"] => Ok(reply(StatusCode::OK, &agent(cn))),
            ["", "vms", _] => {
                let (path, peer) = (request.url.path().to_owned(), None);
                (request.url, request.peer) = (self.base.clone(), peer);
                request.url.set_path(&path);
                self.vmapi.send(request).await
            }
            _ => Ok(reply(StatusCode::NOT_FOUND, &json!({"code": "ResourceNotFound"}))),
        }
    }

    /// Returns the name of the peer that a request goes to, unless it is VMAPI.
    fn peer(request: &Request) -> Option<String> {
        request.url.host_str()?.strip_suffix(DOMAIN).map(str::to_owned)
    }
}

fn reply(status: StatusCode, body: &Value) -> Response {
    Response { status, headers: http::HeaderMap::new(), body: body.to_string().into() }
}

/// CNAPI's record of a node, as far as a begin looks at it.
fn node(cn: &str) -> Value {
    let nic = json!({"ip4addr": "192.0.2.1", "Link Status": "up", "NIC Names": ["admin", "external", "sdc_overlay"]});
    json!({"uuid": cn, "status": "running", "setup": true,
        "sysinfo": {"UUID": cn, "Network Interfaces": {"net0": nic}}})
}

/// What a node's agent says of it before a migration begins.
fn agent(cn: Uuid) -> Value {
    json!(protocol::Node {
        cn,
        version: 1,
        cpu: Some("a CPU".to_owned()),
        platform: Some("20260101T000000Z".to_owned()),
        now_ms: jiff::Timestamp::now().as_millisecond(),
        can_resume: true,
        has_bookmarks: true,
        pool: Some("zones".to_owned()),
        has_limits: Some(true),
        encrypted: Some(false),
        free_bytes: Some(1 << 40),
        mbps: None,
        vms: Vec::new(),
        vm_agent: migration_core::vm_agent::VmAgent::Ours,
    })
}

fn answered(call: &Call) -> Response {
    let status = call.status.and_then(|status| StatusCode::from_u16(status).ok());
    let mut body = call.response.clone();
    if call.peer == "imgapi"
        && body["uuid"].is_string()
        && body["files"].as_array().is_none_or(Vec::is_empty)
    {
        // The stand-in of the recording left out what a real image has.
        body["files"] = json!([{"compression": "gzip", "size": 1, "sha1": "0"}]);
    }
    reply(status.unwrap_or_default(), &body)
}

impl Transport for Peers {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, Error>> {
        if let Some(Identity::Agent(cn)) = request.peer {
            return Box::pin(self.of_agent(cn, request));
        }
        match Peers::peer(&request) {
            Some(peer) => Box::pin(std::future::ready(self.answer(&peer, &request))),
            None => self.vmapi.send(request),
        }
    }

    fn stream(&self, request: Request) -> BoxFuture<'_, Result<StreamResponse, Error>> {
        self.vmapi.stream(request)
    }
}
