// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The services of a recorded world: our mocks, which a recording's words make misbehave as its stand-ins did.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mocks::faults::{Action, Faults, Mock, Rule, Service as _};
use mocks::{cnapi, imgapi, napi, papi, vmapi, workflow};
use serde_json::{Map, Value, json};

/// The node that was chosen, with what its sysinfo had.
const CHOSEN: &str = "dddd0001-4444-4444-8444-000000000001";
/// The images of storage VMs, and the one of VMAPI's recording.
const IMAGES: [&str; 3] = [
    "9fb86870-1941-11e6-8002-4f231c890ed1",
    "800db35c-5408-11eb-9792-872f658e7911",
    "cccc0001-3333-4333-8333-000000000001",
];

type Record = Map<String, Value>;

/// One request to a service.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    pub peer: &'a str,
    pub method: &'a str,
    /// The path and the query.
    pub url: &'a str,
    pub body: &'a Value,
}

impl<'a> Asked<'a> {
    fn path(&self) -> &'a str {
        self.url.split('?').next().unwrap_or_default()
    }
}

/// Our mocks in the recorded world. Clones share them.
#[derive(Clone, Debug)]
pub struct Services {
    pub cnapi: cnapi::Store,
    pub workflow: workflow::Store,
    pub vmapi: vmapi::Store,
    napi: napi::Store,
    papi: papi::Store,
    imgapi: imgapi::Store,
    packages: Vec<Record>,
    /// What the recorder told its stand-ins.
    conf: Arc<Mutex<Record>>,
}

/// The members of a JSON object; none of anything else.
pub fn object(value: &Value) -> Record {
    value.as_object().cloned().unwrap_or_default()
}

