// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Shared volumes in the lab: volapi over the lab's services and a workflow API, and its part of the story.
//! Storage VMs are VMs of the simulated node: VMAPI's jobs give them NICs from NAPI and order them of CNAPI.

use std::time::Duration;

use http::Method;
use mocks::{napi, workflow};
use rig::nfs;
use sdc_clients::Error;
use sdc_clients::http::{Call, Http};
use sdc_clients::vmapi::Vmapi;
use serde_json::{Map, Value, json};
use simnode::Node;

use super::asking::{OWN_AGENT, found, until};
use super::error::LabError;
use super::jobs;
use super::moves;
use super::outcome::Outcome;
use super::screen::{Screen, Voice};
use super::serving::{self, Serving};
use super::world::World;

const OWNER: &str = "644810da-6ce1-40a9-93db-c23dfb772fd2";
const NETWORK: &str = "8036d58d-7821-4ae3-a752-15be1d92344c";
const PACKAGE: &str = "aaaa0010-1111-4111-8111-000000000010";
/// The images of storage VMs that volapi looks for by default.
const IMAGES: [&str; 2] =
    ["800db35c-5408-11eb-9792-872f658e7911", "9fb86870-1941-11e6-8002-4f231c890ed1"];
/// The VM that uses the volume.
const USER: &str = "99999999-9999-4999-8999-999999999999";
/// The longest that any step may take.
const PATIENCE: Duration = Duration::from_secs(90);

/// What asks volapi, and the service that only volapi asks.
#[derive(Debug)]
pub struct Volumes {
    http: Http,
    status: Http,
    vmapi: Vmapi,
    _workflow: workflow::Server,
}

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

fn client(url: &str) -> Result<Http, LabError> {
    let http = Http::new(url, OWN_AGENT).map_err(LabError::request(url))?;
    Ok(http.without_retries())
}

/// Returns the command that makes a volume in the lab.
pub(super) fn command() -> String {
    let asked =
        json!({"owner_uuid": OWNER, "type": "tritonnfs", "networks": [NETWORK], "name": "mine"});
    format!("sdc-volapi /volumes -d '{asked}'")
}

impl Volumes {
    /// Starts volapi in a world whose agents run.
    /// Fails if a service does not start.
    pub async fn start(world: &mut World) -> Result<Volumes, LabError> {
        let (papi, imgapi) = (&world.centre().papi, &world.centre().imgapi);
        let package = json!({"uuid": PACKAGE, "name": "sdc_volume_nfs_10", "quota": 10_240, "active": true,
            "max_physical_memory": 256, "cpu_cap": 100});
        papi.store().put(object(&package));
        for uuid in IMAGES {
            imgapi
                .store()
                .put(object(&json!({"uuid": uuid, "name": "nfsserver", "type": "zone-dataset"})));
        }
        world.napi.store().seed(&fabric()).map_err(LabError::Seed)?;
        let workflow = jobs::start(world).await?;
        world.start_volapi(&workflow.url()).await?;
        let (http, status) = (client(&world.volapi_url())?, client(&world.volapi_status_url())?);
        let vmapi = Vmapi::new(client(&world.vmapi.url())?);
        let volumes = Volumes { http, status, vmapi, _workflow: workflow };
        // An empty request is refused for what it lacks once volumes can be created.
        until("volapi creates volumes", PATIENCE, || async {
            let asked = volumes.ask(Call::new(Method::POST, &["volumes"]).json(&json!({}))).await;
            Ok(asked.is_err_and(|error| error.code() == Some("ValidationError")))
        })
        .await?;
        Ok(volumes)
    }

    /// Keeps what storage VMs serve served, beside whatever somebody does by hand. Never returns.
    pub(super) fn keep(&self, nodes: Vec<Node>) -> impl Future<Output = ()> + Send + use<> {
        serving::keep(self.http.clone(), self.vmapi.clone(), nodes)
    }

    async fn ask(&self, call: Call) -> Result<Value, Error> {
        let reply = self.http.execute(call).await?;
        Ok(serde_json::from_slice(reply.body()).unwrap_or_default())
    }

    async fn post(&self, path: &[&str], body: Value) -> Result<Value, LabError> {
        let asked = self.ask(Call::new(Method::POST, path).json(&body)).await;
        asked.map_err(LabError::request(format!("POST /{}", path.join("/"))))
    }

    async fn read(&self, volume: &str) -> Result<Value, LabError> {
        let shown = self.ask(Call::get(&["volumes", volume])).await;
        shown.map_err(LabError::request("reading a volume"))
    }

    async fn references(&self, volume: &str) -> Result<Value, LabError> {
        let asked = self.ask(Call::get(&["volumes", volume, "references"])).await;
        asked.map_err(LabError::request("the references of a volume"))
    }

