// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A VMAPI (the mock) and a vminfod in process, for paused time, with a log of every request to VMAPI.

#![allow(dead_code, clippy::unwrap_used)] // a helper of tests: a panic is a failed test

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use daemon::Shutdown;
use futures_util::future::BoxFuture;
use http::{HeaderMap, StatusCode};
use mocks::transport::InProcess;
use mocks::vmapi::Store;
use sdc_clients::Error;
use sdc_clients::http::{Request, Response, StreamResponse, Transport};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;
use vm_agent::agent::{Agent, clients};
use vm_agent::config::Config;

pub const CN: &str = "a829c448-085b-4138-adbc-583ac96881c3";
pub const OTHER: &str = "b829c448-085b-4138-adbc-583ac96881c3";
const OWNER: &str = "930896af-bf8c-48d4-885c-6573a94b1853";

/// One request to VMAPI.
#[derive(Clone, Debug)]
pub struct Asked {
    pub at: Duration,
    /// Method and target.
    pub line: String,
    pub body: Value,
}

/// Something that happens once.
pub type Happening = Box<dyn FnOnce(&World) + Send>;

#[derive(Default)]
pub struct State {
    pub vms: BTreeMap<String, Value>,
    /// vminfod answers nothing.
    pub down: bool,
    /// `/vms` answers this instead of the truth.
    pub broken: Option<(u16, String)>,
    /// What `/vms` and its likes show instead of the VMs.
    pub lie: Option<BTreeMap<String, Value>>,
    /// Zones that vminfod cannot read, or `*`.
    pub unread: Vec<String>,
    /// `/vms/UUID` of any VM answers this.
    pub one: Option<(u16, String)>,
    pub sysinfo: Option<String>,
    pub serial: Option<String>,
    streams: Vec<mpsc::Sender<Bytes>>,
    pub asked: Vec<Asked>,
    pub agents: Vec<String>,
    /// Requests to vminfod.
    pub hub: Vec<String>,
    /// After vminfod has read one VM, this happens.
    pub after_reading: Option<Happening>,
    /// How long vminfod takes for a whole view.
    pub view_takes: Duration,
    /// VMAPI does not accept connections.
    pub vmapi_away: bool,
}

#[derive(Clone)]
pub struct World {
    state: Arc<Mutex<State>>,
    pub vmapi: Store,
    pub cnapi: mocks::cnapi::Store,
    pub napi: mocks::napi::Store,
    started: Instant,
    dir: Arc<tempfile::TempDir>,
}

pub fn uuid(n: u32) -> String {
    format!("40000000-0000-4000-8000-{n:012}")
}

/// Returns a whole object, as vminfod shows it.
pub fn object(n: u32, over: &Value) -> Value {
    let uuid = uuid(n);
    let mut vm = json!({"zonename": uuid, "uuid": uuid, "brand": "joyent", "state": "running",
        "zone_state": "running", "zonepath": format!("/zones/{uuid}"), "zoneid": 7, "zonedid": 7, "v": 1,
        "hvm": false, "owner_uuid": OWNER, "alias": format!("vm{n}"), "autoboot": true, "quota": 10,
        "max_physical_memory": 512, "ram": 512, "billing_id": OWNER, "cpu_shares": 100,
        "create_timestamp": "2026-01-01T00:00:00.000Z", "last_modified": "2026-01-02T00:00:00.000Z",
        "firewall_enabled": false, "resolvers": [], "nics": [{"mac": format!("f2:00:00:00:00:{n:02x}"),
        "primary": true}], "customer_metadata": {"secret": "s"}, "internal_metadata": {}, "tags": {},
        "routes": {}, "snapshots": [], "zfs_filesystem": format!("zones/{uuid}"), "zpool": "zones",
        "server_uuid": CN, "platform_buildstamp": "20260101T000000Z", "pid": 99});
    merge(&mut vm, over);
    vm
}

fn merge(vm: &mut Value, over: &Value) {
    for (key, value) in over.as_object().unwrap() {
        vm[key] = value.clone();
    }
    vm.as_object_mut().unwrap().retain(|_, value| *value != "ABSENT");
}

/// Returns the record that VMAPI shows of this object: fields dropped, defaults added.
pub fn record(n: u32, over: &Value) -> Value {
    let mut vm = object(n, over);
    let all = vm.as_object_mut().unwrap();
    for key in ["zonename", "zoneid", "zonedid", "v", "routes", "do_not_inventory", "pid", "hvm"] {
        all.remove(key);
    }
    for key in [
        "cpu_cap",
        "datasets",
        "destroyed",
        "image_uuid",
        "limit_priv",
        "max_locked_memory",
        "max_lwps",
        "max_swap",
        "zfs_io_priority",
    ] {
        all.entry(key).or_insert(if key == "datasets" { json!([]) } else { Value::Null });
    }
    vm
}

