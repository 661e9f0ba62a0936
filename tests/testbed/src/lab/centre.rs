// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The services of the data centre, which all its nodes share. CNAPI's tasks act on the simulated nodes.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use mocks::cnapi::{Order, TaskError};
use mocks::faults::{Mock as _, Reply};
use mocks::{cnapi, imgapi, napi, papi, vmapi};
use rig::port::Port;
use sdc_clients::vminfod::{VmFields as _, VmObject, Vminfod};
use serde_json::{Map, Value, json};
use simnode::broken::Broken;
use simnode::vmadm::Image;
use simnode::{Node, NodeError, Verbs, Wait};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::broken::Things;
use super::control::{self, Hands, Told};
use super::daemons::{Daemons, Death};
use super::error::LabError;
use super::options::WorldOptions;
use super::ports::{self, local};
use super::silent::Silent;
use super::smf::Site;
use super::trust::Trust;

/// The user that owns the data centre.
pub(super) const ADMIN: &str = "930896af-bf8c-48d4-885c-6573a94b1853";

/// What a node cannot do now is looked at so often.
const LOOK: Duration = Duration::from_millis(100);

/// Where migration-service is, once it runs.
#[derive(Clone, Copy, Debug)]
pub struct Migrations {
    /// Where it stands in front of VMAPI.
    pub listen: SocketAddr,
    pub status: SocketAddr,
    /// Where agents and volapi reach it.
    pub trust: SocketAddr,
}

impl Migrations {
    /// The base URL of VMAPI's and its own routes.
    pub fn url(&self) -> String {
        format!("http://{}", self.listen)
    }

    /// The base URL for agents and volapi.
    pub(super) fn trust_url(&self) -> String {
        format!("https://{}", self.trust)
    }

    /// The base URL of its pages.
    pub fn status_url(&self) -> String {
        format!("http://{}", self.status)
    }
}

/// The mock services. Clones share them; the last one stops them.
#[derive(Clone, Debug)]
pub struct Centre {
    /// The mock NAPI.
    pub napi: Arc<napi::Server>,
    /// The mock VMAPI.
    pub vmapi: Arc<vmapi::Server>,
    /// The mock CNAPI.
    pub cnapi: Arc<cnapi::Server>,
    /// The mock PAPI.
    pub papi: Arc<papi::Server>,
    /// The mock IMGAPI.
    pub imgapi: Arc<imgapi::Server>,
    /// migration-service, which is a program.
    pub migrations: Migrations,
    /// The ports of each node's migration-agent at its admin address, for orders and for data.
    pub(super) agents: [u16; 2],
    /// Keeps these ports.
    _held: Arc<[Port]>,
    /// Who is to be let in.
    pub(super) trust: Trust,
    nodes: Arc<Nodes>,
    hands: Hands,
    deaths: mpsc::Sender<Death>,
}

/// The directories of the nodes, by uuid.
#[derive(Debug, Default)]
struct Nodes(Mutex<HashMap<String, PathBuf>>);