    /// Plays its part of the story: a volume is created, used and deleted; with a second node its storage VM moves.
    pub(super) async fn play(
        &self,
        world: &World,
        other: Option<&World>,
        screen: &Screen,
        outcome: &mut Outcome,
    ) -> Result<(), LabError> {
        let say = |text: &str| screen.say(Voice::Lab, text);
        say("volumes: creating the volume tour-data");
        let (volume, vm) = self.create(world).await?;
        outcome.add(screen, format!("volume ready, its storage VM {vm} runs"), true);

        say("volumes: a client writes and reads a file over NFS");
        let mut serving = match nfs::why_not() {
            None => Some(self.serve(world, screen, outcome, &volume).await?),
            Some(why) => {
                say(&format!("skipped: {why}"));
                None
            }
        };

        say("volumes: provisioning a VM that mounts it");
        self.used(&volume).await?;
        let deleted = self.delete(&volume).await;
        let is_refused = deleted.is_err_and(|error| error.code() == Some("VolumeInUse"));
        let text = "volume used by the VM that mounts it, and not deleted meanwhile";
        outcome.add(screen, text.to_owned(), is_refused);

        if let Some(other) = other {
            say("volumes: moving its storage VM to node 2");
            serving = self.moved([world, other], screen, outcome, &volume, &vm, serving).await?;
        }
        let world = other.unwrap_or(world);

        say("volumes: destroying that VM, deleting the volume");
        drop(serving);
        self.gone(world, &volume, &vm).await?;
        outcome.add(screen, "volume, storage VM and NICs gone".to_owned(), true);
        Ok(())
    }

    /// Creates a volume; returns it and its storage VM once both are as they should be.
    async fn create(&self, world: &World) -> Result<(String, String), LabError> {
        let asked = json!({"owner_uuid": OWNER, "type": "tritonnfs", "networks": [NETWORK],
            "name": "tour-data", "labels": {"purpose": "tour"}});
        let made = self.post(&["volumes"], asked).await?;
        let text = |name: &str| made[name].as_str().unwrap_or_default().to_owned();
        let (volume, vm) = (text("uuid"), text("vm_uuid"));
        until("the volume is ready and exported by a VM of the node", PATIENCE, || async {
            let shown = self.read(&volume).await?;
            let on_node = found(world.hub()?.vm(&vm, false).await, "reading the storage VM")?;
            let Some(on_node) = on_node else { return Ok(false) };
            let ip = on_node["nics"][0]["ip"].as_str().unwrap_or_default();
            Ok(shown["state"] == "ready"
                && on_node["state"] == "running"
                && shown["filesystem_path"] == format!("{ip}:/zones/{vm}/data"))
        })
        .await?;
        Ok((volume, vm))
    }

    /// Has the storage VM serve its volume; a client uses it, and volapi sees when the server is gone.
    async fn serve(
        &self,
        world: &World,
        screen: &Screen,
        outcome: &mut Outcome,
        volume: &str,
    ) -> Result<Serving, LabError> {
        let shown = self.read(volume).await?;
        let path = shown["filesystem_path"].as_str().unwrap_or_default();
        let serving = Serving::start(world.node(), path).await?;
        let text = format!("file written to {path} over NFS, read, and in the storage VM");
        outcome.add(screen, text, serving.is_shared("before").await?);
        let name = &shown["name"];
        until("volapi hears the NFS server", PATIENCE, || self.is_silent(name, false)).await?;
        let away = until("volapi misses the NFS server", PATIENCE, || self.is_silent(name, true));
        let (serving, ()) = serving.without_server(world.node(), away).await?;
        until("volapi hears the NFS server", PATIENCE, || self.is_silent(name, false)).await?;
        let text = "storage VM that ran and did not serve named by volapi, until it served again";
        outcome.add(screen, text.to_owned(), serving.is_shared("after").await?);
        Ok(serving)
    }

    /// Moves the storage VM to another node, where a snapshot made before is rolled back to, and where it serves again:
    /// the volume, its users and its files stay.
    async fn moved(
        &self,
        worlds: [&World; 2],
        screen: &Screen,
        outcome: &mut Outcome,
        volume: &str,
        vm: &str,
        serving: Option<Serving>,
    ) -> Result<Option<Serving>, LabError> {
        let data = format!("zones/{vm}/data");
        let [here, there] = worlds.map(World::node);
        here.write_file(&data, "moves", b"before")?;
        self.post(&["volumes", volume, "snapshot"], json!({"name": "kept"})).await?;
        until("the snapshot is made", PATIENCE, async || {
            Ok(self.read(volume).await?["snapshots"][0]["state"] == "created")
        })
        .await?;
        let before = (self.read(volume).await?, self.references(volume).await?);
        let moving = async {
            moves::for_good(worlds[0], vm, there.cn_uuid(), PATIENCE).await?;
            there.write_file(&data, "moves", b"after")?;
            let back = json!({"name": "kept", "force": true});
            self.post(&["volumes", volume, "rollbacktosnapshot"], back).await?;
            until("the volume is as it was", PATIENCE, async || {
                Ok(self.read(volume).await?["state"] == "ready")
            })
            .await
        };
        let serving = match serving {
            // Its server ends with the VM.
            Some(serving) => Some(serving.without_server(there, moving).await?.0),
            None => moving.await.map(|()| None)?,
        };
        let after = (self.read(volume).await?, self.references(volume).await?);
        let contents = there.contents(&*there.datasets()?, &data)?;
        let text = "storage VM moved and rolled back there, the volume, its users and its files as they were";
        outcome.add(
            screen,
            text.to_owned(),
            after == before && contents.file("moves") == Some(b"before"),
        );
        if let Some(serving) = &serving {
            let name = &before.0["name"];
            until("volapi hears the NFS server", PATIENCE, || self.is_silent(name, false)).await?;
            let text = "file written over NFS to the storage VM on its new node";
            outcome.add(screen, text.to_owned(), serving.is_shared("moved").await?);
        }
        Ok(serving)
    }

