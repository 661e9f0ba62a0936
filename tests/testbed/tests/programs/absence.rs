// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Absence is proved: a VM is gone when its XML and its row are both gone. What one witness lacks while the other
//! has it is told to nobody and deletes nothing, with the real programs and their own waits.

use std::path::{Path, PathBuf};
use std::time::Duration;

use mocks::napi::Era;
use sdc_clients::http::{Call, Http};
use sdc_clients::vminfod::{Incomplete, VmFields as _};
use serde_json::Value;
use simnode::{Verbs, Wait};
use testbed::lab::asking::{OWN_AGENT, until};
use testbed::lab::{World, WorldOptions};

/// Longer than anything here takes that goes well on a busy machine.
const LATE: Duration = Duration::from_secs(300);

fn program() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_testbed"))
}

/// A node whose agents have compared it, with records of all its VMs.
async fn chain(dir: &Path) -> World {
    let options = WorldOptions {
        speed: 600,
        era: Era::Rfd58,
        ..WorldOptions::new(dir.join("cn"), program())
    };
    let mut world = World::create(options).await.unwrap();
    world.start_vminfod().await.unwrap();
    let vms = world.hub().unwrap().vms(true).await.unwrap().vms;
    let cn = world.node().cn_uuid().to_owned();
    world.vmapi.store().seed_from_vms(&vms, &cn);
    world.napi.store().seed_from_vms(&vms, &cn).unwrap();
    world.start_agent().await.unwrap();
    world.start_vm_agent().await.unwrap();
    until("a pass left nothing undecided", LATE, || async {
        let file = std::fs::read_to_string(world.agent_state_dir().join("memory.json"));
        let kept: Value = serde_json::from_str(&file.unwrap_or_default()).unwrap_or_default();
        Ok(kept["reference"].as_array().is_some_and(|vms| !vms.is_empty()))
    })
    .await
    .unwrap();
    world
}

/// A VM in this state that is shown and has NICs.
async fn vm_in(world: &World, state: &str) -> String {
    let vms = world.hub().unwrap().vms(true).await.unwrap().vms;
    let mut found = vms
        .iter()
        .filter(|vm| vm.state() == Some(state) && !vm.is_hidden() && !vm.macs().is_empty());
    found.next().unwrap().uuid().unwrap().to_owned()
}

fn deletes(world: &World) -> usize {
    world.napi.requests().iter().filter(|seen| seen.method == "DELETE").count()
}

fn destroyed(world: &World) -> usize {
    world.vmapi.store().all().iter().filter(|vm| vm["state"] == "destroyed").count()
}

/// The zone index without the lines of this zone.
fn without(index: &str, zone: &str) -> String {
    let lines = index.lines().filter(|line| line.split(':').next() != Some(zone));
    lines.map(|line| format!("{line}\n")).collect()
}

#[tokio::test(flavor = "multi_thread")] // S77, S136, F151
async fn line_that_the_index_lacks_destroys_no_stopped_vm() {
    let dir = tempfile::tempdir().unwrap();
    let world = chain(dir.path()).await;
    let vm = vm_in(&world, "stopped").await;
    let before = destroyed(&world);
    let index = world.node().path("/etc/zones/index");
    let whole = std::fs::read_to_string(&index).unwrap();
    std::fs::write(&index, without(&whole, &vm)).unwrap();
    let hub = world.hub().unwrap();
    until("the VM is named", LATE, || async {
        let view = hub.vms(false).await.unwrap();
        assert!(view.vms.iter().any(|object| object.uuid() == Some(&vm)), "it is not shown");
        Ok(view.incomplete.has(&vm))
    })
    .await
    .unwrap();
    // Several times all that could take it for gone.
    tokio::time::sleep(Duration::from_secs(8)).await;
    let asked = hub.vm(&vm, true).await.unwrap_err();
    assert!(asked.message().contains("the zone index"), "{}", asked.message());
    assert_eq!((destroyed(&world), deletes(&world)), (before, 0));
    // The line is back: nothing is left of it.
    std::fs::write(&index, &whole).unwrap();
    until("nothing is named", LATE, || async {
        Ok(hub.vms(false).await.unwrap().incomplete == Incomplete::default())
    })
    .await
    .unwrap();
    // A true delete is told.
    Verbs::new(world.node(), Wait::none()).delete_raw(&vm).await.unwrap();
    until("VMAPI and NAPI are told", LATE, || async {
        Ok(destroyed(&world) > before && deletes(&world) > 0)
    })
    .await
    .unwrap();
    world.stop().await.unwrap();
}

async fn status(world: &World) -> Value {
    let http = Http::new(&world.agent_url(), OWN_AGENT).unwrap();
    http.execute(Call::get(&["status"])).await.unwrap().object().unwrap().clone().into()
}

/// Waits until net-agent has compared the node a few more times.
async fn rounds(world: &World) {
    let at = status(world).await["resyncs"].as_u64().unwrap() + 4;
    until("rounds go by", LATE, || async {
        Ok(status(world).await["resyncs"].as_u64().unwrap() >= at)
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")] // S137, W35, C43, F151
async fn what_went_while_nobody_looked_is_held_by_its_dataset() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = chain(dir.path()).await;
    let vm = vm_in(&world, "stopped").await;
    let before = destroyed(&world);
    world.end("vminfod", true).await.unwrap();
    let index = world.node().path("/etc/zones/index");
    let whole = std::fs::read_to_string(&index).unwrap();
    std::fs::write(&index, without(&whole, &vm)).unwrap();
    std::fs::remove_file(world.node().path(&format!("/etc/zones/{vm}.xml"))).unwrap();
    world.start_vminfod().await.unwrap();
    rounds(&world).await;
    rounds(&world).await;
    assert_eq!((destroyed(&world), deletes(&world)), (before, 0));
    let why = world.hub().unwrap().left(&vm).await.unwrap();
    assert_eq!(why.holds(), Some(&*format!("zones/{vm}")), "{why:?}");
    world.stop().await.unwrap();
}
