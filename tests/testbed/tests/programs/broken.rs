// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A lab that is up, as people type in it: what is broken there is so until it is cured, SMF does what it is told and
//! starts again what dies, and VMAPI's jobs are done.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use sdc_clients::vminfod::VmFields as _;
use serde_json::Value;
use testbed::process::Child;
use tokio::time::Instant;

use super::common::centre::{Centre, typed_on};
use super::common::{LATE, line_with, program, signal, until};

/// A node of the lab.
struct Node(PathBuf);

impl Node {
    async fn ends(&self, code: i32, lines: &str) -> String {
        let done = typed_on(&self.0, lines).await;
        let said = done.stdout + &done.stderr;
        assert_eq!(done.code, Some(code), "{lines}: {said}");
        said
    }

    async fn good(&self, lines: &str) -> String {
        self.ends(0, lines).await
    }

    /// A program does not answer; `timeout` ends the wait for it.
    async fn hangs(&self, lines: &str) {
        self.ends(124, &format!("timeout 2 {lines}")).await;
    }

    async fn answers(&self, name: &str) {
        let ping = format!("timeout 2 {name} ping");
        until(name, async || typed_on(&self.0, &ping).await.code == Some(0)).await;
    }

    async fn uuid(&self) -> String {
        simnode::Node::open(&self.0).unwrap().cn_uuid().to_owned()
    }
}

/// The process that runs a program with the configuration of this node.
fn pid(node: &Path, name: &str) -> u32 {
    let config = node.join(format!("{name}.json")).display().to_string();
    let wanted = |pid: &u32| {
        let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.contains(&format!("@{name}\0")) && line.contains(&config)
    };
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let mut pids = all.filter_map(|it| it.file_name().to_str()?.parse().ok());
    pids.find(wanted).unwrap_or_else(|| panic!("no {name} runs"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a lab of two nodes; .ci/run has it: cargo test -p testbed --test programs -- --ignored broken"]
async fn a_lab_breaks_and_is_cured_and_does_what_smf_and_jobs_do() {
    let dir = tempfile::tempdir().unwrap();
    let (here, there) = (Node(dir.path().join("cn")), Node(dir.path().join("cn2")));
    let at = here.0.display().to_string();
    let words = ["lab", "--nodes", "2", "--script", "none", "--speed", "600", "--dir", &at];
    let mut lab = Child::spawn("the lab", &program(), &words).unwrap();
    line_with(&mut lab, "up; Ctrl-C").await;
    lab.ignore();

    // SMF: what is disabled stays down, and a restart does not start it.
    here.good("svcadm disable -st net-agent").await;
    here.ends(1, "net-agent ping").await;
    assert!(here.good("svcs -xv net-agent").await.contains("State: disabled"));
    here.good("svcadm restart net-agent").await;
    here.ends(1, "net-agent ping").await;
    here.good("svcadm enable -s net-agent && net-agent ping").await;
    let before = pid(&here.0, "vminfod");
    here.good("svcadm restart -s vminfod && vminfod ping").await;
    assert_ne!(pid(&here.0, "vminfod"), before);
    assert!(here.ends(1, "svcadm restart nonesuch").await.contains("doesn't match any instances"));
    // What dies is started again, on each node.
    for node in [&here, &there] {
        let before = pid(&node.0, "vm-agent");
        signal(before, Signal::KILL);
        until("it is gone", async || !Path::new(&format!("/proc/{before}")).exists()).await;
        node.answers("vm-agent").await;
    }

    here.good("testbed break agent net-agent").await;
    here.hangs("net-agent ping").await;
    let again = here.ends(1, "testbed break agent net-agent").await;
    assert!(again.contains("is broken already"), "{again}");
    here.good("testbed cure agent net-agent && net-agent ping").await;
    // A restart cures it too.
    here.good("testbed break agent net-agent && svcadm restart -s net-agent && net-agent ping")
        .await;
    here.good("testbed cure agent net-agent").await;

    let other = there.uuid().await;
    here.good(&format!("testbed break node {}", &other[..8])).await;
    there.hangs("vminfod ping").await;
    there.hangs("migration-agent ping").await;
    here.good("vminfod ping && migration-service ping").await;
    here.good(&format!("testbed cure node {other}")).await;
    there.good("vminfod ping").await;

    let broken = Instant::now();
    here.good("testbed break zfs --for 3s").await;
    here.hangs("zfs list").await;
    here.good("zfs list").await;
    assert!(broken.elapsed() >= Duration::from_secs(3));
    assert!(here.good("testbed cure").await.contains("nothing is broken"));

    here.good("testbed break disk").await;
    assert!(here.ends(1, "zfs create zones/new").await.contains("out of space"));
    here.good("testbed break napi").await;
    assert!(here.good("sdc-napi /ping").await.contains("ServiceUnavailable"));
    let cured = here.good("testbed cure").await;
    assert!(cured.contains("cured: disk") && cured.contains("cured: napi"), "{cured}");
    here.good("zfs create zones/new").await;
    assert!(here.good("sdc-napi /ping").await.contains("healthy"));
    assert!(here.ends(1, "testbed break disk nowhere").await.contains("no node"));

    // VMAPI's jobs are done without volumes too.
    let vm = here.good("vmadm list -H -o uuid state=running | head -n 1").await;
    let vm = vm.trim();
    here.good(&format!("sdc-migrate instance {vm} allow_user_migrations true")).await;
    let shown = here.good(&format!("vmadm get {vm}")).await;
    assert!(shown.contains("\"user_migration_allowed\": true"), "{shown}");
    for (action, state) in [("stop", "stopped"), ("start", "running")] {
        here.good(&format!("sdc-vmapi '/vms/{vm}?action={action}' -X POST -f -d '{{}}'")).await;
        until(state, async || {
            let shown = here.good(&format!("vmadm get {vm}")).await;
            serde_json::from_str::<Value>(&shown).unwrap()["state"] == state
        })
        .await;
    }
    assert!(lab.stop(LATE).await.unwrap().success());
    assert!(here.ends(1, "testbed cure").await.contains("no lab is up"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a lab of two nodes; .ci/run has it: cargo test -p testbed --test programs -- --ignored broken"]
async fn a_storage_vm_is_stopped_until_it_is_cured_and_destroyed_with_its_nics() {
    let centre = Centre::start().await;
    centre.lab.is_up().await;
    let volume = centre.volume("data").await;
    let alias = format!("nfs-shared-volume-{volume}");
    let vm = centre.lab.vmapi.store().all().into_iter().find(|vm| vm.alias() == Some(&alias));
    let vm = vm.unwrap().uuid().unwrap().to_owned();
    let state = async |wanted: &str| {
        until(wanted, async || {
            centre.good("vmadm list -H -o uuid,state").await.contains(&format!("{vm}  {wanted}"))
        })
        .await;
    };
    centre.good(&format!("testbed break storage-vm {volume}")).await;
    state("stopped").await;
    centre.good(&format!("testbed cure storage-vm {vm}")).await;
    state("running").await;
    // Its job deletes its NICs: net-agent has nothing to do.
    let nics = async || centre.lab.nics().await.unwrap();
    assert!(nics().await.iter().any(|nic| nic.belongs_to_uuid == vm));
    centre.good("testbed break agent net-agent").await;
    centre.good(&format!("sdc-volapi --bare -X DELETE /volumes/{volume}")).await;
    until("its NICs are gone", async || nics().await.iter().all(|nic| nic.belongs_to_uuid != vm))
        .await;
    centre.good("testbed cure").await;
    centre.stop().await;
}
