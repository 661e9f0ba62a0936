// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The tables, and their edits by events.

use proptest::prelude::*;

use super::*;
use crate::parse::zfs_list::SnapshotListing;
use crate::parse::zfs_list::tests::{self, line};

fn row(kind: &str, name: &str, mountpoint: &str) -> Row {
    tests::row(kind, name, mountpoint, "off")
}

fn name_at(datasets: &Datasets, mountpoint: &str) -> Option<String> {
    datasets.at(mountpoint).map(|row| row.name().to_owned())
}

fn names(datasets: &Datasets, dataset: &str) -> Vec<String> {
    datasets.snapshots(dataset).map(|one| one.name.to_owned()).collect()
}

fn table(lines: &[&str]) -> SnapshotTable {
    let (mut listing, mut table) = (SnapshotListing::default(), SnapshotTable::default());
    for name in lines {
        listing.line(format!("{name}\t1500000000\t0\t5").as_bytes(), |row| table.push(row));
    }
    listing.finish().unwrap();
    table
}

#[test]
fn mountpoints() {
    let table = [
        ("volume", "zones/v-disk0", "-", "off", Some("/dev/zvol/rdsk/zones/v-disk0")),
        ("filesystem", "zones/a", "-", "off", Some("/zones/a")),
        ("filesystem", "zones/a", "legacy", "off", Some("/zones/a")),
        ("filesystem", "zones/a", "/mnt", "off", Some("/mnt")),
        ("filesystem", "zones/a", "none", "off", None),
        ("filesystem", "zones/a", "/mnt", "on", None),
        ("filesystem", "zones/a/data", "/mnt", "off", None),
        ("filesystem", "zones/a/data/x", "/mnt", "off", None),
        ("filesystem", "zones/data", "/mnt", "off", Some("/mnt")),
    ];
    for (kind, name, mountpoint, zoned, found) in table {
        let row = tests::row(kind, name, mountpoint, zoned);
        assert_eq!(row.mountpoint().as_deref(), found, "{kind} {name} {mountpoint} {zoned}");
        let unknown = Row::parse(&line(kind, name, zoned)).unwrap();
        assert!(unknown.mountpoint().is_none() || kind == "volume");
        let is_asked = kind == "filesystem" && zoned == "off" && name.split('/').nth(2).is_none();
        assert_eq!(unknown.is_mounted_outside(), is_asked, "{kind} {name} {zoned}");
    }
}

#[test]
fn the_later_of_two_datasets_at_a_mountpoint_counts_until_it_is_removed() {
    let rows = [row("filesystem", "zones/a", "/m"), row("filesystem", "zones/b", "/m")];
    let mut datasets: Datasets = rows.into_iter().collect();
    assert_eq!(name_at(&datasets, "/m").as_deref(), Some("zones/b"));
    let own = datasets.only(["zones/a", "zones/b"]);
    assert_eq!(own.at("/m").map(Row::name), Some("zones/b"));
    datasets.remove("zones/b");
    assert_eq!(name_at(&datasets, "/m").as_deref(), Some("zones/a"));
    datasets.remove("zones/a");
    assert_eq!(datasets, Datasets::default());
}

#[test]
fn events_edit_the_tables() {
    let rows = [
        row("filesystem", "zones/a", "/zones/a"),
        row("snapshot", "zones/a@one", "-"),
        row("snapshot", "zones/a@two", "-"),
        row("filesystem", "zones/a/data", "/data"),
    ];
    let listed: Datasets = rows.clone().into_iter().collect();
    let mut edited = listed.clone();
    edited.remove("zones/a@one");
    assert_eq!(names(&edited, "zones/a"), ["two"]);
    assert_eq!(names(&listed, "zones/a"), ["one", "two"], "the original is unchanged");
    edited.remove("zones/a");
    assert!(edited.get("zones/a").is_none() && edited.at("/zones/a").is_none());
    assert!(names(&edited, "zones/a").is_empty());
    assert!(edited.get("zones/a/data").is_some(), "children stay");
    edited.insert(rows);
    assert_eq!(edited, listed);
    edited.insert([row("filesystem", "zones/a", "/elsewhere")]);
    assert_eq!(name_at(&edited, "/zones/a"), None);
    assert_eq!(edited.len(), listed.len());
}

