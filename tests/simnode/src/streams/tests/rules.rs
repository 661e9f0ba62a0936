// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! One rule after the other.

use super::pair::{Pair, get, received, sent, snapshots, zfs};
use crate::broken::Broken;
use crate::node::Zfs;
use crate::streams::fault::{Effect, End};

/// A VM with a child, a file in each, and a snapshot of both.
fn with_vm() -> Pair {
    let pair = Pair::new();
    for line in ["create zones/vm", "create zones/vm/data", "set a:note=x zones/vm"] {
        zfs(&pair.source, line).unwrap();
    }
    pair.source.write_file("zones/vm", "etc/passwd", b"root").unwrap();
    pair.source.write_file("zones/vm/data", "big", &[7; 100_000]).unwrap();
    zfs(&pair.source, "snapshot -r zones/vm@1").unwrap();
    pair
}

fn fails<T: std::fmt::Debug>(ended: Result<T, (u8, String)>, status: u8, text: &str) {
    let (got, said) = ended.unwrap_err();
    assert!(got == status && said.contains(text), "{got}: {said}");
}

#[test]
fn a_replicated_tree_arrives_with_numbers_contents_and_properties() {
    let pair = with_vm();
    zfs(&pair.source, "set quota=10m zones/vm/data").unwrap();
    pair.copy("-R zones/vm@1", "-u zones/vm").unwrap();
    assert_eq!(Pair::state(&pair.source, "zones/vm"), Pair::state(&pair.target, "zones/vm"));
    let properties =
        zfs(&pair.target, "get -Hp -o property,value,source quota,a:note,mounted zones/vm/data");
    assert_eq!(
        properties.unwrap(),
        "quota\t10485760\treceived\na:note\tx\tinherited from zones/vm\nmounted\tno\t-\n"
    );
    // Its files are where it is mounted.
    let file = pair.target.path("/zones/vm/etc/passwd");
    assert!(!file.exists());
    zfs(&pair.target, "mount zones/vm").unwrap();
    assert_eq!(std::fs::read(&file).unwrap(), b"root");
    zfs(&pair.target, "unmount zones/vm").unwrap();
    assert!(!file.exists());
}

#[test]
fn an_increment_needs_its_base_and_an_unchanged_destination() {
    let pair = with_vm();
    pair.copy("-R zones/vm@1", "-u zones/vm").unwrap();
    pair.source.write_file("zones/vm", "etc/group", b"staff").unwrap();
    zfs(&pair.source, "snapshot -r zones/vm@2").unwrap();
    zfs(&pair.source, "snapshot -r zones/vm@3").unwrap();
    fails(
        pair.copy("-i @2 zones/vm@3", "-u zones/vm"),
        1,
        "most recent snapshot of zones/vm does not",
    );
    zfs(&pair.target, "mount zones/vm").unwrap();
    let modified = "destination zones/vm has been modified\nsince most recent snapshot";
    fails(pair.copy("-R -I @1 zones/vm@3", "-u zones/vm"), 1, modified);
    pair.copy("-R -I @1 zones/vm@3", "-u -F zones/vm").unwrap();
    assert_eq!(snapshots(&pair.source, "zones/vm"), snapshots(&pair.target, "zones/vm"));
    // Sent once more, the snapshots are skipped.
    zfs(&pair.target, "unmount zones/vm").unwrap();
    pair.copy("-R -I @1 zones/vm@3", "-u -F zones/vm").unwrap();
    assert_eq!(snapshots(&pair.source, "zones/vm"), snapshots(&pair.target, "zones/vm"));
}

#[test]
fn a_forced_replica_destroys_what_the_source_does_not_have() {
    let pair = with_vm();
    pair.copy("-R zones/vm@1", "-u zones/vm").unwrap();
    for line in ["snapshot zones/vm@extra", "create zones/vm/extra"] {
        zfs(&pair.target, line).unwrap();
    }
    zfs(&pair.source, "snapshot -r zones/vm@2").unwrap();
    pair.copy("-R -I @1 zones/vm@2", "-u -F zones/vm").unwrap();
    assert_eq!(Pair::state(&pair.source, "zones/vm"), Pair::state(&pair.target, "zones/vm"));
}

