// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The whole hub end to end: real programs, files, signals and sockets on a simulated node.

use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use sdc_clients::vminfod::{VmFields as _, WatchEvent};
use serde_json::Value;
use testbed::held::{Process, children_of, processes};
use testbed::process::{self, Child};

use super::common::{LATE, Lab, SOON, edit_alias, line_with, program, see, signal, text, until};

#[tokio::test(flavor = "multi_thread")]
async fn the_tour_comes_true() {
    let args = ["lab", "--once", "--speed", "600"];
    let done = process::run(&program(), &args, Duration::from_secs(240)).await.unwrap();
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
    let told = line_with(&mut lab, "Ctrl-C").await;
    let node = dir.path().join("cn");
    assert!(told.ends_with(&format!("keeps {}", node.display())), "{told}");
    let running = processes_naming(dir.path());
    let agent = running.iter().find(|one| one.command.contains("@net-agent")).unwrap();
    signal(agent.pid, Signal::KILL);
    line_with(&mut lab, "net-agent ended; its last words: ").await;
    assert!(processes_naming(dir.path()).iter().any(|one| one.command.contains("@vm-agent")));
    lab.signal(Signal::INT);
    let status = tokio::time::timeout(LATE, lab.wait()).await.expect("it ends").unwrap();
    assert_eq!(status.code(), Some(0));
    until("no process is left", async || processes_naming(dir.path()).is_empty()).await;
    assert!(node.join("net-agent.log").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lab_can_do_without_daemons() {
    let dir = tempfile::tempdir().unwrap();
    let node = dir.path().join("cn");
    let place = ["--dir", &node.to_string_lossy()];
    let args = [&["lab", "--once", "--without", "net-agent,kvmd"], &place[..]].concat();
    let done = process::run(&program(), &args, LATE).await.unwrap();
    assert_eq!(done.code, Some(0), "{}\n{}", done.stdout, done.stderr);
    assert!(done.stdout.contains("no story: it needs net-agent"), "{}", done.stdout);
    assert!(node.join("vm-agent.log").exists() && !node.join("net-agent.log").exists());
    let page = std::fs::read_to_string(node.join("console.json")).unwrap();
    assert!(page.contains("vm-agent") && !page.contains("net-agent") && !page.contains("kvmd"));
}

#[tokio::test(flavor = "multi_thread")]
async fn vmadm_reads_payloads_from_standard_input() {
    let lab = Lab::of(2).await;
    let uuid = "00000000-0000-4000-8000-00000000beef";
    let vmadm = lab.node().dir().join("bin/vmadm");
    let vmadm = vmadm.display();
    let script = format!(
        "set -euo pipefail\n\
         echo '{{\"uuid\": \"{uuid}\", \"brand\": \"joyent-minimal\", \"ram\": 512}}' | {vmadm} create\n\
         echo '{{\"alias\": \"by-pipe\", \"max_physical_memory\": 1024}}' | {vmadm} update {uuid}\n\
         {vmadm} update {uuid} quota=21 </dev/null\n\
         ! echo nonsense | {vmadm} update {uuid}\n\
         ! {vmadm} create </dev/null"
    );
    let done = process::run(Path::new("/bin/bash"), &["-c", &script], LATE).await.unwrap();
    assert_eq!(done.code, Some(0), "{}\n{}", done.stdout, done.stderr);
    let vm = lab.client().vm(uuid, false).await.unwrap();
    let memory = ["max_physical_memory", "max_locked_memory", "max_swap"];
    assert_eq!((vm.alias(), vm.quota()), (Some("by-pipe"), Some(21)));
    assert_eq!(memory.map(|field| vm.number(field)), [Some(1024); 3]);
    lab.stop().await;
}

/// Processes whose command line names this directory.
fn processes_naming(dir: &Path) -> Vec<Process> {
    let (dir, own) = (dir.to_string_lossy(), std::process::id());
    processes().filter(|one| one.pid != own && one.command.contains(&*dir)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alias_edited_by_hand_is_an_event() {
    let lab = Lab::start(|options| options.speed = 1).await;
    let vm = lab.pick("running").await;
    let mut watcher = lab.watcher().await;
    edit_alias(&lab.node().zone_xml(text(&vm, "zonename")));
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
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killing_sysevent_loses_nothing() {
    let lab = Lab::start(|options| options.speed = 1).await;
    let vm = lab.pick("stopped").await;
    let mut watcher = lab.watcher().await;
    let children = children_of(lab.vminfod_pid().unwrap(), "sysevent");
    assert_eq!(children.len(), 2, "one sysevent per channel");
    children.into_iter().for_each(|pid| signal(pid, Signal::KILL));
    lab.verbs().boot(text(&vm, "uuid")).await.unwrap();
    let lost = see(&mut watcher, SOON * 2, |event| match event {
        WatchEvent::Lost(err) => Some(Some(err.to_string())),
        WatchEvent::Modified { vm: now, .. } | WatchEvent::Created(now) => {
            (now["uuid"] == vm["uuid"] && now["state"] == "running").then_some(None)
        }
        _ => None,
    })
    .await;
    assert_eq!(lost, None, "the stream stayed open");
    until("two new sysevents run", async || {
        children_of(lab.vminfod_pid().unwrap(), "sysevent").len() == 2
    })
    .await;
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killing_vminfod_loses_nothing() {
    let mut lab = Lab::start(|options| options.speed = 600).await;
    let wrongs = lab.fill().await;
    lab.start_vm_agent().await.unwrap();
    let mut watcher = lab.watcher().await;
    lab.start_agent().await.unwrap();
    until("the leaked NICs are reaped", async || {
        !lab.nics().await.unwrap().iter().any(|nic| wrongs.leaked.contains(&nic.mac))
    })
    .await;

    let (boots, goes) = (lab.pick("stopped").await, lab.pick("running").await);
    lab.end_vminfod(true).await.unwrap();
    lab.verbs().boot(text(&boots, "uuid")).await.unwrap();
    lab.verbs().delete_raw(text(&goes, "uuid")).await.unwrap();
    lab.start_vminfod().await.unwrap();

    let (mut lost, mut booted, mut gone) = (false, false, false);
    see(&mut watcher, SOON * 2, |event| {
        match event {
            WatchEvent::Lost(_) => lost = true,
            WatchEvent::Modified { vm, .. } if vm["uuid"] == boots["uuid"] => {
                booted |= vm["state"] == "running";
            }
            WatchEvent::Deleted(vm) => gone |= vm["uuid"] == goes["uuid"],
            _ => {}
        }
        (lost && booted && gone).then_some(())
    })
    .await;
    let macs = goes.macs();
    until("the NICs of the VM that went meanwhile are gone", async || {
        !lab.nics().await.unwrap().iter().any(|nic| macs.contains(&nic.mac))
    })
    .await;
    let left = lab.nics().await.unwrap();
    for mac in wrongs.live.iter().filter(|mac| !macs.contains(mac)) {
        assert!(left.iter().any(|nic| nic.mac == *mac), "{mac} of a live VM is gone");
    }
    lab.stop().await;
}
