// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The evacuations: begins and resumes the migrations of a node, as many at once as it may have, and gives the node
//! back at the end. The row of an evacuation has what is to be done: it goes on without the operator who asked for it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sdc_clients::migrations::{Evacuation, Migration};
use sdc_clients::vmapi::VmQuery;
use serde_json::json;
use store::Fence;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use crate::action_params::ActionParams;
use crate::refused::Refused;
use crate::state::Service;
use crate::through::Through;
use migration_core::evacuation::{Count, EvacuatedVm, Next, count, next, starts};
use migration_core::machine::Action;
use migration_core::record::Filter;
use migration_core::time::Time;

/// Between two rounds of the evacuations.
const PAUSE: Duration = Duration::from_secs(5);
/// A service or an agent that is away is waited for so long, for each VM.
const PATIENCE: Duration = Duration::from_secs(600);
/// That it is carried on is noted at least so often, in ms.
const NOTED_MS: i64 = 20_000;

/// Since when a VM of a node was asked for while an agent or service was away.
type Waits = BTreeMap<(String, String), Instant>;

/// Carries on what is under way, for ever. Rows are written under the lease. An order is a command as any operator's,
/// which every instance may take: the migration's own record refuses a second one.
pub async fn evacuate(service: &Service, fence: &Fence) {
    let mut waits = Waits::new();
    loop {
        match service.evacuations.all().await {
            Ok(rows) => {
                waits.retain(|(cn, _), _| rows.iter().any(|row| row.cn_uuid == *cn));
                for row in rows {
                    if let Err(refused) = round(service, fence, &row, &mut waits).await {
                        let reason = refused.message();
                        tracing::warn!(
                            cn = row.cn_uuid,
                            reason,
                            "cannot continue an evacuation; trying again"
                        );
                    }
                }
            }
            Err(error) => {
                tracing::warn!(reason = %error, "cannot list the evacuations; trying again")
            }
        }
        sleep(PAUSE).await;
    }
}

/// Gives a node back to placement, and ends its evacuation; the migrations that run go on.
/// Refuses with 404 if none is under way.
pub async fn release(
    service: &Service,
    cn: Uuid,
    through: &Through,
    leader: Option<(&Fence, &Evacuation)>,
) -> Result<(), Refused> {
    let mut row = service.evacuations.of(cn).await?;
    if leader.is_some_and(|(_, judged)| row != *judged) {
        return Ok(());
    }
    let fence = leader.map(|(fence, _)| fence);
    if !row.was_reserved {
        if let Some(fence) = fence {
            // First in the row: whatever comes in between, a later round reserves the node again.
            service.evacuations.update(cn, fence, |row| row.is_reserved = false).await?;
            row.is_reserved = false;
        }
        set_reserved(service, cn, false).await?;
    }
    let judged = fence.map(|fence| (fence, &row));
    if !service.evacuations.end(cn, through, judged, service.clock.now()).await? {
        // It was changed meanwhile and goes on, so nothing may be placed on its node.
        return match fence.filter(|_| !row.was_reserved) {
            Some(fence) => reserve(service, fence, cn).await,
            None => Ok(()),
        };
    }
    tracing::info!(%cn, moved = row.moved, stay = row.stay, left = row.left, "an evacuation ended");
    Ok(())
}

/// Does one round of a node: begins, resumes or pauses what is due. What is over is shown for a while, and then ended.
async fn round(
    service: &Service,
    fence: &Fence,
    row: &Evacuation,
    waits: &mut Waits,
) -> Result<(), Refused> {
    let bad = |_| Refused::argument("an evacuation of a node without a uuid");
    let cn: Uuid = row.cn_uuid.parse().map_err(bad)?;
    let vms = known(service, row).await?;
    let tried: BTreeSet<String> = row.tried.keys().cloned().collect();
    let now = count(&vms, &row.cn_uuid, &tried);
    let is_over = !row.paused && now.left == 0 && row.left == Some(0);
    if !row.is_reserved && !is_over {
        reserve(service, fence, cn).await?;
    }
    if row.paused {
        pause(service, row, &vms).await;
        return note(service, fence, cn, now, BTreeMap::new()).await;
    }
    if is_over {
        let Evacuation { by, program, .. } = row.clone();
        return release(service, cn, &Through { by, program }, Some((fence, row))).await;
    }
    let limit = service.settings.read().await?.running_on(cn);
    let limit = row.at_once.map_or(limit, |at_once| limit.min(at_once));
    let mut asked = BTreeMap::new();
    for (vm, next) in starts(&vms, &row.cn_uuid, &tried, limit as usize) {
        let action = if next == Next::Begin { Action::Begin } else { Action::Sync };
        match act(service, row, &vm, action).await {
            Ok(()) => drop(asked.insert(vm, String::new())),
            // What is away comes back, if it does within a while.
            Err(refused) if refused.status() >= 500 && !has_waited(waits, row, &vm) => {
                tracing::warn!(
                    vm,
                    reason = refused.message(),
                    "cannot begin or resume a migration of an evacuation; trying again"
                );
            }
            Err(refused) => drop(asked.insert(vm, refused.message().to_owned())),
        }
    }
    note(service, fence, cn, now, asked).await
}