#[test]
fn a_clone_arrives_as_a_clone_of_the_same_image() {
    let pair = Pair::new();
    let image = pair
        .source
        .datasets()
        .unwrap()
        .sorted()
        .iter()
        .find_map(|row| row.name.strip_suffix("@final").map(str::to_string));
    let image = image.unwrap();
    // Both nodes have the image with the same number.
    let guid = get(&pair.source, "guid", &format!("{image}@final"));
    assert_eq!(guid, get(&pair.target, "guid", &format!("{image}@final")));
    zfs(&pair.source, &format!("clone {image}@final zones/vm")).unwrap();
    pair.source.write_file("zones/vm", "own", b"1").unwrap();
    zfs(&pair.source, "snapshot -r zones/vm@1").unwrap();
    pair.copy("-R zones/vm@1", "-u zones/vm").unwrap();
    assert_eq!(get(&pair.target, "origin", "zones/vm"), format!("{image}@final"));
    assert_eq!(snapshots(&pair.source, "zones/vm"), snapshots(&pair.target, "zones/vm"));
    // A clone that is there already is not replaced.
    zfs(&pair.target, &format!("clone {image}@final zones/pre")).unwrap();
    fails(pair.copy("-R zones/vm@1", "-u -F zones/pre"), 1, "destination 'zones/pre' is a clone");
    // Nor is one made without its origin.
    zfs(&pair.target, "destroy -r zones/vm").unwrap();
    zfs(&pair.target, "destroy zones/pre").unwrap();
    zfs(&pair.target, &format!("destroy {image}@final")).unwrap();
    fails(
        pair.copy("-R zones/vm@1", "-u zones/vm"),
        1,
        "local origin for clone zones/vm does not exist",
    );
    fails(zfs(&pair.source, &format!("destroy {image}@final")), 1, "snapshot has dependent clones");
}

#[test]
fn the_estimate_is_the_size_of_the_stream() {
    let pair = with_vm();
    pair.source.write_file("zones/vm", "more", &[1; 50_000]).unwrap();
    zfs(&pair.source, "snapshot -r zones/vm@2").unwrap();
    for what in ["zones/vm@1", "-R zones/vm@2", "-i @1 zones/vm@2", "--replicate -I @1 zones/vm@2"]
    {
        let said = String::from_utf8(sent(&pair.source, &format!("-nP {what}")).0).unwrap();
        let size = said.lines().last().unwrap().strip_prefix("size\t").unwrap().to_string();
        assert_eq!(size, sent(&pair.source, what).0.len().to_string(), "{said}");
    }
    // A hole takes no room.
    pair.source.write_file("zones/vm", "hole", &[0; 1 << 20]).unwrap();
    zfs(&pair.source, "snapshot zones/vm@3").unwrap();
    assert!(sent(&pair.source, "-i @2 zones/vm@3").0.len() < 2000);
    assert_eq!(sent(&pair.source, "-R zones/vm@1").0, sent(&pair.source, "-R zones/vm@1").0);
}

#[test]
fn a_bookmark_stands_for_a_snapshot_that_is_gone() {
    let pair = with_vm();
    pair.copy("zones/vm@1", "-u zones/vm").unwrap();
    for line in ["bookmark zones/vm@1 zones/vm#1", "destroy zones/vm@1"] {
        zfs(&pair.source, line).unwrap();
    }
    pair.source.write_file("zones/vm", "later", b"2").unwrap();
    zfs(&pair.source, "snapshot zones/vm@2").unwrap();
    pair.copy("-i #1 zones/vm@2", "-u zones/vm").unwrap();
    assert_eq!(snapshots(&pair.source, "zones/vm")[0], snapshots(&pair.target, "zones/vm")[1]);
    fails(sent(&pair.source, "-I #1 zones/vm@2").1, 1, "bookmark");
}

