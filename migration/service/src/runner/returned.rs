// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Ends that were replaced are watched for as long as their copy may be there: once a minute, also when the record
//! has gone. The moment that a node answers its copy is stopped and hidden; an operator's finalize deletes it.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use serde_json::{Value, json};
use store::Fence;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::ending::is_busy;
use super::observe::is_old;
use super::order::Failed;
use super::put_right::put_right;
use crate::ends::{Replaced, Sight, StoredEnd};
use crate::records::Rest;
use crate::records::nonce;
use crate::refused::Refused;
use crate::state::Service;
use migration_core::machine::Node;
use migration_core::protocol::{About, Observe, Order, State, What};
use migration_core::record::is_over;

/// Between two checks of all.
const PAUSE: Duration = Duration::from_secs(60);
/// So many nodes are asked at once.
const AT_ONCE: usize = 16;
/// The longest that an order is waited for in one check, in parts of what an agent waits.
const WAIT_MS: u64 = 10_000;
const PARTS: usize = 3;
/// How long an operator waits for a copy to be deleted, and between two looks.
const DELETED: Duration = Duration::from_secs(900);
const POLL: Duration = Duration::from_millis(500);

/// Checks all ends that were replaced, again and again, until the lease is found to be lost.
pub async fn watch(service: &Service, fence: &Fence) {
    while let Err(why) = tidy(service, fence).await {
        if why == Failed::Fenced {
            return;
        }
        tracing::warn!(reason = %why, "cannot convert the records of an earlier version; trying again");
        sleep(PAUSE).await;
    }
    loop {
        match service.records.ends.all().await {
            Ok(ends) => {
                let checks = stream::iter(ends).for_each_concurrent(AT_ONCE, |mut kept| async move {
                    if let Err(why) = check(service, fence, &mut kept).await {
                        let (vm, cn) = (kept.row.vm_uuid, kept.row.cn_uuid);
                        tracing::warn!(%vm, %cn, reason = %why, "cannot check a copy that was replaced; trying again");
                    }
                });
                checks.await;
            }
            Err(error) => {
                tracing::error!(reason = %error, "cannot list the copies that were replaced; trying again");
            }
        }
        sleep(PAUSE).await;
    }
}

/// Records of earlier versions that are over and stayed for a dead node's sake go, and their rows stay.
async fn tidy(service: &Service, fence: &Fence) -> Result<(), Failed> {
    for mut kept in service.records.all().await? {
        if kept.record.intent.over {
            service.records.remove(&kept, Some(fence), Rest::Stays).await?;
        } else if service.records.is_untidy(&kept).await? {
            match service.records.write(&mut kept, Some(fence)).await.map_err(Failed::from) {
                Ok(()) | Err(Failed::Lost) => {} // the service that wrote it meanwhile has done it
                Err(why) => return Err(why),
            }
        }
    }
    Ok(())
}

/// Checks one: observes the copy, and orders what is left to do.
async fn check(service: &Service, fence: &Fence, kept: &mut StoredEnd) -> Result<(), Failed> {
    match put_right(service, fence, kept.row.migration).await {
        Err(why @ (Failed::Fenced | Failed::Lost)) => return Err(why),
        Err(why) => {
            let vm = kept.row.vm_uuid;
            tracing::warn!(%vm, reason = %why, "cannot put VMAPI's record of a VM right; trying again");
        }
        Ok(()) => {}
    }
    tend(service, Some(fence), kept).await.map(drop)
}

/// Deletes the copies of a VM that were replaced and whose migrations are over. Returns false if there are none.
///
/// # Errors
/// A copy is left: its node does not answer, the VM is not seen in use on another node, or it takes too long. Once the
/// order is written, the watch goes on with it whenever the VM is seen elsewhere.
pub async fn delete(service: &Service, vm: Uuid) -> Result<bool, Refused> {
    let until = Instant::now() + DELETED;
    let (mut has_any, mut why) = (false, "it goes on".to_owned());
    loop {
        let ends = service.records.ends.of_vm(vm).await?;
        if ends.is_empty() {
            return Ok(has_any);
        }
        if service.records.of_vm(vm).await?.is_some() {
            let what = "Another migration of the instance has begun; the replaced copy stays";
            return if has_any { Err(Refused::precondition(what)) } else { Ok(false) };
        }
        has_any = true;
        for mut kept in ends {
            let cn = kept.row.cn_uuid;
            let left = |what: &str| {
                Refused::precondition(&format!("The replaced copy on {cn} stays: {what}"))
            };
            if !service.hears(cn).await {
                return Err(left("its node does not answer"));
            }
            if !is_elsewhere(service, &kept).await {
                return Err(left("the instance is not seen in use on another node"));
            }
            let tended = async {
                if !kept.row.deletes {
                    kept.row.deletes = true;
                    service.records.ends.write(&mut kept, None).await?;
                }
                tend(service, None, &mut kept).await
            };
            match tended.await {
                _ if kept.row.sight == Sight::Ahead => {
                    return Err(left("its agent received a later order than the store has"));
                }
                Ok(failed) => why = failed.unwrap_or(why),
                Err(Failed::Lost) => {} // the watch has written it
                Err(failed) => why = failed.to_string(),
            }
        }
        if Instant::now() >= until {
            return Err(Refused::internal(&format!("Migration finalize failed: {why}")));
        }
        sleep(POLL).await;
    }
}

