// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A node that shows less than it has: platforms and disks that lie, and a VMAPI that takes their word
//! when somebody asks it, so that it is no witness of its own.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use daemon::command::Program;
use mocks::napi::NewNic;
use rand::RngExt;
use rand::rngs::StdRng;
use sdc_clients::MacAddr;
use sdc_clients::vminfod::{VmFields as _, VmObject};
use serde_json::{Map, Value, json};
use simnode::decorators::Trouble;
use simnode::files;

use super::bugs::Bug;
use super::centre::Centre;
use super::node::{CACHE, Cn};

/// More runs than a fault can last for.
const ALWAYS: u32 = u32::MAX;
const DAY: Duration = Duration::from_secs(86_400);

fn some_time(rng: &mut StdRng) -> Duration {
    Duration::from_millis(rng.random_range(0..150_000))
}

/// Customers ask VMAPI about VMs of the node with `sync=true`, and VMAPI takes for destroyed what the
/// node does not show. Its agent hears nothing of that and learns it from VMAPI's list alone.
fn ask(centre: &Centre, cn: &Cn, rng: &mut StdRng) {
    if !centre.relists || cn.wire.api().is_none() {
        return;
    }
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    let shown = cn.shown().into_iter();
    let shown: HashSet<String> = shown.filter_map(|vm| text(vm.get("uuid"))).collect();
    for vm in centre.vmapi.all() {
        let (Some(uuid), Some(state)) = (text(vm.get("uuid")), text(vm.get("state"))) else {
            continue;
        };
        let is_here = vm.get("server_uuid") == Some(&json!(cn.uuid));
        let asked = matches!(state.as_str(), "running" | "stopped") && rng.random();
        if is_here && asked && !shown.contains(&uuid) {
            centre.vmapi.set(&uuid, "destroyed", Some(&cn.uuid));
        }
    }
}

/// vminfod restarts while zoneadm prints a column more, or nothing but the global zone.
pub(super) async fn restart(centre: &Centre, cn: &mut Cn, rng: &mut StdRng) -> anyhow::Result<()> {
    let trouble = [Trouble::NinthColumn, Trouble::OnlyGlobal][rng.random_range(0..2)];
    centre.truth.note(format!("vminfod restarts, zoneadm {trouble:?}"));
    cn.end_vminfod().await;
    cn.commands.calm();
    let all = cn.node.zones()?;
    let believes = trouble == Trouble::OnlyGlobal && centre.bug == Some(Bug::BelieveAnyList);
    let mut aside = Aside::new();
    if believes {
        // A list that nothing contradicts is one that nobody compares with the index.
        aside = show_only(cn, &[])?;
    } else {
        cn.trouble(Program::Zoneadm, trouble, ALWAYS);
    }
    let (commands, lasts) = (cn.commands.clone(), some_time(rng));
    let over = async {
        tokio::time::sleep(lasts).await;
        commands.calm();
    };
    let (started, ()) = tokio::join!(cn.start_vminfod(), over);
    started?;
    ask(centre, cn, rng);
    tokio::time::sleep(some_time(rng)).await;
    if believes {
        give_back(aside)?;
        cn.node.step(|guard| guard.save_zones(&all))?;
    }
    Ok(())
}

/// A zone's configuration cannot be read for a while; one of its addresses is recorded for a VM that
/// is gone.
pub(super) async fn unreadable(
    centre: &Centre,
    cn: &mut Cn,
    vm: &str,
    rng: &mut StdRng,
) -> anyhow::Result<()> {
    let macs = cn.macs(vm)?;
    let shown = cn.shown().into_iter().find(|it| it.zonename() == Some(vm));
    // An address that vminfod has never shown as the VM's is nobody's for the agents.
    let known = shown.map(|it| it.macs()).unwrap_or_default();
    let is_known = |mac: &str| mac.parse().is_ok_and(|mac: MacAddr| known.contains(&mac));
    let file = cn.node.zone_xml(vm);
    let text = std::fs::read(&file)?;
    centre.truth.note(format!("the configuration of {vm} cannot be read"));
    centre.truth.hide_use(&macs);
    files::write_in_place(&file, b"<zone")?;
    cn.watch.poll(&cn.node.root(), &cn.way);
    if let (Some(mac), true) = (macs.first().filter(|mac| is_known(mac)), cn.may_leave(1)) {
        let earlier = uuid::Builder::from_random_bytes(rng.random()).into_uuid().to_string();
        centre.vmapi.set(&earlier, "destroyed", Some(&cn.uuid));
        centre.napi.remove(mac);
        let nic = NewNic::zone(mac, &earlier, &cn.uuid).aged(DAY);
        centre.napi.add_nic(nic).map_err(anyhow::Error::msg)?;
    }
    if rng.random() {
        cn.end_vminfod().await;
        cn.commands.calm();
        cn.start_vminfod().await?;
    }
    for _ in 0..4 {
        ask(centre, cn, rng);
        tokio::time::sleep(some_time(rng)).await;
    }
    files::write_in_place(&file, &text)?;
    centre.truth.hide_use(&[]);
    Ok(())
}