#[test]
fn wrong_bases_are_refused() {
    let pair = with_vm();
    zfs(&pair.source, "snapshot -r zones/vm@2").unwrap();
    for (line, status, text) in [
        ("-i @9 zones/vm@2", 1, "incremental source (@9) does not exist"),
        ("-i zones/vm/data@1 zones/vm@2", 2, "incremental source must be in same filesystem"),
        ("-i @2 zones/vm@1", 1, "not an earlier snapshot from the same fs"),
        ("zones/vm@9", 1, "could not send zones/vm@9: does not exist"),
        ("zones/none@9", 1, "cannot open 'zones/none': dataset does not exist"),
        ("zones/vm", 2, "argument must be a snapshot"),
        ("-t 1-2-3-4", 1, "resume token is corrupt"),
    ] {
        fails(sent(&pair.source, line).1, status, text);
    }
}

#[test]
fn an_interrupted_receive_goes_on_with_its_token() {
    let pair = with_vm();
    let (whole, _) = sent(&pair.source, "zones/vm/data@1");
    let half = &whole[..whole.len() / 2];
    zfs(&pair.target, "create zones/vm").unwrap();
    fails(
        received(&pair.target, "-u -s zones/vm/data", half),
        1,
        "A resuming stream can be generated",
    );
    let token = get(&pair.target, "receive_resume_token", "zones/vm/data");
    assert!(token.starts_with("1-"), "{token}");
    assert_eq!(snapshots(&pair.target, "zones/vm/data"), []);
    fails(received(&pair.target, "-u -s -F zones/vm/data", &whole), 1, "partially-complete state");
    let (rest, _) = sent(&pair.source, &format!("-t {token}"));
    assert!(rest.len() < whole.len());
    let (told, _) = sent(&pair.source, &format!("-n -P -v -t {token}"));
    let told = String::from_utf8(told).unwrap();
    let guid = get(&pair.source, "guid", "zones/vm/data@1").parse::<u64>().unwrap();
    assert!(told.starts_with("resume token contents:\nnvlist version: 0\n"), "{told}");
    assert!(
        told.contains(&format!("\ttoguid = {guid:#x}\n\ttoname = zones/vm/data@1\n")),
        "{told}"
    );
    received(&pair.target, "-u -s zones/vm/data", &rest).unwrap();
    assert_eq!(snapshots(&pair.source, "zones/vm/data"), snapshots(&pair.target, "zones/vm/data"));
    assert_eq!(get(&pair.target, "receive_resume_token", "zones/vm/data"), "-");
    // Or it is dropped, and the dataset that it made with it.
    zfs(&pair.target, "destroy -r zones/vm/data").unwrap();
    fails(received(&pair.target, "-u -s zones/vm/data", half), 1, "incomplete stream");
    received(&pair.target, "-A zones/vm/data", &[]).unwrap();
    assert!(pair.target.datasets().unwrap().get("zones/vm/data").is_none());
    fails(received(&pair.target, "-A zones/vm", &[]), 1, "does not have any resumable");
    // Without -s nothing is left.
    fails(received(&pair.target, "-u zones/vm/data", half), 1, "invalid backup stream");
    assert!(pair.target.datasets().unwrap().get("zones/vm/data").is_none());
}

#[test]
fn a_token_ends_with_the_snapshot_it_is_for() {
    let pair = with_vm();
    let (whole, _) = sent(&pair.source, "zones/vm/data@1");
    let _ = received(&pair.target, "-u -s zones/data", &whole[..40_000]);
    let token = get(&pair.target, "receive_resume_token", "zones/data");
    zfs(&pair.source, "destroy zones/vm/data@1").unwrap();
    zfs(&pair.source, "snapshot zones/vm/data@1").unwrap();
    fails(sent(&pair.source, &format!("-t {token}")).1, 1, "no longer the same snapshot");
}

#[test]
fn a_full_destination_refuses_the_stream() {
    let pair = with_vm();
    for line in ["create zones/small", "set quota=200k zones/small"] {
        zfs(&pair.target, line).unwrap();
    }
    fails(pair.copy("zones/vm/data@1", "-u zones/small/data"), 1, "out of space");
    assert!(pair.target.datasets().unwrap().get("zones/small/data").is_none());
    zfs(&pair.target, "set quota=none zones/small").unwrap();
    pair.copy("zones/vm/data@1", "-u zones/small/data").unwrap();
    fails(zfs(&pair.target, "set quota=200k zones/small"), 1, "size is less than current used");
    pair.target.fail_stream(End::Receive, 5000, Effect::NoSpace).unwrap();
    fails(pair.copy("-R zones/vm@1", "-u zones/again"), 1, "out of space");
    // A program in the zone meets its quota too, and a snapshot is still taken.
    zfs(&pair.source, "set quota=300k zones/vm/data").unwrap();
    assert!(pair.source.write_file("zones/vm/data", "more", &[1; 100_000]).is_err());
    zfs(&pair.source, "snapshot zones/vm/data@full").unwrap();
}