impl Nodes {
    fn held(&self) -> MutexGuard<'_, HashMap<String, PathBuf>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Centre {
    /// Starts the services, without nodes.
    pub(super) async fn start(options: &WorldOptions) -> Result<Centre, LabError> {
        let settings = napi::Options {
            seed: options.seed,
            admin_uuid: ADMIN.to_owned(),
            ..napi::Options::era(options.era)
        };
        let napi = napi::Server::start(local(options.napi_port), settings)
            .await
            .map_err(LabError::io(format!("listening on port {} as NAPI", options.napi_port)))?;
        let mut held = Vec::new();
        let mut free = |given| {
            ports::or_free(given, &mut held).map_err(LabError::io("looking for a free port"))
        };
        // Tests stop it and start it again where it was.
        let vmapi = vmapi::Server::start(local(free(options.vmapi_port)?))
            .await
            .map_err(LabError::io(format!("listening on port {} as VMAPI", options.vmapi_port)))?;
        let cnapi = cnapi::Server::start(local(0))
            .await
            .map_err(LabError::io("listening on a free port as CNAPI"))?;
        let nodes = Arc::new(Nodes::default());
        let known = Arc::clone(&nodes);
        let imgapi = imgapi::Server::start(local(0)).await;
        let imgapi = Arc::new(imgapi.map_err(LabError::io("listening on a free port as IMGAPI"))?);
        let images = imgapi.store().clone();
        let silent = Silent::default();
        let is_silent = silent.clone();
        cnapi.store().set_hands(Arc::new(move |order: Order| {
            let (node, images) = (known.held().get(&order.server_uuid).cloned(), images.clone());
            let silent = is_silent.clone();
            Box::pin(async move {
                silent.over(&order.server_uuid).await;
                carry_out(node.ok_or("this node is not in the lab")?, order, &images).await
            })
        }));
        let vms = vmapi.store().clone();
        cnapi.store().set_vms(Arc::new(move || Some(vms.all())));
        let papi = papi::Server::start(local(0)).await;
        let papi = Arc::new(papi.map_err(LabError::io("listening on a free port as PAPI"))?);
        let (napi, vmapi, cnapi) = (Arc::new(napi), Arc::new(vmapi), Arc::new(cnapi));
        let [listen, status, trust] = [free(0)?, free(0)?, free(0)?].map(local);
        let migrations = Migrations { listen, status, trust };
        let agents = [free(0)?, free(0)?];
        let _held = held.into();
        let trust = Trust::new(options.by_hand);
        let things = Things {
            sites: Vec::new(),
            napi: napi.store().clone(),
            vmapi: vmapi.store().clone(),
            silent,
        };
        let (hands, deaths) = control::hands(things, cnapi.store().clone());
        Ok(Centre {
            napi,
            vmapi,
            cnapi,
            papi,
            imgapi,
            migrations,
            agents,
            _held,
            trust,
            nodes,
            hands,
            deaths,
        })
    }

    /// Makes PAPI and IMGAPI know what these VMs were made of.
    pub fn know_origins(&self, vms: &[VmObject]) {
        let text = |vm: &VmObject, key: &str| vm.text(key).map(str::to_owned);
        let object = |value: Value| value.as_object().cloned().unwrap_or_default();
        for vm in vms {
            if let Some(uuid) = text(vm, "billing_id") {
                // A bhyve VM has no name of its package.
                let name = text(vm, "package_name").unwrap_or_else(|| format!("sample-{uuid}"));
                let mut package = object(json!({ "uuid": uuid, "name": name, "active": true }));
                // A node takes either VMs with a cap or VMs without one, and CNAPI reads it here.
                package.extend(vm.get("cpu_cap").map(|cap| ("cpu_cap".to_owned(), cap.clone())));
                let mib = |key: &str, factor: u64| Some(json!(vm.get(key)?.as_u64()? * factor));
                let sizes = [
                    ("max_physical_memory", mib("max_physical_memory", 1)),
                    ("quota", mib("quota", 1024)),
                ];
                package.extend(
                    sizes.into_iter().filter_map(|(key, size)| Some((key.to_owned(), size?))),
                );
                self.papi.store().put(package);
            }
            let disks = vm.get("disks").and_then(Value::as_array).into_iter().flatten();
            let of_disks = disks.filter_map(|disk| {
                let size = disk["image_size"].as_u64().unwrap_or_default();
                Some((disk["image_uuid"].as_str()?.to_owned(), "zvol", Some(size)))
            });
            let kind = if vm.text("brand") == Some("lx") { "lx-dataset" } else { "zone-dataset" };
            let own = text(vm, "image_uuid").map(|uuid| (uuid, kind, None));
            for (uuid, kind, size) in own.into_iter().chain(of_disks) {
                let name = format!("sample-{}", uuid.get(..8).unwrap_or_default());
                let files = json!([{ "compression": "gzip", "size": 1000, "sha1": "" }]);
                let mut image = object(json!({
                    "uuid": uuid, "name": name, "version": "1.0.0", "type": kind, "state": "active",
                    "files": files,
                }));
                image.extend(size.map(|mib: u64| ("image_size".to_owned(), json!(mib))));
                self.imgapi.store().put(image);
            }
        }
    }

    /// Makes a node known to CNAPI, with its admin address.
    pub(super) fn add(&self, node: &Node) {
        let sysinfo = std::fs::read_to_string(node.path("/tmp/.sysinfo.json")).ok();
        let sysinfo: Option<Map<String, Value>> =
            sysinfo.and_then(|text| serde_json::from_str(&text).ok());
        self.cnapi.store().put_sysinfo(&sysinfo.unwrap_or_default());
        self.nodes.held().insert(node.cn_uuid().to_owned(), node.dir().to_owned());
    }

