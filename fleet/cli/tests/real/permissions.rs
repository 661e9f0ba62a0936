// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use fleet_cli::key::draw;
use fleet_cli::permissions::{Keys, NODES_API, accounts, inbox};
use futures_util::StreamExt as _;
use rustix::process::Signal;
use sdc_clients::Jitter;
use sdc_clients::fleet::{
    Access, FleetError, Kind, Labels, Position, VMS, Wire, subject, subjects_of,
};
use tempfile::TempDir;
use tokio::time::timeout;

use super::node::CN;
use super::{LONG, access, made, servers, until};

pub(crate) const OTHER: &str = "c0000000-0000-4000-8000-000000000002";
const VM: &str = "40000000-0000-4000-8000-000000000001";

const VM_2: &str = "40000000-0000-4000-8000-000000000002";

fn labels(seq: u64) -> Labels {
    Labels::of(Kind::Create, Position { epoch: "e".into(), seq })
}

/// Keys of the operator, a reader and two nodes, each in a file.
pub(crate) fn keys(dir: &TempDir) -> Keys {
    let draw = |name: &str| draw(&dir.path().join(name)).unwrap();
    Keys {
        operators: vec![draw("operator")],
        readers: vec![draw("reader")],
        nodes: vec![(CN.into(), draw(CN)), (OTHER.into(), draw(OTHER))],
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_asks_as_a_reader_is_told_what_it_may_not() {
    let dir = tempfile::tempdir().unwrap();
    let Some(nats) = servers(1, Some(&accounts(&keys(&dir)))) else { return };
    let with = |name: &str| Access { nkey: Some(dir.path().join(name)), ..access(&nats) };
    let fleet = made(&with("operator"), 1).await;
    let node = with(CN);
    let wire = Wire::new(node.connect("node", Jitter::from_seed(1)).await.unwrap(), &node);
    let refused = wire.last(VMS, &subject(CN, None)).await.unwrap_err();
    assert!(refused.to_string().contains("nats.api and nats.inbox"), "{refused}");
    // Who is allowed and gets no answer is told that.
    nats.signal(0, Signal::STOP);
    let away = fleet.nodes().await.unwrap_err();
    assert!(matches!(away, FleetError::Away(_)), "{away}");
    nats.signal(0, Signal::CONT);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nodes_key_reads_and_writes_no_other_nodes_subjects() {
    // N15
    let dir = tempfile::tempdir().unwrap();
    let text = accounts(&keys(&dir));
    let Some(nats) = servers(1, Some(&text)) else { return };
    let with = |name: &str| Access { nkey: Some(dir.path().join(name)), ..access(&nats) };
    let node = |cn: &str| Access { api: NODES_API.into(), inbox: Some(inbox(cn)), ..with(cn) };
    let fleet = made(&with("operator"), 1).await;
    let client = node(CN).connect("node", Jitter::from_seed(1)).await.unwrap();
    let other_client = node(OTHER).connect("other", Jitter::from_seed(2)).await.unwrap();
    let (wire, other) =
        (Wire::new(client.clone(), &node(CN)), Wire::new(other_client, &node(OTHER)));
    let (own, others) = (subject(CN, Some(VM)), subject(OTHER, Some(VM)));
    let secret = Bytes::from_static(b"{\"vm\": {\"alias\": \"secret\"}}");

    // Its own: everything that an agent does.
    assert_eq!(wire.last(VMS, &subject(CN, None)).await, Ok(None));
    let seq = wire.publish(&own, &labels(1), secret.clone(), 0).await.unwrap();
    assert_eq!(wire.publish(&own, &labels(1), secret.clone(), 0).await, Ok(seq), "known by its id");
    let last = wire.last("CHANGES", &subjects_of(CN)).await.unwrap().unwrap();
    assert_eq!((last.seq, last.labels), (seq, Some(labels(1))));
    until("VMS", async || wire.last(VMS, &own).await.is_ok_and(|it| it.is_some())).await;
    assert_eq!(wire.subjects(VMS, &subjects_of(CN)).await.unwrap(), std::slice::from_ref(&own));
    let revision = wire.beat(CN, Bytes::from_static(b"{}"), 0).await.unwrap();
    assert!(wire.last("KV_NODES", &format!("$KV.NODES.{CN}")).await.unwrap().is_some());
    let late = wire.beat(CN, Bytes::from_static(b"{}"), revision + 7).await;
    assert!(matches!(late, Err(FleetError::WrongLast(_))), "{late:?}");
    other.publish(&others, &labels(1), secret.clone(), 0).await.unwrap();

    // Another one's: nothing, neither asked in its name nor by what the server answers.
    let refused = [
        wire.publish(&others, &labels(3), secret.clone(), 2).await.is_err(),
        wire.beat(OTHER, Bytes::from_static(b"{}"), 0).await.is_err(),
        wire.last("CHANGES", &others).await.is_err(),
        wire.last(VMS, "vms.>").await.is_err(),
        wire.last("KV_NODES", &format!("$KV.NODES.{OTHER}")).await.is_err(),
    ];
    assert_eq!(refused, [true; 5]);
    for (to, from) in [
        (own.clone(), others.clone()),
        (own.clone(), subject(OTHER, Some(OTHER))),
        (format!("{NODES_API}.DIRECT.GET.CHANGES.{own}"), subject(OTHER, Some(CN))),
        (format!("{NODES_API}.DIRECT.GET.CHANGES.{own}"), format!("$KV.NODES.{OTHER}")),
        (format!("{NODES_API}.STREAM.INFO.CHANGES"), subject(OTHER, None)),
        ("$JS.API.CONSUMER.CREATE.CHANGES".to_owned(), subject(OTHER, None)),
        (format!("{NODES_API}.STREAM.DELETE.CHANGES"), "x".to_owned()),
    ] {
        client.publish_with_reply(to, from, secret.clone()).await.unwrap();
    }
    let mut heard = client.subscribe("vms.>").await.unwrap();
    let mut inboxes = client.subscribe(format!("{}.>", inbox(OTHER))).await.unwrap();
    client.flush().await.unwrap();
    other.publish(&subject(OTHER, Some(VM_2)), &labels(9), secret.clone(), 0).await.unwrap();
    let silence = Duration::from_millis(500);
    assert!(!matches!(timeout(silence, heard.next()).await, Ok(Some(_))));
    assert!(!matches!(timeout(silence, inboxes.next()).await, Ok(Some(_))));
    let all = fleet.changes("vms.*.*").await.unwrap();
    let of_other: Vec<u64> =
        all.iter().filter(|it| it.target.cn == OTHER).map(|it| it.labels.at.seq).collect();
    assert_eq!(of_other, [1, 9], "only what it published itself");
    let stream = fleet.jetstream().get_stream("CHANGES").await.unwrap();
    let under_other = stream.info_with_subjects(format!("vms.{OTHER}.>")).await.unwrap();
    let subjects: Vec<_> = under_other.collect::<Vec<_>>().await;
    assert_eq!(subjects.len(), 2, "{subjects:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_readers_key_reads_everything_and_writes_nothing() {
    // N16
    let dir = tempfile::tempdir().unwrap();
    let text = accounts(&keys(&dir));
    let Some(nats) = servers(1, Some(&text)) else { return };
    let with = |name: &str| Access { nkey: Some(dir.path().join(name)), ..access(&nats) };
    let operator = made(&with("operator"), 1).await;
    let client = with("operator").connect("operator", Jitter::from_seed(1)).await.unwrap();
    let wire = Wire::new(client, &with("operator"));
    let body = Bytes::from_static(b"{\"vm\": {\"alias\": \"a\"}}");
    wire.publish(&subject(CN, Some(VM)), &labels(1), body.clone(), 0).await.unwrap();
    let reader =
        sdc_clients::fleet::Fleet::connect(&with("reader"), "reader", Jitter::from_seed(2))
            .await
            .unwrap();
    assert_eq!(
        reader.changes("vms.*.*").await.unwrap(),
        operator.changes("vms.*.*").await.unwrap()
    );
    assert_eq!(reader.nodes().await.unwrap(), []);
    // VMS follows CHANGES a moment later.
    until("VMS", async || {
        wire.last(VMS, &subject(CN, Some(VM))).await.is_ok_and(|it| it.is_some())
    })
    .await;
    let mut follower = sdc_clients::fleet::Follower::new(&reader, "vms.*.*", Jitter::from_seed(3));
    let synced = async { while follower.next().await != sdc_clients::fleet::FleetEvent::Synced {} };
    timeout(LONG, synced).await.unwrap();
    assert_eq!(follower.mirror().len(), 1);
    assert!(reader.jetstream().delete_stream("CHANGES").await.is_err());
    let client = with("reader").connect("reader", Jitter::from_seed(4)).await.unwrap();
    let own = Wire::new(client, &with("reader"));
    assert!(own.publish(&subject(CN, Some(VM)), &labels(2), body, 1).await.is_err());
    assert_eq!(operator.changes("vms.*.*").await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_added_is_let_in_after_a_reload_and_no_client_is_disconnected() {
    // N26
    let dir = tempfile::tempdir().unwrap();
    let all = keys(&dir);
    let mut first = keys(&tempfile::tempdir().unwrap());
    (first.operators, first.nodes) = (all.operators.clone(), vec![all.nodes[0].clone()]);
    let Some(nats) = servers(1, Some(&accounts(&first))) else { return };
    let node = |cn: &str| Access {
        nkey: Some(dir.path().join(cn)),
        api: NODES_API.into(),
        inbox: Some(inbox(cn)),
        ..access(&nats)
    };
    let operator = Access { nkey: Some(dir.path().join("operator")), ..access(&nats) };
    made(&operator, 1).await;
    let client = node(CN).connect("node", Jitter::from_seed(1)).await.unwrap();
    let other = node(OTHER).connect("other", Jitter::from_seed(2)).await.unwrap();
    let (wire, new) = (Wire::new(client.clone(), &node(CN)), Wire::new(other, &node(OTHER)));
    let (own, others) = (subject(CN, Some(VM)), subject(OTHER, Some(VM)));
    let body = Bytes::from_static(b"{\"vm\": {\"alias\": \"a\"}}");
    let seq = wire.publish(&own, &labels(1), body.clone(), 0).await.unwrap();
    assert!(new.publish(&others, &labels(1), body.clone(), 0).await.is_err(), "not let in yet");
    // A reload is refused that changes the name, and turns JetStream off that only the command line turned on.
    let options = format!("server_name: n0\njetstream {{ store_dir: {:?} }}\n", nats.store(0));
    nats.configure(&(options + &accounts(&all))).unwrap();
    nats.signal(0, Signal::HUP);
    until("the new node is let in", async || {
        new.publish(&others, &labels(1), body.clone(), 0).await.is_ok()
    })
    .await;
    wire.publish(&own, &labels(2), body, seq).await.unwrap();
    assert_eq!(client.statistics().connects.load(Ordering::Relaxed), 1, "it stayed connected");
}