#[test]
fn a_full_pool_takes_nothing_new_until_it_has_room() {
    let pair = with_vm();
    pair.target.set_broken(Broken::Pool, true).unwrap();
    fails(zfs(&pair.target, "create zones/more"), 1, "out of space");
    fails(pair.copy("zones/vm/data@1", "-u zones/data"), 1, "out of space");
    assert_eq!(get(&pair.target, "available", "zones"), "0");
    pair.target.set_broken(Broken::Pool, false).unwrap();
    pair.copy("zones/vm/data@1", "-u zones/data").unwrap();
}

#[test]
fn sizes_are_exact() {
    let pair = with_vm();
    let size = |key: &str, name: &str| get(&pair.source, key, name).parse::<u64>().unwrap();
    assert_eq!(size("referenced", "zones/vm/data"), 131_072 + 100_000);
    assert_eq!(size("written", "zones/vm/data"), 0);
    pair.source.write_file("zones/vm/data", "big", &[8; 100_000]).unwrap();
    assert_eq!(size("written", "zones/vm/data"), 100_000);
    assert_eq!(size("used", "zones/vm/data@1"), 100_000);
    assert_eq!(size("used", "zones/vm/data"), 131_072 + 200_000);
    assert_eq!(size("used", "zones/vm"), 2 * 131_072 + 200_000 + 4);
    zfs(&pair.source, "rollback zones/vm/data@1").unwrap();
    assert_eq!(size("written", "zones/vm/data"), 0);
}

#[test]
fn options_replace_what_a_stream_brings() {
    let pair = with_vm();
    for line in ["set quota=10m zones/vm", "set compression=gzip zones/vm"] {
        zfs(&pair.source, line).unwrap();
    }
    pair.copy("-R zones/vm@1", "-u -x quota -o compression=off zones/vm").unwrap();
    let own = "get -Hp -o property,value,source quota,compression,a:note zones/vm";
    let expected = "quota\t0\tdefault\ncompression\toff\tlocal\na:note\tx\treceived\n";
    assert_eq!(zfs(&pair.target, own).unwrap(), expected);
    let child = zfs(&pair.target, "get -Hp -o value,source compression zones/vm/data").unwrap();
    assert_eq!(child, "off\tinherited from zones/vm\n");
    // A local value covers a received one until it is dropped.
    zfs(&pair.target, "set a:note=y zones/vm").unwrap();
    zfs(&pair.source, "snapshot -r zones/vm@2").unwrap();
    pair.copy("-R -I @1 zones/vm@2", "-u -F zones/vm").unwrap();
    assert_eq!(get(&pair.target, "a:note", "zones/vm"), "y");
    zfs(&pair.target, "inherit -S a:note zones/vm").unwrap();
    assert_eq!(get(&pair.target, "a:note", "zones/vm"), "x");
}

#[test]
fn a_dataset_that_is_received_into_is_busy() {
    let pair = with_vm();
    pair.copy("zones/vm@1", "-u zones/vm").unwrap();
    let args: Vec<String> = ["-u", "-F", "zones/vm"].map(str::to_string).to_vec();
    pair.source.write_file("zones/vm", "f", &[1; 40_000]).unwrap();
    zfs(&pair.source, "snapshot zones/vm@2").unwrap();
    let (stream, _) = sent(&pair.source, "-i @1 zones/vm@2");
    let mut first = crate::streams::receive::receive(&pair.target, &args).unwrap().unwrap();
    first.push(&stream[..2000]).unwrap();
    fails(received(&pair.target, "-u -F zones/vm", &stream), 1, "dataset is busy");
    fails(zfs(&pair.target, "destroy -r zones/vm"), 1, "dataset is busy");
    first.push(&stream[2000..]).unwrap();
    first.finish().unwrap();
    zfs(&pair.target, "destroy -r zones/vm").unwrap();
}

