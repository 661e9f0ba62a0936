// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! States that take long to make: stores that were lost, a node that boots, a fault in the middle of a switch, brakes,
//! a storage VM that does not serve. Each ends by the command that the table has for it.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use daemon::needs::{Does, find};
use mocks::napi::NewNic;
use sdc_clients::vminfod::{VmFields as _, VmObject};
use serde_json::{Value, json};
use testbed::moving::subject::VM;
use testbed::process;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::super::common::centre::Centre;
use super::super::common::{LATE, Lab, status, until};

/// The states that are ended here.
pub const HERE: [&str; 9] = [
    "vminfod-stray-xml",
    "vminfod-left-dataset",
    "net-agent-approve",
    "vm-agent-approve",
    "volume-unserved",
    "migration-switch-failed",
    "migration-unknown",
    "migration-older",
    "migration-agent-waits",
];

/// Returns the command that ends a state.
fn ends(state: &str, values: &[(&str, &str)]) -> String {
    assert!(HERE.contains(&state));
    let need = find(state).unwrap();
    assert_eq!(need.does, Does::Ends);
    need.command_for(values)
}

/// Puts a script in the place of a tool; `$REAL` is the tool. Returns what puts it back.
fn wrapped(tool: &Path, script: &str) -> impl FnOnce() {
    let (tool, kept) = (tool.to_owned(), tool.with_extension("kept"));
    std::fs::rename(&tool, &kept).unwrap();
    let script = format!("#!/bin/sh\nREAL={}\n{script}\n", kept.display());
    std::fs::write(&tool, script).unwrap();
    std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).unwrap();
    move || std::fs::rename(kept, tool).unwrap()
}

impl Centre {
    async fn alarms(&self) -> String {
        let told = self.good("migration-service status -j").await;
        serde_json::from_str::<Value>(&told).unwrap()["alarms"].to_string()
    }

