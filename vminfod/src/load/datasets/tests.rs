// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.
//! Listings by hand, and the edits that events make.

use proptest::prelude::*;

use super::*;
use crate::commands::Tool;
use crate::load::scripted;

/// A line with these columns and plausible others.
pub(super) fn line(kind: &str, name: &str, mountpoint: &str, zoned: &str) -> String {
    format!(
        "lz4\t1500000000\t0\t{mountpoint}\t{name}\t1\t2\t3\t4\t18446744073709551615\t{kind}\t-\t7\t8\t9\t10\t{zoned}"
    )
}

fn row(kind: &str, name: &str, mountpoint: &str) -> Row {
    Row::parse(&line(kind, name, mountpoint, "off")).unwrap()
}

fn name_at(datasets: &Datasets, mountpoint: &str) -> Option<String> {
    datasets.at(mountpoint).map(|row| row.name().to_owned())
}

fn names(datasets: &Datasets, dataset: &str) -> Vec<String> {
    datasets.snapshots(dataset).map(|one| one.name.to_owned()).collect()
}

#[test]
fn a_row_has_seventeen_columns() {
    let row = row("filesystem", "zones/a", "/zones/a");
    assert_eq!(row.text(Column::Compression), "lz4");
    assert_eq!(row.number(Column::Creation), Some(1_500_000_000.0));
    assert_eq!(row.number(Column::SnapshotLimit), Some(18_446_744_073_709_551_615.0));
    assert_eq!(row.number(Column::Usedbysnapshots), None, "a lone dash is no number");
    assert_eq!(row.text(Column::Zoned), "off");
    let good = line("volume", "a", "-", "off");
    assert!(Row::parse(&format!("  {good} \r")).is_some());
    for bad in ["", "a\tb", &format!("{good}\tx"), good.rsplit_once('\t').unwrap().0] {
        assert!(Row::parse(bad).is_none(), "{bad:?}");
    }
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
        let row = Row::parse(&line(kind, name, mountpoint, zoned)).unwrap();
        assert_eq!(row.mountpoint().as_deref(), found, "{kind} {name} {mountpoint} {zoned}");
    }
}