/// More than half of many VMs are gone from zoneadm, the index and `/etc/zones`, as from the disk of another day,
/// and come back; the agents may restart meanwhile.
pub(super) async fn smaller(centre: &Centre, cn: &mut Cn, rng: &mut StdRng) -> anyhow::Result<()> {
    let all = cn.node.zones()?;
    let names: Vec<String> = all.iter().map(|zone| zone.zonename.clone()).collect();
    if names.len() <= 4 || !is_known(centre, cn).await {
        return Ok(());
    }
    let kept = &names[..rng.random_range(1..=(names.len() - 1) / 2)];
    centre.truth.note(format!("nothing but {} is shown", kept.join(", ")));
    centre.truth.vanish(names.iter().cloned().collect());
    let aside = show_only(cn, kept)?;
    cn.watch.poll(&cn.node.root(), &cn.way);
    tokio::time::sleep(some_time(rng)).await;
    ask(centre, cn, rng);
    let forgets = centre.bug == Some(Bug::ForgetTheReference);
    if rng.random() || forgets {
        cn.net.kill(false).await?;
        if forgets {
            cn.net.edit_memory(|memory| {
                memory["reference"] = json!(kept);
                memory["day"] = json!({"older": kept, "newer": kept});
                memory["seen"] = json!([]);
            })?;
        }
        cn.start_agent()?;
    }
    if rng.random() {
        cn.vms.kill(rng.random()).await?;
        cn.start_vm_agent()?;
    }
    for _ in 0..6 {
        ask(centre, cn, rng);
        cn.lift_brake();
        tokio::time::sleep(some_time(rng)).await;
    }
    give_back(aside)?;
    cn.node.step(|guard| guard.save_zones(&all))?;
    // vminfod finds them again; until then a delete of them is late, not wrong.
    tokio::time::sleep(CACHE).await;
    ask(centre, cn, rng);
    centre.truth.vanish(HashSet::new());
    Ok(())
}

/// What one reading of the node lacks for a while.
#[derive(Clone, Copy, Debug)]
enum Gap {
    /// Lines of the zone index.
    Index,
    /// The zone index is of yesterday: VMs are as they were installed, or not there yet.
    Yesterday,
    /// XMLs.
    Xmls,
    /// Rows of zoneadm.
    Rows,
}

