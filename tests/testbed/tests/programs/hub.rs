// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The whole hub end to end: real programs, files, signals and sockets on a simulated node.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sdc_clients::Jitter;
use sdc_clients::vminfod::{VmObject, WatchEvent, Watcher, watch};
use serde_json::Value;
use simnode::{Verbs, Wait};
use testbed::lab::seed::{self, nics_of};
use testbed::lab::world::until;
use testbed::lab::{World, WorldOptions, vm_agent};
use testbed::process::{self, Child, children_of, kill};

/// Longer than anything takes that goes well, shorter than production's sweep of 10 s.
pub(super) const SOON: Duration = Duration::from_secs(8);
const LATE: Duration = Duration::from_secs(90);

pub(super) fn program() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_testbed"))
}

async fn world(dir: &Path, speed: u32) -> World {
    let options = WorldOptions { speed, ..WorldOptions::new(dir.join("cn"), program()) };
    World::create(options).await.unwrap()
}

pub(super) fn text<'a>(vm: &'a VmObject, key: &str) -> &'a str {
    vm.get(key).and_then(Value::as_str).unwrap_or_default()
}

pub(super) async fn pick(world: &World, state: &str) -> VmObject {
    let vms = world.hub().unwrap().vms(true).await.unwrap().vms;
    vms.into_iter()
        .find(|vm| text(vm, "state") == state && !nics_of(vm).is_empty())
        .unwrap_or_else(|| panic!("no {state} VM with a NIC"))
}

/// Waits for the first event that `wanted` picks.
pub(super) async fn see<T>(
    watcher: &mut Watcher,
    within: Duration,
    mut wanted: impl FnMut(&WatchEvent) -> Option<T>,
) -> T {
    let seen = async {
        loop {
            if let Some(found) = wanted(&watcher.next().await) {
                return found;
            }
        }
    };
    tokio::time::timeout(within, seen).await.expect("the event came in time")
}