impl World {
    pub fn new() -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let state = State { sysinfo: Some(CN.to_owned()), ..State::default() };
        Self {
            state: Arc::new(Mutex::new(state)),
            vmapi: Store::default(),
            cnapi: mocks::cnapi::Store::default(),
            napi: mocks::napi::Store::new(mocks::napi::Options::default()),
            started: Instant::now(),
            dir: Arc::new(dir),
        }
    }

    /// VMs that both sides know alike.
    pub fn of(vms: impl IntoIterator<Item = u32>) -> Self {
        let world = Self::new();
        for n in vms {
            world.quietly(n, Some(&json!({})));
            world.knows(n, &json!({}));
        }
        world
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// VMAPI has this record.
    pub fn knows(&self, n: u32, over: &Value) {
        self.vmapi.put(record(n, over).as_object().unwrap().clone());
    }

    pub fn stored(&self, n: u32) -> Value {
        self.vmapi.get(&uuid(n)).map_or(Value::Null, Value::Object)
    }

    /// The VM comes or changes, and the stream says so.
    pub fn vm(&self, n: u32, over: &Value) {
        let old = self.quietly(n, Some(over));
        let mut event = json!({"type": if old.is_some() { "modify" } else { "create" },
            "date": "2026-01-01T00:00:00.000Z", "zonename": uuid(n), "uuid": "e",
            "vm": object(n, over)});
        if old.is_some() {
            event["changes"] = json!([{"prettyPath": "state", "path": ["state"],
                "action": "changed", "oldValue": "a", "newValue": "b"}]);
        }
        self.tell(&event);
    }

    /// Changes the node without any event.
    pub fn quietly(&self, n: u32, over: Option<&Value>) -> Option<Value> {
        let vms = &mut self.state().vms;
        match over {
            Some(over) => vms.insert(uuid(n), object(n, over)),
            None => vms.remove(&uuid(n)),
        }
    }

    pub fn delete(&self, n: u32) {
        self.quietly(n, None);
        self.tell(&json!({"type": "delete", "date": "2026-01-01T00:00:00.000Z",
            "zonename": uuid(n), "uuid": "e"}));
    }

    fn tell(&self, event: &Value) {
        let line = Bytes::from(format!("{event}\n"));
        self.state().streams.retain(|stream| stream.try_send(line.clone()).is_ok());
    }

    /// The stream breaks.
    pub fn cut(&self) {
        self.state().streams.clear();
    }

    pub fn asked(&self, part: &str) -> Vec<Asked> {
        let state = self.state();
        state.asked.iter().filter(|asked| asked.line.contains(part)).cloned().collect()
    }

    /// The requests that write one record.
    pub fn puts(&self, n: u32) -> Vec<Asked> {
        self.asked(&format!("PUT /vms/{}", uuid(n)))
    }

    /// The requests that write many.
    pub fn batches(&self) -> Vec<Asked> {
        self.asked("PUT /vms?")
    }

    pub fn writes(&self) -> Vec<Asked> {
        self.asked("PUT ")
    }

    /// Every request that names this VM, in its address or its body.
    pub fn naming(&self, n: u32) -> Vec<Asked> {
        let state = self.state();
        let names = |asked: &&Asked| format!("{} {}", asked.line, asked.body).contains(&uuid(n));
        state.asked.iter().filter(names).cloned().collect()
    }

    /// Forgets the requests so far.
    pub fn forget(&self) {
        self.state().asked.clear();
    }

    pub fn config(&self, over: &Value) -> Config {
        let mut config = json!({"vmapi_url": "http://vmapi.lab", "server_uuid": CN, "seed": 1,
            "vminfod": {"url": "http://127.0.0.1:9090", "trust_tcp": true}, "state_dir": self.dir.path().join("state"),
            "startup_delay": {"min": "0s", "max": "1s"}, "log_level": "off"});
        merge(&mut config, over);
        Config::from_json(&config.to_string()).unwrap()
    }

    pub fn start(&self, over: &Value) -> (Arc<Agent>, Shutdown) {
        let config = self.config(over);
        let transport: Arc<dyn Transport> = Arc::new(self.clone());
        let made = clients(&config, CN, Arc::clone(&transport), transport).unwrap();
        let agent = Agent::with_clients(config, CN.to_owned(), made);
        let shutdown = Shutdown::new();
        tokio::spawn(Arc::clone(&agent).run(shutdown.clone()));
        (agent, shutdown)
    }

    /// Starts an agent and waits until its first comparison is done and the queue is empty.
    pub async fn started(&self, over: &Value) -> (Arc<Agent>, Shutdown) {
        let (agent, shutdown) = self.start(over);
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert!(agent.status_json()["comparisons"] == 1, "{:#}", agent.status_json());
        (agent, shutdown)
    }

    /// Runs an agent for a while in a runtime of its own, then drops everything, as a crash does.
    pub fn live_and_crash(&self, span: Duration, meanwhile: impl FnOnce(&Self)) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut world = self.clone();
            world.started = Instant::now();
            let _running = world.started(&json!({})).await;
            meanwhile(&world);
            tokio::time::sleep(span).await;
        });
        runtime.shutdown_timeout(Duration::ZERO);
        self.cut();
        self.forget();
    }

    fn hub(&self, request: &Request) -> Result<Response, Error> {
        let path = request.url.path().to_owned();
        let mut state = self.state();
        state.hub.push(request.target());
        if state.down {
            return Err(Error::connect(&request.method, path, "refused"));
        }
        let shown = state.lie.clone().unwrap_or_else(|| state.vms.clone());
        let (status, body) = match path.as_str() {
            "/sysinfo" => {
                let sysinfo = json!({"UUID": state.sysinfo, "Serial Number": state.serial});
                (200, json!({"sysinfo": sysinfo, "age_ms": 1}).to_string())
            }
            "/vms" => match state.broken.clone() {
                Some(broken) => broken,
                None => (200, Value::Array(shown.values().cloned().collect()).to_string()),
            },
            _ => {
                let name = path.trim_start_matches("/vms/");
                match (state.one.clone(), shown.get(name)) {
                    (Some(one), _) => one,
                    (None, _) if state.unread.iter().any(|it| it == name || it == "*") => (
                        503,
                        json!({"code": "ServiceUnavailable", "message": "zoneadm"}).to_string(),
                    ),
                    (None, Some(vm)) => (200, vm.to_string()),
                    (None, None) => (404, format!("VM Not Found: {name}")),
                }
            }
        };
        let mut headers = HeaderMap::new();
        if path == "/vms" && !state.unread.is_empty() {
            headers.insert("vminfod-incomplete", state.unread.join(",").parse().unwrap());
        }
        if let Some(sync) = request.url.query_pairs().find(|(key, _)| key == "sync") {
            headers.insert("vminfod-sync", sync.1.parse().unwrap());
        }
        let status = StatusCode::from_u16(status).unwrap();
        Ok(Response { status, headers, body: body.into() })
    }
}

