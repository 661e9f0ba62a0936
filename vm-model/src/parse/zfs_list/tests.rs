// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Listings by hand.

use proptest::prelude::*;

use super::*;

/// Returns a line with these columns and plausible others.
pub(crate) fn line(kind: &str, name: &str, zoned: &str) -> String {
    format!(
        "lz4\t1500000000\t0\t{name}\t1\t2\t3\t4\t18446744073709551615\t{kind}\t-\t7\t8\t9\t10\t{zoned}"
    )
}

/// Returns a row with these columns and plausible others.
pub(crate) fn row(kind: &str, name: &str, mountpoint: &str, zoned: &str) -> Row {
    Row::parse(&line(kind, name, zoned)).unwrap().mounted_at(mountpoint)
}

#[test]
fn a_row_has_sixteen_columns_and_a_mountpoint_apart() {
    let row = Row::parse(&line("filesystem", "zones/a", "off")).unwrap();
    assert_eq!(row.text(Column::Compression), "lz4");
    assert_eq!(row.number(Column::Creation), Some(1_500_000_000.0));
    assert_eq!(row.number(Column::SnapshotLimit), Some(18_446_744_073_709_551_615.0));
    assert_eq!(row.number(Column::Usedbysnapshots), None, "a dash is no number");
    assert_eq!((row.text(Column::Zoned), row.mounted()), ("off", None));
    for text in ["/mnt", "", "/a\tb\n\tc"] {
        let known = row.mounted_at("/other").mounted_at(text);
        assert_eq!((known.mounted(), known.text(Column::Zoned)), (Some(text), "off"));
        assert_eq!(known.columns().last(), Some(("mountpoint", text)));
        assert_eq!(known.columns().count(), COUNT + 1);
    }
    let good = line("volume", "a", "off");
    assert!(Row::parse(&format!("  {good} \r")).is_some());
    for bad in ["", "a\tb", &format!("{good}\tx"), good.rsplit_once('\t').unwrap().0] {
        assert!(Row::parse(bad).is_none(), "{bad:?}");
    }
    assert_eq!(COLUMNS.split(',').count(), COUNT);
    assert_eq!(COLUMNS.split(',').nth(Column::Name as usize), Some("name"));
}

/// Returns the names in a listing of snapshots.
fn snapshots(lines: &[&[u8]]) -> Result<Vec<String>, ParseError> {
    let (mut listing, mut names) = (SnapshotListing::default(), Vec::new());
    lines.iter().for_each(|line| listing.line(line, |row| names.push(row.name.to_owned())));
    listing.finish().map(|()| names)
}

#[test]
fn a_bad_snapshot_name_fails_the_listing() {
    let text = [line("snapshot", "a@b", "-"), line("snapshot", "a@b@c", "-")].join("\n");
    let error = parse(text.as_bytes()).unwrap_err();
    assert_eq!(error.to_string(), "zfs: line 2: expected DATASET@SNAPSHOT, found \"a@b@c\"");
    assert_eq!(parse(b"no rows\nhere").unwrap(), []);
    for bad in ["a@b@c\t1\t0\t5", "a\t1\t0\t5"] {
        let error = snapshots(&[b"a@b\t1\t0\t5", bad.as_bytes()]).unwrap_err().to_string();
        assert!(error.starts_with("zfs: line 2: expected DATASET@SNAPSHOT"), "{error}");
    }
}

#[test]
fn a_listing_of_snapshots_has_four_columns() {
    let lines: [&[u8]; 4] = [b"z@a\t1\t0\t5", b"", b"z@b\t2\t-\t6", b"z@c\t2\t-"];
    assert_eq!(snapshots(&lines).unwrap(), ["a", "b"]);
    assert!(snapshots(&[b"z@\xe9\t1\t0\t5"]).is_err());
}

#[test]
fn bytes_that_are_no_utf8_are_of_no_listing() {
    let text = line("filesystem", "zones/a", "off");
    let at = text.find("zones/a").unwrap();
    let damaged = [&text.as_bytes()[..at], b"zones/\xe9", &text.as_bytes()[at + 7..]].concat();
    let error = parse(&damaged).unwrap_err().to_string();
    assert!(error.starts_with("zfs: line 1: expected UTF-8"), "{error}");
}

proptest! {
    #[test]
    fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = parse(&bytes);
        let _ = snapshots(&bytes.split(|byte| *byte == b'\n').collect::<Vec<_>>());
    }

    #[test]
    fn a_row_keeps_its_line(columns in proptest::collection::vec("[a/\u{1}-\u{8}\u{e9}-]{1,3}|lz4|volume", COUNT)) {
        let line = columns.join("\t");
        prop_assume!(line.trim() == line);
        let row = Row::parse(&line).unwrap();
        prop_assert_eq!(row.line(), &line);
        prop_assert_eq!(row.name(), &columns[Column::Name as usize]);
    }
}
