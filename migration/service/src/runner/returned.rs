// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Ends that were replaced are watched for as long as their copy may be there: once a minute, also when the record
//! has gone. The moment that a node answers its copy is stopped and hidden.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use store::Fence;
use tokio::time::sleep;

use super::ending::is_busy;
use super::observe::is_old;
use super::order::Failed;
use super::put_right::put_right;
use crate::ends::{Sight, StoredEnd};
use crate::records::Rest;
use crate::records::nonce;
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
    let (vm, cn) = (kept.row.vm_uuid, kept.row.cn_uuid);
    match put_right(service, fence, kept.row.migration).await {
        Err(why @ (Failed::Fenced | Failed::Lost)) => return Err(why),
        Err(why) => {
            tracing::warn!(%vm, reason = %why, "cannot put VMAPI's record of a VM right; trying again");
        }
        Ok(()) => {}
    }
    if !service.hears(cn).await {
        return note(service, fence, kept, Sight::Silent).await;
    }
    let other = service.records.of_vm(vm).await?.filter(|it| it.record.id != kept.row.migration);
    if let Some(other) = other
        && [other.record.source_server_uuid]
            .into_iter()
            .chain(other.record.target_server_uuid)
            .any(|it| it == cn)
    {
        tracing::error!(%vm, %cn, id = %other.record.id, "not stopping a copy that was replaced: a later migration moves it");
        return Ok(());
    }
    if kept.row.sight == Sight::Ahead && is_behind(service, kept).await? {
        return Ok(()); // no revision is raised until it is obeyed
    }
    let Some(about) = about(service, fence, kept).await? else {
        return note(service, fence, kept, Sight::Ahead).await;
    };
    for part in 0..PARTS {
        let observed = match service.agents.observe(cn, &Observe { about, brief: true }).await {
            Ok(observed) => observed.node,
            Err(error) if is_old(&error) => return note(service, fence, kept, Sight::Ahead).await,
            Err(_) => return note(service, fence, kept, Sight::Unwell).await,
        };
        let sight = sight(&observed);
        note(service, fence, kept, sight).await?;
        match sight {
            Sight::Gone => return gone(service, fence, kept, about).await,
            Sight::Off if observed.held => return Ok(()),
            _ if part + 1 == PARTS => return Ok(()),
            _ => keep_down(service, kept, about, &observed).await,
        }
    }
    Ok(())
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
    fence: &Fence,
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
            service.records.write(&mut record, Some(fence)).await?;
            (record.record.intent.revision, record.record.intent.nonce)
        }
        _ => {
            kept.row.revision += 1;
            kept.row.nonce = Some(nonce());
            service.records.ends.write(kept, Some(fence)).await?;
            (kept.row.revision, kept.row.nonce)
        }
    };
    Ok(Some(About { migration, revision, nonce, vm, end }))
}

fn sight(node: &Node) -> Sight {
    match &node.copy {
        None => Sight::Gone,
        Some(copy) if copy.running => Sight::Runs,
        Some(copy) if copy.is_off() => Sight::Off,
        Some(_) => Sight::Shown,
    }
}

/// Orders the copy stopped and hidden; net-agent is held first, which would delete the NICs of what it does not see.
async fn keep_down(service: &Service, kept: &StoredEnd, about: About, node: &Node) {
    let Some(copy) = &node.copy else { return };
    let (vm, cn) = (kept.row.vm_uuid, kept.row.cn_uuid);
    let orders = [
        (!node.held, What::Hold),
        (copy.autoboot, What::Autoboot { on: false }),
        (copy.running, What::Stop),
        (!copy.hidden, What::Hide),
    ];
    tracing::error!(%vm, %cn, "a copy that was replaced on another node is up or shown; ordering it to stop and hide");
    for (_, what) in orders.into_iter().filter(|(is_needed, _)| *is_needed) {
        let name = what.name();
        let order = Order { about, wait_ms: WAIT_MS, order: what, instead: None };
        for _ in 0..PARTS {
            match service.agents.order(cn, &order).await.map(|doing| doing.state) {
                Ok(State::Running) => continue,
                Ok(State::Done) => {}
                Ok(State::Failed { error, .. }) => {
                    tracing::warn!(%vm, %cn, order = name, reason = error, "cannot stop or hide a copy that was replaced; trying again");
                }
                Err(error) => {
                    tracing::warn!(%vm, %cn, order = name, reason = %error, "cannot stop or hide a copy that was replaced; trying again");
                }
            }
            break;
        }
    }
}

/// Keeps what was seen. That a node is back is known to its record too: from then on silence is no death.
async fn note(
    service: &Service,
    fence: &Fence,
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
    service.records.ends.write(kept, Some(fence)).await?;
    if is_back {
        found_returned(service, kept, Some(fence)).await?;
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
    fence: &Fence,
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
