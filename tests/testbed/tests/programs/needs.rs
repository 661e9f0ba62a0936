// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The states that need a person: guide and alert rules say what the table says, and what the table promises to end,
//! ends by its command, as somebody types it in a lab that is in that state.

mod rare; // states that take long to make

mod silent; // nodes that do not answer

use std::collections::BTreeSet;
use std::path::Path;

use daemon::needs::{Does, NEEDS, Need, find, table};
use migration_core::need::waits;
use migration_core::record::Record;
use mocks::faults::{Action, Rule};
use serde_json::Value;
use simnode::streams::fault::{Effect, End};
use testbed::moving::subject::VM;

use super::common::centre::Centre;
use super::common::until;

/// Rules whose remedy is no command of these programs.
const NO_COMMAND: [&str; 6] = [
    "CertificateRefused",
    "KvmdDoesNotUnderstand",
    "NobodyAsksThem",
    "NodeWithoutAgent",
    "OldVersion",
    "DescriptorsRunOut",
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
        // The one key of prometheus.yml, and the page that has the alert.
        let opens = "runbook_url: \"{{ $externalLabels.runbooks }}/";
        let page = rest.lines().find_map(|line| line.trim().strip_prefix(opens)).unwrap();
        let page = page.strip_suffix('"').unwrap();
        let (file, heading) = page.split_once('#').unwrap_or((page, ""));
        let headings = document(file);
        assert!(headings.contains(&format!("`{name}`")), "{page} does not name {name}");
        let mut headings = headings.lines().filter(|line| line.starts_with('#'));
        let is_it =
            |line: &str| line.trim_matches(['#', ' ']).to_lowercase().replace(' ', "-") == heading;
        assert!(heading.is_empty() || headings.any(is_it), "{name}: {page} has no such heading");
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

impl Centre {
    /// The state that a person has to end, by the record as the command prints it.
    async fn state(&self) -> Option<&'static str> {
        let done = self.typed(&format!("sdc-migrate get -j {VM}")).await;
        if done.code != Some(0) {
            return None;
        }
        let record = Record::read(&serde_json::from_str::<Value>(&done.stdout).unwrap()).unwrap();
        waits(&record)?.name()
    }

    /// Both nodes answer again.
    async fn hears(&self) {
        let is_silent = async || self.state().await.is_some_and(|it| it.ends_with("-silent"));
        until("the nodes answer", async || !is_silent().await).await;
    }

    /// In this state, its command ends it, and `get` says which that is.
    async fn ends(&self, state: &'static str, ended: &mut BTreeSet<&'static str>) {
        assert_eq!(self.state().await, Some(state));
        let need = find(state).unwrap();
        assert_eq!(need.does, Does::Ends);
        let command = need.command_for(&[("VM", VM)]);
        let shown = self.good(&format!("sdc-migrate get {VM} 2>&1")).await;
        let next = format!("Next: {command}");
        assert!(shown.lines().any(|line| line == next), "{state}: {shown}");
        self.good(&command).await;
        assert_ne!(self.state().await, Some(state), "{command}");
        ended.insert(state);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // M142
#[ignore = "minutes: `.ci/run` has it in its lane of programs"]
async fn each_state_ends_by_the_command_that_the_table_has_for_it() {
    let mut centre = Centre::start().await;
    // A step that fails once has failed.
    centre.good("sdc-migrate set max_attempts 1").await;
    let mut ended = BTreeSet::new();
    let source = centre.lab.node();

    // The state refuses before a flag is proposed. // M141
    centre.good(&format!("sdc-migrate begin {VM}")).await;
    let refused = centre.bad(&format!("sdc-migrate finalize {VM}")).await;
    assert!(refused.starts_with("Error: Finalize only works on a successful"), "{refused}");
    centre.ends("migration-unsynced", &mut ended).await;
    let shown = centre.good(&format!("sdc-migrate get -j {VM}")).await;
    for end in ["source", "target"] {
        assert!(shown.contains(&format!("\"{end}_server_hostname\": \"cn-")), "{shown}");
    }

    // Somebody deletes the hidden copy: no sync can succeed.
    centre.there(&format!("vmadm delete {VM}")).await;
    centre.bad(&format!("sdc-migrate sync {VM}")).await;
    centre.ends("migration-copy-unfit", &mut ended).await;
    centre.ends("migration-unsynced", &mut ended).await;

    // Somebody destroys its datasets: a switch finds nothing, and the VM is not stopped for that.
    centre.there(&format!("zfs destroy -r zones/{VM}")).await;
    let refused = centre.bad(&format!("sdc-migrate switch -y {VM}")).await;
    assert!(refused.contains("has lost its datasets"), "{refused}");
    centre.ends("migration-copy-lost", &mut ended).await;

    // The same sync would find no room again.
    centre.other.node().fail_stream(End::Receive, 0, Effect::NoSpace).unwrap();
    let failed = centre.bad(&format!("sdc-migrate sync {VM}")).await;
    assert!(failed.contains("out of space"), "{failed}");
    centre.ends("migration-no-room", &mut ended).await;
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

    holds(&centre, &mut ended).await;
    outages(&mut centre, &mut ended).await;
    by_hand(&centre, &mut ended).await;

    // Last: CNAPI places no VM with a cap beside a storage VM, which has none.
    centre.volume("data").await;
    let states = async || centre.good("sdc-voladm list-volume-zones -p -o state").await;
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
        let is_rare = rare::HERE.contains(&need.name) || silent::HERE.contains(&need.name);
        assert!(ended.contains(need.name) != is_rare, "{} is ended here, or is rare", need.name);
    }
    centre.stop().await;
}

/// Holds of net-agent: of the node, and one that ends soon.
async fn holds(centre: &Centre, ended: &mut BTreeSet<&'static str>) {
    for (state, make) in [
        ("net-agent-held", "net-agent hold --for 2h --reason test"),
        ("net-agent-hold-ends", "net-agent hold --vm VM --for 10m --reason test"),
    ] {
        centre.good(&make.replace("VM", VM)).await;
        let is_so = async || match state {
            "net-agent-held" => centre
                .good("net-agent status -j")
                .await
                .contains("the end of the hold on the whole node"),
            // Less than an hour is left.
            _ => !centre.good("net-agent holds -p -o left").await.contains('h'),
        };
        until(state, is_so).await;
        let need = find(state).unwrap();
        centre.good(&need.command_for(&[("UUID", VM)])).await;
        until("it is over", async || !is_so().await).await;
        ended.insert(state);
    }
    centre.good(&format!("net-agent release --vm {VM}")).await;
}

/// What somebody did on the nodes, where no repeat of the operation helps. The VM is on the first node before and
/// after.
async fn by_hand(centre: &Centre, ended: &mut BTreeSet<&'static str>) {
    let typed = async |commands: &[&str]| {
        for command in commands {
            centre.good(&format!("sdc-migrate {command} {VM}")).await;
        }
    };
    typed(&["begin", "sync"]).await;
    centre.good(&format!("vmadm delete {VM}")).await;
    centre.bad(&format!("sdc-migrate sync {VM}")).await;
    centre.ends("migration-only-copy", ended).await;
    let history = centre.good(&format!("sdc-migrate history -H -o what --vm {VM}")).await;
    assert!(history.starts_with("rescue\n"), "{history}");

    typed(&["begin", "sync", "switch"]).await;
    let snapshots = format!("zfs list -H -o name -t snapshot -r zones/{VM} | grep vm-migration");
    centre.there(&format!("{snapshots} | xargs -n 1 zfs destroy")).await;
    centre.bad(&format!("sdc-migrate rollback {VM}")).await;
    centre.ends("migration-no-way-back", ended).await;
    typed(&["finalize --force -y"]).await;

    // Somebody boots the hidden copy, before the switch and after it.
    let runs = async |state: &str| {
        until("both run", async || centre.state().await == Some(state)).await;
    };
    typed(&["begin", "sync"]).await;
    centre.there(&format!("vmadm start {VM}")).await;
    runs("migration-copy-runs").await;
    centre.ends("migration-copy-runs", ended).await;
    typed(&["begin", "sync", "switch"]).await;
    centre.good(&format!("vmadm start {VM}")).await;
    runs("migration-old-copy-runs").await;
    centre.ends("migration-old-copy-runs", ended).await;
    typed(&["begin", "sync", "switch", "finalize"]).await;
}

/// What fails while an agent is away, ends by its command once that is back.
async fn outages(centre: &mut Centre, ended: &mut BTreeSet<&'static str>) {
    let agent = "migration-agent";
    // The VM is on the first node.
    for command in ["begin", "sync", "switch"] {
        centre.good(&format!("sdc-migrate {command} {VM}")).await;
    }
    centre.lab.end(agent, true).await.unwrap();
    // What the alerts propose about a program that is silent, and what `get` does.
    let shown = centre.good("svcs -xv migration-agent").await;
    assert!(shown.contains("State: offline"), "{shown}");
    centre.bad(&format!("sdc-migrate finalize {VM}")).await;
    centre.lab.start_migration_agent().await.unwrap();
    centre.hears().await;
    centre.ends("migration-finalize-failed", ended).await;

    // It is on the second one, and each attempt to leave that goes as far as the agent's end.
    for (commands, last, state) in [
        (&["begin"][..], "abort", "migration-abort-failed"),
        (&["begin", "sync", "switch"], "rollback", "migration-rollback-failed"),
    ] {
        for command in commands {
            centre.good(&format!("sdc-migrate {command} {VM}")).await;
        }
        centre.lab.end(agent, true).await.unwrap();
        centre.bad(&format!("sdc-migrate {last} {VM}")).await;
        centre.lab.start_migration_agent().await.unwrap();
        centre.hears().await;
        centre.ends(state, ended).await;
    }

    centre.good("sdc-migrate set schedule_leeway 0").await;
    centre.good(&format!("sdc-migrate schedule {VM} '0 minutes'")).await;
    until("its time has passed", async || centre.state().await == Some("migration-late")).await;
    centre.ends("migration-late", ended).await;
    centre.good(&format!("sdc-migrate finalize {VM}")).await;
}
