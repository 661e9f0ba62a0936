// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The node for the copy of a VM. CNAPI chooses by memory, NIC tags and affinity; it knows nothing of agents, CPUs,
//! clocks and pools. So its choice is checked as a node that an operator names is, and where an obstacle stands
//! against it CNAPI chooses among the others.

use sdc_clients::cnapi::{Affinity, BadAffinity, Placement, ServerQuery};
use sdc_clients::quoted;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::action_params::ActionParams;
use super::begin::{Asks, Vm};
use super::refused::Refused;
use super::state::Service;
use migration_core::checks::{self, Obstacle};
use migration_core::target_payload::made_of;

/// How many nodes are checked for one VM.
const CANDIDATES: usize = 8;

/// Why there is no node.
#[derive(Debug, thiserror::Error)]
pub enum Unplaced {
    /// The source's is the only one.
    #[error("there is no other compute node")]
    NoNode,
    /// CNAPI's answer, and the obstacles of each node that it chose.
    #[error("{why}")]
    NoneFits {
        why: String,
        /// One of them may fit when its agent answers.
        passes: bool,
    },
    /// CNAPI's answer names none.
    #[error("CNAPI chose the node {}, which is not a uuid", quoted(.0))]
    Odd(String),
    /// CNAPI would end on it.
    #[error("the image {0} has no file in IMGAPI: no node can install it")]
    NoFiles(String),
    /// CNAPI would refuse it.
    #[error("the VM's object has no {0} that CNAPI takes")]
    Lacks(&'static str),
    /// It was taken when the migration began.
    #[error(transparent)]
    Affinity(#[from] BadAffinity),
    /// With which node the others have to be compared is not known.
    #[error("migration-agent does not answer on the source's node")]
    NoSource,
    /// In VMAPI's sentence.
    #[error("{}", .0.message())]
    Package(Refused),
    /// Another service does not answer, or refuses.
    #[error(transparent)]
    Peer(#[from] sdc_clients::Error),
}

impl From<Unplaced> for Refused {
    fn from(unplaced: Unplaced) -> Refused {
        match unplaced {
            Unplaced::Package(refused) => refused,
            Unplaced::Peer(error) => error.into(),
            Unplaced::Odd(_) => Refused::internal(&unplaced.to_string()),
            Unplaced::NoSource => {
                Refused::coded(503, "ServiceUnavailableError", &unplaced.to_string())
            }
            other => Refused::precondition(&other.to_string()),
        }
    }
}

impl Service {
    /// Returns the node on which a migration of this VM has, or would have, its target. Changes nothing.
    pub async fn destination(
        &self,
        vm: &Vm,
        asked: &ActionParams,
        named: Option<Uuid>,
    ) -> Result<Uuid, Refused> {
        let kept = self.records.of_vm(vm.uuid).await?;
        if let Some(target) = kept.and_then(|kept| kept.record.target_server_uuid) {
            return Ok(target);
        }
        let findings = self.check(vm, named, Asks::Shared).await?;
        if let Some(refused) = Refused::obstacles(&findings) {
            return Err(refused);
        }
        match named {
            Some(target) => Ok(target),
            None => Ok(self.choose(vm, &asked.affinity, false, Asks::Shared).await?),
        }
    }

    /// Has CNAPI choose a node other than the VM's, without obstacles.
    /// Forced, it may be one whichever vm-agent it has.
    pub async fn choose(
        &self,
        vm: &Vm,
        affinity: &[Affinity],
        is_forced: bool,
        asks: Asks,
    ) -> Result<Uuid, Unplaced> {
        let mut placement = self.placement(vm, affinity).await?;
        let here = vm.server.ok_or(Unplaced::NoSource)?;
        let (used, source) =
            tokio::join!(self.agents.size(here, vm.uuid), self.node(here, vm, false, asks));
        let used = used.map_err(|_| Unplaced::NoSource)?.bytes;
        let (mut against, mut passes) = (Vec::new(), false);
        while against.len() < CANDIDATES && !placement.servers.is_empty() {
            let chosen = match self.peers.cnapi.allocate(&placement).await {
                Ok(chosen) => chosen.server.uuid,
                Err(error) if error.status() == Some(409) => {
                    against.insert(0, error.message().to_owned());
                    break;
                }
                Err(error) => return Err(error.into()),
            };
            let Ok(target) = chosen.parse::<Uuid>() else { return Err(Unplaced::Odd(chosen)) };
            let node = self.node(target, vm, true, asks).await;
            let mut found = checks::between(&source, &node, used, self.clock.now());
            if is_forced {
                found.force();
            }
            let obstacles = found.obstacles;
            if obstacles.is_empty() {
                return Ok(target);
            }
            passes |= obstacles.iter().all(Obstacle::passes);
            let texts: Vec<String> = obstacles.iter().map(ToString::to_string).collect();
            let texts = texts.join(", ");
            tracing::info!(vm = %vm.uuid, node = chosen, against = texts, "not placing the copy on this node");
            against.push(format!("{chosen}: {texts}"));
            placement.servers.retain(|server| *server != chosen);
        }
        Err(Unplaced::NoneFits { why: against.join("; "), passes })
    }

    /// Returns the manifest of the VM's image as CNAPI needs it: with the files that a node would fetch. Of an image
    /// that IMGAPI lacks, which the source's node sends, it has no more than the node knows.
    pub async fn manifest(&self, vm: &Map<String, Value>) -> Result<Map<String, Value>, Unplaced> {
        let found = self.peers.image(vm).await?;
        manifest(found, vm)
    }

    /// What CNAPI chooses by: the VM as it is now, which may have been resized since its package was made.
    async fn placement(&self, vm: &Vm, affinity: &[Affinity]) -> Result<Placement, Unplaced> {
        let query = ServerQuery { setup: Some(true), ..ServerQuery::default() };
        let servers = self.peers.cnapi.list_servers(&query).await?;
        let here = vm.server.map(|server| server.to_string());
        let servers = servers.into_iter().map(|server| server.uuid);
        let servers: Vec<String> = servers.filter(|it| here.as_ref() != Some(it)).collect();
        if servers.is_empty() {
            return Err(Unplaced::NoNode);
        }
        let object = &vm.object;
        let image = self.manifest(object).await?;
        let package = self.peers.package(object).await.map_err(Unplaced::Package)?;
        let nics = object.get("nics").and_then(Value::as_array).into_iter().flatten();
        // `sdc_overlay/11` is a fabric of the tag `sdc_overlay`.
        let tags = nics.filter_map(|nic| nic["nic_tag"].as_str()?.split('/').next());
        let nic_tags: Vec<String> = tags.map(str::to_owned).collect();
        let mut vm = wanted(object)?;
        let affinity = if affinity.is_empty() { stored(object) } else { affinity.to_vec() };
        if !affinity.is_empty() {
            vm.insert("affinity".into(), json!(affinity));
        }
        let nic_tag_requirements = nic_tags.iter().map(|tag| vec![tag.clone()]).collect();
        Ok(Placement { vm, image: Some(image), package, nic_tags, nic_tag_requirements, servers })
    }
}

/// Returns what CNAPI chooses by: the payload of the target, as the deployed caller gives it, and what CNAPI takes from
/// it in types on which it insists: it ends its process on others.
fn wanted(object: &Map<String, Value>) -> Result<Map<String, Value>, Unplaced> {
    let mut vm = made_of(object).0;
    let uuid = vm.get("uuid").cloned();
    // Of a zone only VMAPI's record has ram.
    let ram = object.get("ram").filter(|ram| ram.is_number());
    let ram = ram.or_else(|| vm.get("max_physical_memory")).cloned();
    vm.extend(uuid.map(|uuid| ("vm_uuid".to_owned(), uuid)));
    vm.extend(ram.map(|ram| ("ram".to_owned(), ram)));
    for (name, named) in
        [("vm_uuid", "uuid"), ("owner_uuid", "owner_uuid"), ("brand", "brand"), ("ram", "ram")]
    {
        if !vm.contains_key(name) {
            return Err(Unplaced::Lacks(named));
        }
    }
    // What no node has of a VM, and VMAPI may.
    type IsFine = fn(&Value) -> bool;
    let of_vmapi: [(&str, IsFine); 2] =
        [("traits", Value::is_object), ("volumes", Value::is_array)];
    for (name, is_fine) in of_vmapi {
        let value = object.get(name).filter(|it| is_fine(it));
        vm.extend(value.map(|value| (name.to_owned(), value.clone())));
    }
    Ok(vm)
}

/// Returns the rules with which a VM was created, as VMAPI keeps them; none that cannot be read.
fn stored(object: &Map<String, Value>) -> Vec<Affinity> {
    let kept = object.get("internal_metadata").and_then(|metadata| metadata.get("affinity"));
    let rules = kept.filter(|kept| !kept.is_null()).map(Affinity::list).transpose();
    rules.map(Option::unwrap_or_default).unwrap_or_else(|why| {
        let vm = object.get("uuid").and_then(Value::as_str).unwrap_or_default();
        tracing::warn!(vm, %why, "cannot read a VM's own affinity; placing the copy without it");
        Vec::new()
    })
}

/// The manifest of the image that IMGAPI has, or of the one that the source's node has.
fn manifest(
    found: Option<Map<String, Value>>,
    vm: &Map<String, Value>,
) -> Result<Map<String, Value>, Unplaced> {
    let disk = vm.get("disks").map(|disks| &disks[0]).filter(|disk| disk.is_object());
    let of_disk = |name: &str| disk.map(|disk| disk[name].clone()).filter(|it| !it.is_null());
    let uuid = checks::object::image(vm).ok_or(Unplaced::Lacks("image"))?;
    let is_there = found.is_some();
    let mut image = found.unwrap_or_default();
    if is_there && image.get("files").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        return Err(Unplaced::NoFiles(uuid.to_owned()));
    }
    if !is_there {
        image.insert("uuid".into(), json!(uuid));
        image.insert("v".into(), json!(2));
        image.insert("files".into(), json!([{ "compression": "none", "size": 0 }]));
    }
    let size = of_disk("image_size").or_else(|| of_disk("size"));
    if let Some(size) = size.filter(|_| !image.contains_key("image_size")) {
        // No node has enough room for a disk whose image has no size.
        image.insert("image_size".into(), size);
    }
    Ok(image)
}
