// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.
//! What the volumes service asks for: snapshots of what is delegated to a VM.

use std::sync::Arc;

use sdc_clients::Error;
use sdc_clients::identity::Identity;
use sdc_clients::snapshots::Snapshots;
use simnode::node::Zfs;
use uuid::Uuid;

use migration_core::intent::End;
use migration_core::protocol::{State, What};

use crate::world::{Cn, VM, World, agents};

/// The volumes service's client.
fn snapshots(world: &World) -> Snapshots {
    snapshots_as(world, Some(Identity::Volapi))
}

/// The same of another peer.
fn snapshots_as(world: &World, from: Option<Identity>) -> Snapshots {
    Snapshots::new(agents(&world.net, from, &world.net.hosts()))
}

fn write(world: &World, text: &[u8]) {
    let node = &world.source.programs.node;
    node.write_file(&format!("zones/{VM}/data"), "exports/file", text).unwrap();
}

fn has(world: &World, text: &[u8]) -> bool {
    let (data, _, _) = &world.source.contents()[&format!("zones/{VM}/data")];
    *data == data.with_file("exports/file", text)
}

/// All snapshots and bookmarks of the VM.
fn on_node(world: &World) -> Vec<String> {
    let text = world.source.programs.zfs(&format!("get -Hp -r -o name guid zones/{VM}"));
    let names = text.lines().filter(|name| name.contains(['@', '#']));
    names.map(|name| name.split_once('/').unwrap().1.replace(&VM.to_string(), "VM")).collect()
}

fn names(all: &[sdc_clients::snapshots::Snapshot]) -> Vec<&str> {
    all.iter().map(|it| it.name.as_str()).collect()
}

fn refusal<T: std::fmt::Debug>(done: Result<T, Error>) -> (u16, String) {
    let error = done.unwrap_err();
    (error.status().unwrap(), error.code().unwrap_or_default().to_owned())
}

async fn stop(cn: &Cn) {
    cn.verbs().halt(&VM.to_string(), 0).await.unwrap();
}

#[tokio::test(start_paused = true)] // M70
async fn snapshots_of_what_is_delegated_are_made_listed_and_destroyed_as_often_as_they_are_asked_for()
 {
    for zfs in [Zfs::Illumos, Zfs::Fuse] {
        let world = World::new(zfs).await;
        let (client, cn) = (snapshots(&world), world.source.uuid);
        let before = on_node(&world);
        for name in ["volsnap-a", "volsnap-b", "volsnap-a"] {
            let made = client.create(cn, VM, name).await.unwrap();
            assert!(made.name == name && made.created > 1_000_000_000, "{made:?}");
        }
        assert_eq!(names(&client.list(cn, VM).await.unwrap()), ["volsnap-a", "volsnap-b"]);
        let both = ["VM/data@volsnap-a", "VM/data@volsnap-b"].map(str::to_owned);
        assert!(both.iter().all(|it| on_node(&world).contains(it)));
        for name in ["volsnap-a", "volsnap-b", "volsnap-b"] {
            client.destroy(cn, VM, name).await.unwrap();
        }
        assert_eq!(client.list(cn, VM).await.unwrap(), []);
        assert_eq!(on_node(&world), before);
    }
}

#[tokio::test(start_paused = true)] // M71
async fn a_roll_back_drops_later_snapshots_of_the_volume_and_says_which() {
    for zfs in [Zfs::Illumos, Zfs::Fuse] {
        let world = World::new(zfs).await;
        let (client, cn) = (snapshots(&world), world.source.uuid);
        for name in ["volsnap-a", "volsnap-b", "volsnap-c", "volsnap-d"] {
            write(&world, name.as_bytes());
            client.create(cn, VM, name).await.unwrap();
        }
        write(&world, b"later");
        let runs = refusal(client.roll_back(cn, VM, "volsnap-b").await);
        assert_eq!(runs, (503, "VmRuns".to_owned()));
        assert!(has(&world, b"later"));
        stop(&world.source).await;
        let done = client.roll_back(cn, VM, "volsnap-b").await.unwrap();
        assert_eq!(done.dropped, ["volsnap-c", "volsnap-d"]);
        assert_eq!(done.left, ["volsnap-a", "volsnap-b"]);
        assert!(has(&world, b"volsnap-b"));
        let again = client.roll_back(cn, VM, "volsnap-b").await.unwrap();
        assert!(again.dropped.is_empty() && again.left == done.left);
        let absent = refusal(client.roll_back(cn, VM, "volsnap-d").await);
        assert_eq!(absent, (409, "NoSnapshot".to_owned()));
    }
}

