// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the agents of a node are told that is not so, or not any more: a record from the future, a write that is
//! carried out when its answer was given up, a list of who is not vminfod.

use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use sdc_clients::vminfod::VmFields as _;
use serde_json::json;

use super::bugs::Bug;
use super::centre::Centre;
use super::node::Cn;
use super::record_judge::FUTURE;
use super::records::LATE;

/// What an agent has read or begun is told by then.
const TOLD: Duration = Duration::from_secs(300);
/// Both agents compare all that they have within this.
const LIES: Duration = Duration::from_secs(1200);

/// In some worlds, and with a deliberate bug that needs it: the first node's agents are told wrong.
pub(super) async fn wrong(centre: &Centre, cn: &mut Cn, rng: &mut StdRng) -> anyhow::Result<()> {
    let is_doubted = centre.truth.is_doubted(&cn.uuid);
    match (centre.bug, centre.seed % 32) {
        (Some(Bug::BelieveNewer), _) | (None, 3) if !is_doubted => future(centre, cn, rng).await,
        (Some(Bug::ForgetTheUnknown), _) | (None, 7) if !is_doubted => late(centre, cn, rng).await,
        (Some(Bug::TrustAnyHub), _) | (None, 11) if !is_doubted => hub(centre, cn, rng).await,
        _ => Ok(()),
    }
}

/// Returns a VM that the node shows, and VMAPI has here; hidden ones are nobody's business.
fn shown(centre: &Centre, cn: &Cn, rng: &mut StdRng) -> Option<String> {
    let is_here = |vm: &String| {
        let record = centre.vmapi.get(vm).unwrap_or_default();
        record.get("server_uuid") == Some(&json!(cn.uuid))
    };
    let vms = cn.shown().into_iter().filter(|vm| !vm.is_hidden());
    let vms = vms.filter_map(|vm| vm.zonename().map(str::to_owned));
    let mut vms: Vec<String> = vms.filter(is_here).collect();
    vms.sort();
    (!vms.is_empty()).then(|| vms.swap_remove(rng.random_range(0..vms.len())))
}

/// Faults end, and what the agents have begun is told.
async fn rest(centre: &Centre, cn: &Cn) {
    centre.calm();
    cn.calm();
    tokio::time::sleep(TOLD).await;
}

/// A file of yesterday is restored into VMAPI, by a clock that was ahead; then vm-agent starts again.
async fn future(centre: &Centre, cn: &mut Cn, rng: &mut StdRng) -> anyhow::Result<()> {
    rest(centre, cn).await;
    let Some(vm) = shown(centre, cn, rng) else { return Ok(()) };
    centre.truth.note(format!("VMAPI's record of {vm} is from the future, and wrong"));
    let mut record = centre.vmapi.get(&vm).unwrap_or_default();
    record.insert("alias".to_owned(), json!("of-yesterday"));
    record.insert("last_modified".to_owned(), json!(FUTURE));
    centre.vmapi.put(record);
    cn.vms.kill(false).await?;
    cn.start_vm_agent()
}

/// For a while another one answers in vminfod's place, and shows a VM less; both agents start meanwhile.
async fn hub(centre: &Centre, cn: &mut Cn, rng: &mut StdRng) -> anyhow::Result<()> {
    rest(centre, cn).await;
    let Some(vm) = shown(centre, cn, rng) else { return Ok(()) };
    centre.truth.note(format!("who answers in vminfod's place does not show {vm}"));
    for (hidden, lasts) in [(Some(vm), LIES), (None, TOLD)] {
        cn.impostor.hides(hidden);
        cn.net.kill(false).await?;
        cn.vms.kill(false).await?;
        cn.start_agent()?;
        cn.start_vm_agent()?;
        tokio::time::sleep(lasts).await;
    }
    Ok(())
}

/// A write's answer does not come, and it is carried out when a later one has been.
async fn late(centre: &Centre, cn: &mut Cn, rng: &mut StdRng) -> anyhow::Result<()> {
    rest(centre, cn).await;
    let Some(vm) = shown(centre, cn, rng) else { return Ok(()) };
    centre.truth.note(format!("the next write of {vm} is late"));
    cn.records.delay(&vm);
    for alias in ["late", "in-time"] {
        let changes = json!({"alias": alias});
        let changes = changes.as_object().cloned().unwrap_or_default();
        cn.verbs.update(&vm, &changes).await?;
        cn.watch.poll(&cn.node.root(), &cn.way);
        // The request that hangs is given up, and what follows it is told.
        tokio::time::sleep(LATE / 2).await;
    }
    tokio::time::sleep(TOLD + LATE).await;
    Ok(())
}
