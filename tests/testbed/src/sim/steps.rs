// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The random steps of a simulated world: life on the nodes, and faults.

use std::time::Duration;

use anyhow::Context;
use daemon::command::Program;
use rand::rngs::StdRng;
use rand::{Rng, RngExt};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::centre::Centre;
use super::commands::TROUBLES;
use super::lies;
use super::moves::{self, TURN};
use super::node::Cn;
use super::outside::{ANOTHER, ELSEWHERE};
use super::signals::Weather;
use super::truth::Life;
use crate::changes::mutate::Mutation;
use mocks::faults::{Action, Rule};
use mocks::napi::NewNic;
use simnode::{files, payload, sample};

/// Below this a step is life, from here on a fault.
const LIFE: u32 = 66;
const DAY: Duration = Duration::from_secs(86_400);

/// One random step on one of the nodes, or one in which nothing but life happens. Steps that its
/// state does not allow do nothing.
pub async fn step(
    centre: &Centre,
    cn: &mut Cn,
    rng: &mut StdRng,
    only_life: bool,
) -> anyhow::Result<()> {
    match rng.random_range(0..if only_life { LIFE } else { 125_u32 }) {
        0..44 => mutate(centre, cn, rng).await,
        44..52 => create(centre, cn, rng).await?,
        52..60 => delete(centre, cn, rng).await,
        60..LIFE => edit_slowly(cn, rng).await?,
        LIFE..74 => weather(cn, rng),
        74..82 => centre.truth.note(command_trouble(cn, rng)),
        82..90 => service_trouble(centre, rng),
        90..92 => {
            centre.truth.note("a follower of events dies");
            cn.cut_source(rng.random());
        }
        92..95 => {
            centre.truth.note("vminfod restarts");
            cn.end_vminfod().await;
            let away = Duration::from_millis(rng.random_range(0..20_000));
            tokio::time::sleep(away).await;
            // A new start has to get by with commands that fail, but not for ever.
            cn.commands.calm();
            cn.start_vminfod().await?;
        }
        95..98 => {
            centre.truth.note("net-agent crashes");
            match rng.random_range(0..3_u8) {
                0 => cn.net.end().await,
                how => cn.net.kill(how == 2).await?,
            }
            tokio::time::sleep(Duration::from_millis(rng.random_range(0..30_000))).await;
            cn.start_agent()?;
        }
        98..100 => {
            let by = Duration::from_secs(rng.random_range(10_800..86_400));
            centre.truth.note(format!("NAPI's clock jumps by {by:?}"));
            centre.napi.advance_clock(by);
        }
        100..104 => lies::restart(centre, cn, rng).await?,
        104..108 => {
            if let Some(vm) = pick(centre, cn, rng) {
                lies::unreadable(centre, cn, &vm, rng).await?;
            }
        }
        108..110 => lies::smaller(centre, cn, rng).await?,
        110..114 => {
            centre.truth.note("vm-agent crashes");
            match rng.random_range(0..3_u8) {
                0 => cn.vms.end().await,
                how => cn.vms.kill(how == 2).await?,
            }
            tokio::time::sleep(Duration::from_millis(rng.random_range(0..30_000))).await;
            cn.start_vm_agent()?;
        }
        114..119 => {
            vmapi_trouble(centre, rng);
            mutate(centre, cn, rng).await;
        }
        119..122 => moves::away(centre, cn, rng).await?,
        _ => moves::here(centre, cn, rng).await?,
    }
    cn.watch.poll(&cn.node.root(), &cn.way);
    Ok(())
}

fn pick(centre: &Centre, cn: &Cn, rng: &mut StdRng) -> Option<String> {
    let vms = centre.truth.on(&cn.uuid);
    (!vms.is_empty()).then(|| vms[rng.random_range(0..vms.len())].clone())
}

