// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The target's node is chosen, and the hidden target is made on it.

use std::time::Duration;

use serde_json::{Map, Value};
use store::Fence;
use uuid::Uuid;

use super::observe::Round;
use super::order::{Carried, Failed, order};
use super::tickets::{self, For};
use crate::journal::End;
use crate::protocol::What;
use crate::service::begin::Vm;
use crate::service::placement::Unplaced;
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
    let object = round.object(End::Source).ok_or_else(unread)?.clone();
    let server = Some(kept.record.source_server_uuid);
    let vm = Vm { uuid: kept.record.vm_uuid, object, server };
    tickets::take(service, kept, fence, For::Placement).await?;
    let chosen = service.choose(&vm, &kept.record.journal.affinity).await;
    tickets::give_back(service, kept).await;
    kept.record.target_server_uuid = Some(chosen?);
    service.records.write(kept, Some(fence)).await?;
    Ok(Carried::Done)
}

impl From<Unplaced> for Failed {
    fn from(unplaced: Unplaced) -> Failed {
        match unplaced {
            Unplaced::Peer(error) => error.into(),
            Unplaced::NoSource => Failed::Again(unplaced.to_string()),
            other => Failed::Fatal(other.to_string()),
        }
    }
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
    let payload = target_payload(source).map_err(|unfit| {
        let unfit: Vec<String> = unfit.iter().map(ToString::to_string).collect();
        Failed::Fatal(unfit.join("; "))
    })?;
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
