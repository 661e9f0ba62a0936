// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The whole hub end to end: real programs, files, signals and sockets on a simulated node.

use std::collections::BTreeSet;
use std::path::Path;

use rustix::process::Signal;
use sdc_clients::Http;
use sdc_clients::cnapi::{Cnapi, ServerQuery};
use sdc_clients::vminfod::{VmFields as _, WatchEvent};
use serde_json::Value;
use testbed::held::{Process, children_of, processes};
use testbed::process::{self, Child};

use super::common::{LATE, Lab, edit_alias, line_with, program, see, signal, text, until};

#[tokio::test(flavor = "multi_thread")]
async fn the_tour_comes_true() {
    let args = ["lab", "--once", "--speed", "600"];
    let done = process::run(&program(), &args, LATE).await.unwrap();
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

/// What the tour tells of a VM that moves, in the order in which it has to happen.
const MOVES: [&str; 36] = [
    "it runs on node 1",
    "ok   move: VMAPI and NAPI know it",
    "move: begin",
    "it is on node 2",
    "ok   begin: VM, VMAPI's record and 2 NICs right",
    "ok   sync: VM, VMAPI's record and 2 NICs right",
    "move: switch",
    "it is stopped on node 1",
    "it is hidden on node 1",
    "it is on node 2 for VMAPI",
    "it is shown on node 2",
    "it runs on node 2",
    "ok   switch: VM, VMAPI's record and 2 NICs right",
    "move: rollback",
    "it is stopped on node 2",
    "it is hidden on node 2",
    "it is on node 1 for VMAPI",
    "it is shown on node 1",
    "it runs on node 1",
    "it is gone from node 2",
    "ok   rollback: VM, VMAPI's record and 2 NICs right",
    "move: automatic migration",
    "it is on node 2",
    "it is hidden on node 2",
    "it is stopped on node 1",
    "it is hidden on node 1",
    "it is on node 2 for VMAPI",
    "it is shown on node 2",
    "it runs on node 2",
    "ok   automatic migration: VM, VMAPI's record and 2 NICs right",
    "move: finalize",
    "it is gone from node 1",
    "ok   finalize: VM, VMAPI's record and 2 NICs right",
    "ok   moments with two copies running or shown 0",
    "ok   what the VM wrote went with it",
    "ok   its NICs deleted 0 times, VMAPI told destroyed 0 times",
];

/// Checks that lines have these texts, in this order.
fn in_order(printed: &str, wanted: &[&str]) {
    let mut lines = printed.lines();
    for one in wanted {
        assert!(
            lines.any(|line| line.contains(one)),
            "{one:?} is missing, or too early, in\n{printed}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes: `.ci/run` has it in its lane of programs"]
async fn the_tour_comes_true_beside_a_second_node() {
    let dir = tempfile::tempdir().unwrap();
    let cn = dir.path().join("cn");
    let place = cn.to_string_lossy();
    let args = ["lab", "--once", "--nodes", "2", "--speed", "600", "--dir", &place];
    let done = process::run(&program(), &args, LATE).await.unwrap();
    assert_eq!(done.code, Some(0), "{}\n{}", done.stdout, done.stderr);
    for line in ["(mock, 2 nodes)", "NICs of live VMs lost 0, deletes sent for them 0"] {
        assert!(done.stdout.contains(line), "{line:?} is missing in\n{}", done.stdout);
    }
    in_order(&done.stdout, &MOVES);
    for once in ["it runs on node 2", "it is stopped on node 1"] {
        assert_eq!(done.stdout.matches(once).count(), 2, "{once:?} in\n{}", done.stdout);
    }
    for daemon in ["vminfod", "net-agent", "vm-agent", "kvmd", "migration-agent"] {
        assert!(dir.path().join(format!("cn2/{daemon}.log")).exists(), "{daemon}");
    }
    assert!(!dir.path().join("cn2/console.log").exists(), "one page");
    let page = std::fs::read_to_string(cn.join("console.json")).unwrap();
    assert!(page.contains("\"migrations\"") && page.contains("\"migration-agent\""), "{page}");
    // A command that a daemon had begun is killed with it, and may need a moment.
    until("no process is left", async || processes_naming(dir.path()).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cnapis_tasks_make_and_delete_vms_on_the_node_that_is_named() {
    let lab = Lab::of(2).await;
    let mut second = lab.beside(1).await.unwrap();
    second.start_vminfod().await.unwrap();
    let cnapi = Cnapi::new(Http::new(&lab.cnapi_url(), "test/1").unwrap());
    assert_eq!(cnapi.list_servers(&ServerQuery::default()).await.unwrap().len(), 2);
    let cn = second.node().cn_uuid().to_owned();
    let servers =
        cnapi.list_servers(&ServerQuery { sysinfo: true, ..ServerQuery::default() }).await.unwrap();
    let addresses: BTreeSet<_> = servers.iter().filter_map(|server| server.admin_ip()).collect();
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["127.0.0.2", "127.0.0.3"]);
    let (uuid, image) =
        ("40000000-0000-4000-8000-00000000cafe", "50000000-0000-4000-8000-00000000cafe");
    let manifest = serde_json::json!({ "uuid": image, "type": "zone-dataset", "state": "active" });
    lab.centre().imgapi.store().put(manifest.as_object().unwrap().clone());
    let vm = serde_json::json!({ "uuid": uuid, "brand": "joyent-minimal", "alias": "new", "autoboot": false,
        "do_not_inventory": true, "image_uuid": image,
        "image": { "files": [{ "compression": "gzip", "size": 1, "sha1": "" }] } });
    let wait = async |task: String| cnapi.wait_task(&task, LATE).await.unwrap();
    let task = wait(cnapi.create_vm(&cn, vm.as_object().unwrap()).await.unwrap()).await;
    assert!(task.is_complete(), "{task:?}");
    let (here, there) = (second.hub().unwrap(), lab.client());
    assert_eq!(here.vm(uuid, true).await.unwrap()["alias"], "new");
    assert!(there.vm(uuid, true).await.unwrap_err().is_not_found_resource());
    assert!(cnapi.get_vm(&cn, uuid, false).await.unwrap_err().is_not_found_resource());
    assert_eq!(cnapi.get_vm(&cn, uuid, true).await.unwrap()["alias"], "new");
    let again = wait(cnapi.create_vm(&cn, vm.as_object().unwrap()).await.unwrap()).await;
    assert!(again.error().is_some_and(|why| why.contains("already exists")), "{again:?}");
    let hidden = wait(cnapi.delete_vm(&cn, uuid, false).await.unwrap()).await;
    assert!(hidden.is_failed(), "a hidden VM is deleted only with include_dni: {hidden:?}");
    let task = wait(cnapi.delete_vm(&cn, uuid, true).await.unwrap()).await;
    assert!(task.is_complete(), "{task:?}");
    assert!(here.vm(uuid, true).await.unwrap_err().is_not_found_resource());
    second.stop().await.unwrap();
    assert!(cnapi.ping().await.is_ok(), "the first node still needs the services");
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
async fn a_lab_of_two_nodes_prints_a_command_that_moves_a_vm() {
    let dir = tempfile::tempdir().unwrap();
    let node = dir.path().join("cn");
    let args = ["lab", "--script", "none", "--nodes", "2", "--dir", &node.to_string_lossy()];
    let mut lab = Child::spawn("lab", &program(), &args).unwrap();
    let command = line_with(&mut lab, "sdc-migrate migrate ").await;
    let script = format!(
        "export PATH={}:$PATH\nset -e\n{command}\nsdc-migrate list",
        node.join("bin").display()
    );
    let bash = Path::new("/bin/bash");
    let done = process::run(bash, &["-c", &script], LATE).await.unwrap();
    assert_eq!(done.code, Some(0), "{}\n{}", done.stdout, done.stderr);
    let vm = command.trim().rsplit(' ').next().unwrap();
    assert!(done.stdout.contains("Migration was successful"), "{}", done.stdout);
    let row = done.stdout.lines().last().unwrap();
    assert!(row.starts_with(vm) && row.contains("successful"), "{row}");
    lab.signal(Signal::INT);
    let status = tokio::time::timeout(LATE, lab.wait()).await.expect("it ends").unwrap();
    assert_eq!(status.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes: `.ci/run` has it in its lane of programs"]
async fn a_node_is_evacuated_and_its_vms_are_as_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let node = dir.path().join("cn");
    let place = node.to_string_lossy();
    let args = ["lab", "--script", "none", "--nodes", "2", "--vms", "6", "--dir", &place];
    let mut lab = Child::spawn("lab", &program(), &args).unwrap();
    let told = line_with(&mut lab, "(mock, 2 nodes)").await;
    line_with(&mut lab, "sdc-migrate migrate ").await;
    let info = std::fs::read_to_string(node.join("node.json")).unwrap();
    let info: Value = serde_json::from_str(&info).unwrap();
    // The node reports to CNAPI while the evacuation reserves it (CN3).
    let script = format!(
        "export PATH={place}/bin:$PATH\nset -euo pipefail\n\
         curl -s -X POST {cnapi}/_mock/faults \
           -d '{{\"method\": \"POST\", \"path\": \"/servers/{cn}\", \"times\": 1, \"action\": {{\"do\": \"change_row\"}}}}'\n\
         vmadm list -H -o uuid,brand,state,alias | sort > {place}/before\n\
         sdc-migrate evacuate {cn} --dry-run\nsdc-migrate evacuate {cn} -y\n\
         for vm in $(cut -d ' ' -f 1 {place}/before); do sdc-migrate finalize $vm -y; done\n\
         vmadm list -H\n\
         {place}2/bin/vmadm list -H -o uuid,brand,state,alias | grep -F -f {place}/before | sort > {place}/after\n\
         diff {place}/before {place}/after && wc -l < {place}/after\n\
         ! sdc-migrate list -H | grep .",
        cnapi = told.split_whitespace().find(|word| word.starts_with("http")).unwrap(),
        cn = info["cn_uuid"].as_str().unwrap(),
    );
    let bash = Path::new("/bin/bash");
    let done = process::run(bash, &["-c", &script], LATE).await.unwrap();
    assert_eq!(done.code, Some(0), "{}\n{}", done.stdout, done.stderr);
    assert!(done.stdout.contains("6 moved, 0 stay"), "{}", done.stdout);
    assert!(done.stdout.ends_with("\n6\n"), "{}", done.stdout);
    lab.signal(Signal::INT);
    let status = tokio::time::timeout(LATE, lab.wait()).await.expect("it ends").unwrap();
    assert_eq!(status.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_core_alone_has_a_story_and_an_exit_status() {
    let dir = tempfile::tempdir().unwrap();
    let node = dir.path().join("cn");
    let place = node.to_string_lossy();
    let args = ["lab", "--core", "--once", "--speed", "600", "--dir", &place];
    let done = process::run(&program(), &args, LATE).await.unwrap();
    assert_eq!(done.code, Some(0), "{}\n{}", done.stdout, done.stderr);
    let story = [
        "ok   leaked NICs reaped 3/3",
        "ok   backfilled 4/4",
        "ok   provisioning fixed 2/2",
        "ok   booted VM seen running, its NICs running in NAPI",
        "ok   quota set by zfs seen",
        "tour 3/4: net-agent hold",
        "ok   held: NICs of a VM that is gone kept ",
        "tour 4/4: net-agent release",
        "ok   deleted VM's NICs gone ",
        "ok   NICs of live VMs lost 0, deletes sent for them 0",
    ];
    in_order(&done.stdout, &story);
    for absent in ["vm-agent", "kvmd", "console"] {
        assert!(!node.join(format!("{absent}.log")).exists(), "{absent}");
    }
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
    let image = simnode::sample::image("joyent-minimal").unwrap();
    let script = format!(
        "set -euo pipefail\n\
         echo '{{\"uuid\": \"{uuid}\", \"brand\": \"joyent-minimal\", \"ram\": 512, \"image_uuid\": \"{image}\"}}' | {vmadm} create\n\
         echo '{{\"alias\": \"by-pipe\", \"max_physical_memory\": 1024}}' | {vmadm} update {uuid}\n\
         {vmadm} update {uuid} quota=21 </dev/null\n\
         for verb in update stop start reboot delete create-snapshot; do\n\
         said=$({vmadm} $verb by-pipe quota=22 2>&1 </dev/null) && exit 3 || [ $? = 2 ]\n\
         [ \"$said\" = \"Invalid or missing UUID for $verb\" ]\ndone\n\
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
    let lab = Lab::without_sweeps(|_| ()).await;
    let vm = lab.pick("running").await;
    let mut watcher = lab.watcher().await;
    edit_alias(&lab.node().zone_xml(text(&vm, "zonename")));
    let changes = see(&mut watcher, |event| match event {
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
    let lab = Lab::without_sweeps(|_| ()).await;
    let vm = lab.pick("stopped").await;
    let mut watcher = lab.watcher().await;
    let children = children_of(lab.pid("vminfod").unwrap(), "sysevent");
    assert_eq!(children.len(), 2, "one sysevent per channel");
    children.into_iter().for_each(|pid| signal(pid, Signal::KILL));
    lab.verbs().boot(text(&vm, "uuid")).await.unwrap();
    let lost = see(&mut watcher, |event| match event {
        WatchEvent::Lost(err) => Some(Some(err.to_string())),
        WatchEvent::Modified { vm: now, .. } | WatchEvent::Created(now) => {
            (now["uuid"] == vm["uuid"] && now["state"] == "running").then_some(None)
        }
        _ => None,
    })
    .await;
    assert_eq!(lost, None, "the stream stayed open");
    until("two new sysevents run", async || {
        children_of(lab.pid("vminfod").unwrap(), "sysevent").len() == 2
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
    lab.end("vminfod", true).await.unwrap();
    lab.verbs().boot(text(&boots, "uuid")).await.unwrap();
    lab.verbs().delete_raw(text(&goes, "uuid")).await.unwrap();
    lab.start_vminfod().await.unwrap();

    let (mut lost, mut booted, mut gone) = (false, false, false);
    see(&mut watcher, |event| {
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
