// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The target's node is chosen, and the hidden target is made on it.

use std::time::Duration;

use sdc_clients::cnapi::{Placement, ServerQuery};
use serde_json::{Map, Value, json};
use store::Fence;
use uuid::Uuid;

use super::observe::Round;
use super::order::{Carried, Failed, order};
use super::tickets::{self, For};
use crate::journal::End;
use crate::protocol::What;
use crate::record::Record;
use crate::service::records::Kept;
use crate::service::state::Service;
use crate::target_payload::target_payload;

/// How long CNAPI's task may take; an image may have to be fetched first.
const TASK: Duration = Duration::from_secs(30 * 60);

/// Lets CNAPI choose a node other than the source's, and stores it.
///
/// # Errors
/// If none fits.
pub async fn place(
    service: &Service,
    kept: &mut Kept,
    round: &Round,
    fence: &Fence,
) -> Result<Carried, Failed> {
    let vm = round.object(End::Source).ok_or_else(unread)?.clone();
    tickets::take(service, kept, fence, For::Placement).await?;
    let chosen = async {
        let placement = placement(service, &kept.record, vm).await?;
        let chosen = service.peers.cnapi.allocate(&placement).await.map_err(|error| {
            match error.status() {
                Some(409) => Failed::Fatal(error.message().to_owned()), // none fits
                _ => Failed::from(error),
            }
        })?;
        let uuid = chosen.server.uuid;
        uuid.parse::<Uuid>().map_err(|_| Failed::Fatal(format!("CNAPI chose the node {uuid:?}")))
    };
    let chosen = chosen.await;
    tickets::give_back(service, kept).await;
    kept.record.target_server_uuid = Some(chosen?);
    service.records.write(kept, Some(fence)).await?;
    Ok(Carried::Done)
}

/// What CNAPI chooses by: the VM as it is now, which may have been resized since its package was made.
async fn placement(
    service: &Service,
    record: &Record,
    mut vm: Map<String, Value>,
) -> Result<Placement, Failed> {
    let query = ServerQuery { setup: Some(true), ..ServerQuery::default() };
    let servers = service.peers.cnapi.list_servers(&query).await?;
    let source = record.source_server_uuid.to_string();
    let servers: Vec<String> =
        servers.into_iter().map(|server| server.uuid).filter(|uuid| *uuid != source).collect();
    if servers.is_empty() {
        return Err(Failed::Fatal("there is no other compute node".to_owned()));
    }
    let image = service.peers.image(&vm).await?;
    let package =
        service.peers.package(&vm).await.map_err(|why| Failed::Fatal(why.message().to_owned()))?;
    let nics = vm.get("nics").and_then(Value::as_array).into_iter().flatten();
    // `sdc_overlay/11` is a fabric of the tag `sdc_overlay`.
    let tags = nics.filter_map(|nic| Some(nic["nic_tag"].as_str()?.split('/').next()?.to_owned()));
    let nic_tags: Vec<String> = tags.collect();
    if !record.journal.affinity.is_empty() {
        vm.insert("affinity".into(), json!(record.journal.affinity));
    }
    let nic_tag_requirements = nic_tags.iter().map(|tag| vec![tag.clone()]).collect();
    Ok(Placement { vm, image, package, nic_tags, nic_tag_requirements, servers })
}

/// Creates the hidden target from the source's object. An image that IMGAPI lacks is sent from the source's node.
///
/// # Errors
/// If the node does not do it.
pub async fn create(
    service: &Service,
    kept: &mut Kept,
    round: &Round,
    fence: &Fence,
) -> Result<Carried, Failed> {
    let record = &kept.record;
    let target = record.target_server_uuid.ok_or_else(unread)?;
    let source = round.object(End::Source).ok_or_else(unread)?;
    let mut payload = target_payload(source).map_err(|why| Failed::Fatal(why.to_string()))?;
    if service.peers.image(source).await?.is_none()
        && let Some(image) = image_of(source)
    {
        order(service, record, End::Target, What::Receive).await?;
        let to = service.agents.peer(target).await?;
        let sent = order(service, record, End::Source, What::SendImage { image, to }).await?;
        if let Carried::Running(_) = sent {
            return Ok(sent);
        }
    }
    // NAPI's records of the NICs stay as they are: the node gets the NICs, not the order to provision some.
    payload.shift_remove("networks");
    payload.insert("nics".into(), source.get("nics").cloned().unwrap_or_else(|| json!([])));
    tickets::take(service, kept, fence, For::Creation(target)).await?;
    let done = async {
        let task = service.peers.cnapi.create_vm(&target.to_string(), &payload).await?;
        let task = service.peers.cnapi.wait_task(&task, TASK).await?;
        match task.is_complete() {
            true => Ok(Carried::Done),
            false => Err(Failed::Again(task.error().unwrap_or("the task failed").to_owned())),
        }
    };
    let done = done.await;
    tickets::give_back(service, kept).await;
    done
}

fn image_of(vm: &Map<String, Value>) -> Option<Uuid> {
    let disk = vm.get("disks").and_then(|disks| disks[0]["image_uuid"].as_str());
    vm.get("image_uuid").and_then(Value::as_str).or(disk)?.parse().ok()
}

/// The agent had no object of the VM.
pub fn unread() -> Failed {
    Failed::Again("the VM's object could not be read".to_owned())
}
