// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! VMs that move between a node and one that is none of this world, with the steps of a migration and
//! the deaths of the vm-agent between them.

use std::time::Duration;

use anyhow::Context;
use daemon::brake::{LITTLE, Reference};
use rand::rngs::StdRng;
use rand::{Rng, RngExt};
use serde_json::{Map, Value, json};
use simnode::{payload, sample};
use tokio::time::Instant;

use super::centre::Centre;
use super::node::{CACHE, Cn};
use super::outside::ELSEWHERE;
use super::truth::Life;

/// So long nobody of the node has asked anybody for anything: what a vm-agent has read is told by then.
const IDLE: Duration = Duration::from_secs(70);
/// So long somebody who moves a VM waits for that.
const PATIENCE: u32 = 12;
/// A request may name a VM so long after it was hidden: its turn had begun before.
pub(super) const TURN: Duration = Duration::from_secs(150);

/// So many VMs stay on a node that is evacuated.
const MOST_STAY: usize = 2;
/// So often a person looks then: NICs of a VM that left are due later than its state.
const LOOKS: usize = 3;

/// Some time passes, in which the vm-agent may die.
async fn meanwhile(cn: &mut Cn, rng: &mut StdRng) -> anyhow::Result<()> {
    tokio::time::sleep(Duration::from_millis(rng.random_range(0..60_000))).await;
    if rng.random() {
        cn.vms.kill(false).await?;
        cn.start_vm_agent()?;
        tokio::time::sleep(Duration::from_millis(rng.random_range(0..60_000))).await;
    }
    Ok(())
}

/// Waits until no write of the vm-agent is under way: VMAPI asks nobody before it takes one.
async fn is_idle(cn: &Cn) -> bool {
    for _ in 0..PATIENCE {
        if cn.vms.gate.idle() >= IDLE {
            return true;
        }
        tokio::time::sleep(IDLE / 2).await;
    }
    false
}

/// VMAPI's record of a VM changes.
fn tell(centre: &Centre, vm: &str, fields: &Value) {
    let mut record = centre.vmapi.get(vm).unwrap_or_default();
    record.extend(fields.as_object().cloned().unwrap_or_default());
    centre.vmapi.put(record);
}

/// A VM moves away: its copy here is hidden, or, where somebody moves it by hand, only stopped.
pub(super) async fn away(centre: &Centre, cn: &mut Cn, rng: &mut StdRng) -> anyhow::Result<()> {
    let vms = centre.truth.on(&cn.uuid);
    if vms.is_empty() || !cn.may_lose_one() {
        return Ok(());
    }
    let vm = vms[rng.random_range(0..vms.len())].clone();
    let by_hand: bool = rng.random();
    if give(centre, cn, rng, (&vm, by_hand)).await? {
        meanwhile(cn, rng).await?;
        cn.verbs.delete(&vm).await?;
    }
    Ok(())
}

/// Gives a VM to another node; its copy stays here. Returns false if it was given up.
async fn give(
    centre: &Centre,
    cn: &mut Cn,
    rng: &mut StdRng,
    (vm, by_hand): (&str, bool),
) -> anyhow::Result<bool> {
    centre.truth.note(format!("{vm} moves away{}", if by_hand { " by hand" } else { "" }));
    for mac in cn.macs(vm).unwrap_or_default() {
        centre.napi.remove(&mac);
    }
    let zone = cn.node.zone(vm)?;
    if zone.state.is_active() {
        cn.verbs.halt(vm, 0).await?;
    }
    cn.verbs.hide(vm, !by_hand).await?;
    match by_hand {
        true => centre.truth.show(vm),
        false => centre.truth.hide(vm, Instant::now() + TURN),
    }
    cn.watch.poll(&cn.node.root(), &cn.way);
    meanwhile(cn, rng).await?;
    if !is_idle(cn).await {
        return Ok(false);
    }
    centre.truth.note(format!("VMAPI has {vm} elsewhere"));
    centre.truth.set(vm, Life::On(ELSEWHERE.to_owned()));
    tell(centre, vm, &json!({"server_uuid": ELSEWHERE, "state": "running"}));
    Ok(true)
}

