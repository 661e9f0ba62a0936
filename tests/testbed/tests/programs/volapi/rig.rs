// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A volapi process among the mock services, each on a socket of its own behind a gate.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::{Method, Request};
use mocks::faults::{Listening, Mock, Reply, listen};
use mocks::{cnapi, imgapi, napi, papi, vmapi, workflow};
use rig::port::Port;
use sdc_clients::http::{Call, Http};
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use testbed::process::Child;

use super::gate::{Gate, Gated};
use crate::common::{LATE, program, said, until};

pub const OWNER: &str = "644810da-6ce1-40a9-93db-c23dfb772fd2";
pub const NETWORK: &str = "8036d58d-7821-4ae3-a752-15be1d92344c";
/// The node of all VMs.
pub const NODE: &str = "c0000000-0000-4000-8000-000000000001";
const IMAGES: [&str; 2] =
    ["800db35c-5408-11eb-9792-872f658e7911", "9fb86870-1941-11e6-8002-4f231c890ed1"];

pub fn object(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

/// A service on a socket, while it is not away.
struct Place {
    mock: Arc<Gated>,
    port: Port,
    listening: Option<Listening>,
}

/// The services around volapi. What VMAPI is asked to make runs soon, what it is asked to delete is destroyed.
pub struct Rig {
    pub vmapi: vmapi::Store,
    pub cnapi: cnapi::Store,
    pub gate: Arc<Gate>,
    places: BTreeMap<&'static str, Place>,
    dir: TempDir,
}

impl Rig {
    pub async fn start() -> Rig {
        let (vmapi, cnapi) = (vmapi::Store::default(), cnapi::Store::default());
        let (papi, imgapi) = (papi::Store::default(), imgapi::Store::default());
        let (napi, workflow) =
            (napi::Store::new(napi::Options::default()), workflow::Store::default());
        vmapi.publish_every(Duration::from_millis(100));
        vmapi.peers().chosen = NODE.to_owned();
        let node = vmapi.clone();
        let hands = move |order| -> BoxFuture<'static, Result<(), String>> {
            Box::pin(carry_out(node.clone(), order))
        };
        vmapi.run_jobs(workflow.clone(), Arc::new(hands));
        napi.seed(&networks()).unwrap();
        for uuid in IMAGES {
            imgapi.put(object(json!({"uuid": uuid, "name": "nfsserver", "state": "active"})));
        }
        for gib in [10, 20] {
            let uuid = format!("aaaa00{gib}-1111-4111-8111-000000000000");
            let name = format!("sdc_volume_nfs_{gib}");
            papi.put(object(
                json!({"uuid": uuid, "name": name, "quota": gib * 1024, "active": true}),
            ));
        }
        let gate = Arc::new(Gate::default());
        let mocks: [(&'static str, Arc<dyn Mock>); 6] = [
            ("vmapi", Arc::new(vmapi.clone())),
            ("cnapi", Arc::new(cnapi.clone())),
            ("papi", Arc::new(papi)),
            ("napi", Arc::new(napi)),
            ("imgapi", Arc::new(imgapi)),
            ("workflow", Arc::new(workflow)),
        ];
        let mut places = BTreeMap::new();
        for (name, mock) in mocks {
            let mock = Arc::new(Gated { name, mock, gate: Arc::clone(&gate) });
            let port = Port::local().unwrap();
            let listening = listen(port.address(), Arc::clone(&mock) as Arc<dyn Mock>).await;
            places.insert(name, Place { mock, port, listening: Some(listening.unwrap()) });
        }
        Rig { vmapi, cnapi, gate, places, dir: tempfile::tempdir().unwrap() }
    }

    /// Cuts VMAPI's connections and closes its port; its records live on.
    pub async fn vmapi_dies(&mut self) {
        let place = self.places.get_mut("vmapi").unwrap();
        place.listening.take().unwrap().stop().await;
    }

    /// VMAPI is back where it was.
    pub async fn vmapi_returns(&mut self) {
        let place = self.places.get_mut("vmapi").unwrap();
        let mock = Arc::clone(&place.mock) as Arc<dyn Mock>;
        place.port.refuses().await.unwrap();
        place.listening = Some(listen(place.port.address(), mock).await.unwrap());
    }

    /// Starts volapi, and waits until it creates volumes and has listed the VMs; `set` is added to its
    /// configuration.
    pub async fn volapi(&self, set: Value) -> Volapi {
        let url = |name: &str| json!({"url": self.places[name].port.url()});
        let mut config = object(json!({
            "instance": "0b4a4a3e-8b7c-4a09-9c3e-2a5d8f5e0c11",
            "vmapi": url("vmapi"), "cnapi": url("cnapi"), "papi": url("papi"), "napi": url("napi"),
            "imgapi": url("imgapi"), "workflow": url("workflow"),
            "listen": "127.0.0.1:0", "status": {"listen": "127.0.0.1:0"},
            "state_dir": self.dir.path().join("volapi"),
        }));
        config.extend(object(set));
        let file = self.dir.path().join(format!("{}.json", config["instance"].as_str().unwrap()));
        std::fs::write(&file, Value::Object(config).to_string()).unwrap();
        let args = ["@volapi", "serve", "--config", file.to_str().unwrap()];
        let mut child = Child::spawn("volapi", &program(), &args).unwrap();
        let address = said(&mut child, "listening").await["address"].as_str().unwrap().to_owned();
        child.ignore();
        let http = Http::new(&format!("http://{address}"), "test").unwrap().without_retries();
        let volapi = Volapi { child, http, config: file.to_str().unwrap().to_owned() };
        until("the images are there", async || {
            volapi.ask(post(&["volumes"], json!({}))).await.0 == 409
        })
        .await;
        volapi
    }

    /// Waits until VMAPI's VMs have been listed this often.
    pub async fn listed(&self, times: usize) {
        let is_list = |seen: &&mocks::faults::Seen| seen.method == "GET" && seen.path == "/vms";
        until("the VMs are listed", async || {
            self.vmapi.log().all().iter().filter(is_list).count() >= times
        })
        .await;
    }

    /// Writes fields of a VM's record as an agent does: by a PUT of all, which VMAPI publishes.
    pub async fn put(&self, vm: &str, set: Value) {
        put(&self.vmapi, vm, set).await;
    }

    /// Waits until volapi has done what follows from everything that VMAPI has published, given a volume and its
    /// users: what is published after that has its effect.
    pub async fn heard(&self, volapi: &Volapi, volume: &Value, users: &[&str]) {
        let mark = "88888888-8888-4888-8888-888888888888";
        self.put(mark, user("running", &[volume["name"].as_str().unwrap()])).await;
        volapi.used_by(volume, &[users, &[mark]].concat()).await;
        self.put(mark, json!({"state": "destroyed"})).await;
        volapi.used_by(volume, users).await;
    }

    /// The storage VMs of a volume that are there.
    pub fn storage_vms(&self, volume: &str) -> Vec<String> {
        let alias = format!("nfs-shared-volume-{volume}");
        let is_it = |vm: &Map<String, Value>| {
            let is = |name: &str, value: &str| vm.get(name).is_some_and(|it| it == value);
            is("alias", &alias) && !is("state", "destroyed")
        };
        let all = self.vmapi.all().into_iter().filter(is_it);
        all.map(|vm| vm["uuid"].as_str().unwrap().to_owned()).collect()
    }

    /// The tickets that nobody has given back.
    pub fn tickets(&self) -> Vec<Value> {
        let is_open =
            |ticket: &Value| ["queued", "active"].iter().any(|it| ticket["status"] == *it);
        self.cnapi.all_tickets().into_iter().filter(is_open).collect()
    }
}

/// Does what the node does for VMAPI's job, and reports as its agent would.
async fn carry_out(vmapi: vmapi::Store, order: vmapi::Order) -> Result<(), String> {
    let vm = order.vm_uuid;
    let set = match order.verb {
        "create" => {
            let address = vm.bytes().fold(0_u8, |sum, byte| sum.wrapping_add(byte));
            json!({"state": "running", "zonepath": format!("/zones/{vm}"),
                "nics": [{"ip": format!("192.168.128.{address}")}]})
        }
        _ => json!({"state": "destroyed"}),
    };
    put(&vmapi, &vm, set).await;
    Ok(())
}

async fn put(vmapi: &vmapi::Store, vm: &str, set: Value) {
    let mut record = vmapi.get(vm).unwrap_or_default();
    record.extend(object(set));
    let state = record.get("state").cloned().unwrap_or_default();
    record.insert("zone_state".to_owned(), state);
    let request = Request::put(format!("/vms/{vm}")).header("content-type", "application/json");
    let request = request.body(Value::Object(record).to_string().into()).unwrap();
    let Reply::Full(answer) = vmapi.handle(request).await else { panic!("VMAPI died") };
    assert_eq!(answer.status(), 200, "{answer:?}");
}

fn networks() -> napi::SeedFile {
    let tag = object(json!({"name": "sdc_overlay"}));
    let network = object(json!({
        "uuid": NETWORK, "name": "my-fabric", "nic_tag": "sdc_overlay/11", "vlan_id": 2,
        "subnet": "192.168.128.0/22", "provision_start_ip": "192.168.128.5",
        "provision_end_ip": "192.168.131.250", "owner_uuids": [OWNER],
    }));
    napi::SeedFile { nic_tags: vec![tag], networks: vec![network], ..napi::SeedFile::default() }
}

pub fn post(path: &[&str], body: Value) -> Call {
    Call::new(Method::POST, path).json(&body).timeout(LATE)
}

/// A VM that uses the volumes of these names.
pub fn user(state: &str, names: &[&str]) -> Value {
    let needs: Vec<Value> = names
        .iter()
        .map(|name| json!({"name": name, "mountpoint": "/data", "mode": "rw"}))
        .collect();
    json!({"state": state, "brand": "lx", "owner_uuid": OWNER, "server_uuid": NODE,
        "internal_metadata": {"docker:nfsvolumes": json!(needs).to_string()}})
}

/// `POST /volumes` for a volume of this name.
pub fn create(uuid: Option<&str>, name: &str) -> Call {
    let mut body =
        json!({"owner_uuid": OWNER, "type": "tritonnfs", "networks": [NETWORK], "name": name});
    if let Some(uuid) = uuid {
        body["uuid"] = json!(uuid);
    }
    post(&["volumes"], body)
}

/// A running volapi.
pub struct Volapi {
    child: Child,
    http: Http,
    /// The file of its configuration.
    pub config: String,
}

impl Volapi {
    /// The status of the answer and its body; status 0 where none came.
    pub async fn ask(&self, call: Call) -> (u16, Value) {
        ask(&self.http, call).await
    }

    /// The client of it.
    pub fn http(&self) -> Http {
        self.http.clone()
    }

    /// Its base URL.
    pub fn url(&self) -> String {
        self.http.base().to_string()
    }

    pub async fn get(&self, volume: &str) -> (u16, Value) {
        self.ask(Call::get(&["volumes", volume])).await
    }

    /// Asks for a volume's end.
    pub async fn delete(&self, volume: &str) -> (u16, Value) {
        self.ask(Call::new(Method::DELETE, &["volumes", volume]).timeout(LATE)).await
    }

    /// Creates a volume, and waits until it is in state ready.
    pub async fn ready(&self, name: &str) -> Value {
        let (status, made) = self.ask(create(None, name)).await;
        assert_eq!(status, 201, "{made}");
        let uuid = made["uuid"].as_str().unwrap();
        until("the volume is ready", async || self.get(uuid).await.1["state"] == "ready").await;
        self.get(uuid).await.1
    }

    /// The VMs that use a volume.
    pub async fn references(&self, volume: &Value) -> Value {
        let uuid = volume["uuid"].as_str().unwrap();
        self.ask(Call::get(&["volumes", uuid, "references"])).await.1
    }

    /// Waits until these VMs use the volume.
    pub async fn used_by(&self, volume: &Value, vms: &[&str]) {
        until("the references are right", async || self.references(volume).await == json!(vms))
            .await;
    }

    /// kill -9.
    pub async fn dies(self) {
        self.child.signal(rustix::process::Signal::KILL);
        self.child.stop(Duration::ZERO).await.unwrap();
    }

    /// SIGTERM.
    pub async fn stop(self) {
        let status = self.child.stop(LATE).await.unwrap();
        assert!(status.success(), "{status}");
    }
}

pub async fn ask(http: &Http, call: Call) -> (u16, Value) {
    match http.execute(call).await {
        Ok(reply) => {
            let body = serde_json::from_slice(reply.body()).unwrap_or_default();
            (reply.status().as_u16(), body)
        }
        Err(error) => {
            let body = json!({"code": error.code(), "message": error.message()});
            (error.status().unwrap_or(0), body)
        }
    }
}