/// The zone index, the folder of XMLs or the list of zones lacks some zones, or all, for a moment or longer; then it is
/// whole again. Nothing is told of them, and nothing deleted.
pub(super) async fn gaps(centre: &Centre, cn: &mut Cn, rng: &mut StdRng) -> anyhow::Result<()> {
    centre.calm();
    cn.calm();
    for gap in [Gap::Index, Gap::Yesterday, Gap::Xmls, Gap::Rows] {
        tokio::time::sleep(CACHE).await;
        let all = cn.node.zones()?;
        let mut lacking: Vec<String> = all.iter().map(|zone| zone.zonename.clone()).collect();
        let believes = centre.bug == Some(Bug::BelieveTheIndex);
        let is_all = rng.random_range(0..3_u8) == 0 && !believes;
        lacking.retain(|_| is_all || rng.random());
        lacking.truncate(if believes { 1 } else { lacking.len() });
        let moment = if rng.random() { Duration::from_millis(50) } else { some_time(rng) };
        centre.truth.note(format!("{gap:?} without {} for {moment:?}", lacking.join(", ")));
        let index = cn.node.path("/etc/zones/index");
        let whole = std::fs::read_to_string(&index)?;
        let is_of = |line: &str| lacking.iter().any(|name| line.contains(name.as_str()));
        let without = |text: &str| -> String {
            text.split_inclusive('\n').filter(|line| !is_of(line)).collect()
        };
        let mut aside = Aside::new();
        match gap {
            Gap::Index if is_all => files::write_in_place(&index, b"")?,
            Gap::Index => files::write_in_place(&index, without(&whole).as_bytes())?,
            Gap::Yesterday => {
                let older = without(&whole).replace(":installed:", ":configured:");
                files::replace(&index, older.as_bytes())?;
            }
            Gap::Xmls => aside = set_aside(cn, &lacking)?,
            Gap::Rows => {
                let lacking = lacking.clone();
                cn.commands.alter(move |program, text| match program {
                    Program::Zoneadm => text
                        .split_inclusive('\n')
                        .filter(|line| !lacking.iter().any(|name| line.contains(name.as_str())))
                        .collect(),
                    _ => text,
                });
            }
        }
        if believes {
            // A zone that its XML does not keep.
            aside.extend(set_aside(cn, &lacking)?);
        }
        cn.watch.poll(&cn.node.root(), &cn.way);
        if rng.random_range(0..4_u8) == 0 && !matches!(gap, Gap::Rows) && !believes {
            cn.end_vminfod().await;
            cn.start_vminfod().await?;
        }
        tokio::time::sleep(moment / 2).await;
        ask(centre, cn, rng);
        tokio::time::sleep(if believes { CACHE } else { moment / 2 }).await;
        give_back(aside)?;
        files::replace(&index, whole.as_bytes())?;
        cn.commands.calm();
        cn.watch.poll(&cn.node.root(), &cn.way);
    }
    tokio::time::sleep(CACHE).await;
    ask(centre, cn, rng);
    Ok(())
}

/// Returns true if vminfod has shown all VMs of the node, and which are hidden: no agent can miss a VM that it
/// never heard of. Nor can one whose memory lost its last write miss a VM that VMAPI is still provisioning (W14).
async fn is_known(centre: &Centre, cn: &Cn) -> bool {
    let is_born = |vm: Map<String, Value>| {
        vm.get("server_uuid") != Some(&json!(cn.uuid))
            || vm.get("state") != Some(&json!("provisioning"))
    };
    if !centre.vmapi.all().into_iter().all(is_born) {
        return false;
    }
    let known = |vms: Vec<VmObject>| -> HashMap<String, bool> {
        vms.iter().filter_map(|vm| Some((vm.zonename()?.to_owned(), vm.is_hidden()))).collect()
    };
    cn.load().await.is_ok_and(|vms| known(vms) == known(cn.shown()))
}

/// Configurations that are set aside, and their texts.
type Aside = Vec<(PathBuf, Vec<u8>)>;

/// zoneadm and the index have only these zones, and only they have an XML: with one witness left vminfod shows a VM as it
/// was. Returns what is to be given back.
fn show_only(cn: &Cn, names: &[String]) -> anyhow::Result<Aside> {
    let mut few = cn.node.zones()?;
    let mut others: Vec<String> = few.iter().map(|zone| zone.zonename.clone()).collect();
    others.retain(|name| !names.contains(name));
    others.iter().for_each(|name| drop(few.remove(name)));
    let aside = set_aside(cn, &others)?;
    cn.node.step(|guard| guard.save_zones(&few)).context("fewer zones")?;
    Ok(aside)
}

/// These zones have no XML any more. Returns what is to be given back.
fn set_aside(cn: &Cn, names: &[String]) -> anyhow::Result<Aside> {
    let mut aside = Vec::new();
    for file in names.iter().map(|name| cn.node.zone_xml(name)) {
        if let Ok(text) = std::fs::read(&file) {
            std::fs::remove_file(&file)?;
            aside.push((file, text));
        }
    }
    Ok(aside)
}

fn give_back(aside: Aside) -> anyhow::Result<()> {
    for (file, text) in aside.into_iter().filter(|(file, _)| !file.exists()) {
        files::replace(&file, &text)?;
    }
    Ok(())
}
