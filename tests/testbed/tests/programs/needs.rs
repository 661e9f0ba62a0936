// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The states that need a person: guide and alert rules say what the table says, and what the table promises to end,
//! ends by its command, as somebody types it in a lab that is in that state.

use std::collections::BTreeSet;
use std::path::Path;

use daemon::needs::{Does, NEEDS, Need, find, table};
use migration_core::need::waits;
use migration_core::record::Record;
use mocks::faults::{Action, Rule};
use serde_json::Value;
use simnode::streams::fault::{Effect, End};
use testbed::lab::volumes::Volumes;
use testbed::lab::{World, seed};
use testbed::moving::subject::VM;
use testbed::process::{self, Finished};

use super::common::{LATE, Lab, until};

/// Rules whose remedy is no command of these programs.
const NO_COMMAND: [&str; 5] = [
    "KvmdDoesNotUnderstand",
    "NobodyAsksThem",
    "NodeWithoutAgent",
    "OldVersion",
    "DescriptorsRunOut",
];

/// States that are ended elsewhere in the tests, where time or a fault in the middle of a step can be had.
const ELSEWHERE: [&str; 13] = [
    "migration-older",
    "migration-unknown",
    "net-agent-approve",
    "net-agent-held",
    "net-agent-hold-ends",
    "vm-agent-approve",
    "migration-agent-waits",
    "migration-switch-failed",
    "migration-finalize-failed",
    "migration-late",
    "volume-unserved",
    "migration-rollback-failed",
    "migration-abort-failed",
];