/// Returns true if a copy that was replaced may be deleted: VMAPI has the VM on another node, and that node's agent
/// says that it is there, whole and shown.
async fn is_elsewhere(service: &Service, kept: &StoredEnd) -> bool {
    let Replaced { vm_uuid, cn_uuid, .. } = kept.row;
    let Ok(vm) = service.vm(vm_uuid).await else { return false };
    let Some(cn) = vm.server.filter(|cn| *cn != cn_uuid) else { return false };
    let Ok(object) = service.agents.object(cn, vm_uuid).await else { return false };
    let state = object.get("state").and_then(Value::as_str);
    state.is_some_and(|state| ["running", "stopped"].contains(&state))
        && object.get("do_not_inventory") != Some(&json!(true))
}

/// Observes a copy that was replaced, and orders what is left to do. Returns why an order failed.
async fn tend(
    service: &Service,
    fence: Option<&Fence>,
    kept: &mut StoredEnd,
) -> Result<Option<String>, Failed> {
    let (vm, cn) = (kept.row.vm_uuid, kept.row.cn_uuid);
    let mut failed = None;
    if !service.hears(cn).await {
        return note(service, fence, kept, Sight::Silent).await.map(|()| None);
    }
    let record = service.records.of_vm(vm).await?;
    let is_over = record.is_none();
    if let Some(other) = record.filter(|it| it.record.id != kept.row.migration)
        && [other.record.source_server_uuid]
            .into_iter()
            .chain(other.record.target_server_uuid)
            .any(|it| it == cn)
    {
        tracing::error!(%vm, %cn, id = %other.record.id, "not stopping a copy that was replaced: a later migration moves it");
        return Ok(None);
    }
    if kept.row.sight == Sight::Ahead && is_behind(service, kept).await? {
        return Ok(None); // no revision is raised until it is obeyed
    }
    let Some(about) = about(service, fence, kept).await? else {
        return note(service, fence, kept, Sight::Ahead).await.map(|()| None);
    };
    for part in 0..PARTS {
        let node = match service.agents.observe(cn, &Observe { about, brief: true }).await {
            Ok(observed) => observed.node,
            Err(error) => {
                let sight = if is_old(&error) { Sight::Ahead } else { Sight::Unwell };
                note(service, fence, kept, sight).await?;
                return Ok(Some(error.to_string()));
            }
        };
        let sight = sight_of(&node);
        note(service, fence, kept, sight).await?;
        let is_kept_down = sight == Sight::Off && node.held;
        let is_ordered = is_kept_down && kept.row.deletes && is_over;
        match sight {
            Sight::Gone => return gone(service, fence, kept, about).await.map(|()| None),
            _ if part + 1 == PARTS => break,
            _ if is_ordered && is_elsewhere(service, kept).await => {
                failed = order(service, kept, about, What::Delete).await;
            }
            _ if is_kept_down => break,
            _ => failed = keep_down(service, kept, about, &node).await,
        }
    }
    Ok(failed)
}

/// Returns true until the migration was adopted, at a revision above all that agents received.
async fn is_behind(service: &Service, kept: &StoredEnd) -> Result<bool, Failed> {
    let record = service.records.get(kept.row.migration).await?;
    Ok(record.is_none_or(|it| is_over(&it.record) || it.record.intent.older.is_some()))
}

