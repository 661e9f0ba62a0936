// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Servers that do not have the same.

use fleet_agent::machine::Machine;
use mocks::hub::Hub;
use rig::nats::Nats;
use sdc_clients::Jitter;
use sdc_clients::fleet::{
    CHANGES, Fleet, FleetEvent, Follower, VMS, Wire, disagreement, level, step_down, subject,
};

use super::command::ends_well;
use super::follow::{agreed, aliases, follow, truth};
use super::node::{CN, Running, vm};
use super::{access, answered, made, servers, until, whole};

/// Whether one snapshot shows what the node has.
async fn is_shown(fleet: &Fleet, hub: &Hub) -> bool {
    let mut follower = Follower::new(fleet, "vms.*.*", Jitter::from_seed(4));
    while follower.next().await != FleetEvent::Synced {}
    aliases(follower.mirror()) == truth(hub)
}

fn number(name: &str) -> usize {
    name.trim_start_matches('n').parse().unwrap()
}

/// Lets one server lose the last message of a VM.
async fn lose(nats: &Nats, fleet: &Fleet, wire: &Wire, nth: usize, stream: &str) {
    whole(fleet).await;
    let own = subject(CN, Some(vm(7, "")["uuid"].as_str().unwrap()));
    let last = answered("its number", async || wire.last(stream, &own).await).await.unwrap();
    nats.kill(nth);
    nats.lose(nth, stream, last.seq).unwrap();
    nats.run(nth).unwrap();
    whole(fleet).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_have_other_messages_are_found_and_get_the_same() {
    // N31
    let Some(nats) = servers(3, None) else { return };
    let (access, hub, machine) = (access(&nats), Hub::new(CN, 1000), Machine::drawn());
    let fleet = made(&access, 3).await;
    let seen = follow(&fleet);
    (0..20).for_each(|nth| hub.put(vm(nth, "web")));
    let agent = Running::start(&hub, &access, &machine).await;
    agreed("the VMs", &hub, &seen).await;
    agent.kill();
    whole(&fleet).await;
    let wire = Wire::new(access.connect("test", Jitter::from_seed(5)).await.unwrap(), &access);
    for stream in [VMS, CHANGES] {
        let differ = async || disagreement(&fleet, stream).await;
        assert_eq!(answered("they agree", differ).await, 0);
        let health = answered("its state", async || fleet.health().await).await;
        let leads = health.into_iter().find(|it| it.stream == stream).unwrap().leader.unwrap();
        lose(&nats, &fleet, &wire, (number(&leads) + 1) % 3, stream).await;
        until("one is shown less", async || stream == CHANGES || !is_shown(&fleet, &hub).await)
            .await;
        assert_eq!(answered("they differ", differ).await, 1);
        assert!(!ends_well(&access, "streams").await);
        until("levelled", async || level(fleet.jetstream(), stream).await.is_ok()).await;
        // A second attempt where an answer was late.
        made(&access, 3).await;
        whole(&fleet).await;
        until("they have the same", async || differ().await == Ok(0)).await;
    }
    for _ in 0..10 {
        assert!(is_shown(&fleet, &hub).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agents_make_the_feed_whole_where_the_server_that_leads_has_lost_a_vm() {
    // N10, N31
    let Some(nats) = servers(3, None) else { return };
    let (access, hub, machine) = (access(&nats), Hub::new(CN, 1000), Machine::drawn());
    let fleet = made(&access, 3).await;
    let seen = follow(&fleet);
    (0..20).for_each(|nth| hub.put(vm(nth, "web")));
    let agent = Running::start(&hub, &access, &machine).await;
    agreed("the VMs", &hub, &seen).await;
    agent.kill();
    let wire = Wire::new(access.connect("test", Jitter::from_seed(5)).await.unwrap(), &access);
    lose(&nats, &fleet, &wire, 1, VMS).await;
    let leads = async || {
        let health = fleet.health().await.ok()?;
        health.into_iter().find(|it| it.stream == VMS)?.leader
    };
    until("it leads", async || {
        let is_it = leads().await.is_some_and(|name| number(&name) == 1);
        if !is_it {
            // It may be the one that is drawn next.
            let _refused = step_down(fleet.jetstream()).await;
        }
        is_it
    })
    .await;
    whole(&fleet).await;
    assert_eq!(answered("they differ", async || disagreement(&fleet, VMS).await).await, 1);
    let agent = Running::maker(&hub, &access, &machine, &fleet).await;
    until("they have the same, and all", async || {
        let is_one = disagreement(&fleet, VMS).await == Ok(0);
        let mut shown = is_one;
        // Each reading draws a server.
        for _ in 0..6 {
            shown = shown && is_shown(&fleet, &hub).await;
        }
        shown
    })
    .await;
    agent.kill();
}