impl Services {
    /// The services of a world at its start; CNAPI's clock goes by itself.
    pub fn begin(world: &Value, cnapi: cnapi::Store) -> anyhow::Result<Services> {
        let made = Services {
            cnapi,
            napi: napi::Store::new(napi::Options::default()),
            papi: papi::Store::default(),
            imgapi: imgapi::Store::default(),
            workflow: workflow::Store::default(),
            vmapi: vmapi::Store::default(),
            packages: packages(world),
            conf: Arc::default(),
        };
        for server in world["servers"].as_array().into_iter().flatten() {
            made.cnapi.put_server(object(&json!({ "uuid": server })));
        }
        made.cnapi.put_server(object(&json!({ "uuid": CHOSEN, "sysinfo": {
            "Network Interfaces": { "net0": {
                "MAC Address": "00:50:56:00:00:01", "Link Status": "up", "NIC Names": ["admin", "external", "sdc_underlay"] } },
            "Virtual Network Interfaces": { "sdc_underlay0": {
                "MAC Address": "02:08:20:00:00:01", "Link Status": "up", "Overlay Nic Tags": ["sdc_overlay"] } },
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
    pub fn mock(&self, peer: &str) -> Arc<dyn Mock> {
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
            "papi" => self.papi.parts().0,
            "imgapi" => self.imgapi.parts().0,
            "wfapi" => self.workflow.parts().0,
            _ => self.vmapi.faults(),
        }
    }

    /// Lets services behave as these words of a recording say.
    pub fn behave(&self, words: Record) {
        for (name, value) in words {
            match name.as_str() {
                "images" if value == true => self.images(),
                "images" => self.imgapi.reset(),
                "packages" => {
                    self.papi.reset();
                    let ours = value.as_array().map(|list| list.iter().map(object).collect());
                    let packages: Vec<Record> = ours.unwrap_or_else(|| self.packages.clone());
                    packages.into_iter().for_each(|package| self.papi.put(package));
                }
                _ => drop(self.conf().insert(name, value)),
            }
        }
    }

    /// Makes the next call fail where the recorder told a stand-in so.
    pub fn prepare(&self, asked: Asked<'_>) {
        let path = asked.path();
        if let ("vmapi", "DELETE", Some(uuid)) =
            (asked.peer, asked.method, path.strip_prefix("/vms/"))
            && self
                .vmapi
                .get(uuid)
                .is_some_and(|vm| vm.get("server_uuid").is_none_or(Value::is_null))
        {
            // The recorder deleted VMs without a node; VMAPI does not.
            self.set(uuid, &json!({ "server_uuid": CHOSEN }));
        }
        if let ("wfapi", Some(uuid)) = (asked.peer, asked.body["workflow"].as_str()) {
            // VMAPI found its workflows when it started.
            self.workflow.put_workflow(object(&json!({ "uuid": uuid, "name": uuid })));
        }
        let Some((status, body)) = self.refusal(asked) else { return };
        let action = Action::Status { status, body: Some(body), retry_after: None };
        self.faults(asked.peer).add(Rule::new(asked.method, path, action).times(1));
    }

    fn set(&self, uuid: &str, fields: &Value) {
        if let Some(mut vm) = self.vmapi.get(uuid) {
            vm.extend(object(fields));
            self.vmapi.put(vm);
        }
    }

    fn refusal(&self, asked: Asked<'_>) -> Option<(u16, Value)> {
        let (peer, method, path) = (asked.peer, asked.method, asked.path());
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
            ("vmapi", "POST") if is_list => "vm_create",
            ("vmapi", "POST" | "PUT") => "vm_order",
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
    pub fn settle(&self, asked: Asked<'_>, answer: &Value) {
        let mut conf = self.conf();
        match (asked.peer, asked.method) {
            // It is so when the wait for it is over.
            ("cnapi", "GET") if asked.path().ends_with("/wait") => {
                let status = conf.get("ticket_status").and_then(Value::as_str);
                if let (Some(status), Some(uuid)) = (status, asked.path().split('/').nth(2)) {
                    self.cnapi.set_ticket(uuid, status);
                }
            }
            ("cnapi", "POST") if asked.path().ends_with("/tickets") => {}
            ("cnapi", "POST" | "DELETE") => {
                let name = if asked.method == "DELETE" { "cn_delete" } else { "cn_migrate" };
                let task = conf.get(name).and_then(|queue| queue[0].get("task")).cloned();
                if let (Some(task), Some(id)) = (task, answer["id"].as_str()) {
                    self.cnapi.replace_task(id, object(&task));
                    once(&mut conf, name);
                }
            }
            ("vmapi", "DELETE") => {
                let uuid = asked.path().rsplit('/').next().unwrap_or_default();
                let is_ours = |vm: &Record| vm.get("server_uuid").is_some_and(|it| it == CHOSEN);
                if self.vmapi.get(uuid).as_ref().is_some_and(is_ours) {
                    self.set(uuid, &json!({ "server_uuid": null }));
                }
            }
            ("vmapi", "POST") if asked.path() == "/vms" => {
                let uuid = answer["vm_uuid"].as_str().unwrap_or_default();
                match conf.get("vm_create_state") {
                    Some(Value::Null) => drop(self.vmapi.remove(uuid)),
                    state => {
                        // What the recorder gave the VMs that it made.
                        let state = state.cloned().unwrap_or_else(|| json!("provisioning"));
                        self.set(
                            uuid,
                            &json!({ "server_uuid": null, "ram": 256, "max_physical_memory": 256,
                                "state": state, "zone_state": "provisioning" }),
                        );
                    }
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
    for (n, (uuid, network)) in object(&world["networks"]).into_iter().enumerate() {
        let mut network = object(&network);
        let subnet = network.get("subnet").and_then(Value::as_str).map(str::to_owned);
        let subnet = subnet.unwrap_or_else(|| format!("10.0.{n}.0/24"));
        let (base, _) = subnet.rsplit_once('.').unwrap_or_default();
        let is_fabric = network.get("fabric").is_some_and(|it| it == true);
        let vnet = network.get("vnet_id").and_then(Value::as_u64).or(is_fabric.then_some(7));
        let tag = vnet.map_or_else(|| "external".to_owned(), |vnet| format!("sdc_overlay/{vnet}"));
        network.insert("uuid".to_owned(), json!(uuid));
        if vnet.is_some() {
            network.insert("nic_tag".to_owned(), json!(tag));
        }
        for (name, value) in [
            ("name", json!(format!("net{n}"))),
            ("nic_tag", json!(tag)),
            ("vlan_id", json!(2 + n)),
            ("subnet", json!(subnet)),
        ] {
            network.entry(name).or_insert(value);
        }
        network.insert("provision_start_ip".to_owned(), json!(format!("{base}.10")));
        network.insert("provision_end_ip".to_owned(), json!(format!("{base}.250")));
        seed.networks.push(network);
    }
    napi.seed(&seed).map_err(anyhow::Error::msg)
}
