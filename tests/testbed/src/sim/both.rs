// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Two machines of one uuid, each with its agents.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use daemon::agent::{Identity, Refusal};
use mocks::napi::{Era, NewNic};
use serde_json::{Map, Value, json};
use simnode::files;

use super::centre::Centre;
use super::node::Cn;
use super::runs::alone;
use super::truth::Truth;
use super::twins;
use super::world::held;
use crate::place::place;

/// So long both are there.
const BOTH: Duration = Duration::from_secs(6 * 3600);

/// One machine has VMs, and CNAPI has heard of the other last. No VM that lives is shown destroyed, no NIC of one is
/// deleted, and both say why they write nothing.
pub fn hold(seed: u64) -> anyhow::Result<()> {
    let truth = Truth::default();
    alone(live(seed, &truth))
}

async fn live(seed: u64, truth: &Truth) -> anyhow::Result<()> {
    let dir = place()?;
    let centre = Centre::new(Era::Master, seed, None, truth);
    let mut one = machine(&centre, dir.path(), 0, (2, None))?;
    let vms = one.load().await.context("the first load")?;
    centre.vmapi.seed_from_vms(&vms, &one.uuid);
    let macs = centre.napi.seed_from_vms(&vms, &one.uuid).map_err(anyhow::Error::msg)?;
    ensure!(vms.len() == 2 && !macs.is_empty(), "{} VMs, {} NICs", vms.len(), macs.len());
    let mut other = machine(&centre, dir.path(), 1, (0, Some(one.uuid.clone())))?;
    for cn in [&mut one, &mut other] {
        cn.start_vminfod().await?;
        cn.start_agent()?;
        cn.start_vm_agent()?;
    }
    tokio::time::sleep(BOTH).await;
    for (name, cn) in [("the one with VMs", &one), ("the other one", &other)] {
        match cn.mute() {
            Some(Refusal::SecondMachine(_)) => {}
            why => bail!("P18: {name} does not say that there is a second machine: {why:?}"),
        }
    }
    let is_dead = |vm: &Map<String, Value>| vm.get("state") == Some(&json!("destroyed"));
    let dead = centre.vmapi.all().iter().filter(|vm| is_dead(vm)).count();
    ensure!(dead == 0, "M2: {dead} of {} VMs that live are shown destroyed", vms.len());
    let gone = macs.iter().filter(|mac| centre.napi.nic(mac).is_none()).count();
    ensure!(gone == 0, "I1: {gone} of {} NICs are deleted", macs.len());
    one.end().await;
    other.end().await;
    held(truth)
}

/// A machine that has told CNAPI, and thereby NAPI, of itself.
fn machine(
    centre: &Centre,
    dir: &Path,
    nth: u64,
    what: (u32, Option<String>),
) -> anyhow::Result<Cn> {
    let dir = dir.join(nth.to_string());
    std::fs::create_dir_all(&dir)?;
    let cn = Cn::of_uuid(centre, &dir, nth, what)?;
    let file = cn.node.path("/tmp/.sysinfo.json");
    let mut sysinfo: Map<String, Value> = serde_json::from_slice(&std::fs::read(&file)?)?;
    sysinfo.insert("Serial Number".to_owned(), json!(format!("SIM{nth:04}")));
    files::write_json(&file, &Value::Object(sysinfo.clone()))?;
    twins::put(centre, &cn.uuid, &Value::Object(sysinfo.clone()));
    for mac in Identity::of(&sysinfo)?.macs {
        let nic = NewNic::server(&mac.to_string(), &cn.uuid);
        centre.napi.add_nic(nic).map_err(anyhow::Error::msg)?;
    }
    Ok(cn)
}
