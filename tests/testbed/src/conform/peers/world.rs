// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The mocks of one group, and what the recording did to the services they stand for.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mocks::faults::{Action, Faults, Mock, Rule};
use mocks::{cnapi, imgapi, napi, papi, vmapi, workflow};
use serde_json::{Map, Value, json};

use super::calls::Call;
use crate::conform::transcript::UnknownStep;

/// The node that was chosen, with what its sysinfo had.
const CHOSEN: &str = "dddd0001-4444-4444-8444-000000000001";
/// The images of storage VMs, and the one of VMAPI's recording.
const IMAGES: [&str; 3] = [
    "9fb86870-1941-11e6-8002-4f231c890ed1",
    "800db35c-5408-11eb-9792-872f658e7911",
    "cccc0001-3333-4333-8333-000000000001",
];

type Record = Map<String, Value>;

/// Our mocks in the recorded world.
pub(super) struct World {
    cnapi: cnapi::Store,
    napi: napi::Store,
    papi: papi::Store,
    imgapi: imgapi::Store,
    workflow: workflow::Store,
    vmapi: vmapi::Store,
    packages: Vec<Record>,
    /// What the recorder told its stand-ins.
    conf: Arc<Mutex<Record>>,
    /// The VMs by the alias under which they were ordered.
    aliases: Mutex<Record>,
}

fn object(value: &Value) -> Record {
    value.as_object().cloned().unwrap_or_default()
}

impl World {
    /// The world of a group at its start, at a time of the recording.
    pub(super) fn begin(world: &Value, now: i64) -> anyhow::Result<World> {
        let made = World {
            cnapi: cnapi::Store::at(now),
            napi: napi::Store::new(napi::Options::default()),
            papi: papi::Store::default(),
            imgapi: imgapi::Store::default(),
            workflow: workflow::Store::default(),
            vmapi: vmapi::Store::default(),
            packages: packages(world),
            conf: Arc::default(),
            aliases: Mutex::default(),
        };
        for server in world["servers"].as_array().into_iter().flatten() {
            made.cnapi.put_server(object(&json!({ "uuid": server })));
        }
        made.cnapi.put_server(object(&json!({ "uuid": CHOSEN, "sysinfo": {
            "Network Interfaces": { "net0": {
                "MAC Address": "00:50:56:00:00:01", "NIC Names": ["admin", "external", "sdc_underlay"] } },
            "Virtual Network Interfaces": { "sdc_underlay0": {
                "MAC Address": "02:08:20:00:00:01", "Overlay Nic Tags": ["sdc_overlay"] } },
        }})));
        let conf = Arc::clone(&made.conf);
        made.cnapi.set_hands(Arc::new(move |order| {
            let copies = conf.lock().unwrap_or_else(PoisonError::into_inner).get("cn_vm").cloned();
            Box::pin(async move {
                match order.verb.as_str() {
                    "load" => match copies.unwrap_or_default()[&order.vm_uuid]["body"].take() {
                        Value::Null => Err(cnapi::TaskError::no_vm("there is none")),
                        copy => Ok(copy),
                    },
                    "migrate" => Ok(json!({ "size": 1_234_567_890 })),
                    _ => Ok(json!({ "log": [] })),
                }
            })
        }));
        networks(&made.napi, world)?;
        made.packages.iter().for_each(|package| made.papi.put(package.clone()));
        made.images();
        Ok(made)
    }

    fn conf(&self) -> MutexGuard<'_, Record> {
        self.conf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn aliases(&self) -> MutexGuard<'_, Record> {
        self.aliases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn images(&self) {
        for uuid in IMAGES {
            self.imgapi.put(object(&json!({
                "v": 2, "uuid": uuid, "name": "img", "version": "1.0.0", "state": "active", "disabled": false,
                "public": true, "type": "zone-dataset", "os": "smartos",
                "owner": "930896af-bf8c-48d4-885c-6573a94b1853", "requirements": {}, "files": [],
            })));
        }
    }

