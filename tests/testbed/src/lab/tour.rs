// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The story of the lab, and the checks of its outcome.

use std::collections::BTreeSet;
use std::time::Duration;

use sdc_clients::MacAddr;
use sdc_clients::http::{Call, Http};
use sdc_clients::napi::{Nic, NicState};
use sdc_clients::vminfod::{VmFields as _, VmObject};
use serde_json::Value;

use super::asking::{OWN_AGENT, found, until};
use super::error::LabError;
use super::outcome::Outcome;
use super::qemus::Qemus;
use super::screen::{Screen, Voice, name};
use super::seed::Wrongs;
use super::world::World;
use crate::process;
use simnode::{Verbs, Wait};

/// The longest that any step may take; the waits of the agent are scaled far below it.
const PATIENCE: Duration = Duration::from_secs(90);
const COMMAND: Duration = Duration::from_secs(30);
const GIB: u64 = 1 << 30;

/// Plays the tour on a world whose daemons run; without vm-agent that of vminfod and net-agent alone, where the node's
/// own vm-agent, which tells VMAPI of a VM that is gone, is played too.
pub async fn play(world: &World, wrongs: &Wrongs, screen: &Screen) -> Result<Outcome, LabError> {
    let mut outcome = Outcome::default();
    let is_alone = is_alone(world);
    let and_vmapi = if is_alone { "" } else { ", in VMAPI too" };
    say(screen, "waiting for net-agent's start: list, backfill, state fix, reap");
    let settled = until("the data centre is put right", PATIENCE, || async {
        Ok(is_right(&world.nics().await?, wrongs, world.node().cn_uuid()))
    })
    .await;
    note_late(screen, settled)?;
    let nics = world.nics().await?;
    let cn = world.node().cn_uuid();
    let reaped = wrongs.leaked.iter().filter(|mac| find(&nics, **mac).is_none()).count();
    let filled = count(&nics, &wrongs.bare, |nic| nic.cn_uuid.as_deref() == Some(cn));
    let fixed = count(&nics, &wrongs.stuck, |nic| nic.state == NicState::Running);
    for (what, got, all) in [
        ("leaked NICs reaped", reaped, wrongs.leaked.len()),
        ("backfilled", filled, wrongs.bare.len()),
        ("provisioning fixed", fixed, wrongs.stuck.len()),
    ] {
        outcome.add(screen, format!("{what} {got}/{all}"), got == all);
    }

    if !is_alone {
        let checked = put_right(world, screen).await?;
        outcome.add(screen, "wrong record put right in VMAPI".to_owned(), checked);
    }
    let checked = boot(world, screen).await?;
    let text = format!("booted VM seen running{and_vmapi}, its NICs running in NAPI");
    outcome.add(screen, text, checked);
    let checked = quota(world, screen).await?;
    outcome.add(screen, format!("quota set by zfs seen{and_vmapi}"), checked);
    if let Some(qemus) = world.qemus() {
        let checked = from_inside(world, qemus, screen).await?;
        outcome.add(
            screen,
            "kvm VM turned off from inside: its user's wish, says kvmd".to_owned(),
            checked,
        );
    }
    let deleted = match is_alone {
        true => held(world, screen, &mut outcome).await?,
        false => delete(world, screen).await?,
    };
    let left = world.nics().await?.iter().filter(|nic| deleted.contains(&nic.mac)).count();
    let gone = deleted.len() - left;
    outcome.add(screen, format!("deleted VM's NICs gone {gone}/{}", deleted.len()), left == 0);
    untouched(world, wrongs, &deleted, screen, &mut outcome).await?;
    Ok(outcome)
}

/// Boots a stopped VM that has NICs; true when hub and NAPI agree that it runs.
async fn boot(world: &World, screen: &Screen) -> Result<bool, LabError> {
    let vm = cast(world, "stopped VM with a NIC", |vm| vm.state() == Some("stopped")).await?;
    say(screen, &format!("tour 1/4: booting {}", name(&vm)));
    let uuid = uuid(&vm);
    Verbs::new(world.node(), Wait::of(world.node())?).boot(uuid).await?;
    let macs = vm.macs();
    let done = until("the booted VM's NICs are running in NAPI", PATIENCE, || async {
        let nics = world.nics().await?;
        let is_told = is_alone(world) || told(world, uuid, "state") == "running";
        Ok(is_told && count(&nics, &macs, |nic| nic.state == NicState::Running) == macs.len())
    })
    .await;
    note_late(screen, done)
}

/// vminfod and net-agent have the node for themselves.
fn is_alone(world: &World) -> bool {
    world.pid("vm-agent").is_none()
}

/// VMAPI's field of a VM.
fn told(world: &World, uuid: &str, key: &str) -> Value {
    let record = world.vmapi.store().get(uuid);
    record.and_then(|record| record.get(key).cloned()).unwrap_or_default()
}