    /// Makes the daemons of a node, none of which runs, known to the hands.
    pub(super) async fn join(&self, options: &WorldOptions, node: &Node) -> Daemons {
        let deaths = self.deaths.clone();
        let daemons = Daemons::new(&options.program, &options.dir, node.cn_uuid(), deaths);
        self.tell(Told::Joined(Box::new(Site::new(node, &daemons)))).await;
        daemons
    }

    /// Takes what is typed on the node of this directory.
    pub(super) fn listen(&self, dir: &Path) -> std::io::Result<JoinSet<()>> {
        control::listen(dir, self.hands.clone())
    }

    /// The lab is up.
    pub(super) async fn is_up(&self) {
        self.tell(Told::Up).await;
    }

    async fn tell(&self, told: Told) {
        // They are there for as long as this is.
        drop(self.hands.send(told).await);
    }

    /// Stops the services, if no other node needs them.
    pub(super) async fn stop(self) {
        if let Ok(cnapi) = Arc::try_unwrap(self.cnapi) {
            cnapi.stop().await;
        }
        if let Ok(papi) = Arc::try_unwrap(self.papi) {
            papi.stop().await;
        }
        if let Ok(imgapi) = Arc::try_unwrap(self.imgapi) {
            imgapi.stop().await;
        }
        if let Ok(napi) = Arc::try_unwrap(self.napi) {
            napi.stop().await;
        }
        if let Ok(vmapi) = Arc::try_unwrap(self.vmapi) {
            vmapi.stop().await;
        }
    }
}

/// What a node's own agent would do.
async fn carry_out(
    dir: PathBuf,
    mut order: Order,
    images: &imgapi::Store,
) -> Result<Value, TaskError> {
    let said = |error: NodeError| TaskError::from(error.to_string());
    let node = Node::open(dir).map_err(said)?;
    let with_hidden = order.params.get("include_dni").is_some_and(|it| it == "true");
    let load = async || {
        let url = node.vminfod_url().ok_or("its vminfod is not up")?;
        let hub = Vminfod::new(url, "testbed").map_err(|error| error.to_string())?;
        let vm = hub.vm(&order.vm_uuid, true).await;
        let no_vm = || TaskError::no_vm("VM.load error: no such zone configured");
        let vm = vm.map_err(|error| match error.is_not_found_resource() {
            true => no_vm(),
            false => error.to_string().into(),
        })?;
        let is_shown = with_hidden || !vm.is_hidden();
        is_shown.then_some(vm).ok_or_else(no_vm)
    };
    while order.verb != "load" && node.is_broken(Broken::Zfs) {
        tokio::time::sleep(LOOK).await;
    }
    let verbs = Verbs::new(&node, Wait::none());
    let done = |result: Result<(), NodeError>| result.map(|()| json!({})).map_err(said);
    match order.verb.as_str() {
        "load" => load().await.map(|vm| json!(vm)),
        "create" => {
            import_image(&node, &order.body, images).await?;
            order.body.shift_remove("image");
            let uuid = verbs.create(&order.body).await.map_err(said)?;
            Ok(json!({ "vm": { "uuid": uuid } }))
        }
        "delete" => {
            load().await?;
            verbs.delete(&order.vm_uuid).await.map_err(said)?;
            Ok(json!({}))
        }
        "start" => done(verbs.boot(&order.vm_uuid).await),
        "stop" => done(verbs.halt(&order.vm_uuid, 0).await),
        "reboot" => done(verbs.reboot(&order.vm_uuid).await),
        "reprovision" => {
            load().await?;
            import_image(&node, &order.body, images).await?;
            let image = order.body.get("image_uuid").and_then(Value::as_str).unwrap_or_default();
            done(verbs.reprovision(&order.vm_uuid, image).await)
        }
        "update" => done(verbs.update(&order.vm_uuid, &order.body).await),
        verb => Err(format!("a node of the lab cannot {verb}").into()),
    }
}

/// cn-agent imports the image of a VM, or of its first disk, where the pool lacks it: from IMGAPI, which says what
/// it is.
async fn import_image(
    node: &Node,
    vm: &Map<String, Value>,
    images: &imgapi::Store,
) -> Result<(), TaskError> {
    let said = |error: NodeError| TaskError::from(error.to_string());
    let of_vm = vm.get("image_uuid").and_then(Value::as_str);
    let of_disk = vm.get("disks").and_then(|disks| disks[0]["image_uuid"].as_str());
    let Some(uuid) = of_vm.or(of_disk) else { return Ok(()) };
    if node.datasets().map_err(said)?.get(&format!("zones/{uuid}")).is_some() {
        return Ok(());
    }
    let manifest = manifest(images, uuid).await?;
    let kind = manifest["type"].as_str().unwrap_or_default().to_owned();
    let image = Image { kind, size: manifest["image_size"].as_u64(), ..Image::default() };
    node.import_image(uuid, &image).map_err(said)
}