/// A node is evacuated, but for two VMs, and one of these is deleted afterwards: nobody has to approve that, unless
/// others were deleted before. Nothing else goes wrong meanwhile.
pub(super) async fn evacuated(
    centre: &Centre,
    cn: &mut Cn,
    rng: &mut StdRng,
) -> anyhow::Result<()> {
    let vms = centre.truth.on(&cn.uuid);
    let (stay, go): (Vec<&String>, Vec<&String>) =
        vms.iter().partition(|vm| !centre.truth.was_hidden(vm));
    let Some((last, more)) = stay.split_first().filter(|_| vms.len() > MOST_STAY * 2) else {
        return Ok(());
    };
    centre.truth.note(format!("{} is evacuated", cn.uuid));
    centre.calm();
    cn.calm();
    let mut given = Vec::new();
    for vm in more.iter().skip(MOST_STAY - 1).chain(&go) {
        let by_hand = rng.random();
        if give(centre, cn, rng, (vm, by_hand)).await? {
            given.push(vm);
        }
    }
    // All migrations are finalized at once.
    for vm in given {
        cn.verbs.delete(vm).await?;
        centre.truth.give(vm);
    }
    centre.truth.note(format!("delete {last}"));
    cn.forget_most();
    let macs = cn.macs(last)?;
    cn.verbs.delete(last).await?;
    centre.truth.set(last, Life::Gone(Instant::now(), cn.uuid.clone()));
    if !cn.may_leave(macs.len()) {
        for mac in &macs {
            centre.napi.remove(mac);
        }
    }
    cn.watch.poll(&cn.node.root(), &cn.way);
    approved(centre, cn).await;
    Ok(())
}

/// Deletes of a day count together, and no agent can know that each was meant: where fewer than half are left by them
/// alone, the brake has to be on, and a person who looks at the node approves (P7). Of VMs that live elsewhere nobody
/// has to approve anything.
async fn approved(centre: &Centre, cn: &Cn) {
    // What never came has not left.
    let failed = Some(json!("failed"));
    let has_left =
        |vm: &String| centre.vmapi.get(vm).and_then(|it| it.get("state").cloned()) != failed;
    let left = centre.truth.left(&cn.uuid).into_iter().filter(has_left).count();
    let here = centre.truth.on(&cn.uuid).len();
    let had = Reference { vms: here + left, here };
    if had.vms > LITTLE && had.shrunk().is_some() {
        centre.truth.note("a person approves what the brakes block");
        for _ in 0..LOOKS {
            tokio::time::sleep(CACHE).await;
            cn.approve().await;
        }
    }
}

/// A VM comes: hidden first; the switch leaves of its record nothing but where it is. Where VMAPI is
/// not told, its vm-agent tells it.
pub(super) async fn here(centre: &Centre, cn: &mut Cn, rng: &mut StdRng) -> anyhow::Result<()> {
    let mut vm = sample::fresh("lx", Some(rng.next_u64()))?;
    let uuid = uuid::Builder::from_random_bytes(rng.random()).into_uuid().to_string();
    vm.insert("uuid".to_owned(), json!(uuid));
    vm.insert("do_not_inventory".to_owned(), json!(true));
    centre.truth.note(format!("{uuid} comes"));
    centre.truth.set(&uuid, Life::On(ELSEWHERE.to_owned()));
    centre.truth.hide(&uuid, Instant::now());
    let owner = payload::text(&vm, "owner_uuid").unwrap_or_default().to_owned();
    let known =
        json!({"uuid": uuid, "server_uuid": ELSEWHERE, "state": "running", "owner_uuid": owner});
    tell(centre, &uuid, &known);
    cn.verbs.create(&vm).await.with_context(|| format!("create {uuid}"))?;
    cn.watch.poll(&cn.node.root(), &cn.way);
    meanwhile(cn, rng).await?;
    centre.truth.set(&uuid, Life::On(cn.uuid.clone()));
    if rng.random() {
        let bare = [("uuid", uuid.as_str()), ("server_uuid", cn.uuid.as_str())];
        let bare = bare.map(|(key, value)| (key.to_owned(), json!(value)));
        centre.vmapi.put(Map::from_iter(bare));
        meanwhile(cn, rng).await?;
    }
    centre.truth.show(&uuid);
    cn.verbs.hide(&uuid, false).await?;
    Ok(())
}
