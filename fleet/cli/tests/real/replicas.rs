// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Servers that do not have the same.

use fleet_agent::machine::Machine;
use mocks::hub::Hub;
use rig::nats::Nats;
use sdc_clients::Jitter;
use sdc_clients::fleet::{
    CHANGES, Fleet, FleetEvent, Follower, VMS, Wire, disagreement, level, subject,
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
