// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! NAPI, VMAPI and vminfod of one node, in process, for paused time: enough of their rules to be
//! lied to by, and a log of every request.

#![allow(missing_docs, clippy::unwrap_used)] // a helper of tests: a panic is a failed test

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{HeaderMap, Method, StatusCode};
use daemon::Shutdown;
use futures_util::future::BoxFuture;
use net_agent::agent::{Agent, clients};
use net_agent::config::Config;
use sdc_clients::Error;
use sdc_clients::http::{Request, Response, StreamResponse, Transport};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

pub const CN: &str = "a829c448-085b-4138-adbc-583ac96881c3";

#[derive(Default)]
pub struct State {
    /// By bare MAC: record and etag number.
    pub nics: BTreeMap<String, (Value, u64)>,
    pub vmapi: BTreeMap<String, Value>,
    pub vmapi_down: bool,
    pub vms: BTreeMap<String, Value>,
    /// `/search/nics` exists.
    pub search: bool,
    /// `/nics` takes cn_uuid.
    pub filters: bool,
    pub etags: bool,
    /// Commit the next write, then lose the answer.
    pub lose_next: bool,
    /// Change the record between read and next write.
    pub touch_next: u32,
    pub log: Vec<(Duration, String)>,
    streams: Vec<mpsc::Sender<Bytes>>,
    writes: u64,
}

#[derive(Clone)]
pub struct World {
    state: Arc<Mutex<State>>,
    started: Instant,
    pub dir: Arc<tempfile::TempDir>,
}

pub fn mac(n: u8) -> String {
    format!("f2:00:00:00:00:{n:02x}")
}

fn bare(mac: &str) -> String {
    mac.replace(':', "")
}