    /// Our mock of a peer.
    pub(super) fn mock(&self, peer: &str) -> Arc<dyn Mock> {
        match peer {
            "cnapi" => Arc::new(self.cnapi.clone()),
            "napi" => Arc::new(self.napi.clone()),
            "papi" => Arc::new(self.papi.clone()),
            "imgapi" => Arc::new(self.imgapi.clone()),
            "wfapi" => Arc::new(self.workflow.clone()),
            _ => Arc::new(self.vmapi.clone()),
        }
    }

    fn faults(&self, peer: &str) -> &Faults {
        match peer {
            "cnapi" => self.cnapi.faults(),
            "napi" => self.napi.faults(),
            "papi" => mocks::faults::Service::parts(&self.papi).0,
            "imgapi" => mocks::faults::Service::parts(&self.imgapi).0,
            "wfapi" => mocks::faults::Service::parts(&self.workflow).0,
            _ => self.vmapi.faults(),
        }
    }

    /// Makes one change that the recorder made.
    pub(super) async fn change(&self, change: &Value) -> anyhow::Result<()> {
        match change["do"].as_str().unwrap_or_default() {
            "peer" => {
                if change.get("tickets").is_some() || change.get("reset").is_some() {
                    self.cnapi.drop_tickets();
                }
                for (name, value) in object(&change["conf"]) {
                    match name.as_str() {
                        "images" if value == true => self.images(),
                        "images" => self.imgapi.reset(),
                        "packages" => {
                            self.papi.reset();
                            let ours =
                                value.as_array().map(|list| list.iter().map(object).collect());
                            let packages: Vec<Record> =
                                ours.unwrap_or_else(|| self.packages.clone());
                            packages.into_iter().for_each(|package| self.papi.put(package));
                        }
                        _ => drop(self.conf().insert(name, value)),
                    }
                }
            }
            "job" => {
                let fields = json!({ "uuid": change["job"], "execution": change["execution"] });
                if !change["execution"].is_null() {
                    self.workflow.put(object(&fields));
                }
                let vm = json!({ "uuid": change["vm"], "state": change["vm_state"] });
                if !change["vm_state"].is_null() {
                    self.vmapi.put(object(&vm));
                }
            }
            "vm" => self.change_vm(change).await,
            // Nothing that a peer would see.
            word if ["moray", "record", "service configuration", "wait"].contains(&word)
                || word.starts_with("PUT /vms/")
                || word.starts_with("1007 running VMs") => {}
            _ => return Err(UnknownStep(change.clone()).into()),
        }
        Ok(())
    }

    /// The record of a VM, or of a volume's storage VM, with other fields.
    async fn change_vm(&self, change: &Value) {
        // A storage VM is known by the alias that it had first.
        let volume = change["storage_vm_of"].as_str().map(|it| format!("nfs-shared-volume-{it}"));
        let uuid = match volume {
            Some(alias) => self.aliases().get(&alias).cloned().unwrap_or_default(),
            None => change["uuid"].clone(),
        };
        let mut vm = self.vmapi.get(uuid.as_str().unwrap_or_default()).unwrap_or_default();
        vm.insert("uuid".to_owned(), uuid);
        vm.extend(object(&change["set"]));
        let state = vm.get("state").cloned().unwrap_or_default();
        vm.insert("zone_state".to_owned(), state);
        let uuid = vm.get("uuid").and_then(Value::as_str).unwrap_or_default();
        let put =
            http::Request::put(format!("/vms/{uuid}")).header("content-type", "application/json");
        // Whether it was taken shows in the calls that follow.
        if let Ok(put) = put.body(Value::Object(vm).to_string().into()) {
            drop(self.vmapi.handle(put).await);
        }
    }