#[test]
fn a_listing_replaces_rows_and_keeps_their_order() {
    let mut datasets: Datasets = (0..5).map(|n| row("snapshot", &format!("z@{n}"), "-")).collect();
    datasets.insert(["z@3", "z@7", "z@7", "z@0"].map(|name| row("snapshot", name, "-")));
    assert_eq!(names(&datasets, "z"), ["0", "1", "2", "3", "4", "7"]);
    datasets.remove("z@1");
    datasets.remove("z@nothing");
    assert_eq!(names(&datasets, "z"), ["0", "2", "3", "4", "7"]);
    datasets.replace("z@2", vec![row("snapshot", "z@2", "-")]);
    assert_eq!(names(&datasets, "z"), ["0", "2", "3", "4", "7"], "a snapshot keeps its place");
    datasets.replace("z@2", Vec::new());
    datasets.replace("z", ["z@8", "z@0"].map(|name| row("snapshot", name, "-")).to_vec());
    assert_eq!(names(&datasets, "z"), ["8", "0"]);
}

#[test]
fn a_listing_of_the_node_keeps_equal_rows_and_snapshots() {
    let rows = ["z", "z/a", "z/b"].map(|name| row("filesystem", name, "/m"));
    let mut datasets: Datasets = rows.into_iter().collect();
    datasets.insert(["z@1", "z/b@2", "gone@3"].map(|name| row("snapshot", name, "-")));
    let before = datasets.get("z").unwrap().line().as_ptr();
    datasets.replace_rows(["z", "z/a", "z/c"].map(|name| row("filesystem", name, "/m")).to_vec());
    assert_eq!(datasets.get("z").unwrap().line().as_ptr(), before, "the old row");
    assert_eq!(name_at(&datasets, "/m").as_deref(), Some("z/c"));
    assert_eq!((names(&datasets, "z"), datasets.len()), (vec!["1".to_owned()], 4));
    datasets.replace_rows(vec![row("filesystem", "z/a", "/m")]);
    let listed: Datasets = [row("filesystem", "z/a", "/m")].into_iter().collect();
    assert_eq!(datasets, listed);
}

#[test]
fn a_listing_of_snapshots_replaces_all_but_deep_ones() {
    let rows = ["z", "z/a", "z/a/b", "z/a/gone"].map(|name| row("filesystem", name, "-"));
    let mut datasets: Datasets = rows.into_iter().collect();
    let old = ["z@1", "z/a@2", "z/a/b@3", "z/a/gone@4"].map(|name| row("snapshot", name, "-"));
    datasets.insert(old);
    datasets.remove_row("z/a/gone");
    datasets.replace_snapshots(table(&["z@5", "z@6"]));
    assert_eq!(names(&datasets, "z"), ["5", "6"]);
    assert!(names(&datasets, "z/a").is_empty() && names(&datasets, "z/a/gone").is_empty());
    assert_eq!(names(&datasets, "z/a/b"), ["3"]);
}

#[test]
fn the_datasets_of_a_vm_are_found_as_in_the_node() {
    let rows = ["z", "z/a", "z/a/data", "z/b"].map(|name| row("filesystem", name, "-"));
    let mut all: Datasets = rows.into_iter().collect();
    all.insert([row("snapshot", "z/a@1", "-"), row("snapshot", "z/b@2", "-")]);
    let own = all.only(["z/a", "z/a/data", "z/missing"]);
    assert_eq!(own.at("/z/a"), all.at("/z/a"));
    assert!(own.snapshots("z/a").map(|one| one.name).eq(["1"]) && own.0.len() == 2);
    assert!(own.at("/z/b").is_none() && own.get("z/data").is_none());
}

#[test]
fn fifty_thousand_snapshots_take_few_bytes_each() {
    const OF: usize = 50_000;
    let (mut listing, mut table) = (SnapshotListing::default(), SnapshotTable::default());
    for n in 0..OF {
        // As long as real ones.
        let name = format!("zones/f8428503-41e2-426e-b0f9-a5d849b545f6@vmsnap-daily-2026-{n:05}");
        listing
            .line(format!("{name}\t1500000000\t0\t12345678901").as_bytes(), |row| table.push(row));
    }
    let mut datasets = Datasets::default();
    datasets.replace_snapshots(table);
    let list = datasets.snapshots.values().next().unwrap();
    assert_eq!(list.len(), OF);
    assert!(list.0.len() / OF <= 64, "{} bytes each", list.0.len() / OF);
}

proptest! {
    #[test]
    fn inserting_one_by_one_gives_the_listing(
        picks in proptest::collection::vec((0..4usize, 0..3usize, 0..3usize), 0..20),
    ) {
        let rows: Vec<Row> = picks.iter().map(|(name, kind, mountpoint)| match kind {
            0 => row("snapshot", &format!("zones/{name}@{mountpoint}"), "-"),
            1 => row("volume", &format!("zones/v{name}"), "-"),
            _ => row("filesystem", &format!("zones/f{name}"), &format!("/m{mountpoint}")),
        }).collect();
        let listed: Datasets = rows.clone().into_iter().collect();
        let mut edited = Datasets::default();
        for row in rows {
            edited.insert([row]);
        }
        prop_assert_eq!(edited, listed);
    }
}
