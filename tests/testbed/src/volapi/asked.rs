// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A service that is asked over HTTP, in process, in a small data centre.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use daemon::{Shutdown, Tasks};
use http::Request;
use serde_json::{Value, json};
use store::Store;
use volapi::service::{Service, ServiceConfig};
use volumes_core::requests::{self, Params};
use volumes_core::volume::State;

use super::fuse::Fuse;
use super::peers::{Call, DataCentre};
use super::running::start_with;

pub(super) const OWNER: &str = "644810da-6ce1-40a9-93db-c23dfb772fd2";
pub(super) const OTHER: &str = "99999999-9999-4999-8999-999999999999";
/// Fabric networks of the owner, one of another, one that is no fabric.
pub(super) const NETWORK: &str = "8036d58d-7821-4ae3-a752-15be1d92344c";
pub(super) const SECOND: &str = "8036d58d-7821-4ae3-a752-15be1d923402";
pub(super) const FOREIGN: &str = "8036d58d-7821-4ae3-a752-15be1d923403";
pub(super) const PLAIN: &str = "8036d58d-7821-4ae3-a752-15be1d923404";
/// PAPI's packages of 10 and 20 GiB.
pub(super) const COMPUTE_10G: &str = "aaaa0010-1111-4111-8111-000000000010";
pub(super) const COMPUTE_20G: &str = "aaaa0011-1111-4111-8111-000000000011";

pub(super) struct World {
    pub(super) service: Arc<Service>,
    pub(super) data_centre: DataCentre,
    pub(super) store: Store,
    pub(super) fuse: Arc<Fuse>,
    routes: Router,
}

impl World {
    /// The service with what RFD 26 has, or as deployed.
    pub(super) async fn start(rfd26: bool) -> World {
        World::with(|settings| settings.rfd26 = rfd26).await
    }

    pub(super) async fn with(set: impl FnOnce(&mut ServiceConfig)) -> World {
        World::made(Store::in_memory().unwrap(), set).await
    }

    /// The service as deployed, over this store.
    pub(super) async fn over(store: &Store) -> World {
        World::made(store.clone(), |_| {}).await
    }

    async fn made(store: Store, set: impl FnOnce(&mut ServiceConfig)) -> World {
        let (data_centre, fuse) = (DataCentre::new(&around()).unwrap(), Fuse::none());
        data_centre.light(&fuse);
        let service = start_with(&store, &data_centre, &fuse, set).await.unwrap();
        World::of(service, data_centre, store, fuse)
    }

    /// The process comes back over the same records.
    pub(super) async fn come_back(self) -> World {
        self.fuse.clear();
        let rfd26 = self.service.shared.settings.rfd26;
        let again = start_with(&self.store, &self.data_centre, &self.fuse, |it| it.rfd26 = rfd26);
        World::of(again.await.unwrap(), self.data_centre, self.store, self.fuse)
    }

    fn of(service: Arc<Service>, data_centre: DataCentre, store: Store, fuse: Arc<Fuse>) -> World {
        let tasks = Tasks::new(Shutdown::new());
        let routes = volapi::http::router(Arc::clone(&service), tasks, "test");
        World { service, data_centre, store, fuse, routes }
    }

    /// Returns the status and the body of the answer.
    pub(super) async fn ask(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        let request = Request::builder().method(method).uri(path);
        let request = request.header("content-type", "application/json").body(body).unwrap();
        let response = daemon::http::call(self.routes.clone(), request).await;
        let status = response.status().as_u16();
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, serde_json::from_slice(&body).unwrap_or_default())
    }

    pub(super) async fn get(&self, path: &str) -> (u16, Value) {
        self.ask("GET", path, Value::Null).await
    }

    pub(super) async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        self.ask("POST", path, body).await
    }

    /// Asks for a volume with these parameters besides the required ones.
    pub(super) async fn create(&self, name: &str, more: Value) -> (u16, Value) {
        let mut body = required(name);
        body.extend(more.as_object().cloned().unwrap());
        self.post("/volumes", Value::Object(body)).await
    }

    /// Makes a volume whose storage VM VMAPI has yet to create. Returns it and the VM.
    pub(super) async fn creating(&self, name: &str) -> (String, String) {
        let asked = requests::create(&required(name)).unwrap();
        let made = self.service.creates.create(&asked).await.unwrap();
        let text = |name: &str| made[name].as_str().unwrap().to_owned();
        (text("uuid"), text("vm_uuid"))
    }

    pub(super) async fn state(&self, volume: &str) -> State {
        self.service.shared.records.volume(volume, None).await.unwrap().unwrap().value.state()
    }

    /// Makes a volume whose storage VM runs with a NIC on each of these networks. Returns it and the VM.
    pub(super) async fn volume(&self, name: &str, networks: &[&str]) -> (String, String) {
        let (status, made) = self.create(name, json!({"networks": networks})).await;
        assert_eq!(status, 201, "{made}");
        let text = |name: &str| made[name].as_str().unwrap().to_owned();
        let (volume, vm) = (text("uuid"), text("vm_uuid"));
        let running = json!({"state": "running", "nics": nics(networks), "zonepath": "/zones/z"});
        self.vm(&vm, running);
        self.service.follower.follow(&vm, None).await.unwrap();
        (volume, vm)
    }

    /// Sets fields of a VM's record, which is made if there is none.
    pub(super) fn vm(&self, vm: &str, set: Value) {
        let mut record = self.data_centre.vms.get(vm).unwrap_or_default();
        for (name, value) in [("uuid", vm), ("brand", "joyent"), ("owner_uuid", OWNER)] {
            record.entry(name).or_insert_with(|| json!(value));
        }
        record.extend(set.as_object().cloned().unwrap());
        self.data_centre.vms.put(record);
    }

    /// Returns what VMAPI was asked to change since the last time.
    pub(super) fn orders(&self) -> Vec<Call> {
        let mut calls = self.data_centre.take_calls();
        calls.retain(|call| call.peer == "vmapi" && call.method != "GET");
        calls
    }
}

/// The data centre: its networks and packages.
pub(super) fn around() -> Value {
    json!({
        "networks": {
            NETWORK: {"fabric": true, "owner_uuids": [OWNER]},
            SECOND: {"fabric": true, "owner_uuids": [OWNER]},
            FOREIGN: {"fabric": true, "owner_uuids": [OTHER]},
            PLAIN: {"owner_uuids": [OWNER]},
        },
        "package_quotas": [10240, 20480],
    })
}

/// What a request for a volume has to have.
pub(super) fn required(name: &str) -> Params {
    let asked =
        json!({"owner_uuid": OWNER, "type": "tritonnfs", "networks": [NETWORK], "name": name});
    asked.as_object().cloned().unwrap()
}

/// NICs on these networks, each with an address of its own.
pub(super) fn nics(networks: &[&str]) -> Value {
    let nic = |network: &&str| {
        let last = &network[network.len() - 2..];
        let octet = u8::from_str_radix(last, 16).unwrap();
        let (mac, ip) = (format!("90:b8:d0:00:00:{last}"), format!("10.0.{octet}.1"));
        json!({"mac": mac, "ip": ip, "network_uuid": network})
    };
    networks.iter().map(nic).collect()
}
