// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A small data centre: volapi over a store in memory, the mock services around it, and the programs under test.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use daemon::{Shutdown, Tasks};
use mocks::faults::{Action, Rule};
use mocks::{cnapi, imgapi, vmapi, workflow};
use sdc_clients::Http;
use serde_json::{Map, Value, json};
use store::{Expect, Store};
use tokio::net::TcpListener;
use tokio::process::Command;
use volapi::config::Config;
use volapi::http::router;
use volapi::peers::Peers;
use volapi::records::Records;
use volapi::service::Service;
use volumes_core::reservation::Reservation;
use volumes_core::volume::{NewVolume, State, Volume};

/// Longer than anything takes on a busy machine.
const LATE: Duration = Duration::from_secs(120);

pub const OWNER: &str = "644810da-6ce1-40a9-93db-c23dfb772fd2";
pub const OTHER: &str = "930896af-bf8c-48d4-885c-6573a94b1853";
pub const CN: &str = "564d0b8e-6099-4c50-a1b1-0f0b30000001";
/// Volumes: `data` of each owner, and `logs`.
pub const DATA: &str = "11111111-1111-4111-8111-111111111111";
pub const LOGS: &str = "22222222-2222-4222-8222-222222222222";
pub const THEIRS: &str = "33333333-3333-4333-8333-333333333333";
/// A VM that uses `data`.
pub const USER: &str = "99999999-9999-4999-8999-999999999999";
/// The image of the storage VMs.
pub const IMAGE: &str = "80000000-0000-4000-8000-000000000001";

/// What a run printed, and how it ended.
#[derive(Debug, PartialEq, Eq)]
pub struct Finished {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// The data centre.
pub struct World {
    pub volapi: String,
    pub service: Arc<Service>,
    pub vmapi: vmapi::Server,
    pub cnapi: cnapi::Server,
    pub imgapi: imgapi::Server,
    pub workflow: workflow::Server,
}

/// The storage VM of a volume.
pub fn zone(volume: &str) -> String {
    volume.replace("-8", "-9")
}

pub fn object(value: Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap()
}

impl World {
    /// Three volumes, of which one is used by a VM.
    pub async fn start() -> World {
        let here = "127.0.0.1:0".parse().unwrap();
        let vmapi = vmapi::Server::start(here).await.unwrap();
        let cnapi = cnapi::Server::start(here).await.unwrap();
        let imgapi = imgapi::Server::start(here).await.unwrap();
        let workflow = workflow::Server::start(here).await.unwrap();
        run_jobs(&vmapi, &workflow);
        let http = |url: &str| Http::new(url, "volapi").unwrap().without_retries();
        let peers = Peers {
            vmapi: http(&vmapi.url()),
            cnapi: http(&cnapi.url()),
            papi: http("http://127.0.0.1:1"),
            napi: http("http://127.0.0.1:1"),
            imgapi: http(&imgapi.url()),
            workflow: http("http://127.0.0.1:1"),
            snapshots: None,
        };
        let records = Records::open(Store::in_memory().unwrap()).await.unwrap();
        let text = json!({"instance": OTHER, "vmapi": {"url": "http://a"}, "cnapi": {"url": "http://a"},
            "papi": {"url": "http://a"}, "napi": {"url": "http://a"}, "imgapi": {"url": "http://a"},
            "workflow": {"url": "http://a"}});
        let settings = Config::from_json(&text.to_string()).unwrap().settings.clone();
        let service = Arc::new(Service::new(records, peers, settings));
        let routes = router(Arc::clone(&service), Tasks::new(Shutdown::new()), "volapi");
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let volapi = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        let world = World { volapi, service, vmapi, cnapi, imgapi, workflow };
        world.volume(DATA, OWNER, "data", &[USER]).await;
        world.volume(LOGS, OWNER, "logs", &[]).await;
        world.volume(THEIRS, OTHER, "data", &[]).await;
        let needs = r#"[{"name": "data", "mountpoint": "/srv/my data", "mode": "ro"}]"#;
        world.vm(json!({"uuid": USER, "state": "running", "brand": "lx", "owner_uuid": OWNER,
            "alias": "web01", "server_uuid": CN, "internal_metadata": {"sdc:volumes": needs}}));
        world
    }

    pub fn vm(&self, vm: Value) {
        self.vmapi.store().put(object(vm));
    }

