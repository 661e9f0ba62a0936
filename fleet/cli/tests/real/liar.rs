// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A node whose key somebody else has: what it publishes under its own name does the others no harm, and one command
//! ends it.

use bytes::Bytes;
use fleet_agent::machine::Machine;
use fleet_cli::permissions::{NODES_API, accounts, inbox};
use mocks::hub::Hub;
use sdc_clients::Jitter;
use sdc_clients::fleet::{
    Access, Fleet, Kind, Labels, Made, Position, Shape, VMS, Wire, make, subject, usage,
};

use super::command::typed;
use super::follow::{agreed, follow};
use super::node::{CN, Running, vm};
use super::permissions::{OTHER, keys};
use super::{access, answered, servers, until};

/// Publishes VMs that there are not, so many.
async fn lies(wire: &Wire, count: usize) {
    let body = Bytes::from(format!(r#"{{"vm": {{"alias": "{}"}}}}"#, "x".repeat(3000)));
    for nth in 0..count {
        let at = Position { epoch: "e".into(), seq: nth as u64 + 1 };
        let own = subject(OTHER, Some(&format!("66600000-0000-4000-8000-{nth:012}")));
        wire.publish(&own, &Labels::of(Kind::Create, at), body.clone(), 0).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_makes_up_vms_pushes_out_nobody_elses_and_one_command_ends_it() {
    // N40
    let dir = tempfile::tempdir().unwrap();
    let Some(nats) = servers(3, Some(&accounts(&keys(&dir)))) else { return };
    let with = |name: &str| Access { nkey: Some(dir.path().join(name)), ..access(&nats) };
    let node = |cn: &str| Access { api: NODES_API.into(), inbox: Some(inbox(cn)), ..with(cn) };
    let operator = with("operator");
    let fleet = Fleet::connect(&operator, "test", Jitter::from_seed(1)).await.unwrap();
    // As a feed of before had it, and then as it is.
    let shape = Shape { replicas: 3, bytes: 8 << 20, ..Shape::default() };
    until("streams", async || make(fleet.jetstream(), &shape).await.is_ok()).await;
    let mut old = fleet.jetstream().get_stream(VMS).await.unwrap().cached_info().config.clone();
    (old.max_bytes, old.max_messages, old.discard) = (-1, -1, Default::default());
    fleet.jetstream().update_stream(&old).await.unwrap();
    let done = make(fleet.jetstream(), &shape).await.unwrap();
    assert_eq!(done.iter().find(|it| it.0 == VMS), Some(&(VMS, Made::Changed)));

    let (hub, machine) = (Hub::new(CN, 1000), Machine::drawn());
    let agent = Running::start(&hub, &node(CN), &machine).await;
    hub.put(vm(0, "before"));
    let seen = follow(&fleet);
    agreed("the node's VM", &hub, &seen).await;
    let liar =
        Wire::new(node(OTHER).connect("liar", Jitter::from_seed(2)).await.unwrap(), &node(OTHER));
    // More than VMS has room for, less than CHANGES.
    lies(&liar, 1000).await;
    hub.put(vm(1, "meanwhile"));
    let of_vms = async || {
        let health = answered("its state", async || fleet.health().await).await;
        health.into_iter().find(|it| it.stream == VMS).unwrap()
    };
    until("VMS is full", async || of_vms().await.full).await;
    assert!(of_vms().await.bytes <= (8 << 20) / 10);
    let client = operator.connect("operator", Jitter::from_seed(4)).await.unwrap();
    let wire = Wire::new(client, &operator);
    let has = async |nth| {
        let vm = vm(nth, "");
        let own = subject(CN, vm["uuid"].as_str());
        answered("VMS", async || wire.last(VMS, &own).await).await.is_some()
    };
    assert!(has(0).await, "what was there before is there");
    let used = answered("who has how much", async || usage(&fleet).await).await;
    assert!(used[0].cn == OTHER && used[0].share > 90, "{used:?}");
    assert!(used[0].changes.messages == 1000 && used[0].changes.bytes > 3_000_000, "{used:?}");
    let streams = async || typed(&operator, &["streams"]).await;
    let (is_well, text) = streams().await;
    assert!(!is_well && text.contains("(full)"), "{text}");
    let words = ["streams", "--nodes", "-H", "-p", "-o", "uuid,messages"];
    let (_, text) = typed(&operator, &words).await;
    assert!(text.starts_with(&format!("{OTHER}:1000\n")), "{text}");

    let (_, refused) = typed(&operator, &["purge", OTHER]).await;
    assert!(refused.contains("Confirm it with -y"), "{refused}");
    assert!(!typed(&with("reader"), &["purge", "-y", OTHER]).await.0);
    let (done, said) = typed(&operator, &["purge", "-y", OTHER]).await;
    assert!(done && said.starts_with("removed 1"), "{said}");
    // Followers were told, and the node's VM that had no room is in VMS by its next audit.
    agreed("nothing of it is shown", &hub, &seen).await;
    until("VMS has all", async || has(1).await).await;
    until("all is well", async || streams().await.0).await;
    let used = answered("who has how much", async || usage(&fleet).await).await;
    assert!(used.iter().all(|it| it.cn != OTHER || it.changes.messages <= 1), "{used:?}");
    agent.kill();
}