impl Transport for World {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, Error>> {
        Box::pin(async move {
            match request.url.host_str() {
                Some("cnapi.lab") => {
                    return InProcess::new(self.cnapi.clone()).send(request).await;
                }
                Some("napi.lab") => return InProcess::new(self.napi.clone()).send(request).await,
                _ => {}
            }
            if request.url.host_str() != Some("vmapi.lab") {
                let answer = self.hub(&request);
                let view_takes = self.state().view_takes;
                if request.target() == "/vms?sync=true" {
                    tokio::time::sleep(view_takes).await;
                }
                if request.url.path().starts_with("/vms/") {
                    // Time for what happens before the answer arrives.
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    let happens = self.state().after_reading.take();
                    if let Some(happens) = happens {
                        happens(self);
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                }
                return answer;
            }
            let body = request.body.as_deref().map(|body| serde_json::from_slice(body).unwrap());
            let line = format!("{} {}", request.method, request.target());
            let is_write = request.method != http::Method::GET;
            let kind = request.headers.get("content-type").map(|kind| kind.to_str().unwrap());
            assert!(!is_write || kind == Some("application/json"), "{line}: {kind:?}");
            {
                let mut state = self.state();
                let agent = request.headers["user-agent"].to_str().unwrap().to_owned();
                state.agents.push(agent);
                let body = body.unwrap_or_default();
                state.asked.push(Asked { at: self.started.elapsed(), line, body });
                if state.vmapi_away {
                    return Err(Error::connect(&request.method, request.target(), "refused"));
                }
            }
            InProcess::new(self.vmapi.clone()).send(request).await
        })
    }

    fn stream(&self, request: Request) -> BoxFuture<'_, Result<StreamResponse, Error>> {
        Box::pin(async move {
            let (tell, told) = mpsc::channel(1000);
            let mut state = self.state();
            if state.down {
                return Err(Error::connect(&request.method, request.target(), "refused"));
            }
            let shown = state.lie.clone().unwrap_or_else(|| state.vms.clone());
            let vms: Map<String, Value> = shown.into_iter().collect();
            let ready = json!({"type": "ready", "date": "2026-01-01T00:00:00.000Z", "uuid": "e",
                "vms": Value::Object(vms).to_string()});
            tell.try_send(Bytes::from(format!("{ready}\n"))).unwrap();
            state.streams.push(tell);
            let body = futures_util::stream::unfold(told, |mut told| async move {
                told.recv().await.map(|line| (Ok(line), told))
            });
            let (status, headers) = (StatusCode::OK, HeaderMap::new());
            Ok(StreamResponse { status, headers, body: Box::pin(body) })
        })
    }
}
