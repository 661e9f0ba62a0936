// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `list-volume-zones`.

use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::world::{CN, DATA, OTHER, OWNER, THEIRS, USER, World, object, run, zone};

#[tokio::test] // V81
async fn volumes_are_listed_with_their_storage_vms_nodes_and_users() {
    let world = World::start().await;
    world.estimate(DATA);
    world.cnapi.store().put_server(object(json!({"uuid": CN, "hostname": "cn-one"})));
    let all = world.voladm(&["list-volume-zones", "-p", "-s", "name,-owner"]).await;
    let rows: Vec<&str> = all.stdout.lines().collect();
    assert_eq!((all.code, rows.len()), (Some(0), 3), "{}", all.stderr);
    let theirs = format!("data:{THEIRS}:{OTHER}:10G::ready:{CN}:{}:", zone(THEIRS));
    assert_eq!(rows[0], format!("{theirs}-"));
    let data = format!("data:{DATA}:{OWNER}:10G:1.5G:ready:{CN}:{}", zone(DATA));
    assert_eq!(rows[1], format!("{data}:web01 /srv/my data ro"));
    // People see names, in 80 columns; -l has the uuids.
    let seen = world.voladm(&["list-volume-zones", "-s", "name,-owner"]).await;
    let lines: Vec<&str> = seen.stdout.lines().collect();
    assert_eq!(lines[2], "data  10G   1.5G  ready  cn-one  web01 /srv/my data ro");
    assert!(lines.iter().all(|line| line.len() <= 80), "{}", seen.stdout);
    let long = world.voladm(&["list-volume-zones", "-l"]).await;
    assert!([DATA, OWNER, CN].iter().all(|uuid| long.stdout.contains(uuid)), "{}", long.stdout);
    // An owner's, as a table for people, and as JSON.
    let one = world.voladm(&["list-volume-zones", &OTHER[..4], "-o", "name,size,path"]).await;
    assert_eq!(one.stdout, "NAME  SIZE  PATH\ndata  10G   10.0.0.7:/exports/data\n");
    let json =
        world.voladm(&["list-volume-zones", OWNER, "-j", "-o", "size,users", "-s", "name"]).await;
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    let user = json!({"vm": USER, "alias": "web01", "state": "running",
        "mountpoint": "/srv/my data", "mode": "ro"});
    assert_eq!(json, json!([{"size": 10240.0, "users": [user]}, {"size": 10240.0, "users": []}]));
    // Three lists show how much is used of three volumes; the others asked no node.
    assert_eq!(world.orders().len(), 9);
}

#[tokio::test]
async fn what_is_wrong_is_one_line_and_no_service_is_asked() {
    let world = World::start().await;
    for (args, code, said) in [
        (&["list-volume-zones", "-o", "nope"][..], 2, "no column \"nope\""),
        (&["check", "-s", "nope"], 2, "no column \"nope\""),
        (&["restart-volume-zone"], 2, "which volume?"),
        (&["chekc"], 2, "did you mean 'check'?"),
    ] {
        let done = world.voladm(args).await;
        assert_eq!((done.code, done.stdout.as_str()), (Some(code), ""), "{args:?}");
        assert!(done.stderr.contains(said) && done.stderr.lines().count() == 1, "{}", done.stderr);
    }
    assert_eq!(world.vmapi.requests().len() + world.cnapi.requests().len(), 0);
    let program = env!("CARGO_BIN_EXE_sdc-voladm");
    let done = run(program, &["check"]).await;
    assert_eq!(done.code, Some(2));
    assert!(done.stderr.contains("where is VMAPI? Give --vmapi, $VMAPI_URL"), "{}", done.stderr);
    let done = run(program, &["list-volume-zones", "--url", "http://127.0.0.1:1"]).await;
    assert_eq!((done.code, done.stderr.lines().count()), (Some(1), 1), "{}", done.stderr);
    for args in [&["--help"][..], &["man"], &["completions", "bash"]] {
        let done = run(program, args).await;
        let said = done.stdout.replace('\\', "");
        assert!(done.code == Some(0) && said.contains("update-volume-zone"), "{args:?}");
    }
}
