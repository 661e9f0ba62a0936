// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Runs one step of an operation.

use std::time::Duration;

use serde_json::{Value, json};
use store::Fence;
use tokio::time::Instant;

use super::observe::Round;
use super::order::{Failed, Reported, order, order_and_note};
use super::{addresses, create, rehearse};
use crate::records::Stored;
use crate::state::Service;
use migration_core::bring_over::bring_over;
use migration_core::intent::End;
use migration_core::machine::Step;
use migration_core::protocol::What;
use migration_core::record::{Record, node_of};

/// After this a PUT to VMAPI has happened, or will not.
const PUT: Duration = Duration::from_secs(30);

/// What a gateway answers, behind which the PUT may still happen.
const GATEWAYS: [u16; 2] = [502, 504];

/// Runs a step of a round; returns how far it is.
pub async fn run_step(
    service: &Service,
    kept: &mut Stored,
    step: &Step,
    round: &Round,
    fence: &Fence,
) -> Result<Reported, Failed> {
    let record = &kept.record;
    let (end, what) = match step {
        Step::Place => return create::place(service, kept, round, fence).await,
        Step::Create => return create::create(service, kept, round, fence).await,
        Step::Reserve => {
            let known = round.object(End::Source).or(round.object(End::Target));
            let object = known.ok_or_else(create::unread)?;
            addresses::reserve(service, kept, object, fence).await?;
            return Ok(Reported::Done);
        }
        Step::Unreserve => {
            addresses::unreserve(service, kept, fence).await?;
            return Ok(Reported::Done);
        }
        Step::MoveRecord(permission) => {
            move_record(service, record, permission.end(), round).await?;
            return Ok(Reported::Done);
        }
        Step::Rehearse => return rehearse::rehearse(service, kept, round, fence).await,
        Step::Send { from, number } => return send(service, kept, *from, *number, fence).await,
        Step::BringOver => {
            let objects = round.object(End::Source).zip(round.object(End::Target));
            let (source, target) = objects.ok_or_else(create::unread)?;
            let mut updates = bring_over(source, target).into_iter();
            let Some(update) = updates.next() else { return Ok(Reported::Done) };
            (End::Target, What::BringOver { update, then: updates.collect() })
        }
        Step::Date => {
            let source = round.object(End::Source).ok_or_else(create::unread)?;
            let created = source.get("create_timestamp").and_then(Value::as_str);
            let Some(created) = created else { return Ok(Reported::Done) };
            (End::Target, What::Date { created: created.to_owned() })
        }
        Step::Protect(end, of) => (*end, What::Protect { of: *of }),
        Step::Hold(end) => (*end, What::Hold),
        Step::Release(end) => (*end, What::Release),
        Step::NoAutoboot(end) => (*end, What::Autoboot { on: false }),
        Step::Autoboot(permission) => (permission.end(), What::Autoboot { on: true }),
        Step::Stop(end) => (*end, What::Stop),
        Step::Boot(permission) => (permission.end(), What::Boot),
        Step::RestoreQuota(end) => (*end, What::RestoreQuota),
        Step::Forget { end, keep } => (*end, What::Forget { keep: *keep }),
        Step::Settle(end) => (*end, What::Settle),
        Step::Hide(end) => (*end, What::Hide),
        Step::Show(permission) => (permission.end(), What::Show),
        Step::Delete(permission) => (permission.end(), What::Delete),
    };
    order_and_note(service, kept, end, what, fence).await
}

/// The receiver gets its order first: an offer without it is refused.
async fn send(
    service: &Service,
    kept: &mut Stored,
    from: End,
    number: u32,
    fence: &Fence,
) -> Result<Reported, Failed> {
    let cn = node_of(&kept.record, from.other()).ok_or_else(create::unread)?;
    let sender = node_of(&kept.record, from).ok_or_else(create::unread)?;
    order(service, &kept.record, from.other(), What::Receive { from: sender, image: None }).await?;
    let mbps = kept.record.intent.bwlimit;
    order_and_note(service, kept, from, What::Send { number, to: cn, mbps }, fence).await
}

/// Puts the object that the node's agent has just read into VMAPI, whole, and reads it back.
///
/// VMAPI knows no order of requests: if the outcome of the PUT is unknown, the next round begins
/// only when it cannot happen any more.
pub async fn move_record(
    service: &Service,
    record: &Record,
    end: End,
    round: &Round,
) -> Result<(), Failed> {
    let vm = record.vm_uuid.to_string();
    let cn = node_of(record, end);
    let server = json!(cn);
    let mut object = round.object(end).ok_or_else(create::unread)?.clone();
    if let Some(cn) = cn.filter(|_| record.intent.rescue.is_some()) {
        addresses::register(service, &object, cn).await?;
    }
    object.insert("server_uuid".into(), server.clone());
    let until = Instant::now() + PUT;
    if let Err(error) = service.peers.vmapi.put_vm(&vm, &object).await {
        // What VMAPI itself has answered, whatever it says, it does not do any more.
        let is_answered = error.status().is_some_and(|status| !GATEWAYS.contains(&status));
        if error.may_have_applied() && !is_answered {
            tokio::time::sleep_until(until).await;
        }
        return Err(error.into());
    }
    let there = service.peers.vmapi.record(&vm).await?;
    match there.get("server_uuid") == Some(&server) {
        true => Ok(()),
        false => Err(Failed::Again("VMAPI has the VM elsewhere after the PUT".to_owned())),
    }
}