/// Returns what the agent is asked with: a revision that is higher than any before, and stored; none where the record
/// is older than what the agents received.
async fn about(
    service: &Service,
    fence: Option<&Fence>,
    kept: &mut StoredEnd,
) -> Result<Option<About>, Failed> {
    let row = &kept.row;
    let (migration, vm, end) = (row.migration, row.vm_uuid, row.end);
    let (revision, nonce) = match service.records.get(migration).await? {
        Some(record) if record.record.intent.older.is_some() => return Ok(None),
        // Each round raises it.
        Some(record) if is_busy(&record.record) => {
            (record.record.intent.revision, record.record.intent.nonce)
        }
        Some(mut record) if !is_over(&record.record) => {
            record.raise();
            service.records.write(&mut record, fence).await?;
            (record.record.intent.revision, record.record.intent.nonce)
        }
        _ => {
            kept.row.revision += 1;
            kept.row.nonce = Some(nonce());
            service.records.ends.write(kept, fence).await?;
            (kept.row.revision, kept.row.nonce)
        }
    };
    Ok(Some(About { migration, revision, nonce, vm, end }))
}

fn sight_of(node: &Node) -> Sight {
    match &node.copy {
        None => Sight::Gone,
        Some(copy) if copy.running => Sight::Runs,
        Some(copy) if copy.is_off() => Sight::Off,
        Some(_) => Sight::Shown,
    }
}

/// Orders the copy stopped and hidden; net-agent is held first, which would delete the NICs of what it does not see.
/// Returns why an order failed.
async fn keep_down(
    service: &Service,
    kept: &StoredEnd,
    about: About,
    node: &Node,
) -> Option<String> {
    let copy = node.copy.as_ref()?;
    let (vm, cn) = (kept.row.vm_uuid, kept.row.cn_uuid);
    let orders = [
        (!node.held, What::Hold),
        (copy.autoboot, What::Autoboot { on: false }),
        (copy.running, What::Stop),
        (!copy.hidden, What::Hide),
    ];
    tracing::error!(%vm, %cn, "a copy that was replaced on another node is up or shown; ordering it to stop and hide");
    let mut failed = None;
    for (_, what) in orders.into_iter().filter(|(is_needed, _)| *is_needed) {
        failed = order(service, kept, about, what).await.or(failed);
    }
    failed
}

/// Gives one order to the agent of a copy that was replaced, and waits for it a while. Returns why it failed.
async fn order(service: &Service, kept: &StoredEnd, about: About, what: What) -> Option<String> {
    let (vm, cn, name) = (kept.row.vm_uuid, kept.row.cn_uuid, what.name());
    let order = Order { about, wait_ms: WAIT_MS, order: what, instead: None };
    for _ in 0..PARTS {
        let why = match service.agents.order(cn, &order).await.map(|doing| doing.state) {
            Ok(State::Running) => continue,
            Ok(State::Done) => return None,
            Ok(State::Failed { error, .. }) => error,
            Err(error) => error.to_string(),
        };
        tracing::warn!(%vm, %cn, order = name, reason = why, "a copy that was replaced did not obey; trying again");
        return Some(why);
    }
    None
}

/// Keeps what was seen. That a node is back is known to its record too: from then on silence is no death.
async fn note(
    service: &Service,
    fence: Option<&Fence>,
    kept: &mut StoredEnd,
    sight: Sight,
) -> Result<(), Failed> {
    let now = service.clock.now();
    let is_back = sight != Sight::Silent && kept.row.returned.is_none();
    if sight == kept.row.sight && !is_back {
        return Ok(());
    }
    kept.row.sight = sight;
    if is_back {
        kept.row.returned = Some(now);
    }
    service.records.ends.write(kept, fence).await?;
    if is_back {
        found_returned(service, kept, fence).await?;
    }
    Ok(())
}

/// Writes into the record, where there is one, that a node which was declared dead is back.
pub async fn found_returned(
    service: &Service,
    kept: &StoredEnd,
    fence: Option<&Fence>,
) -> Result<(), Failed> {
    let (vm, cn) = (kept.row.vm_uuid, kept.row.cn_uuid);
    tracing::error!(%cn, %vm, "a node that was declared dead answers again; its copies must not be used");
    let Some(mut record) = service.records.get(kept.row.migration).await? else { return Ok(()) };
    if record.record.intent.returned.is_none() {
        record.record.intent.returned = kept.row.returned;
        service.records.write(&mut record, fence).await?;
    }
    Ok(())
}

/// The copy is gone. While its record is there the row stays; then the agent forgets it, and so does the service.
async fn gone(
    service: &Service,
    fence: Option<&Fence>,
    kept: &StoredEnd,
    about: About,
) -> Result<(), Failed> {
    if service.records.get(kept.row.migration).await?.is_some_and(|it| !is_over(&it.record)) {
        return Ok(());
    }
    let order = Order { about, wait_ms: WAIT_MS, order: What::Over, instead: None };
    service.agents.order(kept.row.cn_uuid, &order).await?;
    Ok(service.records.ends.end(kept, fence).await?)
}