#[tokio::test(start_paused = true)] // M72
async fn nothing_else_can_be_touched() {
    let world = World::new(Zfs::Illumos).await;
    let (client, cn) = (snapshots(&world), world.source.uuid);
    client.create(cn, VM, "volsnap-a").await.unwrap();
    let data = format!("zones/{VM}/data");
    for name in [format!("{data}@mine"), format!("zones/{VM}@volsnap-root")] {
        world.source.programs.zfs(&format!("snapshot {name}"));
    }
    client.create(cn, VM, "volsnap-b").await.unwrap();
    stop(&world.source).await;
    let (before, root) = (on_node(&world), format!("zones/{VM}"));
    assert_eq!(names(&client.list(cn, VM).await.unwrap()), ["volsnap-a", "volsnap-b"]);
    // An operator's own snapshot, or a migration's, is later: the volume's later one stays too.
    let others = client.roll_back(cn, VM, "volsnap-a").await.unwrap_err();
    assert!(others.message().contains("mine") && !others.message().contains("volsnap-b"));
    assert_eq!(refusal::<()>(Err(others)), (409, "OtherSnapshots".to_owned()));
    for name in ["mine", "vm-migration-1", "volsnap-", "volsnap-a@b", "volsnap-a,mine", "volsnap-%"]
    {
        let bad = (422, "InvalidParameters".to_owned());
        assert_eq!(refusal(client.create(cn, VM, name).await), bad, "{name}");
        assert_eq!(refusal(client.destroy(cn, VM, name).await), bad, "{name}");
        assert_eq!(refusal(client.roll_back(cn, VM, name).await), bad, "{name}");
    }
    // A snapshot of the root is none of what is delegated.
    client.destroy(cn, VM, "volsnap-root").await.unwrap();
    assert_eq!(on_node(&world), before);
    let none = refusal(client.list(cn, Uuid::from_u128(1)).await);
    assert_eq!(none, (404, "ResourceNotFound".to_owned()));
    let hidden = refusal(client.create(world.target.uuid, VM, "volsnap-a").await);
    assert_eq!(hidden, (503, "HiddenCopy".to_owned()));
    // A bookmark stands in the way as well.
    world.source.programs.zfs(&format!("destroy {data}@mine"));
    world.source.programs.zfs(&format!("bookmark {data}@volsnap-b {data}#mark"));
    let marked = refusal(client.roll_back(cn, VM, "volsnap-a").await);
    assert_eq!(marked, (409, "OtherSnapshots".to_owned()));
    // A VM without a delegated dataset.
    let image = image(&world);
    world.source.verbs().delete(&VM.to_string()).await.unwrap();
    let payload = serde_json::json!({"uuid": VM.to_string(), "brand": "joyent", "quota": 10, "ram": 256,
        "image_uuid": image});
    world.source.verbs().create(payload.as_object().unwrap()).await.unwrap();
    let bare = refusal(client.create(cn, VM, "volsnap-a").await);
    assert_eq!(bare, (409, "NoDelegatedDataset".to_owned()));
    assert!(!on_node(&world).iter().any(|name| name.contains("volsnap")), "{root}");
}

fn image(world: &World) -> String {
    let origin = world.source.programs.zfs(&format!("get -H -o value origin zones/{VM}"));
    origin.trim().trim_start_matches("zones/").trim_end_matches("@final").to_owned()
}

