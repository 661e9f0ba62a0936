// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What a follower makes of messages that no agent sends on a good day.

use std::collections::BTreeSet;
use std::time::Duration;

use async_nats::HeaderMap;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use rig::nats::Nats;
use rig::relay::{Relay, Way};
use sdc_clients::Jitter;
use sdc_clients::fleet::{
    Access, Fleet, FleetEvent, Follower, Kind, Labels, Position, VMS, Wire, subject, subjects_of,
    sweep,
};
use serde_json::json;

use super::node::{CN, vm};
use super::{LONG, access, made, servers, until};

fn labels(kind: Kind, seq: u64) -> Labels {
    Labels::of(kind, Position { epoch: "e".into(), seq })
}

fn uuid(nth: usize) -> String {
    vm(nth, "")["uuid"].as_str().unwrap().to_owned()
}

fn body(alias: &str) -> Bytes {
    json!({"vm": vm(0, alias)}).to_string().into()
}

/// The next event that is no loss of the connection, in a word.
async fn next(follower: &mut Follower) -> String {
    let told = async {
        loop {
            match follower.next().await {
                FleetEvent::Lost(_) => {}
                FleetEvent::Changed { vm, .. } => {
                    return vm.object["alias"].as_str().unwrap().to_owned();
                }
                FleetEvent::Gone { .. } => return "gone".to_owned(),
                FleetEvent::Synced => return "synced".to_owned(),
                FleetEvent::Resync { .. } => return "missed".to_owned(),
                FleetEvent::Hole => return "hole".to_owned(),
                FleetEvent::Again => return "again".to_owned(),
                FleetEvent::Odd { .. } => return "odd".to_owned(),
            }
        }
    };
    tokio::time::timeout(LONG, told).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_is_told_of_what_it_missed_and_takes_nothing_twice() {
    // N9, N10, N12
    let Some(nats) = servers(1, None) else { return };
    let access = access(&nats);
    let fleet = made(&access, 1).await;
    let client = access.connect("agent", Jitter::from_seed(1)).await.unwrap();
    let wire = Wire::new(client.clone(), &access);
    let own = subject(CN, Some(&uuid(0)));
    let publish = async |kind, event, alias, last| {
        wire.publish(&own, &labels(kind, event), body(alias), last).await.unwrap()
    };
    let mut follower = Follower::new(&fleet, "vms.*.*", Jitter::from_seed(2));
    assert_eq!(next(&mut follower).await, "synced");
    let first = publish(Kind::Create, 1, "a", 0).await;
    assert_eq!(next(&mut follower).await, "a");
    let second = publish(Kind::Modify, 2, "b", first).await;
    assert_eq!(next(&mut follower).await, "b");
    // Event 2 once more, longer after than JetStream knows its id; then what is no object at all.
    let mut headers = HeaderMap::new();
    labels(Kind::Modify, 2).write(&mut headers);
    client.publish_with_headers(own.clone(), headers, body("b")).await.unwrap();
    client.publish(own.clone(), Bytes::from_static(b"no object")).await.unwrap();
    assert_eq!(next(&mut follower).await, "odd");
    // The agent knows a message of which the servers know nothing any more.
    publish(Kind::Modify, 4, "d", second + 40).await;
    assert_eq!(next(&mut follower).await, "missed");
    assert_eq!(next(&mut follower).await, "d");
    // N20
    let events = fleet.changes(&own).await.unwrap();
    let events: Vec<u64> = events.iter().map(|message| message.labels.at.seq).collect();
    assert_eq!(events, [1, 2, 4]);
    assert_eq!(fleet.changes_of(&uuid(0), None).await.unwrap().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_with_a_short_timer_gets_a_snapshot_all_the_same() {
    // N9
    let Some(nats) = servers(1, None) else { return };
    let access = access(&nats);
    let fleet = made(&access, 1).await;
    let wire = Wire::new(access.connect("agent", Jitter::from_seed(1)).await.unwrap(), &access);
    wire.publish(&subject(CN, Some(&uuid(0))), &labels(Kind::Create, 1), body("a"), 0)
        .await
        .unwrap();
    let mut follower = Follower::new(&fleet, "vms.*.*", Jitter::from_seed(2));
    let shown = async {
        while follower.mirror().is_empty() {
            // Shorter than any answer takes.
            let _again = tokio::time::timeout(Duration::from_micros(50), follower.next()).await;
        }
    };
    tokio::time::timeout(LONG, shown).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_takes_a_snapshot_again_and_tells_what_no_message_told() {
    // N32
    let Some(nats) = servers(1, None) else { return };
    let access = access(&nats);
    let fleet = made(&access, 1).await;
    let wire = Wire::new(access.connect("agent", Jitter::from_seed(1)).await.unwrap(), &access);
    let own = subject(CN, Some(&uuid(0)));
    wire.publish(&own, &labels(Kind::Create, 1), body("a"), 0).await.unwrap();
    let shown = async || wire.last(VMS, &own).await.ok().flatten();
    until("VMS", async || shown().await.is_some()).await;
    let follower = Follower::new(&fleet, "vms.*.*", Jitter::from_seed(2));
    let mut follower = follower.audited(Duration::from_secs(1));
    assert_eq!(next(&mut follower).await, "synced");
    assert_eq!(follower.mirror().len(), 1);
    let vms = fleet.jetstream().get_stream(VMS).await.unwrap();
    vms.delete_message(shown().await.unwrap().seq).await.unwrap();
    let mut told = BTreeSet::new();
    while !told.contains("gone") {
        told.insert(next(&mut follower).await);
    }
    assert!(told.contains("again") && !told.contains("hole"), "{told:?}");
    assert!(follower.mirror().is_empty());
}

/// A relay before the server, and a follower that reads through it.
async fn relayed(nats: &Nats) -> (Relay, Follower) {
    let relay = Relay::start(nats.address(0)).unwrap();
    let servers = vec![format!("nats://{}", relay.address())];
    let access = Access { servers, ..Access::default() };
    let fleet = Fleet::connect(&access, "consumer", Jitter::from_seed(2)).await.unwrap();
    let follower = Follower::new(&fleet, "vms.*.*", Jitter::from_seed(2));
    (relay, follower)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vm_that_goes_while_a_snapshot_is_read_is_gone() {
    // N22
    // More than are on their way at once.
    const COUNT: usize = 1200;
    let Some(nats) = servers(1, None) else { return };
    let access = access(&nats);
    made(&access, 1).await;
    let wire = Wire::new(access.connect("agent", Jitter::from_seed(1)).await.unwrap(), &access);
    let publish = async |nth: usize, kind, event| {
        let own = subject(CN, Some(&uuid(nth)));
        wire.publish(&own, &labels(kind, event), body("a"), 0).await.unwrap();
    };
    let create = async |nth| publish(nth, Kind::Create, nth as u64).await;
    stream::iter(0..COUNT).map(create).buffered(32).collect::<Vec<()>>().await;
    let kind = async |nth: usize| {
        let last = wire.last(VMS, &subject(CN, Some(&uuid(nth)))).await.ok().flatten();
        last.and_then(|last| last.labels).map(|labels| labels.kind)
    };
    until("VMS", async || kind(COUNT - 1).await == Some(Kind::Create)).await;
    let (relay, mut follower) = relayed(&nats).await;
    // A hundred or two have been read when the first ten go.
    relay.part_after(50_000);
    let gone = async {
        until("the snapshot is being read", async || relay.is_parted()).await;
        for nth in 0..10 {
            publish(nth, Kind::Delete, (COUNT + nth) as u64).await;
        }
        until("VMS", async || kind(9).await == Some(Kind::Delete)).await;
        relay.set(Way::Open);
    };
    let (first, ()) = tokio::join!(next(&mut follower), gone);
    assert_eq!(first, "synced");
    while follower.mirror().len() != COUNT - 10 {
        next(&mut follower).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_lost_with_a_connection_is_read_again() {
    // N23
    let Some(nats) = servers(1, None) else { return };
    let access = access(&nats);
    made(&access, 1).await;
    let wire = Wire::new(access.connect("agent", Jitter::from_seed(1)).await.unwrap(), &access);
    let (relay, mut follower) = relayed(&nats).await;
    assert_eq!(next(&mut follower).await, "synced");
    let publish = async |kind, event, alias, last| {
        let own = subject(CN, Some(&uuid(0)));
        wire.publish(&own, &labels(kind, event), body(alias), last).await.unwrap()
    };
    let first = publish(Kind::Create, 1, "a", 0).await;
    assert_eq!(next(&mut follower).await, "a");
    // The server sends it, and it is nowhere.
    relay.set(Way::Lossy);
    publish(Kind::Delete, 2, "a", first).await;
    until("it was sent", async || relay.lost() > 0).await;
    relay.set(Way::Open);
    relay.cut();
    assert_eq!(next(&mut follower).await, "gone");
}

#[tokio::test(flavor = "multi_thread")]
async fn old_tombstones_are_removed_and_nothing_else() {
    // N18
    let Some(nats) = servers(1, None) else { return };
    let access = access(&nats);
    let fleet = made(&access, 1).await;
    let wire = Wire::new(access.connect("agent", Jitter::from_seed(1)).await.unwrap(), &access);
    // The last message of the node stays.
    let gone = &[Kind::Create, Kind::Delete];
    for (nth, kinds) in [(1, &[Kind::Create][..]), (2, gone), (3, gone)] {
        for (event, kind) in kinds.iter().enumerate() {
            let labels = labels(*kind, (10 * nth + event) as u64);
            wire.publish(&subject(CN, Some(&uuid(nth))), &labels, body("a"), 0).await.unwrap();
        }
    }
    let shown = async || wire.subjects(VMS, &subjects_of(CN)).await.unwrap();
    until("VMS", async || {
        wire.last(VMS, &subject(CN, Some(&uuid(3)))).await.is_ok_and(|last| {
            last.is_some_and(|last| last.labels.is_some_and(|labels| labels.kind == Kind::Delete))
        })
    })
    .await;
    let (hour, now) = (Duration::from_secs(3600), daemon::wall::now());
    assert_eq!(sweep(&fleet, now, hour).await, Ok(0), "young");
    assert_eq!(shown().await.len(), 3);
    let later = now.checked_add(2 * hour).unwrap();
    assert_eq!(sweep(&fleet, later, hour).await, Ok(1));
    assert_eq!(shown().await, [1, 3].map(|nth| subject(CN, Some(&uuid(nth)))));
}