    /// A ready volume with its storage VM.
    pub async fn volume(&self, uuid: &str, owner: &str, name: &str, users: &[&str]) {
        let mut volume = Volume::new(NewVolume {
            uuid: uuid.to_owned(),
            labels: None,
            name: name.to_owned(),
            owner_uuid: owner.to_owned(),
            size: 10240.0,
            create_timestamp: daemon::wall::now().as_millisecond(),
            refs: users.iter().map(|user| (*user).to_owned()).collect(),
            networks: vec![CN.to_owned()],
            vm_uuid: zone(uuid),
        });
        volume.set_state(State::Ready);
        volume.set_filesystem_path("10.0.0.7:/exports/data");
        self.service.shared.records.volumes.put(uuid, Expect::Absent, &volume).await.unwrap();
        self.vm(
            json!({"uuid": zone(uuid), "state": "running", "brand": "joyent", "owner_uuid": owner,
            "alias": format!("nfs-shared-volume-{uuid}"), "server_uuid": CN, "image_uuid": IMAGE,
            "internal_metadata": {"sdc:system_role": "nfsvolumestorage"}}),
        );
    }

    pub async fn reserve(&self, reservation: Value) {
        let made: Reservation = serde_json::from_value(reservation).unwrap();
        self.service
            .shared
            .records
            .reservations
            .put(&made.uuid, Expect::Absent, &made)
            .await
            .unwrap();
    }

    /// The node says how much the datasets of this volume's storage VM hold.
    pub fn estimate(&self, volume: &str) {
        let body = json!({"size": 1_610_612_736_u64});
        let action = Action::Status { status: 200, body: Some(body), retry_after: None };
        self.vmapi.add_fault(Rule::new("POST", &format!("/vms/{}", zone(volume)), action));
    }

    /// VMAPI's record of the storage VM of a volume.
    pub fn storage_vm(&self, volume: &str) -> Map<String, Value> {
        self.vmapi.store().get(&zone(volume)).unwrap()
    }

    /// The job that was ordered last.
    pub fn job(&self) -> String {
        self.workflow.store().newest().unwrap()["uuid"].as_str().unwrap().to_owned()
    }

    /// What VMAPI was told to do: the query and the body of each order.
    pub fn orders(&self) -> Vec<(String, Value)> {
        let posts = self.vmapi.requests().into_iter().filter(|it| it.method == "POST");
        posts
            .map(|it| {
                let body = serde_json::from_str(&it.body).unwrap_or_default();
                (format!("{}?{}", it.path, it.query), body)
            })
            .collect()
    }

    /// Runs `sdc-voladm` to its end.
    pub async fn voladm(&self, args: &[&str]) -> Finished {
        let (vmapi, cnapi, imgapi) = (self.vmapi.url(), self.cnapi.url(), self.imgapi.url());
        let places =
            ["--url", &self.volapi, "--vmapi", &vmapi, "--cnapi", &cnapi, "--imgapi", &imgapi];
        run(env!("CARGO_BIN_EXE_sdc-voladm"), &[args, &places].concat()).await
    }
}

/// Jobs do what a node does: it reboots what runs, and starts what is stopped.
fn run_jobs(vmapi: &vmapi::Server, workflow: &workflow::Server) {
    let vms = vmapi.store().clone();
    vms.peers().workflow_url = workflow.url();
    let hands: vmapi::Hands = Arc::new(move |order| {
        let vms = vms.clone();
        Box::pin(async move {
            let mut vm = vms.get(&order.vm_uuid).ok_or("no such VM")?;
            let state = vm["state"].as_str().unwrap_or_default().to_owned();
            match (order.verb, state.as_str()) {
                ("reboot", "running") => {}
                ("start", "stopped") => drop(vm.insert("state".to_owned(), json!("running"))),
                ("reprovision", _) => {
                    let image = order.vm.get("image_uuid").cloned();
                    vm.insert("image_uuid".to_owned(), image.unwrap_or_default());
                }
                (verb, state) => return Err(format!("Cannot {verb} a VM that is {state}")),
            }
            vms.put(vm);
            Ok(())
        })
    });
    vmapi.store().run_jobs(workflow.store().clone(), hands);
}

/// Runs a program to its end, without a terminal.
#[allow(clippy::disallowed_methods)] // the program under test
pub async fn run(program: &str, args: &[&str]) -> Finished {
    let mut command = Command::new(program);
    for name in ["VOLAPI_URL", "VMAPI_URL", "CNAPI_URL", "IMGAPI_URL", "SDC_VOLADM_CONFIG"] {
        command.env_remove(name);
    }
    command.args(args).stdin(Stdio::null()).kill_on_drop(true);
    let done = tokio::time::timeout(LATE, command.output()).await.expect("it ends").unwrap();
    Finished {
        code: done.status.code(),
        stdout: String::from_utf8(done.stdout).unwrap(),
        stderr: String::from_utf8(done.stderr).unwrap(),
    }
}
