// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `sdc-fleet` as an operator types it.

use std::process::{ExitCode, Stdio};

use async_nats::jetstream::stream::Config;
use fleet_agent::machine::Machine;
use mocks::hub::Hub;
use sdc_clients::Jitter;
use sdc_clients::fleet::{Access, Beats, CHANGES, FleetEvent, Follower, Heard, KV_NODES, VMS};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use super::node::{CN, Running, vm};
use super::{LONG, access, answered, made, servers, until};

/// Whether the command ended well.
pub(crate) async fn ends_well(access: &Access, line: &str) -> bool {
    let words = ["sdc-fleet", "--server", &access.servers[0]].into_iter().chain(line.split(' '));
    let words: Vec<std::ffi::OsString> = words.map(Into::into).collect();
    // It has a runtime of its own.
    let done = tokio::task::spawn_blocking(|| fleet_cli::cli::run(words.into_iter()));
    done.await.unwrap() == ExitCode::SUCCESS
}

/// Types a command with the key of `access`; returns whether it ended well, and what it said.
pub(crate) async fn typed(access: &Access, words: &[&str]) -> (bool, String) {
    let config = tempfile::NamedTempFile::new().unwrap();
    let nats = json!({"nats": {"servers": access.servers, "nkey": access.nkey}});
    std::fs::write(config.path(), nats.to_string()).unwrap();
    #[allow(clippy::disallowed_methods)] // What it prints.
    let mut typed = Command::new(env!("CARGO_BIN_EXE_sdc-fleet"));
    typed.args(words).arg("--config").arg(config.path()).stdin(Stdio::null());
    let done = typed.output().await.unwrap();
    (done.status.success(), String::from_utf8([done.stdout, done.stderr].concat()).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_examples_of_the_help_work_on_a_real_server() {
    let Some(nats) = servers(1, None) else { return };
    let (access, hub, machine) = (access(&nats), Hub::new(CN, 1000), Machine::drawn());
    assert!(!ends_well(&access, "nodes").await, "there are no streams");
    made(&access, 1).await;
    hub.put(vm(0, "web-0"));
    let agent = Running::start(&hub, &access, &machine).await;
    until("the VM is shown", async || ends_well(&access, "vm web-0").await).await;
    for line in [
        "nodes",
        "streams",
        "streams -H -p -o stream,behind",
        "nodes --all-well",
        "nodes -o node,alarms,help",
        "vms",
        "vms node=cn-1 state=running",
        "vms owner=00000000-0000-0000-0000-000000000000 -o alias,node,ip -s node",
        "changes web-0 --since 2h",
        "changes web-0 -o time,node,changed",
    ] {
        // The heartbeat comes beside the VMs, and the next one may be late.
        until(line, async || ends_well(&access, line).await).await;
    }
    assert!(!ends_well(&access, "vms node=cn-2").await, "there is no such node");
    agent.kill();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_without_a_leader_is_a_row_of_the_table() {
    let Some(nats) = servers(3, None) else { return };
    let access = access(&nats);
    let fleet = made(&access, 3).await;
    // It alone is on two servers, of which one dies.
    let info = async || {
        let stream = fleet.jetstream().get_stream(KV_NODES).await.ok()?;
        Some(stream.cached_info().clone())
    };
    until("on two", async || {
        let Some(info) = info().await else { return false };
        let others = info.cluster.map_or(0, |it| it.replicas.len());
        let config = Config { num_replicas: 2, ..info.config };
        fleet.jetstream().update_stream(&config).await.is_ok() && others == 1
    })
    .await;
    let cluster = info().await.unwrap().cluster.unwrap();
    let dies = cluster.replicas[0].name.trim_start_matches('n').parse().unwrap();
    nats.kill(dies);
    until("the table", async || {
        #[allow(clippy::disallowed_methods)] // What it prints.
        let mut typed = Command::new(env!("CARGO_BIN_EXE_sdc-fleet"));
        typed.args(["streams", "-p", "-o", "stream,leader", "--server"]);
        let typed = typed.arg(&access.servers[(dies + 1) % 3]).stdin(Stdio::null());
        let done = typed.output().await.unwrap();
        let text = String::from_utf8(done.stdout).unwrap();
        let shows = |stream: &str, leader: &str| {
            text.lines().any(|line| line == format!("{stream}:{leader}"))
        };
        let is_led = |stream: &str| (0..3).any(|nth| shows(stream, &format!("n{nth}")));
        let is_row = text.lines().any(|line| line.starts_with(&format!("{KV_NODES}:none (")));
        is_row && is_led(CHANGES) && is_led(VMS) && !done.status.success()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn setup_waits_for_servers_that_are_just_starting() {
    let Some(nats) = servers(3, None) else { return };
    let access = access(&nats);
    (0..3).for_each(|nth| nats.kill(nth));
    #[allow(clippy::disallowed_methods)] // The program itself waits here.
    let mut typed = Command::new(env!("CARGO_BIN_EXE_sdc-fleet"));
    let config = tempfile::NamedTempFile::new().unwrap();
    // The usual streams are larger than what is free on some disks.
    let small = json!({"nats": {"servers": [access.servers[0]]}, "streams": {"bytes": 64 << 20}});
    std::fs::write(config.path(), small.to_string()).unwrap();
    typed.args(["setup", "--config"]).arg(config.path()).stdin(Stdio::null());
    let mut typed = typed.stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(typed.stderr.take().unwrap()).lines();
    let said = tokio::time::timeout(LONG, lines.next_line()).await.unwrap().unwrap();
    assert!(said.as_ref().is_some_and(|it| it.contains("waiting up to")), "{said:?}");
    (0..3).for_each(|nth| nats.run(nth).unwrap());
    assert!(tokio::time::timeout(LONG, typed.wait()).await.unwrap().unwrap().success());
    until("they are there", async || ends_well(&access, "streams").await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_gone_for_good_is_forgotten_and_back_when_it_comes_back() {
    // N21
    let Some(nats) = servers(1, None) else { return };
    let (access, hub, machine) = (access(&nats), Hub::new(CN, 1000), Machine::drawn());
    let fleet = made(&access, 1).await;
    hub.put(vm(0, "web-0"));
    hub.put(vm(1, "web-1"));
    // Three of these are longer than a busy machine is late.
    let agent = Running::named(&hub, &access, &machine, "cn-1", "10s").await;
    until("the VM is shown", async || ends_well(&access, "vm web-1").await).await;
    until("its heartbeat", async || ends_well(&access, "nodes").await).await;
    assert!(!ends_well(&access, "forget cn-1").await, "it is heard");
    agent.kill();
    let mut beats = Beats::new(&fleet, Jitter::from_seed(3));
    let mut heard = beats.next().await;
    while matches!(heard, Heard::Lost(_)) {
        heard = beats.next().await;
    }
    assert!(matches!(heard, Heard::Beat { is_live: false, .. }), "{heard:?}");
    let mut follower = Follower::new(&fleet, "vms.*.*", Jitter::from_seed(4));
    while follower.next().await != FleetEvent::Synced {}
    until("it is not heard", async || ends_well(&access, "forget cn-1").await).await;
    let heard = async {
        while !follower.mirror().is_empty() {
            follower.next().await;
        }
        while beats.next().await != Heard::Forgotten(CN.to_owned()) {}
    };
    tokio::time::timeout(LONG, heard).await.expect("it is heard");
    assert!(answered("the nodes", async || fleet.nodes().await).await.is_empty());
    // VMS follows CHANGES a moment later.
    until("nothing is left", async || !ends_well(&access, "vm web-1").await).await;
    let agent = Running::start(&hub, &access, &machine).await;
    until("it is back", async || ends_well(&access, "vm web-1").await).await;
    agent.kill();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_with_a_clock_a_day_off_sees_which_node_is_heard() {
    // N25
    let Some(nats) = servers(1, None) else { return };
    if which("faketime").is_none() {
        eprintln!("SKIPPED: no faketime (apt-get install faketime)");
        return;
    }
    let (access, hub, machine) = (access(&nats), Hub::new(CN, 1000), Machine::drawn());
    made(&access, 1).await;
    let agent = Running::start(&hub, &access, &machine).await;
    let is_well = async |offset: &str| {
        #[allow(clippy::disallowed_methods)] // A program with a clock of its own.
        let mut typed = Command::new("faketime");
        typed.args(["-m", "-f", offset, env!("CARGO_BIN_EXE_sdc-fleet"), "nodes", "--server"]);
        typed.arg(&access.servers[0]).stdin(Stdio::null());
        let done = typed.output().await.unwrap();
        let text = String::from_utf8(done.stdout).unwrap();
        // What did not answer said nothing of the node.
        text.contains("cn-1").then(|| done.status.success())
    };
    for offset in ["-1d", "+1d"] {
        until("it is heard", async || is_well(offset).await == Some(true)).await;
    }
    agent.kill();
    for offset in ["-1d", "+1d"] {
        until("it is not", async || is_well(offset).await == Some(false)).await;
    }
}

fn which(command: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(command)).find(|it| it.is_file())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_renamed_is_found_by_its_new_name_alone() {
    let Some(nats) = servers(1, None) else { return };
    let (access, hub, machine) = (access(&nats), Hub::new(CN, 1000), Machine::drawn());
    made(&access, 1).await;
    hub.put(vm(0, "web-0"));
    let agent = Running::start(&hub, &access, &machine).await;
    until("its name", async || ends_well(&access, "vms node=cn-1").await).await;
    agent.kill();
    let agent = Running::named(&hub, &access, &machine, "cn-9", "1s").await;
    until("its new name", async || ends_well(&access, "vms node=cn-9").await).await;
    assert!(!ends_well(&access, "vms node=cn-1").await, "nothing has the old name");
    until("its VM", async || ends_well(&access, "vm web-0").await).await;
    agent.kill();
}