impl World {
    pub fn new() -> Self {
        let state = State { filters: true, etags: true, ..State::default() };
        Self {
            state: Arc::new(Mutex::new(state)),
            started: Instant::now(),
            dir: Arc::new(tempfile::tempdir().unwrap()),
        }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub fn nic(&self, n: u8, vm: &str, over: Value) {
        let old = "2020-01-01T00:00:00.000Z";
        let mut nic = json!({"mac": mac(n), "belongs_to_type": "zone", "belongs_to_uuid": vm,
            "owner_uuid": "o", "primary": false, "state": "running", "cn_uuid": CN,
            "created_timestamp": old, "modified_timestamp": old});
        for (key, value) in over.as_object().unwrap() {
            nic[key] = value.clone();
        }
        nic.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        self.state().nics.insert(bare(&mac(n)), (nic, 1));
    }

    pub fn vm(&self, uuid: &str, state: &str, macs: &[u8], hidden: bool) {
        let nics: Vec<_> = macs.iter().map(|n| json!({"mac": mac(*n)})).collect();
        let vm = json!({"uuid": uuid, "zonename": uuid, "state": state, "owner_uuid": "o",
            "do_not_inventory": hidden, "nics": nics});
        let old = self.state().vms.insert(uuid.to_owned(), vm.clone());
        let mut event = json!({"type": if old.is_some() { "modify" } else { "create" },
            "date": "2026-01-01T00:00:00.000Z", "zonename": uuid, "uuid": "e", "vm": vm});
        if old.is_some() {
            event["changes"] = json!([{"prettyPath": "state", "path": ["state"],
                "action": "changed", "oldValue": "a", "newValue": "b"}]);
        }
        self.tell(&event);
    }

    pub fn delete_vm(&self, uuid: &str) {
        self.state().vms.remove(uuid);
        self.tell(&json!({"type": "delete", "date": "2026-01-01T00:00:00.000Z",
            "zonename": uuid, "uuid": "e"}));
    }

    pub fn cut(&self) {
        self.state().streams.clear();
    }

    fn tell(&self, event: &Value) {
        let line = Bytes::from(format!("{event}\n"));
        self.state().streams.retain(|stream| stream.try_send(line.clone()).is_ok());
    }

    pub fn vmapi(&self, uuid: &str, state: &str, server: &str) {
        let vm = json!({"uuid": uuid, "state": state, "server_uuid": server});
        self.state().vmapi.insert(uuid.to_owned(), vm);
    }

    pub fn has(&self, n: u8) -> bool {
        self.state().nics.contains_key(&bare(&mac(n)))
    }

    pub fn field(&self, n: u8, key: &str) -> Value {
        self.state().nics.get(&bare(&mac(n))).map(|(nic, _)| nic[key].clone()).unwrap_or_default()
    }

    /// Requests to NAPI whose line contains `part`.
    pub fn asked(&self, part: &str) -> Vec<(Duration, String)> {
        self.state().log.iter().filter(|(_, line)| line.contains(part)).cloned().collect()
    }

    pub fn start(&self, over: Value) -> (Arc<Agent>, Shutdown) {
        let mut config = json!({"napi": {"url": "http://napi.lab"}, "cn_uuid": CN, "seed": 1,
            "state_dir": self.dir.path(), "log_level": "off"});
        for (key, value) in over.as_object().unwrap() {
            config[key] = value.clone();
        }
        let config = Config::from_json(&config.to_string()).unwrap();
        let transport: Arc<dyn Transport> = Arc::new(self.clone());
        let made = clients(&config, Arc::clone(&transport), transport).unwrap();
        let agent = Agent::with_clients(config, made);
        let shutdown = Shutdown::new();
        tokio::spawn(Arc::clone(&agent).run(shutdown.clone()));
        (agent, shutdown)
    }

    fn answer(&self, request: &Request) -> Result<Response, Error> {
        let path = request.url.path().to_owned();
        match request.url.host_str() {
            Some("napi.lab") => self.napi(request, &path),
            Some("vmapi.lab") => self.vmapi_answer(&path),
            _ => Ok(self.vminfod(&path)),
        }
    }

    fn vminfod(&self, path: &str) -> Response {
        let state = self.state();
        match path {
            "/sysinfo" => reply(200, &json!({"sysinfo": {"UUID": CN}, "age_ms": 1}), None),
            "/vms" => reply(200, &Value::Array(state.vms.values().cloned().collect()), None),
            _ => match state.vms.get(path.trim_start_matches("/vms/")) {
                Some(vm) => reply(200, vm, None),
                None => reply(404, &json!({"code": "ResourceNotFound", "message": "no VM"}), None),
            },
        }
    }

    fn vmapi_answer(&self, path: &str) -> Result<Response, Error> {
        let state = self.state();
        if state.vmapi_down {
            return Ok(reply(503, &json!({"message": "down"}), None));
        }
        Ok(match state.vmapi.get(path.trim_start_matches("/vms/")) {
            Some(vm) => reply(200, vm, None),
            None => {
                reply(404, &json!({"code": "ResourceNotFound", "message": "VM not found"}), None)
            }
        })
    }

    fn napi(&self, request: &Request, path: &str) -> Result<Response, Error> {
        let mut state = self.state();
        let condition = request.headers.get("if-match").map(|v| v.to_str().unwrap().to_owned());
        let body = request.body.as_ref().map(|b| String::from_utf8_lossy(b).into_owned());
        let line = format!(
            "{} {} {:?} {}",
            request.method,
            request.target(),
            condition,
            body.clone().unwrap_or_default()
        );
        let at = self.started.elapsed();
        state.log.push((at, line));
        let unknown = |fields: Vec<&str>| {
            reply(
                422,
                &json!({"code": "InvalidParameters", "message": "Invalid parameters",
                "errors": [{"code": "UnknownParameters", "field": fields, "message": "u"}]}),
                None,
            )
        };
        if path == "/search/nics" && !state.search {
            return Ok(reply(
                404,
                &json!({"code": "ResourceNotFound",
                "message": "/search/nics does not exist"}),
                None,
            ));
        }
        if path == "/search/nics" || path == "/nics" {
            let mut strange: Vec<String> = Vec::new();
            for (key, _) in request.url.query_pairs() {
                let known =
                    matches!(&*key, "limit" | "offset") || key == "cn_uuid" && state.filters;
                if !known {
                    strange.push(key.into_owned());
                }
            }
            if !strange.is_empty() {
                return Ok(unknown(strange.iter().map(String::as_str).collect()));
            }
            let offset = request.url.query_pairs().find(|(k, _)| k == "offset");
            let skip = offset.map_or(0, |(_, v)| v.parse::<usize>().unwrap());
            let ours: Vec<_> = state
                .nics
                .values()
                .map(|(nic, _)| nic.clone())
                .filter(|nic| nic["cn_uuid"] == CN)
                .skip(skip)
                .take(1000)
                .collect();
            return Ok(reply(200, &Value::Array(ours), None));
        }
        let key = path.trim_start_matches("/nics/").to_owned();
        if request.method != Method::GET && state.touch_next > 0 {
            state.touch_next -= 1;
            if let Some((_, etag)) = state.nics.get_mut(&key) {
                *etag += 100;
            }
        }
        let Some((nic, etag)) = state.nics.get(&key).cloned() else {
            return Ok(reply(
                404,
                &json!({"code": "ResourceNotFound", "message": "nic not found"}),
                None,
            ));
        };
        let tag = state.etags.then(|| format!("E{etag}"));
        if condition.is_some() && condition != tag {
            return Ok(reply(
                412,
                &json!({"code": "PreconditionFailed", "message": "no match"}),
                None,
            ));
        }
        let answer = match request.method {
            Method::GET => return Ok(reply(200, &nic, tag)),
            Method::DELETE => {
                state.nics.remove(&key);
                Response {
                    status: StatusCode::NO_CONTENT,
                    headers: HeaderMap::new(),
                    body: Bytes::new(),
                }
            }
            _ => {
                let mut nic = nic;
                let update: Value = serde_json::from_str(&body.unwrap()).unwrap();
                for (field, value) in update.as_object().unwrap() {
                    nic[field] = value.clone();
                }
                state.writes += 1;
                state.nics.insert(key, (nic.clone(), etag + 1));
                reply(200, &nic, Some(format!("E{}", etag + 1)))
            }
        };
        if std::mem::take(&mut state.lose_next) {
            return Err(Error::broken(&request.method, path, "reset"));
        }
        Ok(answer)
    }
}

fn reply(status: u16, body: &Value, etag: Option<String>) -> Response {
    let mut headers = HeaderMap::new();
    headers.insert("date", "Fri, 15 Jan 2027 08:00:00 GMT".parse().unwrap());
    headers.insert("content-type", "application/json".parse().unwrap());
    if let Some(etag) = etag {
        headers.insert("etag", etag.parse().unwrap());
    }
    let status = StatusCode::from_u16(status).unwrap();
    Response { status, headers, body: Bytes::from(body.to_string()) }
}

impl Transport for World {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, Error>> {
        Box::pin(async move { self.answer(&request) })
    }

    fn stream(&self, _request: Request) -> BoxFuture<'_, Result<StreamResponse, Error>> {
        Box::pin(async move {
            let (tell, told) = mpsc::channel(1000);
            let mut state = self.state();
            let ready = json!({"type": "ready", "date": "2026-01-01T00:00:00.000Z", "uuid": "e",
                "vms": serde_json::to_string(&state.vms).unwrap()});
            tell.try_send(Bytes::from(format!("{ready}\n"))).unwrap();
            state.streams.push(tell);
            let body = futures_util::stream::unfold(told, |mut told| async move {
                told.recv().await.map(|line| (Ok(line), told))
            });
            Ok(StreamResponse {
                status: StatusCode::OK,
                headers: HeaderMap::new(),
                body: Box::pin(body),
            })
        })
    }
}