#[test]
fn zfs_fuse_knows_less() {
    let mut pair = with_vm();
    pair.source.set_info(|info| info.zfs = Zfs::Fuse).unwrap();
    for line in ["-nP zones/vm@1", "-t x", "--replicate zones/vm@1"] {
        fails(sent(&pair.source, line).1, 2, "invalid option");
    }
    for line in ["-s zones/x", "-x quota zones/x", "-o quota=1g zones/x", "-A zones/x"] {
        fails(received(&pair.source, line, &[]), 2, "invalid option");
    }
    fails(
        zfs(&pair.source, "bookmark zones/vm@1 zones/vm#1"),
        2,
        "unrecognized command 'bookmark'",
    );
    fails(zfs(&pair.source, "list -p"), 2, "invalid option 'p'");
    fails(zfs(&pair.source, "get -Hp written zones/vm"), 2, "invalid property 'written'");
    assert!(zfs(&pair.source, "set a:b=1 c:d=2 zones/vm").is_err());
    assert_eq!(zfs(&pair.source, "create -V 1g zones/v").unwrap_err().0, 134);
}

#[test]
fn an_encrypted_dataset_is_sent_alone_without_properties_or_raw() {
    let pair = with_vm();
    pair.source
        .zfs(|all| {
            all.encrypt("zones");
            Ok(Vec::new())
        })
        .unwrap();
    let why = "encrypted dataset zones/vm may not be sent with properties without the raw flag";
    zfs(&pair.source, "snapshot -r zones/vm@2").unwrap();
    for what in ["-R zones/vm@1", "-p zones/vm@1", "-I @1 zones/vm@2", "-nPv -R zones/vm@1"] {
        fails(sent(&pair.source, what).1, 1, why);
    }
    pair.copy("zones/vm@1", "-u zones/vm").unwrap();
    pair.copy("-i @1 zones/vm@2", "-u zones/vm").unwrap();
    assert_eq!(get(&pair.target, "encryption", "zones/vm"), "off");
    // Raw, it keeps its key, which is not here.
    pair.copy("-R -w zones/vm@2", "-u zones/raw").unwrap();
    assert_eq!(get(&pair.target, "encryptionroot", "zones/raw"), "zones/raw");
    fails(zfs(&pair.target, "mount zones/raw"), 1, "encryption key not loaded");
    fails(zfs(&pair.target, "create zones/raw/x"), 1, "key is not loaded");
}

#[test]
fn what_is_received_below_an_encrypted_dataset_has_its_key() {
    let pair = with_vm();
    pair.target
        .zfs(|all| {
            all.encrypt("zones");
            Ok(Vec::new())
        })
        .unwrap();
    pair.copy("-R zones/vm@1", "-u -x encryption zones/vm").unwrap();
    assert_eq!(get(&pair.target, "encryptionroot", "zones/vm/data"), "zones");
    zfs(&pair.target, "unload-key zones").unwrap();
    fails(pair.copy("zones/vm@1", "-u zones/new"), 1, "inherited key must be loaded");
    fails(sent(&pair.target, "zones/vm@1").1, 1, "dataset key must be loaded");
    zfs(&pair.target, "load-key zones").unwrap();
    pair.copy("zones/vm@1", "-u zones/new").unwrap();
}

#[test]
fn a_token_is_of_no_use_without_its_snapshot() {
    let pair = with_vm();
    pair.target.fail_stream(crate::streams::fault::End::Receive, 60_000, Effect::Ends).unwrap();
    pair.copy("zones/vm/data@1", "-u -s zones/data").unwrap_err();
    let token = get(&pair.target, "receive_resume_token", "zones/data");
    zfs(&pair.source, "destroy zones/vm/data@1").unwrap();
    let why = "used in the initial send no longer exists";
    fails(sent(&pair.source, &format!("-nPv -t {token}")).1, 1, why);
    zfs(&pair.source, "snapshot zones/vm/data@1").unwrap();
    let why = "is no longer the same snapshot used in the initial send";
    fails(sent(&pair.source, &format!("-t {token}")).1, 1, why);
}