/// Returns true if a VM was asked for in vain for long enough. The first time begins the wait.
fn has_waited(waits: &mut Waits, row: &Evacuation, vm: &str) -> bool {
    let since = waits.entry((row.cn_uuid.clone(), vm.to_owned())).or_insert_with(Instant::now);
    since.elapsed() >= PATIENCE
}

/// Reads the VMs and migrations of the node.
async fn known(
    service: &Service,
    row: &Evacuation,
) -> Result<BTreeMap<String, EvacuatedVm>, Refused> {
    let query = VmQuery {
        server_uuid: Some(row.cn_uuid.clone()),
        state: Some("active".to_owned()),
        fields: vec!["state".to_owned()],
        ..VmQuery::default()
    };
    let here = service.peers.vmapi.list_vms(&query).await?;
    let cn = Some(row.cn_uuid.clone());
    let filter = Filter { source_server_uuid: cn, ..Filter::default() };
    let migrations = service.records.list(&filter, usize::MAX).await?;
    let mut vms: BTreeMap<String, EvacuatedVm> = BTreeMap::new();
    for vm in here.into_iter().filter(|vm| !row.excluded.contains(&vm.uuid)) {
        vms.entry(vm.uuid).or_default().is_here = true;
    }
    // The newest comes first.
    for kept in migrations.into_iter().rev() {
        let Ok(migration) = serde_json::from_value::<Migration>(kept.record.to_json()) else {
            continue;
        };
        if !row.excluded.contains(&migration.vm_uuid) {
            let known = vms.entry(migration.vm_uuid.clone()).or_default();
            known.migration = Some(migration);
        }
    }
    for (vm, why) in row.tried.iter().filter(|(_, why)| !why.is_empty()) {
        if let Some(known) = vms.get_mut(vm) {
            known.refusal = Some(why.clone());
        }
    }
    Ok(vms)
}

/// Pauses what syncs. One that is refused has ended, or does not sync any more: the next round shows it.
async fn pause(service: &Service, row: &Evacuation, vms: &BTreeMap<String, EvacuatedVm>) {
    for (vm, known) in vms {
        let Some(migration) = known.migration.as_ref().filter(|it| it.automatic) else { continue };
        if migration.phase == "sync"
            && next(known, &row.cn_uuid, true) == Next::Runs
            && let Err(refused) = act(service, row, vm, Action::Pause).await
        {
            tracing::info!(
                vm,
                reason = refused.message(),
                "cannot pause a migration of an evacuation; it goes on"
            );
        }
    }
}

/// Does an action on a VM in the name of the operator who asked for the evacuation.
async fn act(service: &Service, row: &Evacuation, vm: &str, action: Action) -> Result<(), Refused> {
    let vm = vm.parse().map_err(|_| Refused::argument("Invalid UUID"))?;
    let vm = service.vm(vm).await?;
    let is_begin = action == Action::Begin;
    if is_begin {
        vm.is_allocated()?;
        service.peers.check_networks(&vm.object).await?;
    }
    let Evacuation { by, program, .. } = row.clone();
    let through = Through { by, program };
    let asked = ActionParams { automatic: is_begin, through, ..ActionParams::of(action) };
    let to = row.to.as_deref().and_then(|to| to.parse().ok()).filter(|_| is_begin);
    service.command(&vm, action, &asked, to).await.map(drop)
}

/// Notes how far it is, and now and then that it is carried on.
async fn note(
    service: &Service,
    fence: &Fence,
    cn: Uuid,
    Count { moved, stay, left }: Count,
    asked: BTreeMap<String, String>,
) -> Result<(), Refused> {
    let now = service.clock.now();
    let change = |row: &mut Evacuation| {
        let before = row.clone();
        row.tried.extend(asked.clone());
        (row.moved, row.stay, row.left) =
            (Some(moved as u64), Some(stay as u64), Some(left as u64));
        let is_old = Time::parse(&row.seen).is_none_or(|seen| now.since(seen) >= NOTED_MS);
        if is_old || *row != before {
            row.seen = now.to_string();
        }
    };
    service.evacuations.update(cn, fence, change).await.map(drop)
}

/// Keeps new VMs from being placed on a node that is not reserved.
async fn reserve(service: &Service, fence: &Fence, cn: Uuid) -> Result<(), Refused> {
    set_reserved(service, cn, true).await?;
    match service.evacuations.update(cn, fence, |row| row.is_reserved = true).await? {
        Some(_) => Ok(()),
        // An operator ended it meanwhile.
        None => set_reserved(service, cn, false).await,
    }
}

async fn set_reserved(service: &Service, cn: Uuid, is_reserved: bool) -> Result<(), Refused> {
    let change = json!({ "reserved": is_reserved });
    let change = change.as_object().cloned().unwrap_or_default();
    Ok(service.peers.cnapi.update_server(&cn.to_string(), &change).await?)
}
