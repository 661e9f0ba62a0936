// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.
//! A volume on a node.

use std::sync::Arc;

use daemon::http::Sender;
use serde_json::{Value, json};
use store::Store;
use volapi::service::Service;
use volumes_core::refused::Refused;
use volumes_core::requests::Params;
use volumes_core::snapshot::Stage;
use volumes_core::snapshots as asked;
use volumes_core::volume::{State, Volume};

use crate::volapi::asked::around;
use crate::volapi::cn::Cn;
use crate::volapi::crash::{VOLUME, create};
use crate::volapi::fuse::Fuse;
use crate::volapi::peers::DataCentre;
use crate::volapi::running::start;

/// A service, what is around it, and a volume that is ready.
pub struct World {
    pub store: Store,
    pub data_centre: DataCentre,
    pub fuse: Arc<Fuse>,
    pub service: Arc<Service>,
    pub vm: String,
}

pub fn params(value: Value) -> Params {
    value.as_object().cloned().unwrap()
}

impl World {
    pub async fn new() -> World {
        let data_centre = DataCentre::with_node(&around()).await.unwrap();
        let fuse = Fuse::none();
        data_centre.light(&fuse);
        let store = Store::in_memory().unwrap();
        let service = start(&store, &data_centre, &fuse).await.unwrap();
        let made = create(&service, VOLUME, "name").await.unwrap();
        let vm = made["vm_uuid"].as_str().unwrap().to_owned();
        let world = World { store, data_centre, fuse, service, vm };
        world.cn().make(&world.vm).await.unwrap();
        let nics = json!([{"ip": "10.0.0.1"}]);
        world.record(json!({"state": "running", "nics": nics, "zonepath": "/zones/z",
            "server_uuid": world.cn().uuid.to_string()}));
        world.service.follower.follow(&world.vm, None).await.unwrap();
        assert_eq!(world.volume().await.state(), State::Ready);
        world
    }

    pub fn cn(&self) -> &Cn {
        self.data_centre.cn.as_ref().unwrap()
    }

    /// Sets fields of VMAPI's record of the storage VM.
    pub fn record(&self, set: Value) {
        let mut record = self.data_centre.vms.get(&self.vm).unwrap();
        record.extend(params(set));
        self.data_centre.vms.put(record);
    }

    pub async fn volume(&self) -> Volume {
        self.service.shared.records.volume(VOLUME, None).await.unwrap().unwrap().value
    }

    /// The snapshots of the record, by name.
    pub async fn recorded(&self) -> Vec<(String, Stage)> {
        self.volume().await.snapshots().into_iter().map(|it| (it.name, it.state)).collect()
    }

    /// Writes into the volume and takes a snapshot, both of this name.
    pub async fn snap(&self, name: &str) -> Result<Value, Refused> {
        self.cn().write(&self.vm, name).unwrap();
        self.create(name).await
    }

    pub async fn create(&self, name: &str) -> Result<Value, Refused> {
        let asked = asked::create(&params(json!({"uuid": VOLUME, "name": name})))?;
        self.service.snapshots.create(&asked, &Sender::default()).await
    }

    pub async fn delete(&self, name: &str) -> Result<Value, Refused> {
        let asked = asked::one(&params(json!({"uuid": VOLUME, "name": name})))?;
        self.service.snapshots.delete(&asked, &Sender::default()).await
    }

    pub async fn roll_back(&self, name: &str) -> Result<Value, Refused> {
        self.roll_back_with(json!({"name": name})).await
    }

    pub async fn roll_back_with(&self, set: Value) -> Result<Value, Refused> {
        let mut all = params(json!({"uuid": VOLUME}));
        all.extend(params(set));
        self.service.snapshots.roll_back(&asked::roll_back(&all)?, &Sender::default()).await
    }

    /// The passes go on until nothing is left.
    pub async fn pass(&self) {
        for _ in 0..6 {
            self.service.tidy(None).await.unwrap();
        }
        assert!(self.service.shared.records.all_work().await.unwrap().is_empty(), "work is left");
    }

    /// The process is started again: it does not know yet where the agent is.
    pub async fn restart(&mut self) {
        self.service = start(&self.store, &self.data_centre, &self.fuse).await.unwrap();
    }

    /// The process comes back over the same store; what services took up late happens.
    pub async fn come_back(&mut self) {
        self.fuse.clear();
        self.restart().await;
        for request in self.fuse.take_late() {
            self.data_centre.take_up(&request).await;
        }
        self.pass().await;
    }

    /// The record says what is on the node, which serves, and more can be asked for.
    pub async fn check(&self, place: &str) {
        let volume = self.volume().await;
        assert_eq!(volume.state(), State::Ready, "{place}");
        assert!(volume.rollback().is_none(), "{place}");
        assert!(self.cn().runs(&self.vm).unwrap(), "{place}: the storage VM is stopped");
        let here: Vec<String> = volume.snapshots().into_iter().map(|it| it.uuid).collect();
        assert_eq!(here, self.cn().snapshots(&self.vm).unwrap(), "{place}");
        let states = self.recorded().await;
        assert!(states.iter().all(|(_, state)| *state == Stage::Created), "{place}: {states:?}");
        self.snap("one-more").await.unwrap_or_else(|refused| panic!("{place}: {refused}"));
        self.roll_back("one-more").await.unwrap_or_else(|refused| panic!("{place}: {refused}"));
        self.pass().await;
        assert_eq!(self.volume().await.state(), State::Ready, "{place}");
    }
}
