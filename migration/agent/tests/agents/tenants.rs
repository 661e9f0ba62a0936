// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the owner of a VM writes and makes in what is delegated to it: texts, names, holds.

use std::collections::BTreeMap;

use daemon::command::{Commands as _, Launch, Pipes, Program};
use migration_agent::wire::Wire as _;
use migration_core::intent::End;
use migration_core::protocol::{Accepted, Doing, Offer, Properties, State, What};
use migration_core::stream::{self, Meter, Rate, Refusals, Token};
use sdc_clients::Error;
use simnode::node::Zfs;

use crate::net::Port;
use crate::world::{VM, World, finish};

fn data() -> String {
    format!("zones/{VM}/data")
}

/// The sender's order and what it says.
async fn sends(world: &World, number: u32) -> Doing {
    world.done(End::Target, What::Receive { from: world.source.uuid, image: None }).await;
    world
        .doing(End::Source, What::Send { number, to: world.target.uuid, mbps: None })
        .await
        .unwrap()
}

#[tokio::test(start_paused = true)] // M90
async fn a_text_that_looks_like_rows_changes_no_other_property_and_stops_nothing() {
    let at = data();
    let rows = format!(
        "x\tlocal\n{at}\tzoned\toff\tlocal\n{at}\tmountpoint\t/opt/custom/smf\tlocal\n{at}\tcom.example:b\ty"
    );
    for zfs in [Zfs::Illumos, Zfs::Fuse] {
        for text in [rows.as_str(), "first line\nsecond line", "tab\there", "one line"] {
            let world = World::new(zfs).await;
            world.source.programs.set(&at, "com.example:note", text);
            world.source.programs.set(&at, "mountpoint", &format!("/{text}"));
            world.source.programs.set(&at, "com.example:after", "two words");
            assert_eq!(world.send(End::Source, 1).await.unwrap(), State::Done, "{text}");
            finish(&world, 2).await;
            assert_eq!(world.target.get("zoned", &at), "on");
            assert_eq!(world.target.get("mounted", &at), "no");
            assert_eq!(world.target.get("com.example:b", &at), "-");
            assert_eq!(world.target.get("com.example:after", &at), "two words");
            assert_eq!(
                world.target.get("mountpoint", &at),
                format!("/{text}"),
                "the stream brought it"
            );
            let ran = world.target.programs.ran.lock().unwrap().clone();
            let mounts: Vec<&String> =
                ran.iter().filter(|line| line.contains("zfs mount")).collect();
            assert!(mounts.iter().all(|line| line.ends_with(&format!("zones/{VM}"))), "{mounts:?}");
            assert!(!ran.iter().any(|line| line.contains("mountpoint=")), "{ran:?}");
        }
    }
}

/// Sends `@2` of a dataset as a sender would that has a list of its own.
async fn offer_and_send(world: &World, dataset: &str, properties: Properties) {
    let at = format!("{dataset}@2");
    let words = ["send", "-p", "-I", "@vm-migration-1", &at];
    send_as_it_likes(world, dataset, None, properties, &words).await;
}

/// Offers a dataset, or an image, and sends what these words make.
async fn send_as_it_likes(
    world: &World,
    dataset: &str,
    image: Option<uuid::Uuid>,
    properties: Properties,
    words: &[&str],
) {
    let about = world.about(End::Target, world.next());
    let dataset = dataset.to_owned();
    let offer = Offer { about, dataset, image, properties, is_bare: false };
    let (from, to) = (world.source.name(), world.target.uuid);
    let accepted: Accepted = world.post_as(from, &world.target, "streams", &offer).await.unwrap();
    let token = Token::read(&accepted.token).unwrap();
    let port = Port::new(&world.net, "nobody", from);
    let connection = port.dial(&accepted.address, to).await.unwrap();
    let words = words.iter().map(|word| (*word).to_owned()).collect();
    let started = world.source.programs.start(Launch::new(Program::Zfs, words, Pipes::Out));
    let (_, stdout, ended) = started.unwrap().split();
    let ended = async { ended.await.map_err(std::io::Error::other) };
    let (rate, meter, refusals) = (Rate::new(None), Meter::default(), Refusals::default());
    let sent = stream::send(stdout, ended, connection, &token, (&rate, &meter, &refusals));
    sent.await.unwrap();
}

