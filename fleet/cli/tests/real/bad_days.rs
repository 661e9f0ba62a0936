// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Servers without room or that stand still, and a consumer that stops reading.

use std::process::Stdio;

use fleet_agent::machine::Machine;
use mocks::hub::Hub;
use rustix::process::{Pid, Signal, kill_process};
use sdc_clients::Jitter;
use sdc_clients::fleet::{
    Fleet, FleetEvent, Follower, Made, Shape, Sourcing, VMS, Wire, again, make, stands_still,
    step_down, subject,
};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{ChildStdout, Command};

use super::command::ends_well;
use super::follow::{agreed, aliases, follow, truth};
use super::node::{CN, Running, vm};
use super::{LONG, access, answered, made, servers, until};

#[tokio::test(flavor = "multi_thread")]
async fn servers_without_room_are_named_and_have_every_vm_when_they_have_room() {
    // N8
    let room = |bytes: usize| format!("jetstream {{ max_file_store: {bytes} }}");
    let Some(nats) = servers(1, Some(&room(8 << 20))) else { return };
    let (access, hub, machine) = (access(&nats), Hub::new(CN, 1000), Machine::drawn());
    let fleet = Fleet::connect(&access, "test", Jitter::from_seed(1)).await.unwrap();
    // With no limit of their own.
    let shape = Shape { replicas: 1, bytes: -1, ..Shape::default() };
    until("streams", async || make(fleet.jetstream(), &shape).await.is_ok()).await;
    let seen = follow(&fleet);
    let agent = Running::start(&hub, &access, &machine).await;
    hub.put(vm(0, "small"));
    agreed("the first VM", &hub, &seen).await;
    for n in 0..100 {
        let mut large = vm(n, "large");
        large.insert("dns_domain".to_owned(), "x".repeat(100_000).into());
        hub.put(large);
    }
    until("it is named", async || agent.says().contains("no room")).await;
    nats.kill(0);
    nats.configure(&room(1 << 30)).unwrap();
    nats.run(0).unwrap();
    agreed("there is room", &hub, &seen).await;
    until("VMS", async || {
        let mut follower = Follower::new(&fleet, "vms.*.*", Jitter::from_seed(4));
        while follower.next().await != FleetEvent::Synced {}
        aliases(follower.mirror()) == truth(&hub)
    })
    .await;
    until("it goes on", async || !agent.says().contains("no room")).await;
    agent.kill();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stands_still_is_waited_for_and_gets_nothing_twice() {
    // N1, N2, N8
    let Some(nats) = servers(1, None) else { return };
    let (access, hub, machine) = (access(&nats), Hub::new(CN, 1000), Machine::drawn());
    let fleet = made(&access, 1).await;
    let seen = follow(&fleet);
    let agent = Running::start(&hub, &access, &machine).await;
    hub.put(vm(0, "first"));
    agreed("the first VM", &hub, &seen).await;
    nats.signal(0, Signal::STOP);
    for n in 0..40 {
        hub.put(vm(n % 4, &format!("still{n}")));
    }
    until("it is named", async || agent.says().contains("does not answer")).await;
    nats.signal(0, Signal::CONT);
    agreed("it goes on", &hub, &seen).await;
    let changes = answered("CHANGES", async || fleet.changes("vms.*.*").await).await;
    let health = answered("its state", async || fleet.health().await).await;
    assert_eq!(changes.len() as u64, health[0].messages, "nothing twice");
    let events = changes.iter().filter(|it| !it.labels.compared && it.target.vm.is_some());
    let numbers: Vec<u64> = events.map(|it| it.labels.at.seq).collect();
    let first = *numbers.first().unwrap();
    assert_eq!(numbers, (first..=41).collect::<Vec<_>>());
    agent.kill();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vms_that_stands_still_is_told_completed_and_made_again() {
    // N29
    let Some(nats) = servers(1, None) else { return };
    let (access, hub, machine) = (access(&nats), Hub::new(CN, 1000), Machine::drawn());
    let fleet = made(&access, 1).await;
    // As one whose server does not ask for the next message any more.
    let jetstream = fleet.jetstream();
    let mut config = jetstream.get_stream(VMS).await.unwrap().cached_info().config.clone();
    config.sources = None;
    jetstream.delete_stream(VMS).await.unwrap();
    jetstream.create_stream(config).await.unwrap();
    let seen = follow(&fleet);
    let agent = Running::start(&hub, &access, &machine).await;
    (0..20).for_each(|nth| hub.put(vm(nth, "web")));
    agreed("they are published", &hub, &seen).await;
    let mut follower = Follower::new(&fleet, "vms.*.*", Jitter::from_seed(4));
    while follower.next().await != FleetEvent::Synced {}
    assert_eq!(aliases(follower.mirror()), truth(&hub), "complete at once");
    assert!(answered("VMS", async || stands_still(jetstream).await).await);
    assert!(!ends_well(&access, "streams").await);
    let shape = Shape { replicas: 1, bytes: 1 << 28, ..Shape::default() };
    until("made again", async || again(jetstream, &shape).await.is_ok()).await;
    until("it moves", async || ends_well(&access, "streams").await).await;
    agent.kill();
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_that_are_well_are_kept_however_much_is_published() {
    // N30
    let Some(nats) = servers(1, None) else { return };
    let access = access(&nats);
    let fleet = made(&access, 1).await;
    let (stop, mut stopped) = tokio::sync::watch::channel(false);
    let client = access.connect("writer", Jitter::from_seed(6)).await.unwrap();
    let writer = tokio::spawn(async move {
        while !*stopped.borrow_and_update() {
            // One at a time: VMS follows at once.
            let subject = subject(CN, Some(vm(0, "")["uuid"].as_str().unwrap()));
            client.publish(subject, "{}".into()).await.unwrap();
            client.flush().await.unwrap();
        }
    });
    let shape = Shape { replicas: 1, bytes: 1 << 28, ..Shape::default() };
    let moves = async || Sourcing::read(fleet.jetstream()).await.is_ok_and(|it| it.place > 1000);
    until("VMS takes them", moves).await;
    for _ in 0..200 {
        let done = make(fleet.jetstream(), &shape).await.unwrap();
        assert!(done.iter().all(|(_, made)| *made == Made::Kept), "{done:?}");
    }
    stop.send(true).unwrap();
    writer.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_alone_is_not_said_to_give_streams_to_others() {
    let Some(nats) = servers(1, None) else { return };
    let access = access(&nats);
    let fleet = made(&access, 1).await;
    let refused = make(fleet.jetstream(), &Shape::default()).await.unwrap_err();
    assert!(refused.to_string().contains("alone") && !refused.may_pass(), "{refused}");
    assert!(ends_well(&access, "streams").await, "they are as they were");
    until("deleted", async || fleet.jetstream().delete_stream(VMS).await.is_ok()).await;
    let refused = make(fleet.jetstream(), &Shape::default()).await.unwrap_err();
    assert!(refused.to_string().contains("alone"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reading_ends_though_more_is_published_than_it_reads() {
    // N13
    let Some(nats) = servers(1, None) else { return };
    let access = access(&nats);
    let fleet = made(&access, 1).await;
    let client = access.connect("writer", Jitter::from_seed(6)).await.unwrap();
    let writer = tokio::spawn(async move {
        for nth in 0.. {
            let subject = subject(CN, vm(nth % 1000, "")["uuid"].as_str());
            client.publish(subject, "{}".into()).await.unwrap();
        }
    });
    let moves = async || Sourcing::read(fleet.jetstream()).await.is_ok_and(|it| it.place > 1000);
    until("VMS takes them", moves).await;
    let ends = async || fleet.changes("vms.*.*").await;
    let read = tokio::time::timeout(LONG, answered("CHANGES", ends)).await;
    assert!(!writer.is_finished());
    // No agent wrote one of them.
    assert_eq!(read, Ok(Vec::new()));
    writer.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn another_server_leads_vms_when_its_leader_steps_down() {
    // N29
    let Some(nats) = servers(3, None) else { return };
    let access = access(&nats);
    let fleet = made(&access, 3).await;
    let leader = async || {
        let health = answered("its state", async || fleet.health().await).await;
        health.into_iter().find(|it| it.stream == VMS).and_then(|it| it.leader)
    };
    until("one leads", async || leader().await.is_some()).await;
    let before = leader().await;
    let is_another = async || leader().await.is_some_and(|now| Some(now) != before);
    until("another one", async || {
        is_another().await || step_down(fleet.jetstream(), VMS).await.is_ok() && is_another().await
    })
    .await;
}

/// The next line's word and alias.
async fn line(lines: &mut Lines<BufReader<ChildStdout>>) -> (String, String) {
    let line = tokio::time::timeout(LONG, lines.next_line()).await.expect("a line");
    let line: Value = serde_json::from_str(&line.unwrap().expect("it ended")).unwrap();
    let word = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
    (word("what"), word("alias"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_stops_reading_goes_on_behind_its_last_message() {
    // N9
    // More than are on their way at once.
    const COUNT: usize = 1200;
    let Some(nats) = servers(1, None) else { return };
    let (access, hub, machine) = (access(&nats), Hub::new(CN, 10_000), Machine::drawn());
    let fleet = made(&access, 1).await;
    let seen = follow(&fleet);
    let agent = Running::start(&hub, &access, &machine).await;
    hub.put(vm(0, "first"));
    agreed("the first VM", &hub, &seen).await;
    // Nothing of the beginning is on its way any more.
    let wire = Wire::new(access.connect("test", Jitter::from_seed(5)).await.unwrap(), &access);
    let marker = subject(CN, None);
    until("the marker", async || wire.last(VMS, &marker).await.is_ok_and(|it| it.is_some())).await;
    #[allow(clippy::disallowed_methods)] // The program itself stops here.
    let mut watch = Command::new(env!("CARGO_BIN_EXE_sdc-fleet"))
        .args(["watch", "-j", "--server", &access.servers[0]])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    while line(&mut lines).await.0 != "complete" {}
    let pid = Pid::from_raw(watch.id().unwrap() as i32).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    let wanted: Vec<String> = (0..COUNT).map(|n| format!("later{n}")).collect();
    wanted.iter().for_each(|alias| hub.put(vm(0, alias)));
    agreed("the others read on", &hub, &seen).await;
    kill_process(pid, Signal::CONT).unwrap();
    let mut told = Vec::new();
    while told.last() != wanted.last() {
        let (what, alias) = line(&mut lines).await;
        // It may have lost its connection; that it goes on is what is looked at.
        if !what.starts_with("waiting") {
            told.push(alias);
        }
    }
    assert_eq!(told, wanted);
    agent.kill();
}