#[tokio::test(start_paused = true)] // M74
async fn none_is_made_or_destroyed_that_would_not_go_with_the_vm() {
    for zfs in [Zfs::Illumos, Zfs::Fuse] {
        let world = World::new(zfs).await;
        let (client, cn) = (snapshots(&world), world.source.uuid);
        for name in ["volsnap-a", "volsnap-b"] {
            client.create(cn, VM, name).await.unwrap();
        }
        assert_eq!(world.send(End::Source, 1).await.unwrap(), State::Done);
        client.create(cn, VM, "volsnap-c").await.unwrap();
        client.destroy(cn, VM, "volsnap-a").await.unwrap();
        world.done(End::Source, What::Stop).await;
        let moves = (503, "VmMoves".to_owned());
        for _ in ["before the last sync", "after it"] {
            assert_eq!(refusal(client.create(cn, VM, "volsnap-d").await), moves);
            assert_eq!(refusal(client.destroy(cn, VM, "volsnap-b").await), moves);
            assert_eq!(world.send(End::Source, 2).await.unwrap(), State::Done);
        }
        world.done(End::Target, What::RestoreQuota).await;
        world.are_same();
        let names =
            |cn: &Cn| cn.programs.zfs(&format!("list -H -o name -t snapshot -r zones/{VM}/data"));
        let there = names(&world.target);
        assert!(!there.contains("volsnap-a") && there.contains("volsnap-b"), "{there}");
        assert!(there.contains("volsnap-c") && !there.contains("volsnap-d"), "{there}");
        // The switch is undone: the VM runs where it was.
        world.done(End::Source, What::Boot).await;
        client.create(cn, VM, "volsnap-d").await.unwrap();
    }
}

#[tokio::test(start_paused = true)] // M73
async fn a_snapshot_that_finds_no_room_says_so() {
    let world = World::new(Zfs::Illumos).await;
    let (client, cn) = (snapshots(&world), world.source.uuid);
    let (root, data) = (format!("zones/{VM}"), format!("zones/{VM}/data"));
    world.source.programs.zfs(&format!("set refreservation=10000000 {data}"));
    let used: u64 = world.source.get("used", &root).parse().unwrap();
    world.source.programs.zfs(&format!("set quota={} {root}", used + 1000));
    let full = client.create(cn, VM, "volsnap-a").await.unwrap_err();
    assert!(full.message().contains("no space left"), "{full}");
    assert_eq!(refusal::<()>(Err(full)), (507, "NoSpace".to_owned()));
    assert_eq!(client.list(cn, VM).await.unwrap(), []);
    world.source.programs.zfs(&format!("set quota=none {root}"));
    client.create(cn, VM, "volsnap-a").await.unwrap();
}

#[tokio::test(start_paused = true)] // M40
async fn snapshots_are_for_volapi_alone() {
    let world = World::new(Zfs::Illumos).await;
    let (client, cn) = (snapshots(&world), world.source.uuid);
    client.create(cn, VM, "volsnap-a").await.unwrap();
    stop(&world.source).await;
    let before = on_node(&world);
    for who in [None, Some(Identity::Service), Some(world.target.name()), Some(world.source.name())]
    {
        let stranger = snapshots_as(&world, who);
        let refused = (403, "NotAuthorized".to_owned());
        assert_eq!(refusal(stranger.list(cn, VM).await), refused, "{who:?}");
        assert_eq!(refusal(stranger.create(cn, VM, "volsnap-b").await), refused, "{who:?}");
        assert_eq!(refusal(stranger.destroy(cn, VM, "volsnap-a").await), refused, "{who:?}");
        assert_eq!(refusal(stranger.roll_back(cn, VM, "volsnap-a").await), refused, "{who:?}");
    }
    assert_eq!(on_node(&world), before);
}

#[tokio::test(start_paused = true)] // M43
async fn a_roll_back_that_an_agent_died_in_is_done_when_it_is_asked_for_again() {
    for half in 0.. {
        let mut world = World::new(Zfs::Illumos).await;
        let (client, cn) = (snapshots(&world), world.source.uuid);
        for name in ["volsnap-a", "volsnap-b", "volsnap-c"] {
            write(&world, name.as_bytes());
            client.create(cn, VM, name).await.unwrap();
        }
        stop(&world.source).await;
        let steps = world.source.programs.steps.clone();
        steps.stop_at(Some(half));
        let has_died = tokio::select! {
            biased;
            () = steps.stopped.notified() => true,
            done = client.roll_back(cn, VM, "volsnap-a") => done.is_err(),
        };
        steps.stop_at(None);
        let net = Arc::clone(&world.net);
        world.source.kill(&net).await;
        world.source.start(&net).await;
        let done = client.roll_back(cn, VM, "volsnap-a").await.unwrap();
        assert_eq!(done.left, ["volsnap-a"], "dies at {half}");
        assert!(has(&world, b"volsnap-a"), "dies at {half}");
        if !has_died {
            assert!(half > 4, "it died at {half} points only");
            break;
        }
    }
}
