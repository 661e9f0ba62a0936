// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Servers that do not have the same.

use std::sync::{Arc, Mutex};

use fleet_agent::machine::Machine;
use mocks::hub::Hub;
use rig::nats::Nats;
use sdc_clients::Jitter;
use sdc_clients::fleet::{
    Access, CHANGES, Comparison, Differences, Fleet, FleetError, FleetEvent, Follower, Position,
    VMS, Wire, compare, level, step_down, subject,
};
use serde_json::{Value, json};

use super::command::ends_well;
use super::follow::{Seen, agreed, aliases, follow, truth};
use super::node::{CN, Running, vm};
use super::{access, answered, made, servers, until, whole};

/// Three servers that have the VMs of a node.
struct Site {
    nats: Nats,
    access: Access,
    hub: Hub,
    machine: Machine,
    fleet: Fleet,
    wire: Wire,
    seen: Arc<Mutex<Seen>>,
}

async fn site() -> Option<Site> {
    let nats = servers(3, None)?;
    let (access, hub, machine) = (access(&nats), Hub::new(CN, 1000), Machine::drawn());
    let fleet = made(&access, 3).await;
    let seen = follow(&fleet);
    (0..20).for_each(|nth| hub.put(vm(nth, "web")));
    let agent = Running::start(&hub, &access, &machine).await;
    agreed("the VMs", &hub, &seen).await;
    agent.kill();
    whole(&fleet).await;
    let wire = Wire::new(access.connect("test", Jitter::from_seed(5)).await.unwrap(), &access);
    Some(Site { nats, access, hub, machine, fleet, wire, seen })
}

impl Site {
    /// Whether one snapshot shows what the node has.
    async fn is_shown(&self) -> bool {
        let mut follower = Follower::new(&self.fleet, "vms.*.*", Jitter::from_seed(4));
        while follower.next().await != FleetEvent::Synced {}
        aliases(follower.mirror()) == truth(&self.hub)
    }

    /// The server that leads.
    async fn leader(&self, stream: &str) -> usize {
        let health = answered("its state", async || self.fleet.health().await).await;
        let leads = health.into_iter().find(|it| it.stream == stream).unwrap().leader.unwrap();
        number(&leads)
    }

    /// Lets one server lose the last message of a VM. One that got its copy a moment ago may have nothing of it when it
    /// starts, or get the message again: then it loses it once more.
    async fn lose(&self, nth: usize, stream: &'static str) -> Differences {
        let own = subject(CN, Some(vm(7, "")["uuid"].as_str().unwrap()));
        let mut found = Comparison::Same;
        for _ in 0..5 {
            whole(&self.fleet).await;
            let last = answered("its number", async || self.wire.last(stream, &own).await).await;
            self.nats.kill(nth);
            let _has_none = self.nats.lose(nth, stream, last.unwrap().seq);
            self.nats.run(nth).unwrap();
            whole(&self.fleet).await;
            found = self.compared(stream).await;
            if let Comparison::Differ(found) = found {
                return found;
            }
        }
        panic!("{found:?} of {stream} on n{nth}: {}", self.nats.log(nth));
    }

    /// What a comparison finds, once each server can be asked.
    async fn compared(&self, stream: &'static str) -> Comparison {
        let found = async || match compare(&self.fleet, stream).await? {
            Comparison::Unknown => Err(FleetError::Away("not each can be asked".to_owned())),
            found => Ok(found),
        };
        answered("a comparison", found).await
    }

    /// What `CHANGES` has.
    async fn changes(&self) -> Vec<(u64, Position)> {
        let changes =
            answered("CHANGES", async || self.fleet.changes("vms.*.*").await).await.into_iter();
        changes.map(|it| (it.seq, it.labels.at)).collect()
    }

    /// Gives the servers the same.
    async fn levelled(&self, stream: &'static str, found: &Differences) {
        until("levelled", async || {
            let is_done = level(&self.fleet, stream, found).await.is_ok();
            if !is_done {
                // Where an answer was late, as an agent does every 15 s.
                made(&self.access, 3).await;
            }
            is_done
        })
        .await;
    }

    /// Gives the servers of `CHANGES` the same, up to this moment.
    async fn level_until(&self, moment: Moment, found: &Differences) {
        if moment == Moment::Given {
            return self.levelled(CHANGES, found).await;
        }
        let (target, asked) =
            (format!("STREAM.PEER.REMOVE.{CHANGES}"), json!({"peer": found.others[0]}));
        until("it has no copy", async || {
            let jetstream = self.fleet.jetstream();
            let _no_other: Result<Value, _> = jetstream.request(target.clone(), &asked).await;
            self.copies(CHANGES).await == Some(2)
        })
        .await;
    }