async fn mutate(centre: &Centre, cn: &mut Cn, rng: &mut StdRng) {
    let Some(vm) = pick(centre, cn, rng) else { return };
    let mutation = loop {
        match Mutation::draw(rng) {
            // Births and deaths concern NAPI too and are steps of their own.
            Mutation::Create(..) | Mutation::Delete => {}
            other => break other,
        }
    };
    if mutation == Mutation::DropNic && !cn.may_leave(1) {
        return;
    }
    let done = mutation.perform(&cn.verbs, &vm).await;
    centre.truth.note(format!("{mutation:?} on {vm}: {}", done.is_ok()));
    match (&mutation, done) {
        (_, Err(_)) => return,
        (Mutation::Hide(true), _) => centre.truth.hide(&vm, Instant::now() + TURN),
        (Mutation::Hide(false), _) => centre.truth.show(&vm),
        _ => {}
    }
    if matches!(mutation, Mutation::AddNic(_)) && rng.random() {
        let news = cn.macs(&vm).unwrap_or_default();
        if let Some(mac) = news.last() {
            let nic = NewNic::zone(mac, &vm, &cn.uuid).with("state", json!("provisioning"));
            drop(centre.napi.add_nic(nic));
        }
    }
}

/// A VM is provisioned: NAPI and VMAPI know of it before the node does.
async fn create(centre: &Centre, cn: &mut Cn, rng: &mut StdRng) -> anyhow::Result<()> {
    let brand = ["joyent-minimal", "lx", "bhyve"][rng.random_range(0..3)];
    let mut vm = sample::fresh(brand, Some(rng.next_u64()))?;
    vm.insert("autoboot".to_owned(), json!(rng.random::<bool>()));
    let uuid = payload::text(&vm, "uuid").map(str::to_owned);
    let uuid = uuid.unwrap_or_else(|| {
        let made = uuid::Builder::from_random_bytes(rng.random()).into_uuid().to_string();
        vm.insert("uuid".to_owned(), json!(made));
        made
    });
    if centre.truth.life(&uuid).is_some() {
        return Ok(());
    }
    centre.truth.note(format!("create {uuid}"));
    centre.truth.set(&uuid, Life::Planned);
    provision(centre, &uuid, &cn.uuid);
    let claimed: bool = rng.random();
    for nic in payload::list(&vm, "nics")? {
        let Some(mac) = payload::text(nic, "mac") else { continue };
        let mut new = NewNic::zone(mac, &uuid, &cn.uuid)
            .with("state", json!(if rng.random() { "provisioning" } else { "running" }))
            .with("owner_uuid", vm.get("owner_uuid").cloned().unwrap_or(Value::Null));
        if !claimed {
            new = new.without("cn_uuid");
        }
        drop(centre.napi.add_nic(new));
    }
    if rng.random_range(0..4_u8) == 0 {
        cn.vms.kill(false).await?;
        cn.start_vm_agent()?;
    }
    tokio::time::sleep(Duration::from_millis(rng.random_range(0..90_000))).await;
    if rng.random_range(0..3_u8) == 0 && cn.may_leave(payload::list(&vm, "nics")?.len()) {
        // It never comes, and no event of the node will ever tell of its NICs.
        centre.truth.note(format!("{uuid} fails"));
        centre.truth.set(&uuid, Life::Gone(Instant::now(), cn.uuid.clone()));
        centre.vmapi.set(&uuid, "failed", Some(&cn.uuid));
        return Ok(());
    }
    centre.truth.set(&uuid, Life::On(cn.uuid.clone()));
    cn.verbs.create(&vm).await.with_context(|| format!("create {uuid}"))?;
    Ok(())
}

/// VMAPI has begun to provision a VM on this node.
fn provision(centre: &Centre, vm: &str, cn: &str) {
    let begun = jiff::Timestamp::now().to_string();
    let record = json!({"uuid": vm, "state": "provisioning", "server_uuid": cn, "brand": "joyent",
        "create_timestamp": begun});
    centre.vmapi.put(record.as_object().cloned().unwrap_or_default());
}

/// A VM goes; its NICs may stay behind in NAPI, and it is often the vm-agent that tells VMAPI.
async fn delete(centre: &Centre, cn: &mut Cn, rng: &mut StdRng) {
    if !cn.may_lose_one() {
        return;
    }
    let Some(vm) = pick(centre, cn, rng) else { return };
    let macs = cn.macs(&vm).unwrap_or_default();
    if cn.verbs.delete(&vm).await.is_err() {
        return;
    }
    centre.truth.note(format!("delete {vm}"));
    centre.truth.set(&vm, Life::Gone(Instant::now(), cn.uuid.clone()));
    // Of one that was hidden lately its agent says nothing, and of one that VMAPI never heard to be here
    // not for two hours: the workflow that provisioned it ends its record.
    let state = centre.vmapi.get(&vm).and_then(|vm| vm.get("state").cloned());
    let is_unborn = state == Some(json!("provisioning"));
    if rng.random() || centre.truth.was_hidden(&vm) || is_unborn {
        centre.vmapi.set(&vm, "destroyed", Some(&cn.uuid));
    }
    let stay: bool = rng.random();
    if !stay || !cn.may_leave(macs.len()) {
        for mac in macs {
            centre.napi.remove(&mac);
        }
    }
}