/// Waits until VMAPI has what the node has, and returns whether its wrong record was corrected.
async fn put_right(world: &World, screen: &Screen) -> Result<bool, LabError> {
    let vms = world.hub()?.vms(true).await.map_err(LabError::request("listing the VMs"))?.vms;
    let shown = |vm: &&VmObject| !vm.is_hidden();
    let done = until("VMAPI knows what the node knows", PATIENCE, || async {
        let is_told = |vm: &VmObject| told(world, uuid(vm), "alias") == vm["alias"];
        Ok(vms.iter().filter(shown).filter(|vm| vm.contains_key("alias")).all(is_told))
    })
    .await;
    note_late(screen, done)
}

/// Changes a quota as an operator would, past vmadm; true when the hub shows it.
async fn quota(world: &World, screen: &Screen) -> Result<bool, LabError> {
    let vm = cast(world, "running VM with a quota", |vm| {
        vm.state() == Some("running") && vm.quota().is_some() && vm.brand() != Some("bhyve")
    })
    .await?;
    let dataset = vm.text("zfs_filesystem").unwrap_or_default();
    let gib = vm.quota().unwrap_or(10) + 7;
    say(screen, &format!("tour 2/4: zfs set quota={gib}g {dataset} ({})", name(&vm)));
    run(world, "zfs", &["set", &format!("quota={}", gib * GIB), dataset]).await?;
    let hub = world.hub()?;
    let done = until("the quota is seen", PATIENCE, || async {
        let now = found(hub.vm(uuid(&vm), false).await, "reading the VM")?;
        let is_told = is_alone(world) || told(world, uuid(&vm), "quota") == gib;
        Ok(is_told && now.is_some_and(|now| now.quota() == Some(gib)))
    })
    .await;
    note_late(screen, done)
}

/// Powers a kvm VM off as its user does; true when kvmd's verdict says so, and VMAPI that it is stopped.
async fn from_inside(world: &World, qemus: &Qemus, screen: &Screen) -> Result<bool, LabError> {
    let is_cast = |vm: &VmObject| vm.state() == Some("running") && vm.brand() == Some("kvm");
    let vm = cast(world, "running kvm VM", is_cast).await?;
    let vm_uuid = uuid(&vm);
    say(screen, &format!("tour 3/4: {} powers off from inside", name(&vm)));
    let heard =
        until("kvmd listens to its QEMU", PATIENCE, || async { Ok(qemus.is_heard(vm_uuid).await) });
    note_late(screen, heard.await)?;
    qemus.power_off(world.node(), vm_uuid).await?;
    let kvmd = Http::new(&world.kvmd_url(), OWN_AGENT).map_err(LabError::request("kvmd"))?;
    let done = until("kvmd's verdict", PATIENCE, || async {
        let page = kvmd.execute(Call::get(&["status"])).await.and_then(|page| page.object());
        let page = page.map_err(LabError::request("kvmd's status"))?;
        let mut all = page["verdicts"].as_array().into_iter().flatten();
        let is_it = |it: &&Value| it["name"] == vm_uuid && it["initiator"] == "guest";
        let is_users =
            all.find(is_it).is_some_and(|it| it["user"] == true && it["source"] == "qmp");
        Ok(is_users && told(world, vm_uuid, "state") == "stopped")
    })
    .await;
    note_late(screen, done)
}

/// Deletes a VM behind vmadm's back; its NICs.
async fn delete(world: &World, screen: &Screen) -> Result<Vec<MacAddr>, LabError> {
    let vm =
        cast(world, "running VM with a NIC to delete", |vm| vm.state() == Some("running")).await?;
    let macs = vm.macs();
    say(screen, &format!("tour 4/4: deleting {} with zoneadm and zonecfg", name(&vm)));
    Verbs::new(world.node(), Wait::none()).delete_raw(uuid(&vm)).await?;
    let done = until("the deleted VM's NICs are gone from NAPI", PATIENCE, || async {
        Ok(!world.nics().await?.iter().any(|nic| macs.contains(&nic.mac)))
    })
    .await;
    note_late(screen, done)?;
    let done = until("VMAPI says that the VM is destroyed", PATIENCE, || async {
        Ok(told(world, uuid(&vm), "state") == "destroyed")
    })
    .await;
    note_late(screen, done)?;
    Ok(macs)
}