pub(super) fn is_synced(event: &WatchEvent) -> Option<usize> {
    match event {
        WatchEvent::Synced(vms) => Some(vms.len()),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tour_comes_true() {
    let done =
        process::run(&program(), &["lab", "--once", "--speed", "600"], Duration::from_secs(240))
            .await
            .unwrap();
    assert_eq!(done.code, Some(0), "{}\n{}", done.stdout, done.stderr);
    for line in [
        "leaked NICs reaped 3/3",
        "backfilled 4/4",
        "provisioning fixed 2/2",
        "deleted VM's NICs gone",
        "NICs of live VMs lost 0, deletes sent for them 0",
    ] {
        assert!(done.stdout.contains(line), "{line:?} is missing in\n{}", done.stdout);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lab_leaves_nothing_behind_when_it_is_interrupted() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["lab", "--script", "none", "--dir", &dir.path().join("cn").to_string_lossy()]
        .map(str::to_owned);
    let mut lab = Child::spawn("lab", &program(), &args).unwrap();
    while let Some(line) = lab.line().await {
        if line.contains("Ctrl-C") {
            break;
        }
    }
    assert!(!processes_naming(dir.path()).is_empty(), "the daemons run");
    lab.signal(rustix::process::Signal::INT);
    let status = tokio::time::timeout(SOON * 2, lab.wait()).await.expect("it ends").unwrap();
    assert_eq!(status.code(), Some(0));
    until("no process is left", SOON, || async { Ok(processes_naming(dir.path()).is_empty()) })
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alias_edited_by_hand_is_an_event() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = world(dir.path(), 1).await;
    world.start_vminfod().await.unwrap();
    let vm = pick(&world, "running").await;
    let mut watcher = watch(&world.hub().unwrap(), Jitter::from_seed(1));
    see(&mut watcher, SOON, is_synced).await;

    let file = world.node().zone_xml(text(&vm, "zonename"));
    let xml = std::fs::read_to_string(&file).unwrap();
    let alias = xml.split("name=\"alias\"").nth(1).and_then(|rest| rest.split('"').nth(3)).unwrap();
    std::fs::write(&file, xml.replace(alias, "YnktaGFuZA==")).unwrap();

    // Sweeps are 10 s apart here, so it was the file watch that saw it.
    let changes = see(&mut watcher, SOON, |event| match event {
        WatchEvent::Modified { vm: now, changes, .. } if now["uuid"] == vm["uuid"] => {
            Some(changes.clone())
        }
        _ => None,
    })
    .await;
    let change = changes.iter().find(|change| change.pretty_path == "alias").unwrap();
    assert_eq!(change.new_value, Some(Value::from("by-hand")));
    world.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn killing_sysevent_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = world(dir.path(), 1).await;
    world.start_vminfod().await.unwrap();
    let vm = pick(&world, "stopped").await;
    let mut watcher = watch(&world.hub().unwrap(), Jitter::from_seed(1));
    see(&mut watcher, SOON, is_synced).await;

    let children = children_of(world.vminfod_pid().unwrap(), "sysevent");
    assert_eq!(children.len(), 2, "one sysevent per channel");
    for pid in children {
        kill(pid);
    }
    Verbs::new(world.node(), Wait::none()).boot(text(&vm, "uuid")).await.unwrap();
    let lost = see(&mut watcher, SOON * 2, |event| match event {
        WatchEvent::Lost(err) => Some(Some(err.to_string())),
        WatchEvent::Modified { vm: now, .. } | WatchEvent::Created(now) => {
            (now["uuid"] == vm["uuid"] && now["state"] == "running").then_some(None)
        }
        _ => None,
    })
    .await;
    assert_eq!(lost, None, "the stream stayed open");
    until("two new sysevents run", SOON * 2, || async {
        Ok(children_of(world.vminfod_pid().unwrap(), "sysevent").len() == 2)
    })
    .await
    .unwrap();
    world.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn killing_vminfod_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = world(dir.path(), 600).await;
    world.start_vminfod().await.unwrap();
    let hub = world.hub().unwrap();
    let vms = hub.vms(true).await.unwrap().vms;
    let wrongs = seed::fill(&world, &vms).unwrap();
    let agent = tokio::spawn(vm_agent::follow(
        hub.clone(),
        world.vmapi.store().clone(),
        world.node().cn_uuid().to_owned(),
    ));
    let mut watcher = watch(&hub, Jitter::from_seed(1));
    see(&mut watcher, SOON, is_synced).await;
    world.start_agent().await.unwrap();
    until("the leaked NICs are reaped", LATE, || async {
        let nics = world.nics().await?;
        Ok(!nics.iter().any(|nic| wrongs.leaked.contains(&nic.mac)))
    })
    .await
    .unwrap();

    let (boots, goes) = (pick(&world, "stopped").await, pick(&world, "running").await);
    world.end_vminfod(true).await.unwrap();
    let verbs = Verbs::new(world.node(), Wait::none());
    verbs.boot(text(&boots, "uuid")).await.unwrap();
    verbs.delete_raw(text(&goes, "uuid")).await.unwrap();
    world.start_vminfod().await.unwrap();

    let (mut lost, mut booted, mut gone) = (false, false, false);
    see(&mut watcher, SOON * 2, |event| {
        match event {
            WatchEvent::Lost(_) => lost = true,
            WatchEvent::Modified { vm, .. } if vm["uuid"] == boots["uuid"] => {
                booted |= vm["state"] == "running";
            }
            WatchEvent::Deleted { vm } => gone |= vm["uuid"] == goes["uuid"],
            _ => {}
        }
        (lost && booted && gone).then_some(())
    })
    .await;
    let macs = nics_of(&goes);
    until("the NICs of the VM that went meanwhile are gone", LATE, || async {
        Ok(!world.nics().await?.iter().any(|nic| macs.contains(&nic.mac)))
    })
    .await
    .unwrap();
    let left = world.nics().await.unwrap();
    for mac in wrongs.live.iter().filter(|mac| !macs.contains(mac)) {
        assert!(left.iter().any(|nic| nic.mac == *mac), "{mac} of a live VM is gone");
    }
    agent.abort();
    world.stop().await.unwrap();
}

/// Processes whose command line names this directory.
fn processes_naming(dir: &Path) -> Vec<u32> {
    let dir = dir.to_string_lossy().into_owned();
    let own = std::process::id();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| *pid != own)
        .filter(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(&dir)
        })
        .collect()
}