/// What IMGAPI has of an image.
async fn manifest(images: &imgapi::Store, uuid: &str) -> Result<Value, TaskError> {
    let asked = http::Request::get(format!("/images/{uuid}")).body(Bytes::new());
    let asked = asked.map_err(|error| format!("no image has the uuid {uuid}: {error}"))?;
    let Reply::Full(answer) = images.handle(asked).await else {
        return Err(format!("IMGAPI closed the connection when it was asked for {uuid}").into());
    };
    let body: Value = serde_json::from_slice(answer.body()).unwrap_or_default();
    match answer.status().as_u16() {
        200 => Ok(body),
        status => {
            let why = body["message"].as_str().unwrap_or_default();
            Err(format!("imgadm import {uuid}: IMGAPI answered {status}: {why}").into())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use simnode::CreateOptions;

    use super::*;
    use crate::lab::world::World;

    #[tokio::test]
    async fn nodes_of_a_lab_share_neither_addresses_nor_macs() {
        let dir = tempfile::tempdir().unwrap();
        let options = WorldOptions::new(dir.path().join("cn"), "testbed");
        let first = World::create(options).await.unwrap();
        let second = first.beside(1).await.unwrap();
        let has = |world: &World| {
            let mut has = BTreeSet::new();
            for zone in world.node().zones().unwrap().iter() {
                let text = std::fs::read_to_string(world.node().zone_xml(&zone.zonename)).unwrap();
                for name in ["mac-addr=\"", "name=\"ips\" value=\""] {
                    let values =
                        text.split(name).skip(1).map(|rest| rest.split('"').next().unwrap());
                    has.extend(values.map(str::to_owned));
                }
            }
            let sysinfo = std::fs::read_to_string(world.node().path("/tmp/.sysinfo.json")).unwrap();
            let sysinfo: Value = serde_json::from_str(&sysinfo).unwrap();
            has.insert(sysinfo["Admin IP"].to_string());
            has.insert(sysinfo["Network Interfaces"]["ixgbe0"]["MAC Address"].to_string());
            has
        };
        let (first, second) = (has(&first), has(&second));
        assert!(first.len() > 24 && second.len() > 24, "{first:?} {second:?}");
        assert_eq!(first.intersection(&second).collect::<Vec<_>>(), Vec::<&String>::new());
    }

    #[tokio::test]
    async fn an_image_is_imported_as_imgapi_has_it_and_not_at_all_where_it_has_none() {
        let dir = tempfile::tempdir().unwrap();
        let options = CreateOptions { vms: 0, ..CreateOptions::new(dir.path().join("cn")) };
        let (node, images) = (Node::create(&options).unwrap(), imgapi::Store::default());
        let [zone, disk, none] =
            ["1", "2", "3"].map(|n| format!("cccc000{n}-3333-4333-8333-000000000001"));
        let object = |value: Value| value.as_object().cloned().unwrap();
        images.put(object(json!({"uuid": zone, "type": "zone-dataset"})));
        images.put(object(json!({"uuid": disk, "type": "zvol", "image_size": 5120})));
        let of_zone = |image: &str| object(json!({"image_uuid": image}));
        import_image(&node, &of_zone(&zone), &images).await.unwrap();
        let of_disk = object(json!({"disks": [{"image_uuid": disk}]}));
        import_image(&node, &of_disk, &images).await.unwrap();
        let all = node.datasets().unwrap();
        let size =
            |name: &str| all.get(&format!("zones/{name}")).unwrap().get("volsize").to_owned();
        assert_eq!(
            (size(&disk), all.get(&format!("zones/{zone}@final")).is_some()),
            ("5368709120".to_owned(), true)
        );
        let refused = import_image(&node, &of_zone(&none), &images).await.unwrap_err();
        assert!(format!("{refused:?}").contains(&format!("image {none} not found")), "{refused:?}");
        assert!(node.datasets().unwrap().get(&format!("zones/{none}")).is_none());
    }
}