/// Deletes a VM behind vmadm's back while an operator holds the node, and releases it; its NICs.
async fn held(
    world: &World,
    screen: &Screen,
    outcome: &mut Outcome,
) -> Result<Vec<MacAddr>, LabError> {
    let vm =
        cast(world, "running VM with a NIC to delete", |vm| vm.state() == Some("running")).await?;
    let (macs, cn) = (vm.macs(), world.node().cn_uuid());
    say(screen, &format!("tour 3/4: net-agent hold, then {} goes", name(&vm)));
    run(world, "net-agent", &["hold", "--reason", "tour"]).await?;
    Verbs::new(world.node(), Wait::none()).delete_raw(uuid(&vm)).await?;
    world.vmapi.store().set(uuid(&vm), "destroyed", Some(cn));
    let agent = Http::new(&world.agent_url(), OWN_AGENT).map_err(LabError::request("net-agent"))?;
    let done = until("net-agent leaves the NICs because of the hold", PATIENCE, || async {
        let plan = agent.execute(Call::get(&["plan"])).await.and_then(|plan| plan.object());
        let plan = Value::Object(plan.map_err(LabError::request("net-agent's plan"))?).to_string();
        Ok(plan.contains("held: tour") && macs.iter().all(|mac| plan.contains(&mac.to_string())))
    })
    .await;
    let is_held = note_late(screen, done)?;
    let kept = count(&world.nics().await?, &macs, |_| true);
    let text = format!("held: NICs of a VM that is gone kept {kept}/{}", macs.len());
    outcome.add(screen, text, is_held && kept == macs.len());
    say(screen, "tour 4/4: net-agent release");
    run(world, "net-agent", &["release"]).await?;
    let done = until("the deleted VM's NICs are gone from NAPI", PATIENCE, || async {
        Ok(!world.nics().await?.iter().any(|nic| macs.contains(&nic.mac)))
    })
    .await;
    note_late(screen, done)?;
    Ok(macs)
}

/// No NIC of a live VM was deleted, and none was written that was right before.
async fn untouched(
    world: &World,
    wrongs: &Wrongs,
    deleted: &[MacAddr],
    screen: &Screen,
    outcome: &mut Outcome,
) -> Result<(), LabError> {
    let may_go: BTreeSet<MacAddr> = wrongs.leaked.iter().chain(deleted).copied().collect();
    let nics = world.nics().await?;
    let lost = wrongs.live.iter().filter(|m| !may_go.contains(m) && find(&nics, **m).is_none());
    let lost = lost.count();
    let deletes = world.napi.requests().into_iter().filter(|request| request.method == "DELETE");
    let (mut wrong, mut bare) = (0, 0);
    for request in deletes {
        let mac = request.path.rsplit('/').next().and_then(|text| text.parse().ok());
        wrong += usize::from(!mac.is_some_and(|mac: MacAddr| may_go.contains(&mac)));
        bare += usize::from(!request.headers.contains_key("if-match"));
    }
    let text = format!("NICs of live VMs lost {lost}, deletes sent for them {wrong}");
    outcome.add(screen, text, lost + wrong == 0);
    outcome.add(screen, format!("deletes without If-Match {bare}"), bare == 0);
    Ok(())
}

fn is_right(nics: &[Nic], wrongs: &Wrongs, cn: &str) -> bool {
    wrongs.leaked.iter().all(|mac| find(nics, *mac).is_none())
        && count(nics, &wrongs.bare, |nic| nic.cn_uuid.as_deref() == Some(cn)) == wrongs.bare.len()
        && count(nics, &wrongs.stuck, |nic| nic.state == NicState::Running) == wrongs.stuck.len()
}

fn count(nics: &[Nic], macs: &[MacAddr], good: impl Fn(&Nic) -> bool) -> usize {
    macs.iter().filter(|mac| find(nics, **mac).is_some_and(&good)).count()
}

fn find(nics: &[Nic], mac: MacAddr) -> Option<&Nic> {
    nics.iter().find(|nic| nic.mac == mac)
}

/// The first VM that fits, has NICs and is shown.
async fn cast(
    world: &World,
    role: &'static str,
    fits: impl Fn(&VmObject) -> bool,
) -> Result<VmObject, LabError> {
    let vms = world.hub()?.vms(true).await.map_err(LabError::request("listing the VMs"))?.vms;
    vms.into_iter()
        .find(|vm| !vm.is_hidden() && !vm.macs().is_empty() && fits(vm))
        .ok_or(LabError::Cast(role))
}

async fn run(world: &World, tool: &str, args: &[&str]) -> Result<(), LabError> {
    let program = world.node().tool(tool);
    let done = process::run(&program, args, COMMAND).await.map_err(LabError::io(tool))?;
    if done.code == Some(0) {
        Ok(())
    } else {
        Err(LabError::Command { program, stderr: done.stderr })
    }
}

/// A wait that ran out is an outcome, told at once; all else ends the tour.
fn note_late(screen: &Screen, result: Result<(), LabError>) -> Result<bool, LabError> {
    match result {
        Ok(()) => Ok(true),
        Err(late @ LabError::TooLate { .. }) => {
            say(screen, &late.to_string());
            Ok(false)
        }
        Err(err) => Err(err),
    }
}

fn say(screen: &Screen, text: &str) {
    screen.say(Voice::Lab, text);
}

fn uuid(vm: &VmObject) -> &str {
    vm.uuid().unwrap_or_default()
}
