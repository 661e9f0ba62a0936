// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Many clients at once, of one instance over a file and of two over PostgreSQL.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use rig::postgres::Cluster;
use sdc_clients::http::Call;
use serde_json::{Value, json};

use super::rig::{OWNER, Rig, Volapi, create, post};
use crate::common::until;

/// What many clients see of these instances of one service.
async fn stands_many(rig: &Rig, instances: &[&Volapi]) {
    let nth = |at: usize| instances[at % instances.len()];
    let names: Vec<String> = (0..100).map(|n| format!("name-{n}")).collect();
    let made = names.iter().enumerate().map(|(at, name)| nth(at).ask(create(None, name)));
    let uuids: BTreeSet<String> = join_all(made).await.into_iter().map(created).collect();
    assert_eq!(uuids.len(), 100);
    until("all are ready", async || {
        let all = nth(0).ask(Call::get(&["volumes"]).query("state", "ready")).await.1;
        all.as_array().unwrap().len() == 100
    })
    .await;
    for uuid in &uuids {
        assert_eq!(rig.storage_vms(uuid).len(), 1, "{uuid}");
    }
    let made = (0..100).map(|at| nth(at).ask(create(None, "one")));
    let (won, lost): (Vec<_>, Vec<_>) =
        join_all(made).await.into_iter().partition(|(status, _)| *status == 201);
    let taken = |(status, body): &&(u16, Value)| {
        (*status, &body["code"]) == (409, &json!("VolumeAlreadyExists"))
    };
    assert_eq!((won.len(), lost.iter().filter(taken).count()), (1, 99), "{lost:?}");
    assert_eq!(rig.tickets(), [Value::Null; 0], "all are given back");

    let volume = created(won.into_iter().next().unwrap());
    let vms: Vec<String> =
        (0..4).map(|n| format!("9999999{n}-9999-4999-8999-999999999999")).collect();
    let added = vms.iter().enumerate().map(|(at, vm)| {
        let body = json!({"owner_uuid": OWNER, "vm_uuid": vm});
        nth(at).ask(post(&["volumes", &volume, "addreference"], body))
    });
    for (status, body) in join_all(added).await {
        assert_eq!(status, 204, "{body}");
    }
    let kept = nth(1).ask(Call::get(&["volumes", &volume, "references"])).await.1;
    let kept: BTreeSet<&str> = kept.as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(kept, vms.iter().map(String::as_str).collect::<BTreeSet<_>>());
}

fn created((status, body): (u16, Value)) -> String {
    assert_eq!(status, 201, "{body}");
    body["uuid"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")] // V20 V53
async fn one_instance_stands_many_clients() {
    let rig = Rig::start().await;
    let volapi = rig.volapi(json!({})).await;
    stands_many(&rig, &[&volapi]).await;
    volapi.stop().await;
}

#[tokio::test(flavor = "multi_thread")] // V20 V53
async fn two_instances_over_postgresql_stand_many_clients() {
    let Some(cluster) = Cluster::start().await else { return };
    let address = cluster.database("volapi").await;
    let rig = Rig::start().await;
    let one = rig.volapi(json!({"postgres": address})).await;
    let second = "1b4a4a3e-8b7c-4a09-9c3e-2a5d8f5e0c11";
    let dir = tempfile::tempdir().unwrap();
    let set = json!({"postgres": address, "instance": second, "state_dir": dir.path()});
    let two = rig.volapi(set).await;
    stands_many(&rig, &[&one, &two]).await;
    two.stop().await;
    one.stop().await;
}