#[test]
fn the_later_of_two_at_one_mountpoint_counts_until_it_goes() {
    let rows = [row("filesystem", "zones/a", "/m"), row("filesystem", "zones/b", "/m")];
    let mut datasets: Datasets = rows.into_iter().collect();
    assert_eq!(name_at(&datasets, "/m").as_deref(), Some("zones/b"));
    datasets.expire("zones/b");
    assert_eq!(name_at(&datasets, "/m").as_deref(), Some("zones/a"));
    datasets.expire("zones/a");
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
    edited.expire("zones/a@one");
    assert_eq!(names(&edited, "zones/a"), ["two"]);
    assert_eq!(names(&listed, "zones/a"), ["one", "two"], "a clone is its own");
    edited.expire("zones/a");
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
fn a_bad_snapshot_name_condemns_the_listing_and_is_named() {
    let text = [line("snapshot", "a@b", "-", "-"), line("snapshot", "a@b@c", "-", "-")].join("\n");
    let error = parse(text.as_bytes()).unwrap_err();
    assert_eq!(error.to_string(), "zfs: line 2: expected DATASET@SNAPSHOT, found \"a@b@c\"");
    assert_eq!(parse(b"no rows\nhere").unwrap(), []);
}

#[test]
fn the_command_is_the_deployed_one() {
    let args = arguments(&["2"]);
    assert_eq!(args[..5], ["list", "-H", "-p", "-t", "filesystem,snapshot,volume"]);
    assert_eq!(args[6].split(',').count(), COUNT);
    assert_eq!(args[6].split(',').nth(Column::Name as usize), Some("name"));
    assert_eq!(args[7..], ["-d", "2"]);
}

proptest! {
    #[test]
    fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = parse(&bytes);
    }

    #[test]
    fn inserting_one_by_one_gives_the_listing(picks in proptest::collection::vec((0..4usize, 0..3usize, 0..3usize), 0..20)) {
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

#[tokio::test]
async fn half_a_listing_of_a_failed_command_is_an_error() {
    let good = line("filesystem", "zones/a", "/zones/a", "off");
    let (_dir, ctx) = scripted::node(
        Tool::Zfs,
        &format!("echo '{good}'; echo 'pool I/O is suspended' >&2; exit 1"),
    );
    let error = node(&ctx).await.unwrap_err().to_string();
    assert!(error.contains("pool I/O is suspended"), "{error}");
    assert!(one(&ctx, "zones/a").await.is_err());
    let (_dir, ctx) = scripted::node(Tool::Zfs, &format!("echo '{good}'"));
    assert_eq!(node(&ctx).await.unwrap().len(), 1);
    assert_eq!(one(&ctx, "zones/a").await.unwrap().len(), 1);
}

#[test]
fn fifty_thousand_snapshots_take_few_bytes_each() {
    const OF: u32 = 50_000;
    let mut builder = Builder::default();
    let mut text = 0;
    for n in 0..OF {
        // As long as real ones: a date in the name, eleven digits of size.
        let name = format!("zones/f8428503-41e2-426e-b0f9-a5d849b545f6@vmsnap-daily-2026-{n:05}");
        let line = line("snapshot", &name, "-", "-");
        text += line.len();
        builder.line(line.as_bytes());
    }
    let datasets = builder.finish().unwrap();
    let dataset = "zones/f8428503-41e2-426e-b0f9-a5d849b545f6";
    assert_eq!(datasets.snapshots(dataset).count(), OF as usize);
    let each = datasets.bytes() / OF as usize;
    println!("{each} bytes are kept of each snapshot, {} were printed", text / OF as usize);
    assert!(each <= 64, "{each} bytes each");
}

#[test]
fn a_listing_replaces_what_is_there_and_keeps_the_order() {
    let mut datasets: Datasets = (0..5).map(|n| row("snapshot", &format!("z@{n}"), "-")).collect();
    datasets.insert(["z@3", "z@7", "z@7", "z@0"].map(|name| row("snapshot", name, "-")));
    assert_eq!(names(&datasets, "z"), ["0", "1", "2", "3", "4", "7"]);
    datasets.expire("z@1");
    datasets.expire("z@nothing");
    assert_eq!(names(&datasets, "z"), ["0", "2", "3", "4", "7"]);
    let mut fresh = Datasets::default();
    fresh.keep_snapshots(&datasets, "z");
    assert_eq!((names(&fresh, "z"), fresh.len()), (names(&datasets, "z"), 5));
}

#[test]
fn only_a_mountpoint_may_be_no_utf8() {
    let with = |from: &str, to: &[u8]| {
        let text = line("filesystem", "zones/a", "/mnt/here", "off");
        let at = text.find(from).unwrap();
        [&text.as_bytes()[..at], to, &text.as_bytes()[at + from.len()..]].concat()
    };
    assert_eq!(parse(&with("here", b"caf\xe9")).unwrap().len(), 1);
    let error = parse(&with("zones/a", b"zones/\xe9")).unwrap_err().to_string();
    assert!(error.starts_with("zfs: line 1: expected UTF-8"), "{error}");
}

#[tokio::test]
async fn a_listing_that_is_cut_or_empty_is_an_error() {
    let good = line("filesystem", "zones/a", "/zones/a", "off");
    let (_dir, ctx) = scripted::node(Tool::Zfs, &format!("echo '{good}'; printf 'lz4\\t15000'"));
    for error in [node(&ctx).await.unwrap_err(), one(&ctx, "zones/a").await.unwrap_err()] {
        assert!(error.to_string().starts_with("zfs: expected the end of a line"), "{error}");
    }
    let (_dir, ctx) = scripted::node(Tool::Zfs, ":");
    let error = one(&ctx, "zones/a").await.unwrap_err().to_string();
    assert_eq!(error, "zfs: expected zones/a at least, found nothing");
}