/// Somebody writes a file in two halves.
async fn edit_slowly(cn: &Cn, rng: &mut StdRng) -> anyhow::Result<()> {
    let zones = cn.node.zones()?;
    let names: Vec<_> = zones.iter().map(|zone| zone.zonename.clone()).collect();
    if names.is_empty() {
        return Ok(());
    }
    let name = &names[rng.random_range(0..names.len())];
    let file = cn.node.zone_xml(name);
    let Ok(text) = std::fs::read(&file) else { return Ok(()) };
    files::write_in_place(&file, &text[..rng.random_range(0..text.len())])?;
    cn.watch.poll(&cn.node.root(), &cn.way);
    tokio::time::sleep(Duration::from_millis(rng.random_range(0..3_000))).await;
    files::write_in_place(&file, &text)?;
    Ok(())
}

fn weather(cn: &Cn, rng: &mut StdRng) {
    cn.way.set(Weather {
        lost: [0, 10, 50, 100][rng.random_range(0..4)],
        twice: [0, 30][rng.random_range(0..2)],
        late: Duration::from_millis([0, 50, 5_000, 60_000][rng.random_range(0..4)]),
        batch: Duration::ZERO,
    });
}

/// The next few runs of a command fail. Returns which, and how.
pub(crate) fn command_trouble(cn: &Cn, rng: &mut StdRng) -> String {
    let tool = [Program::Zoneadm, Program::Zfs, Program::Kstat][rng.random_range(0..3)];
    let trouble = TROUBLES[rng.random_range(0..TROUBLES.len())];
    cn.trouble(tool, trouble, rng.random_range(1..5));
    format!("{} {trouble:?}", tool.name())
}

fn service_trouble(centre: &Centre, rng: &mut StdRng) {
    let status = |status, retry_after| Action::Status { status, body: None, retry_after };
    let mut actions = vec![
        status(500, None),
        status(503, Some(5)),
        status(429, Some(10)),
        Action::Cut,
        Action::DropResponse,
        Action::EmptyBody,
        Action::Garbage { text: "<html>gateway</html>".to_owned() },
        Action::Truncate { bytes: rng.random_range(0..200) },
        Action::Delay { ms: rng.random_range(0..60_000) },
    ];
    let napi: bool = rng.random_range(0..3_u8) > 0;
    if napi {
        actions.extend([
            Action::DelayCommit { ms: rng.random_range(0..5_000) },
            Action::ChangeRow,
            Action::MaxPage { limit: 2 },
            Action::RepeatPage,
            Action::ForeignRecord { record: None },
        ]);
    }
    let action = actions.swap_remove(rng.random_range(0..actions.len()));
    centre.truth.note(format!("{} {action:?}", if napi { "NAPI" } else { "VMAPI" }));
    let rule = Rule::any(action).times(rng.random_range(1..6));
    let faults = if napi { centre.napi.faults() } else { centre.vmapi.faults() };
    faults.add(rule);
}

/// VMAPI fails the vm-agents, in ways of its own, for a while.
fn vmapi_trouble(centre: &Centre, rng: &mut StdRng) {
    let lasts = Duration::from_millis(rng.random_range(10_000..120_000));
    let some = rng.random_range(1..6);
    let put = |action| centre.vmapi.faults().add(Rule::new("PUT", "/vms*", action).times(some));
    let what = rng.random_range(0..5_u8);
    match what {
        0 => centre.vmapi.peers().workflow = false,
        1 => centre.vmapi.peers().storage = false,
        2 => centre.doubt(true),
        3 => put(Action::DropResponse),
        _ => put(Action::FailWrite { after: 1 }),
    }
    let names = [
        "the workflow API is away",
        "the storage is away",
        "the nodes are not heard",
        "answers to writes are lost",
        "the storage fails within a write",
    ];
    centre.truth.note(format!("VMAPI: {}, {lasts:?} or {some} times", names[usize::from(what)]));
    let centre = centre.clone();
    tokio::spawn(async move {
        tokio::time::sleep(lasts).await;
        match what {
            0 => centre.vmapi.peers().workflow = true,
            1 => centre.vmapi.peers().storage = true,
            2 => centre.doubt(false),
            _ => {}
        }
    });
}