    /// On how many servers a stream is, as its leader says; none while it has no leader.
    async fn copies(&self, stream: &str) -> Option<usize> {
        let stream = self.fleet.jetstream().get_stream(stream).await.ok()?;
        let cluster = stream.cached_info().cluster.as_ref()?;
        cluster.leader.as_ref().map(|_| cluster.replicas.len() + 1)
    }
}

fn number(name: &str) -> usize {
    name.trim_start_matches('n').parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_have_other_messages_are_found_and_get_the_same() {
    // N31
    let Some(site) = site().await else { return };
    for stream in [VMS, CHANGES] {
        assert_eq!(site.compared(stream).await, Comparison::Same);
        let loses = (site.leader(stream).await + 1) % 3;
        let found = site.lose(loses, stream).await;
        until("one is shown less", async || stream == CHANGES || !site.is_shown().await).await;
        assert_eq!(found.others, [format!("n{loses}")]);
        assert!(!ends_well(&site.access, "streams").await);
        site.levelled(stream, &found).await;
        whole(&site.fleet).await;
        until("they have the same", async || {
            site.compared(stream).await == Comparison::Same && site.copies(stream).await == Some(3)
        })
        .await;
    }
    for _ in 0..10 {
        assert!(site.is_shown().await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agents_make_the_feed_whole_where_the_server_that_leads_has_lost_a_vm() {
    // N10, N31
    let Some(site) = site().await else { return };
    site.lose(1, VMS).await;
    until("it leads", async || {
        let is_it = site.leader(VMS).await == 1;
        if !is_it {
            // It may be the one that is drawn next.
            let _refused = step_down(site.fleet.jetstream(), VMS).await;
        }
        is_it
    })
    .await;
    whole(&site.fleet).await;
    let Comparison::Differ(found) = site.compared(VMS).await else { panic!("the same") };
    assert_eq!(found.others, ["n1"], "not what it leads with");
    let agent = Running::maker(&site.hub, &site.access, &site.machine, &site.fleet).await;
    until("they have the same, and all", async || {
        let mut shown = site.compared(VMS).await == Comparison::Same;
        // Each reading draws a server.
        for _ in 0..6 {
            shown = shown && site.is_shown().await;
        }
        shown
    })
    .await;
    agent.kill();
}

/// When a server dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// Another one has no copy.
    Taken,
    /// It is about to get one.
    Given,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_dies_while_another_is_levelled_takes_nothing_with_it() {
    // N33
    let Some(site) = site().await else { return };
    let had = site.changes().await;
    for (moment, is_leader) in
        [(Moment::Taken, true), (Moment::Taken, false), (Moment::Given, true)]
    {
        let leads = site.leader(CHANGES).await;
        let found = site.lose((leads + 1) % 3, CHANGES).await;
        site.level_until(moment, &found).await;
        let leads = number(&found.fullest);
        let third = 3 - leads - number(&found.others[0]);
        let dies = if is_leader { leads } else { third };
        site.nats.kill(dies);
        site.nats.run(dies).unwrap();
        // As an agent does every 15 s.
        until("on three", async || {
            made(&site.access, 3).await;
            site.copies(CHANGES).await == Some(3)
        })
        .await;
        whole(&site.fleet).await;
        assert_eq!(site.changes().await, had, "{moment:?}, {is_leader}");
    }
    assert!(site.is_shown().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn where_two_of_three_have_lost_the_history_the_nodes_fill_the_feed_and_the_hole_is_told() {
    // N33, N35
    let Some(site) = site().await else { return };
    let had = site.changes().await;
    let leads = site.leader(CHANGES).await;
    let found = site.lose((leads + 1) % 3, CHANGES).await;
    site.level_until(Moment::Given, &found).await;
    // It may have given the other one its copy already, or not.
    let dies = number(&found.fullest);
    site.nats.kill(dies);
    std::fs::remove_dir_all(site.nats.store(dies)).unwrap();
    site.nats.run(dies).unwrap();
    let agent = Running::maker(&site.hub, &site.access, &site.machine, &site.fleet).await;
    whole(&site.fleet).await;
    until("it is shown", async || site.is_shown().await).await;
    until("the history, or a word that it went", async || {
        site.changes().await.starts_with(&had) || site.seen.lock().unwrap().holes > 0
    })
    .await;
    agent.kill();
}