    /// Returns whether volapi's status says of a volume's storage VM that it does not serve.
    async fn is_silent(&self, name: &Value, wanted: bool) -> Result<bool, LabError> {
        let page = self.status.execute(Call::get(&["status"])).await.and_then(|it| it.object());
        let page = page.map_err(LabError::request("volapi's status"))?;
        let all = page.get("degraded").and_then(Value::as_array).into_iter().flatten();
        let is_named = |it: &Value| it["name"] == *name && it["storage_vm"] == "does not serve";
        Ok(page["last_calls"].is_string() && all.into_iter().any(is_named) == wanted)
    }

    /// Provisions a VM that mounts the volume, as VMAPI's job would: it reserves it before.
    async fn used(&self, volume: &str) -> Result<(), LabError> {
        let mounts = json!([{"name": "tour-data", "mountpoint": "/data", "mode": "rw", "type": "tritonnfs"}]);
        let reserved = json!({"owner_uuid": OWNER, "job_uuid": volume, "vm_uuid": USER,
            "volume_name": "tour-data"});
        self.post(&["volumereservations"], reserved).await?;
        let vm = json!({"uuid": USER, "alias": "tour-user", "owner_uuid": OWNER, "brand": "joyent",
            "ram": 256, "networks": [NETWORK], "image_uuid": IMAGES[0],
            "internal_metadata": {"sdc:volumes": mounts.to_string()}});
        let made = self.vmapi.create_vm(&object(&vm)).await;
        made.map_err(LabError::request("creating a VM"))?;
        until(
            "the VM that mounts the volume uses it, and reserves it no more",
            PATIENCE,
            || async {
                let reserved = self.ask(Call::get(&["volumereservations"])).await;
                let reserved = reserved.map_err(LabError::request("the reservations"))?;
                Ok(self.references(volume).await? == json!([USER]) && reserved == json!([]))
            },
        )
        .await
    }

    async fn delete(&self, volume: &str) -> Result<Value, Error> {
        self.ask(Call::new(Method::DELETE, &["volumes", volume])).await
    }

    /// Destroys the VM that mounts the volume, and deletes the volume.
    async fn gone(&self, world: &World, volume: &str, vm: &str) -> Result<(), LabError> {
        let deleted = self.vmapi.delete_vm(USER).await;
        deleted.map_err(LabError::request("destroying the VM that mounts the volume"))?;
        until("nothing uses the volume", PATIENCE, || async {
            Ok(self.references(volume).await? == json!([]))
        })
        .await?;
        self.delete(volume).await.map_err(LabError::request("deleting the volume"))?;
        until("the volume, its storage VM and their NICs are gone", PATIENCE, || async {
            let shown =
                found(self.ask(Call::get(&["volumes", volume])).await, "reading the volume")?;
            let on_node = found(world.hub()?.vm(vm, false).await, "reading the storage VM")?;
            let nics = world.nics().await?;
            let is_left = |vm: &str| nics.iter().any(|nic| nic.belongs_to_uuid == vm);
            Ok(shown.is_none() && on_node.is_none() && !is_left(vm) && !is_left(USER))
        })
        .await
    }
}

/// The owner's fabric network. It is this machine's own, one for each process, so that a storage VM can serve.
fn fabric() -> napi::SeedFile {
    let net = format!("127.{}", 64 + std::process::id() % 64);
    let tag = object(&json!({"name": "sdc_overlay"}));
    let network = object(&json!({
        "uuid": NETWORK, "name": "tour-fabric", "nic_tag": "sdc_overlay/11", "vlan_id": 2,
        "subnet": format!("{net}.0.0/22"), "provision_start_ip": format!("{net}.0.5"),
        "provision_end_ip": format!("{net}.3.250"), "owner_uuids": [OWNER],
    }));
    napi::SeedFile { nic_tags: vec![tag], networks: vec![network], ..napi::SeedFile::default() }
}
