// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The mocks of vminfod, VMAPI, CNAPI and NAPI in process, for paused time, with a log of every request to VMAPI.

#![allow(dead_code, clippy::unwrap_used)] // a helper of tests: a panic is a failed test

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use daemon::Shutdown;
use futures_util::future::BoxFuture;
use mocks::faults::{Action, Rule};
use mocks::hub::Hub;
use mocks::transport::InProcess;
use mocks::vmapi::Store;
use sdc_clients::Error;
use sdc_clients::http::{Request, Response, StreamResponse, Transport};
use sdc_clients::vminfod::VmObject;
use serde_json::{Value, json};
use tokio::time::Instant;
use vm_agent::agent::{Agent, clients};
use vm_agent::config::Config;

pub const CN: &str = "a829c448-085b-4138-adbc-583ac96881c3";
pub const OTHER: &str = "b829c448-085b-4138-adbc-583ac96881c3";
/// Events that vminfod keeps.
const EVENTS: usize = 1000;
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
    pub asked: Vec<Asked>,
    pub agents: Vec<String>,
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
    pub hub: Hub,
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

/// Returns the same as vminfod's answers have it.
pub fn shown(n: u32, over: &Value) -> VmObject {
    object(n, over).as_object().cloned().unwrap()
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
        Self {
            state: Arc::default(),
            hub: Hub::new(CN, EVENTS),
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
        self.hub.put(shown(n, over));
    }

    /// Changes the node without any event.
    pub fn quietly(&self, n: u32, over: Option<&Value>) {
        self.hub.silently(|vms| {
            match over {
                Some(over) => vms.insert(uuid(n), shown(n, over)),
                None => vms.remove(&uuid(n)),
            };
        });
    }

    pub fn delete(&self, n: u32) {
        self.hub.remove(&uuid(n));
    }

    /// vminfod starts anew.
    pub fn cut(&self) {
        self.hub.restart();
    }

    /// vminfod answers this, whatever it is asked at this path.
    pub fn breaks(&self, path: &str, status: u16, text: &str) {
        let body = Some(text.into());
        let action = Action::Status { status, body, retry_after: None };
        self.hub.faults().add(Rule::new("GET", path, action));
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
                let answer = self.hub.send(request.clone()).await;
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
        self.hub.stream(request)
    }
}