#[tokio::test(start_paused = true)] // M91
async fn the_receiver_sets_nothing_that_it_would_not_carry_itself() {
    let world = World::new(Zfs::Illumos).await;
    assert_eq!(world.send(End::Source, 1).await.unwrap(), State::Done);
    let at = data();
    let set: BTreeMap<String, String> = [
        ("zoned", "off"),
        ("mountpoint", "/opt/custom/smf"),
        ("canmount", "on"),
        ("com.example:lines", "a\nb"),
        ("com.example:note", "x"),
        ("compression", "gzip"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    let root = BTreeMap::from([("mountpoint".to_owned(), "/etc".to_owned())]);
    world.source.programs.zfs(&format!("snapshot {at}@2"));
    world.done(End::Target, What::Receive { from: world.source.uuid, image: None }).await;
    offer_and_send(
        &world,
        &at,
        Properties::from([(at.clone(), set), (format!("zones/{VM}"), root)]),
    )
    .await;
    for (name, want) in [
        ("zoned", "on"),
        // It is the zone's, whatever the sender says, and so is the place: below the zone's root.
        ("mountpoint", "/opt/custom/smf"),
        ("com.example:lines", "-"),
        ("com.example:note", "x"),
        ("compression", "gzip"),
    ] {
        assert_eq!(world.target.get(name, &at), want, "{name}");
    }
    assert_eq!(world.target.get("mountpoint", &format!("zones/{VM}")), format!("/zones/{VM}"));
    let foreign = Properties::from([("zones/other".to_owned(), BTreeMap::new())]);
    let about = world.about(End::Target, world.next());
    let offer = Offer { about, dataset: at, image: None, properties: foreign, is_bare: false };
    let from = world.source.name();
    let refused: Result<Accepted, Error> =
        world.post_as(from, &world.target, "streams", &offer).await;
    assert!(refused.unwrap_err().peer_text().unwrap().contains("zones/other"));
}

#[tokio::test(start_paused = true)] // M91
async fn a_stream_does_not_say_where_the_node_mounts_the_vms_file_systems() {
    for zfs in [Zfs::Illumos, Zfs::Fuse] {
        let world = World::new(zfs).await;
        let (root, at) = (format!("zones/{VM}"), data());
        let own = format!("{root}/cores");
        world.source.programs.zfs(&format!("create {own}"));
        world.source.programs.set(&own, "mountpoint", "/opt/custom/smf");
        world.source.programs.set(&at, "mountpoint", "/data");
        assert_eq!(world.send(End::Source, 1).await.unwrap(), State::Done);
        for name in [&root, &own] {
            let place = world.target.get("mountpoint", name);
            assert_eq!(place, format!("/{name}"), "{zfs:?}: where it is mounted at the next boot");
        }
        assert_eq!(world.target.get("mountpoint", &at), "/data", "{zfs:?}: it is the zone's");
        assert_eq!(world.target.get("zoned", &at), "on");
    }
}

#[tokio::test(start_paused = true)] // M91
async fn what_comes_below_a_delegated_dataset_is_the_zones_whatever_it_says() {
    for zfs in [Zfs::Illumos, Zfs::Fuse] {
        let world = World::new(zfs).await;
        let below = format!("{}/below", data());
        world.source.programs.zfs(&format!("create {below}"));
        world.source.programs.set(&below, "zoned", "off");
        world.source.programs.set(&below, "mountpoint", "/opt/custom/smf");
        assert_eq!(world.send(End::Source, 1).await.unwrap(), State::Done);
        assert_eq!(
            world.target.get("zoned", &below),
            "on",
            "{zfs:?}: the node mounts it at its next boot"
        );
        assert_eq!(world.target.get("mounted", &below), "no", "{zfs:?}");
    }
}

#[tokio::test(start_paused = true)] // M91
async fn nothing_is_mounted_over_a_link_that_a_stream_has_brought() {
    let world = World::new(Zfs::Illumos).await;
    let (root, below) = (format!("zones/{VM}"), format!("zones/{VM}/volumes"));
    world.source.programs.zfs(&format!("create {below}"));
    let elsewhere = world.target.programs.node.path("/opt/custom/smf");
    std::fs::create_dir_all(&elsewhere).unwrap();
    // A process with the node's root makes the link where the file system is mounted.
    world.source.programs.zfs(&format!("unmount {below}"));
    let link = world.source.programs.node.path(&format!("/{below}"));
    std::fs::remove_dir_all(&link).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &link).unwrap();
    let failed = world.send(End::Source, 1).await.unwrap();
    let State::Failed { error, fatal: true } = failed else { panic!("{failed:?}") };
    assert!(error.contains("there is a link on the way"), "{error}");
    let ran = world.target.programs.ran.lock().unwrap().clone();
    assert!(!ran.iter().any(|line| line == &format!("zfs mount {below}")), "{ran:?}");
    assert_eq!(world.target.get("canmount", &below), "noauto", "nor at its next boot");
    assert_eq!(world.target.get("canmount", &root), "on");
}

#[tokio::test(start_paused = true)] // M91
async fn nothing_below_an_image_is_ever_mounted() {
    let world = World::new(Zfs::Illumos).await;
    let image = uuid::Uuid::from_u128(0x3f57_ffe8_47da_41e6_87d5_0f1c_9cb6_f0a8);
    let (dataset, below) = (format!("zones/{image}"), format!("zones/{image}/below"));
    world.source.programs.zfs(&format!("create {dataset}"));
    world.source.programs.zfs(&format!("create {below}"));
    world.source.programs.zfs(&format!("snapshot -r {dataset}@final"));
    world.done(End::Target, What::Receive { from: world.source.uuid, image: Some(image) }).await;
    let words = ["send", "-R", &format!("{dataset}@final")];
    send_as_it_likes(&world, &dataset, Some(image), Properties::new(), &words).await;
    assert_eq!(world.target.get("canmount", &below), "noauto");
    assert_eq!(world.target.get("canmount", &dataset), "on");
}

#[tokio::test(start_paused = true)] // M92
async fn every_name_that_zfs_allows_is_sent_and_its_snapshots_are_forgotten() {
    for (zfs, is_encrypted) in [(Zfs::Illumos, false), (Zfs::Fuse, false), (Zfs::Illumos, true)] {
        let world = World::new(zfs).await;
        if is_encrypted {
            world.source.programs.encrypt();
            world.target.programs.encrypt();
        }
        let at = data();
        let long = format!("x{}", "y".repeat(120));
        let names = ["a_b", "a_b/-x:y.z", "A_B", "a", "a/...", "a/.../c", &long];
        for name in names {
            world.source.programs.zfs_named(&format!("create {at}/{name}"));
        }
        world.source.programs.zfs_named(&format!("snapshot {at}/a_b@it_is:-.1"));
        assert_eq!(world.send(End::Source, 1).await.unwrap(), State::Done, "{zfs:?}");
        world.source.programs.zfs_named(&format!("create {at}/a_b/later_one"));
        world.source.programs.zfs_named(&format!("snapshot {at}/a_b/later_one@x_y"));
        world.source.programs.zfs_named(&format!("destroy -r {at}/a/.../c"));
        finish(&world, 2).await;
        let tree = |cn: &crate::world::Cn| {
            let all = cn.programs.node.datasets().unwrap();
            let rows =
                all.sorted().into_iter().filter(|row| row.name.starts_with(&format!("zones/{VM}")));
            rows.map(|row| row.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(tree(&world.source), tree(&world.target), "{zfs:?}");
        for end in [End::Source, End::Target] {
            world.done(end, What::Forget { keep: None }).await;
            let left: Vec<String> = tree(world.cn(end))
                .into_iter()
                .filter(|name| name.contains("@vm-migration-"))
                .collect();
            assert!(left.is_empty(), "{left:?}");
        }
        let seen = world.observe(End::Source).await.unwrap().node.copy.unwrap();
        assert!(seen.snapshots.is_empty() && !seen.partial);
        world.done(End::Target, What::Delete).await;
        assert!(tree(&world.target).is_empty());
    }
}

#[tokio::test(start_paused = true)] // M92
async fn a_name_without_room_for_a_snapshot_is_told() {
    let world = World::new(Zfs::Illumos).await;
    let at = format!("{}/{}", data(), "x".repeat(245 - data().len()));
    world.source.programs.zfs(&format!("create {at}"));
    let failed = world.send(End::Source, 1).await.unwrap();
    assert!(
        matches!(&failed, State::Failed { error, fatal: true } if error.contains(&at) && error.contains("240 bytes")),
        "{failed:?}"
    );
}

#[tokio::test(start_paused = true)] // M92
async fn what_is_held_is_named_and_blocks_no_end() {
    for zfs in [Zfs::Illumos, Zfs::Fuse] {
        let world = World::new(zfs).await;
        let at = data();
        assert_eq!(world.send(End::Source, 1).await.unwrap(), State::Done);
        world.source.programs.zfs(&format!("hold mine {at}@vm-migration-1"));
        assert_eq!(world.send(End::Source, 2).await.unwrap(), State::Done);
        for keep in [Some(2), None] {
            let said = world.doing(End::Source, What::Forget { keep }).await.unwrap();
            assert_eq!(said.state, State::Done, "{keep:?}");
            let is_named = said
                .warnings
                .iter()
                .any(|text| text.starts_with(&format!("{at}@vm-migration-1 is left")));
            assert_eq!(is_named, keep.is_some(), "{:?}", said.warnings);
        }
        // The service sees that it is done, and that the number is taken.
        let seen = world.observe(End::Source).await.unwrap().node.copy.unwrap();
        assert!(seen.snapshots.is_empty() && !seen.partial, "{seen:?}");
        assert!(seen.has_taken(1), "{seen:?}");
        world.done(End::Source, What::Over).await;
        let snapshots = world.source.programs.zfs("list -H -o name -t snapshot -r zones");
        assert_eq!(snapshots.matches("@vm-migration-").count(), 1, "{snapshots}");
    }
}

#[tokio::test(start_paused = true)] // M92
async fn what_cannot_be_destroyed_with_a_copy_is_named_and_left() {
    let world = World::new(Zfs::Illumos).await;
    world.done(End::Target, What::Delete).await;
    let root = format!("zones/{VM}");
    for line in [
        format!("create {root}"),
        format!("snapshot {root}@x"),
        format!("clone {root}@x zones/kept"),
    ] {
        world.target.programs.zfs(&line);
    }
    let said = world.doing(End::Target, What::Delete).await.unwrap();
    assert_eq!(said.state, State::Done, "{said:?}");
    assert!(said.warnings[0].starts_with(&format!("{root} is left: ")), "{:?}", said.warnings);
    assert!(world.observe(End::Target).await.unwrap().node.copy.is_none());
}

#[tokio::test(start_paused = true)] // M93
async fn an_encrypted_node_sends_each_dataset_by_itself_and_the_properties_apart() {
    for is_target_encrypted in [true, false] {
        let world = World::new(Zfs::Illumos).await;
        let at = data();
        world.source.programs.encrypt();
        if is_target_encrypted {
            world.target.programs.encrypt();
        }
        world.source.programs.zfs(&format!("create {at}/child"));
        world.source.programs.zfs(&format!("set recordsize=16384 {at}/child"));
        world.source.programs.set(&format!("{at}/child"), "com.example:note", "two words");
        world.source.programs.set(&at, "com.example:lines", "a\nb");
        world.source.programs.set(&at, "mountpoint", "/var/db");
        let origin = world.source.get("origin", &format!("zones/{VM}"));
        let said = sends(&world, 1).await;
        assert_eq!(said.state, State::Done, "{said:?}");
        let left = |name: &str| said.warnings.contains(&format!("{name} of {at} is not carried"));
        assert!(left("com.example:lines") && said.warnings.len() == 1, "{:?}", said.warnings);
        assert_eq!(world.target.get("mountpoint", &at), "/var/db", "the zone mounts it there");
        world.source.programs.zfs(&format!("snapshot {at}@people"));
        world.write("more", 2, 30_000);
        world.source.programs.zfs(&format!("create {at}/new"));
        assert_eq!(world.send(End::Source, 2).await.unwrap(), State::Done);
        world.source.programs.zfs(&format!("destroy {at}@people"));
        world.source.programs.zfs(&format!("destroy -r {at}/new"));
        finish(&world, 3).await;
        // But for the properties that are named, all is the same.
        assert_eq!(world.source.snapshots(), world.target.snapshots());
        assert_eq!(world.target.get("origin", &format!("zones/{VM}")), origin);
        assert_eq!(world.target.get("zoned", &at), "on");
        assert_eq!(world.target.get("mounted", &format!("{at}/child")), "no");
        assert_eq!(world.target.get("recordsize", &format!("{at}/child")), "16384");
        assert_eq!(world.target.get("com.example:note", &format!("{at}/child")), "two words");
        assert_eq!(world.target.get("quota", &format!("zones/{VM}")), (10u64 << 30).to_string());
        let root = if is_target_encrypted { "zones" } else { "-" };
        assert_eq!(world.target.get("encryptionroot", &format!("{at}/child")), root);
    }
}

#[tokio::test(start_paused = true)] // M93
async fn an_encrypted_stream_that_is_cut_goes_on_and_what_is_locked_says_so() {
    for at in [20_000, 100_000, 180_000] {
        let world = World::new(Zfs::Illumos).await;
        world.source.programs.encrypt();
        world.target.programs.encrypt();
        world.net.fails(crate::net::Fault::Cut(at));
        let failed = world.send(End::Source, 1).await.unwrap();
        assert!(matches!(failed, State::Failed { fatal: false, .. }), "{failed:?}");
        assert_eq!(world.send(End::Source, 1).await.unwrap(), State::Done, "{at}");
        world.target.programs.zfs("unload-key zones");
        world.write("later", 3, 20_000);
        let locked = world.send(End::Source, 2).await.unwrap();
        assert!(
            matches!(&locked, State::Failed { error, .. } if error.contains("key")),
            "{locked:?}"
        );
        world.target.programs.zfs("load-key zones");
        finish(&world, 3).await;
        assert_eq!(world.source.snapshots(), world.target.snapshots());
    }
}

#[tokio::test(start_paused = true)] // M93
async fn a_dataset_with_a_key_of_its_own_is_not_sent_as_plain_text() {
    let world = World::new(Zfs::Illumos).await;
    world.source.programs.encrypt();
    let own = format!("{}/secret", data());
    world.source.programs.zfs(&format!("create {own}"));
    let encrypted = |all: &mut simnode::datasets::Datasets| {
        all.encrypt(&own);
        Ok(Vec::new())
    };
    world.source.programs.node.zfs(encrypted).unwrap();
    let failed = world.send(End::Source, 1).await.unwrap();
    assert!(
        matches!(&failed, State::Failed { error, fatal: true } if error.contains(&own)),
        "{failed:?}"
    );
}

#[tokio::test(start_paused = true)] // M111
async fn a_copy_that_vmadm_does_not_delete_is_tried_three_times_and_told() {
    let world = World::new(Zfs::Illumos).await;
    // The hold of a protection that no flag of the VM shows any more.
    let root = format!("zones/{VM}");
    world.target.programs.zfs(&format!("snapshot {root}@kept"));
    world.target.programs.zfs(&format!("hold mine {root}@kept"));
    let said = world.doing(End::Target, What::Delete).await.unwrap();
    let is_told = |error: &String| error.starts_with("the copy cannot be deleted: ");
    assert!(
        matches!(&said.state, State::Failed { error, fatal: true } if is_told(error)),
        "{said:?}"
    );
    let ran = world.target.programs.ran.lock().unwrap().clone();
    assert_eq!(ran.iter().filter(|line| line.contains("vmadm delete")).count(), 3, "{ran:?}");
    world.target.programs.zfs(&format!("release mine {root}@kept"));
    world.done(End::Target, What::Delete).await;
    assert!(world.observe(End::Target).await.unwrap().node.copy.is_none());
}