fn document(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_operators_guide_has_the_table() {
    assert!(
        document("docs/operator.md").contains(&table()),
        "docs/operator.md lacks:\n{}",
        table()
    );
}

#[test]
fn each_alert_proposes_the_command_of_its_state() {
    let rules = document("deploy/metrics/alerts.yml");
    let mut told = BTreeSet::new();
    for rule in rules.split("- alert: ").skip(1) {
        let (name, rest) = rule.split_once('\n').unwrap();
        let does = rest.lines().find_map(|line| line.trim().strip_prefix("do: ")).unwrap();
        let of_it: Vec<&Need> = NEEDS.iter().filter(|need| need.alert == name).collect();
        assert_eq!(of_it.is_empty(), NO_COMMAND.contains(&name), "{name} is in the table");
        for need in of_it {
            assert!(does.contains(need.command), "{name}: {does} lacks {}", need.command);
        }
        told.insert(name);
    }
    for need in NEEDS.iter().filter(|need| !need.alert.is_empty()) {
        assert!(told.contains(need.alert), "there is no rule {}", need.alert);
    }
}

/// Two nodes with everything, and volapi.
struct Centre {
    lab: Lab,
    other: World,
    _volumes: Volumes,
}

async fn centre() -> Centre {
    let mut lab = Lab::start(|options| (options.speed, options.vms) = (600, 2)).await;
    let mut other = lab.beside(1).await.unwrap();
    other.start_vminfod().await.unwrap();
    for world in [&mut *lab, &mut other] {
        let vms = world.hub().unwrap().vms(true).await.unwrap().vms;
        seed::fill_right(world, &vms).unwrap();
        world.start_agent().await.unwrap();
        world.start_vm_agent().await.unwrap();
        world.start_migration_agent().await.unwrap();
    }
    lab.start_migration_service().await.unwrap();
    let volumes = Volumes::start(&mut lab).await.unwrap();
    lab.provision().await.unwrap();
    let centre = Centre { lab, other, _volumes: volumes };
    until("VMAPI knows the VM", async || {
        centre.lab.vmapi.store().get(VM).is_some_and(|vm| vm["state"] == "running")
    })
    .await;
    // A step that fails once has failed.
    centre.good("sdc-migrate set max_attempts 1").await;
    centre
}

impl Centre {
    /// Types a line.
    async fn typed(&self, line: &str) -> Finished {
        let bin = self.lab.node().dir().join("bin");
        let script = format!("export PATH={}:$PATH\n{line}\n", bin.display());
        process::run(Path::new("/bin/bash"), &["-c", &script], LATE).await.unwrap()
    }

    async fn good(&self, line: &str) -> String {
        let done = self.typed(line).await;
        assert_eq!(done.code, Some(0), "{line}: {}{}", done.stdout, done.stderr);
        done.stdout
    }

    async fn bad(&self, line: &str) -> String {
        let done = self.typed(line).await;
        assert_eq!(done.code, Some(1), "{line}: {}{}", done.stdout, done.stderr);
        done.stderr
    }

    /// The state that a person has to end, by the record as the command prints it.
    async fn state(&self) -> Option<&'static str> {
        let done = self.typed(&format!("sdc-migrate get -j {VM}")).await;
        if done.code != Some(0) {
            return None;
        }
        let record = Record::read(&serde_json::from_str::<Value>(&done.stdout).unwrap()).unwrap();
        waits(&record)?.name()
    }

    /// In this state, its command ends it, and `get` says which that is.
    async fn ends(&self, state: &'static str, ended: &mut BTreeSet<&'static str>) {
        assert_eq!(self.state().await, Some(state));
        let need = find(state).unwrap();
        assert_eq!(need.does, Does::Ends);
        let command = need.command_for(&[("VM", VM)]);
        let shown = self.good(&format!("sdc-migrate get {VM} 2>&1")).await;
        assert!(shown.contains(&format!("Next: {command} ")), "{state}: {shown}");
        self.good(&command).await;
        assert_ne!(self.state().await, Some(state), "{command}");
        ended.insert(state);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // M142
async fn each_state_ends_by_the_command_that_the_table_has_for_it() {
    let centre = centre().await;
    let mut ended = BTreeSet::new();
    let source = centre.lab.node();

    // The state refuses before a flag is proposed. // M141
    centre.good(&format!("sdc-migrate begin {VM}")).await;
    let refused = centre.bad(&format!("sdc-migrate finalize {VM}")).await;
    assert!(refused.starts_with("Error: Finalize only works on a successful"), "{refused}");
    centre.ends("migration-unsynced", &mut ended).await;

    source.fail_stream(End::Send, 0, Effect::Ends).unwrap();
    centre.bad(&format!("sdc-migrate sync {VM}")).await;
    centre.ends("migration-sync-failed", &mut ended).await;

    source.fail_stream(End::Send, 0, Effect::Ends).unwrap();
    centre.bad(&format!("sdc-migrate switch {VM}")).await;
    centre.ends("migration-switch-undone", &mut ended).await;
    centre.ends("migration-unfinalized", &mut ended).await;
    assert_eq!(centre.state().await, None);

    // It is on the other node now.
    let broken = Action::Status { status: 500, body: None, retry_after: None };
    centre.lab.centre().cnapi.add_fault(Rule::new("POST", "/servers/*/vms", broken).times(1));
    centre.bad(&format!("sdc-migrate begin {VM}")).await;
    centre.ends("migration-begin-failed", &mut ended).await;
    centre.good(&format!("sdc-migrate sync {VM}")).await;
    centre.ends("migration-paused", &mut ended).await;
    centre.good(&format!("sdc-migrate finalize {VM}")).await;

    let asked = r#"{"owner_uuid": "644810da-6ce1-40a9-93db-c23dfb772fd2", "type": "tritonnfs",
        "networks": ["8036d58d-7821-4ae3-a752-15be1d92344c"], "name": "data"}"#;
    centre.good(&format!("sdc-volapi --bare -f /volumes -d '{asked}'")).await;
    let states = async || centre.good("sdc-voladm list-volume-zones -p -o state").await;
    until("the volume is ready", async || states().await == "ready\n").await;
    centre.good("vmadm stop $(sdc-voladm list-volume-zones -p -o zone)").await;
    until("the volume is degraded", async || states().await == "degraded\n").await;
    let status = async || {
        let told = centre.good("volapi status -j").await;
        serde_json::from_str::<Value>(&told).unwrap()
    };
    until("volapi says so", async || status().await["degraded"][0]["volume"].is_string()).await;
    let told = status().await;
    let volume = told["degraded"][0]["volume"].as_str().unwrap();
    let command = find("volume-stopped").unwrap().command_for(&[("VOLUME", volume)]);
    assert_eq!(told["degraded"][0]["command"], command.as_str());
    assert!(centre.bad("sdc-voladm check -p -o repair >&2").await.starts_with(&command));
    // Somebody who types it is asked.
    centre.good(&format!("{command} -y")).await;
    // No NFS server stands behind it here: it runs, and does not serve yet.
    until("the storage VM runs", async || status().await["degraded"][0]["storage_vm"] != "stopped")
        .await;
    ended.insert("volume-stopped");

    for need in NEEDS.iter().filter(|need| need.does == Does::Ends) {
        let is_known = ended.contains(need.name) != ELSEWHERE.contains(&need.name);
        assert!(is_known, "{} is ended here or elsewhere", need.name);
    }
    centre.other.stop().await.unwrap();
    drop(centre._volumes);
    centre.lab.stop().await;
}
