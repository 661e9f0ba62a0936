// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Absence is proved: a VM is gone when its XML and its row are both gone. What one witness lacks while the other
//! has it is told to nobody and deletes nothing, with the real programs and their own waits.

use std::time::Duration;

use sdc_clients::vminfod::{Incomplete, VmFields as _};
use testbed::lab::asking::until;

use super::common::{LATE, Lab};

/// A VM in this state that is shown and has NICs.
async fn vm_in(world: &Lab, state: &str) -> String {
    let vms = world.hub().unwrap().vms(true).await.unwrap().vms;
    let mut found = vms
        .iter()
        .filter(|vm| vm.state() == Some(state) && !vm.is_hidden() && !vm.macs().is_empty());
    found.next().unwrap().uuid().unwrap().to_owned()
}

fn destroyed(world: &Lab) -> usize {
    world.vmapi.store().all().iter().filter(|vm| vm["state"] == "destroyed").count()
}

/// The zone index without the lines of this zone.
fn without(index: &str, zone: &str) -> String {
    let lines = index.lines().filter(|line| line.split(':').next() != Some(zone));
    lines.map(|line| format!("{line}\n")).collect()
}

#[tokio::test(flavor = "multi_thread")] // S77, S136, F151
async fn line_that_the_index_lacks_destroys_no_stopped_vm() {
    let world = Lab::compared().await;
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
    assert_eq!((destroyed(&world), world.nic_deletes()), (before, 0));
    // The line is back: nothing is left of it.
    std::fs::write(&index, &whole).unwrap();
    until("nothing is named", LATE, || async {
        Ok(hub.vms(false).await.unwrap().incomplete == Incomplete::default())
    })
    .await
    .unwrap();
    // A true delete is told.
    world.verbs().delete_raw(&vm).await.unwrap();
    until("VMAPI and NAPI are told", LATE, || async {
        Ok(destroyed(&world) > before && world.nic_deletes() > 0)
    })
    .await
    .unwrap();
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")] // S137, W35, C43, F151
async fn what_went_while_nobody_looked_is_held_by_its_dataset() {
    let mut world = Lab::compared().await;
    let vm = vm_in(&world, "stopped").await;
    let before = destroyed(&world);
    world.end("vminfod", true).await.unwrap();
    let index = world.node().path("/etc/zones/index");
    let whole = std::fs::read_to_string(&index).unwrap();
    std::fs::write(&index, without(&whole, &vm)).unwrap();
    std::fs::remove_file(world.node().path(&format!("/etc/zones/{vm}.xml"))).unwrap();
    world.start_vminfod().await.unwrap();
    world.rounds().await;
    world.rounds().await;
    assert_eq!((destroyed(&world), world.nic_deletes()), (before, 0));
    let why = world.hub().unwrap().left(&vm).await.unwrap();
    assert_eq!(why.holds(), Some(&*format!("zones/{vm}")), "{why:?}");
    world.stop().await;
}
