// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The target's node is chosen, and the hidden target is made on it.

use std::time::Duration;

use sdc_clients::cnapi::Affinity;
use serde_json::{Value, json};
use store::Fence;
use uuid::Uuid;

use super::observe::Round;
use super::order::{Failed, Reported, order};
use super::tickets::{self, For};
use crate::begin::{Asks, Vm};
use crate::placement::Unplaced;
use crate::records::Stored;
use crate::state::Service;
use migration_core::checks::object::image;
use migration_core::intent::{Creation, End};
use migration_core::protocol::What;
use migration_core::target_payload::target_payload;

/// CNAPI's task is polled so often; an image may have to be fetched first.
const WAIT: Duration = Duration::from_secs(5);

/// Without a person no third one is sent.
const TWICE: &str = "CNAPI has lost two orders to create the target; its log says why, and begin orders it once more";

/// Lets CNAPI choose a node other than the source's, and stores it.
pub async fn place(
    service: &Service,
    kept: &mut Stored,
    round: &Round,
    fence: &Fence,
) -> Result<Reported, Failed> {
    let object = round.object(End::Source).ok_or_else(unread)?.clone();
    let server = Some(kept.record.source_server_uuid);
    let vm = Vm { uuid: kept.record.vm_uuid, object, server };
    tickets::take(service, kept, fence, For::Placement).await?;
    let affinity = Affinity::list(&Value::Array(kept.record.intent.affinity.clone()));
    let affinity = affinity.map_err(Unplaced::from)?;
    let is_forced = kept.record.intent.any_vm_agent.is_some();
    let mut chosen = service.choose(&vm, &affinity, is_forced, Asks::Now).await;
    // A reservation that the store has lost may be what fills the node.
    let is_full = matches!(chosen, Err(Unplaced::NoneFits { passes: false, .. }));
    if is_full && tickets::give_back_lost(service, vm.uuid).await.is_ok_and(|any| any) {
        chosen = service.choose(&vm, &affinity, is_forced, Asks::Now).await;
    }
    // The next placement sees what this one takes.
    let reserved = match &chosen {
        Ok(target) => tickets::reserve(service, kept, fence, *target, &vm.object).await,
        Err(_) => Ok(()),
    };
    tickets::give_back(service, kept).await;
    let target = chosen?;
    reserved?;
    kept.record.target_server_uuid = Some(target);
    service.records.write(kept, Some(fence)).await?;
    Ok(Reported::Done)
}

impl From<Unplaced> for Failed {
    fn from(unplaced: Unplaced) -> Failed {
        match unplaced {
            Unplaced::Peer(error) => error.into(),
            Unplaced::NoSource | Unplaced::NoneFits { passes: true, .. } => {
                Failed::Again(unplaced.to_string())
            }
            other => Failed::Fatal(other.to_string()),
        }
    }
}

/// Creates the hidden target from the source's object. An image that IMGAPI lacks is sent from the source's node.
pub async fn create(
    service: &Service,
    kept: &mut Stored,
    round: &Round,
    fence: &Fence,
) -> Result<Reported, Failed> {
    let record = &kept.record;
    let target = record.target_server_uuid.ok_or_else(unread)?;
    let source = round.object(End::Source).ok_or_else(unread)?;
    if let Some(creation) = kept.record.intent.creation.clone() {
        return check(service, kept, fence, target, creation).await;
    }
    let mut payload = target_payload(source).map_err(|unfit| {
        let unfit: Vec<String> = unfit.iter().map(ToString::to_string).collect();
        Failed::Fatal(unfit.join("; "))
    })?;
    if service.peers.image(source).await?.is_none()
        && let Some(image) = image(source).and_then(|image| image.parse().ok())
    {
        let from = record.source_server_uuid;
        order(service, record, End::Target, What::Receive { from, image: Some(image) }).await?;
        let order_to_send = What::SendImage { image, to: target };
        let sent = order(service, record, End::Source, order_to_send).await?;
        if let Reported::Running(_) = sent {
            return Ok(sent);
        }
    }
    payload.insert("image".into(), json!(service.manifest(source).await?));
    if kept.record.intent.reservation.is_none() {
        let object = source.clone();
        tickets::reserve(service, kept, fence, target, &object).await?;
    }
    let since = service.clock.now();
    let creation = Creation { since, task: None };
    let was_made = std::mem::replace(&mut kept.record.intent.made, true);
    kept.record.intent.creation = Some(creation.clone());
    service.records.write(kept, Some(fence)).await?;
    match service.peers.cnapi.create_vm(&target.to_string(), &payload).await {
        Ok(task) => {
            let creation = Creation { task: Some(task), ..creation };
            kept.record.intent.creation = Some(creation.clone());
            service.records.write(kept, Some(fence)).await?;
            check(service, kept, fence, target, creation).await
        }
        // CNAPI refuses before it makes a task: an error that it answers has ordered nothing.
        Err(error)
            if error.may_have_applied() && error.status().is_none_or(|status| status < 400) =>
        {
            Err(error.into())
        }
        Err(error) => {
            (kept.record.intent.creation, kept.record.intent.made) = (None, was_made);
            service.records.write(kept, Some(fence)).await?;
            Err(error.into())
        }
    }
}

/// Checks the creation that was ordered: by its task, or by the VM where the task is unknown. Another
/// one is ordered only after this one has failed, or cannot come any more.
async fn check(
    service: &Service,
    kept: &mut Stored,
    fence: &Fence,
    target: Uuid,
    creation: Creation,
) -> Result<Reported, Failed> {
    let cnapi = &service.peers.cnapi;
    let task = match &creation.task {
        Some(task) => match cnapi.wait_task(task, WAIT).await {
            Ok(task) => Some(task),
            Err(error) if error.is_not_found_resource() => None,
            Err(error) => return Err(error.into()),
        },
        None => None,
    };
    let why = match task {
        Some(task) if task.is_complete() => None,
        Some(task) if task.is_failed() => {
            let why = task.error().unwrap_or("the task failed").to_owned();
            // What it has left is no copy, and in the way of another attempt.
            let (target, vm) = (target.to_string(), kept.record.vm_uuid.to_string());
            if cnapi.get_vm(&target, &vm, true).await.is_ok() {
                return Err(Failed::Fatal(format!(
                    "the creation of the target failed half way, and its zone cannot boot: {why}"
                )));
            }
            Some(why)
        }
        // CNAPI that has died since reports a task as running for ever.
        task => {
            let (target, vm) = (target.to_string(), kept.record.vm_uuid.to_string());
            let is_there = match cnapi.get_vm(&target, &vm, true).await {
                Ok(_) => true,
                Err(error) if error.is_not_found_resource() => false,
                Err(error) => return Err(error.into()),
            };
            if !is_there && (task.is_some() || service.clock.now() < creation.due()) {
                if task.is_none() {
                    tokio::time::sleep(WAIT).await;
                }
                return Ok(Reported::Running(None));
            }
            (!is_there).then(|| "CNAPI has lost the order to create the target".to_owned())
        }
    };
    let is_lost = why.is_some() && creation.task.is_none();
    if is_lost && kept.record.intent.creation_lost {
        // It may be this order that ends CNAPI.
        return Err(Failed::Fatal(TWICE.to_owned()));
    }
    kept.record.intent.creation_lost |= is_lost;
    kept.record.intent.creation = None;
    service.records.write(kept, Some(fence)).await?;
    match why {
        None => Ok(Reported::Done),
        Some(why) => Err(Failed::Again(why)),
    }
}

/// The agent had no object of the VM.
pub fn unread() -> Failed {
    Failed::Again("the VM's object could not be read".to_owned())
}