    /// Makes the next call fail where the recorder told a stand-in so.
    pub(super) fn prepare(&self, call: &Call, url: &str) {
        let path = url.split('?').next().unwrap_or_default();
        if let ("vmapi", "DELETE", Some(uuid)) =
            (&*call.peer, &*call.method, path.strip_prefix("/vms/"))
        {
            // The recorder deleted VMs without a node; VMAPI does not.
            self.set(uuid, &json!({ "server_uuid": CHOSEN }));
        }
        if let ("wfapi", Some(uuid)) = (&*call.peer, call.body["workflow"].as_str()) {
            // VMAPI found its workflows when it started.
            self.workflow.put_workflow(object(&json!({ "uuid": uuid, "name": uuid })));
        }
        let Some((status, body)) = self.refusal(call, path) else { return };
        let action = Action::Status { status, body: Some(body), retry_after: None };
        self.faults(&call.peer).add(Rule::new(&call.method, path, action).times(1));
    }

    fn set(&self, uuid: &str, fields: &Value) {
        if let Some(mut vm) = self.vmapi.get(uuid) {
            vm.extend(object(fields));
            self.vmapi.put(vm);
        }
    }

    fn refusal(&self, call: &Call, path: &str) -> Option<(u16, Value)> {
        let (peer, method) = (call.peer.as_str(), call.method.as_str());
        let is_list = path.matches('/').count() == 1;
        let name = match (peer, method) {
            ("cnapi", "POST") if path == "/allocate" => "cn_alloc",
            ("cnapi", "POST") if path.ends_with("/tickets") => "ticket_create",
            ("cnapi", "POST") if path.ends_with("/migrate") => "cn_migrate",
            ("cnapi", "DELETE") => "cn_delete",
            ("cnapi", "PUT") => "ticket_release",
            ("cnapi", "GET") if path.starts_with("/servers/") => "cn_vm",
            ("cnapi", "GET") if path.starts_with("/tickets/") && path.ends_with("/wait") => {
                "ticket_wait"
            }
            ("cnapi", "GET") if path.starts_with("/tickets/") => "ticket_get",
            ("wfapi", "POST") => "wf_job",
            ("vmapi", "POST") => "vm_create",
            ("vmapi", "DELETE") => "vm_delete",
            ("vmapi", "GET") if is_list => "vm_list",
            ("vmapi", "GET") => "vm_get",
            ("napi", _) => return self.broken("napi"),
            ("papi", _) => return self.broken("papi"),
            ("imgapi", "POST") => {
                let message = "no route to remote";
                return Some((500, json!({ "code": "InternalError", "message": message })));
            }
            ("imgapi", _) => return self.broken("img"),
            _ => return None,
        };
        let mut conf = self.conf();
        let told = conf.get_mut(name)?;
        let told = match told {
            Value::Array(queue) => queue.first_mut()?,
            told if name == "cn_vm" => &mut told[path.rsplit('/').next()?],
            told => told,
        };
        let answer = (u16::try_from(told["status"].as_u64()?).ok()?, told["body"].clone());
        self::once(&mut conf, name);
        Some(answer)
    }

    /// A service that answers everything with an error.
    fn broken(&self, peer: &str) -> Option<(u16, Value)> {
        let conf = self.conf();
        let status =
            conf.get(&format!("{peer}_status"))?.as_u64().filter(|status| *status != 200)?;
        let status = u16::try_from(status).ok()?;
        let service = if peer == "img" { "imgapi" } else { peer };
        let usual = json!({ "code": "InternalError", "message": format!("{service} broken") });
        let told = conf.get(&format!("{peer}_body")).filter(|_| status == 503).cloned();
        Some((status, told.unwrap_or(usual)))
    }