    /// The service names the state; its command ends that.
    async fn adopts(&self, state: &'static str) {
        let command = ends(state, &[("VM", VM)]);
        until(state, async || self.alarms().await.contains(&command)).await;
        self.good(&command).await;
        until("it is over", async || !self.alarms().await.contains(&command)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // M142
#[ignore = "takes minutes; .ci/run has it: cargo test -p testbed --test programs -- --ignored rare"]
async fn lost_stores_a_node_that_boots_and_a_fault_late_in_a_switch() {
    let mut centre = Centre::start().await;
    centre.good("sdc-migrate set max_attempts 1").await;
    let before = centre.stopped("before.redb").await;
    centre.lab.start_migration_service().await.unwrap();
    centre.good(&format!("sdc-migrate begin {VM}")).await;
    let begun = centre.stopped("begun.redb").await;
    centre.lab.start_migration_service().await.unwrap();
    centre.good(&format!("sdc-migrate sync {VM}")).await;

    centre.restored(&begun).await;
    centre.adopts("migration-older").await;
    centre.restored(&before).await;
    centre.adopts("migration-unknown").await;

    // The node of the source boots, and nobody says whether the copy was replaced.
    centre.lab.end("migration-service", true).await.unwrap();
    centre.lab.end("migration-agent", true).await.unwrap();
    let node = centre.lab.node().clone();
    tokio::task::spawn_blocking(move || node.zone_halt(VM, 0).unwrap()).await.unwrap();
    centre.good("migration-agent boot").await;
    centre.lab.start_migration_agent().await.unwrap();
    let waits = async || {
        let told = centre.good("migration-agent status -j").await;
        serde_json::from_str::<Value>(&told).unwrap()["waiting_for"].to_string().contains(VM)
    };
    assert!(waits().await);
    centre.good(&ends("migration-agent-waits", &[("VM", VM)])).await;
    until("it waits no more", async || !waits().await).await;
    centre.lab.start_migration_service().await.unwrap();
    let runs =
        async || centre.good(&format!("vmadm get {VM}")).await.contains("\"state\": \"running\"");
    until("it boots", runs).await;

    // The new copy is shown, and does not start.
    until("it may go on", async || {
        centre.typed(&format!("sdc-migrate sync {VM}")).await.code == Some(0)
    })
    .await;
    let vmadm = centre.other.node().tool("vmadm");
    let back =
        wrapped(&vmadm, "case $1 in start|boot) echo no >&2; exit 1;; esac\nexec $REAL \"$@\"");
    centre.bad(&format!("sdc-migrate switch {VM}")).await;
    back();
    centre.ends("migration-switch-failed", &mut Default::default()).await;
    centre.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // M142
#[ignore = "takes minutes; .ci/run has it: cargo test -p testbed --test programs -- --ignored rare"]
async fn what_the_brakes_keep_back_goes_when_it_is_approved() {
    let mut lab = Lab::start(|options| options.speed = 600).await;
    lab.fill().await;
    lab.start_vm_agent().await.unwrap();
    let typed = async |lab: &Lab, line: &str| {
        let script = format!("PATH={}:$PATH; {line}", lab.node().dir().join("bin").display());
        let args = ["-c", script.as_str()];
        let run = process::run(Path::new("/bin/bash"), &args, LATE);
        run.await.unwrap()
    };
    let cn = lab.node().cn_uuid().to_owned();
    // VMs long gone, of which not even VMAPI knows any more.
    for n in 0..12 {
        let vm = uuid::Uuid::from_u128(0x60_00 + n).to_string();
        let nic = NewNic::zone(&format!("90:b8:d0:fe:ee:{n:02x}"), &vm, &cn);
        lab.napi.store().add_nic(nic.aged(LATE * 1000)).unwrap();
    }
    lab.start_agent().await.unwrap();
    until("the brake of net-agent is on", async || lab.agent_status().await["brake"].is_string())
        .await;
    let plan = typed(&lab, "net-agent plan --fresh -j").await;
    let plan: Value = serde_json::from_str(&plan.stdout).unwrap();
    let id = plan["approval"]["id"].as_str().unwrap_or_else(|| panic!("{plan:#}"));
    let done = typed(&lab, &ends("net-agent-approve", &[("ID", id)])).await;
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    until("they go", async || lab.agent_status().await["brake"].is_null()).await;

    // Most VMs of the node go for good.
    let all = lab.vms().await;
    let verbs = lab.verbs();
    for vm in all.iter().take(all.len() - 2) {
        verbs.delete_raw(vm["uuid"].as_str().unwrap()).await.unwrap();
    }
    let agent = lab.vm_agent_url();
    until("the brake of vm-agent is on", async || status(&agent).await["brake"].is_string()).await;
    let offered = async || {
        let plan = typed(&lab, "vm-agent plan -j").await;
        let plan: Value = serde_json::from_str(&plan.stdout).unwrap_or_default();
        plan["approval"]["id"].as_str().map(str::to_owned)
    };
    // They go one after the other: a plan stands for those that were gone when it was made.
    until("they are reported", async || {
        if let Some(id) = offered().await {
            let done = typed(&lab, &ends("vm-agent-approve", &[("ID", &id)])).await;
            assert_eq!(done.code, Some(0), "{}", done.stderr);
        }
        status(&agent).await["brake"].is_null()
    })
    .await;
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // M142, F151
async fn what_is_left_of_a_vm_ends_by_what_why_says() {
    let lab = Lab::start(|_| {}).await;
    let all = lab.vms().await;
    let stopped = |vm: &&VmObject| vm.state() == Some("stopped") && !vm.is_hidden();
    let vm = all.iter().find(stopped).unwrap().uuid().unwrap().to_owned();
    let node = lab.node();
    let typed = async |line: &str| {
        // What is typed on a node is typed below its root.
        let line = line.replace("/etc/zones", &node.path("/etc/zones").to_string_lossy());
        let script = format!("PATH={}:$PATH; {line}", node.dir().join("bin").display());
        let args = ["-c", script.as_str()];
        process::run(Path::new("/bin/bash"), &args, LATE).await.unwrap()
    };
    let (index, xml) = (node.path("/etc/zones/index"), node.zone_xml(&vm));
    let whole = std::fs::read_to_string(&index).unwrap();
    let mine = |line: &&str| line.starts_with(&vm);
    let without: String = whole.split_inclusive('\n').filter(|line| !mine(line)).collect();
    let dataset = format!("zones/{vm}");
    let stray = "0badc0de-0000-4000-8000-000000000001";
    for (state, name) in [("vminfod-stray-xml", stray), ("vminfod-left-dataset", &*vm)] {
        match state {
            "vminfod-stray-xml" => drop(std::fs::copy(&xml, node.zone_xml(stray)).unwrap()),
            _ => {
                std::fs::write(&index, &without).unwrap();
                std::fs::remove_file(&xml).unwrap();
            }
        }
        let file = format!("/etc/zones/{name}.xml");
        let aside = format!("zones/left-{vm}");
        let names = [("XML", &*file), ("DATASET", &*dataset), ("ASIDE", &*aside)];
        let command = ends(state, &names);
        let says = format!("Next: {command}");
        until(state, async || {
            lab.client().zones().await.unwrap();
            typed(&format!("vminfod why {name}")).await.stderr.contains(&says)
        })
        .await;
        let done = typed(&command).await;
        assert_eq!(done.code, Some(0), "{command}: {}", done.stderr);
        until("it is over", async || {
            let view = lab.client().zones().await.unwrap();
            let told = typed(&format!("vminfod why {name}")).await.stderr;
            view.incomplete.is_nothing() && !told.contains("Next:")
        })
        .await;
    }
    assert_eq!(lab.vms().await.len(), all.len() - 1);
    lab.stop().await;
}

/// The NFS server of a storage VM, as far as volapi calls it: it accepts the call that does nothing.
async fn serve(address: String) {
    let listener = TcpListener::bind((address, 2049)).await.unwrap();
    loop {
        let (mut peer, _) = listener.accept().await.unwrap();
        let mut call = [0; 44];
        if peer.read_exact(&mut call).await.is_ok() {
            let words = [0x8000_0018_u32, 0, 1, 0, 0, 0, 0].map(u32::to_be_bytes);
            let mut reply = words.concat();
            reply[4..8].copy_from_slice(&call[4..8]);
            let _gone = peer.write_all(&reply).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // M142, V87
#[ignore = "takes minutes; .ci/run has it: cargo test -p testbed --test programs -- --ignored rare"]
async fn a_storage_vm_that_does_not_serve_serves_after_its_reboot() {
    let every = json!({"every": "1s"});
    let centre =
        Centre::with(|options| drop(options.volapi.insert("probe".to_owned(), every))).await;
    let volume = centre.volume("data").await;
    let shown = centre.good(&format!("sdc-volapi --bare -f /volumes/{volume}")).await;
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let address = shown["filesystem_path"].as_str().unwrap().split(':').next().unwrap().to_owned();
    let zone = shown["vm_uuid"].as_str().unwrap().to_owned();
    let hub = centre.lab.client();
    let life = async || hub.vm(&zone, false).await.unwrap()["zoneid"].as_u64();
    let first = life().await;
    let degraded = async || {
        let told = centre.good("volapi status -j").await;
        serde_json::from_str::<Value>(&told).unwrap()["degraded"][0].clone()
    };
    // The first life of the zone has no server: it died.
    until("volapi says so", async || degraded().await["storage_vm"] == "does not serve").await;
    let command = ends("volume-unserved", &[("VOLUME", &volume)]);
    assert_eq!(degraded().await["command"], command.as_str());
    // The init of each later life starts one.
    let boots = async {
        until("the zone boots", async || life().await.is_some_and(|now| Some(now) != first)).await;
    };
    let line = format!("{command} -y");
    let (done, ()) = tokio::join!(centre.good(&line), boots);
    let server = tokio::spawn(serve(address));
    assert!(done.contains("was rebooted"), "{done}");
    until("the volume can be used", async || degraded().await.is_null()).await;
    server.abort();
    centre.stop().await;
}