/// Fills NAPI and VMAPI for a new node, with what is usually wrong there.
pub fn seed(
    centre: &Centre,
    cn: &mut Cn,
    nth: u64,
    vms: &[Map<String, Value>],
    rng: &mut StdRng,
) -> Result<(), String> {
    centre.vmapi.seed_from_vms(vms, &cn.uuid);
    centre.vmapi.set(ANOTHER, "destroyed", Some(&cn.uuid));
    for vm in vms.iter().filter(|vm| vm.get("do_not_inventory") == Some(&json!(true))) {
        centre.truth.hide(vm["uuid"].as_str().unwrap_or_default(), Instant::now());
    }
    let macs = centre.napi.seed_from_vms(vms, &cn.uuid)?;
    for mac in macs {
        match rng.random_range(0..6_u8) {
            0 => {
                let state = Map::from_iter([("state".to_owned(), json!("provisioning"))]);
                centre.napi.change_nic(&mac, &state)?;
            }
            1 => {
                // NAPI never unsets cn_uuid: a record without it is a new one.
                let nic = centre.napi.nic(&mac).unwrap_or_default();
                let vm = nic["belongs_to_uuid"].as_str().unwrap_or_default().to_owned();
                centre.napi.remove(&mac);
                let new = NewNic::zone(&mac, &vm, &cn.uuid)
                    .without("cn_uuid")
                    .with("owner_uuid", nic["owner_uuid"].clone())
                    .with("state", nic["state"].clone());
                centre.napi.add_nic(new)?;
            }
            _ => {}
        }
    }
    strays(centre, cn, nth, rng)
}

/// Far more leaked records than the brake lets pass, of VMs that VMAPI never heard of.
pub(super) fn leak(centre: &Centre, cn: &str, macs: &str) -> Result<(), String> {
    for n in 0..12_u8 {
        let vm = uuid::Builder::from_random_bytes([n; 16]).into_uuid().to_string();
        centre.napi.add_nic(NewNic::zone(&format!("{macs}:{n:02x}"), &vm, cn).aged(DAY))?;
    }
    Ok(())
}

/// Records of VMs that the node does not have: some leaked, some not.
fn strays(centre: &Centre, cn: &mut Cn, nth: u64, rng: &mut StdRng) -> Result<(), String> {
    if rng.random_range(0..8_u8) == 0 {
        centre.truth.brake(&cn.uuid);
        if rng.random() {
            leak(centre, &cn.uuid, &format!("90:b8:d0:fe:{nth:02x}"))?;
        }
    }
    for n in 0..rng.random_range(1..4_u8) {
        if !cn.may_leave(1) {
            continue;
        }
        let vm = uuid::Builder::from_random_bytes(rng.random()).into_uuid().to_string();
        let nic = NewNic::zone(&format!("90:b8:d0:ff:{nth:02x}:{n:02x}"), &vm, &cn.uuid);
        let nic = match rng.random_range(0..if centre.lies { 5_u8 } else { 4 }) {
            // It runs elsewhere, though the record says here; another node's word that it is
            // destroyed is no reason to delete here.
            how @ (0 | 4) => {
                centre.truth.set(&vm, Life::On(ELSEWHERE.to_owned()));
                let state = if how == 0 { "running" } else { "destroyed" };
                centre.vmapi.set(&vm, state, Some(ELSEWHERE));
                nic
            }
            // It is to come.
            1 => {
                centre.truth.set(&vm, Life::Planned);
                provision(centre, &vm, &cn.uuid);
                nic.with("state", json!("provisioning"))
            }
            // It was destroyed long ago.
            _ => {
                centre.vmapi.set(&vm, "destroyed", Some(&cn.uuid));
                nic
            }
        };
        centre.napi.add_nic(nic.aged(DAY))?;
    }
    Ok(())
}