    /// Does what the recorder's stand-ins did after an answer.
    pub(super) fn settle(&self, call: &Call, body: &Value) {
        let mut conf = self.conf();
        match (call.peer.as_str(), call.method.as_str()) {
            ("cnapi", "POST") if call.url.ends_with("/tickets") => {
                let status = conf.get("ticket_status").and_then(Value::as_str);
                if let (Some(status), Some(uuid)) = (status, body["uuid"].as_str()) {
                    self.cnapi.set_ticket(uuid, status);
                }
            }
            ("cnapi", "POST" | "DELETE") => {
                let name = if call.method == "DELETE" { "cn_delete" } else { "cn_migrate" };
                let task = conf.get(name).and_then(|queue| queue[0].get("task")).cloned();
                if let (Some(task), Some(id)) = (task, body["id"].as_str()) {
                    self.cnapi.replace_task(id, object(&task));
                    once(&mut conf, name);
                }
            }
            ("vmapi", "DELETE") => {
                let uuid = call.url.rsplit('/').next().unwrap_or_default();
                self.set(uuid, &json!({ "server_uuid": null }));
            }
            ("vmapi", "POST") => {
                let uuid = body["vm_uuid"].as_str().unwrap_or_default();
                if let Some(alias) = call.body["alias"].as_str() {
                    self.aliases().insert(alias.to_owned(), json!(uuid));
                }
                if conf.get("vm_create_state").is_some_and(Value::is_null) {
                    self.vmapi.remove(uuid);
                } else {
                    // What the recorder gave the VMs that it made.
                    self.set(
                        uuid,
                        &json!({ "server_uuid": null, "ram": 256, "max_physical_memory": 256,
                        "zone_state": "provisioning" }),
                    );
                }
            }
            _ => {}
        }
    }
}

/// An answer of a queue was given: it counts down.
fn once(conf: &mut Record, name: &str) {
    let Some(Value::Array(queue)) = conf.get_mut(name) else { return };
    let Some(first) = queue.first_mut() else { return };
    match first["times"].as_u64().unwrap_or(1) {
        0 | 1 => drop(queue.remove(0)),
        times => first["times"] = json!(times - 1),
    }
}

/// The packages of the recording: the one of VMAPI's, or one per quota of volapi's.
fn packages(world: &Value) -> Vec<Record> {
    let mut packages = Vec::new();
    if let Some(uuid) = world["package"].as_str() {
        packages.push(object(&json!({
            "uuid": uuid, "name": "sample-1G", "version": "1.0.0", "active": true, "default": false,
            "cpu_cap": 100, "max_lwps": 4000, "max_physical_memory": 1024, "max_swap": 4096, "quota": 25600,
            "vcpus": 1, "zfs_io_priority": 100,
        })));
    }
    let quotas = world["package_quotas"].as_array().into_iter().flatten();
    for (at, quota) in quotas.filter_map(Value::as_u64).enumerate() {
        let (n, gib) = (10 + at, quota / 1024);
        packages.push(object(&json!({
            "uuid": format!("aaaa{n:04}-1111-4111-8111-{n:012}"), "name": format!("sdc_volume_nfs_{gib}"),
            "active": true, "quota": quota,
        })));
    }
    packages
}

/// The networks of the recording, as NAPI would have been asked to make them.
fn networks(napi: &napi::Store, world: &Value) -> anyhow::Result<()> {
    let mut seed = napi::SeedFile::default();
    for tag in ["admin", "external", "sdc_overlay"] {
        seed.nic_tags.push(object(&json!({ "name": tag })));
    }
    for (uuid, network) in object(&world["networks"]) {
        let mut network = object(&network);
        let subnet = network.get("subnet").and_then(Value::as_str).unwrap_or_default().to_owned();
        let (base, _) = subnet.rsplit_once('.').unwrap_or_default();
        network.insert("uuid".to_owned(), json!(uuid));
        if let Some(vnet) = network.get("vnet_id").and_then(Value::as_u64) {
            network.insert("nic_tag".to_owned(), json!(format!("sdc_overlay/{vnet}")));
        }
        network.insert("provision_start_ip".to_owned(), json!(format!("{base}.10")));
        network.insert("provision_end_ip".to_owned(), json!(format!("{base}.250")));
        seed.networks.push(network);
    }
    napi.seed(&seed).map_err(anyhow::Error::msg)
}
