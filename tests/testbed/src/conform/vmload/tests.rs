// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.
//! The runner on the node kept in the repository, whole and spoiled.

use std::path::{Path, PathBuf};

use super::*;

fn kept() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vminfod/tests/fixtures/cn-basic")
}

fn copy() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let node = dir.path().join("cn-copy");
    simnode::files::copy_tree(&kept(), &node).unwrap();
    (dir, node)
}

#[test]
fn a_node_alone_and_a_folder_of_nodes_pass() {
    let alone = compare_nodes(&kept(), true).unwrap();
    assert_eq!(alone, Tally { passed: 12, ..Tally::default() });
    assert_eq!(compare_nodes(kept().parent().unwrap(), true).unwrap(), alone);
}

#[test]
fn a_broken_zone_fails_its_own_case_only() {
    let (_dir, node) = copy();
    let zone = node.join("root/etc/zones/0adc6bed-1fee-488e-a965-77c628213e20.xml");
    std::fs::write(zone, "<zone").unwrap();
    let tally = compare_nodes(&node, true).unwrap();
    assert_eq!((tally.passed, tally.failures.len()), (11, 1));
    assert!(tally.failures[0].contains("cn-copy 0adc6bed"), "{:?}", tally.failures);
}

#[test]
fn an_error_node_wants_the_others_and_the_name_of_the_bad_one() {
    let (_dir, node) = copy();
    let uuid = "0adc6bed-1fee-488e-a965-77c628213e20";
    let want = objects(&node.join("expected/vms.json")).unwrap();
    let others: Value = want.into_iter().filter(|(u, _)| u != uuid).map(|(_, vm)| vm).collect();
    std::fs::remove_file(node.join("expected/vms.json")).unwrap();
    std::fs::write(node.join("expected/vms-without-broken.json"), others.to_string()).unwrap();
    std::fs::write(node.join("expected/error.json"), format!(r#"{{"broken":["{uuid}"]}}"#))
        .unwrap();
    assert_eq!(compare_nodes(&node, true).unwrap().failures.len(), 1, "the zone is still good");
    std::fs::remove_file(node.join(format!("root/etc/zones/{uuid}.xml"))).unwrap();
    std::fs::write(node.join("mtimes.json"), "{}").unwrap();
    let tally = compare_nodes(&node, false).unwrap();
    assert!(
        tally.failures.iter().all(|f| f.contains("last_modified")),
        "times were not set: {:?}",
        tally.failures
    );
}

#[test]
fn a_node_that_fails_as_a_whole_wants_an_error() {
    let (_dir, node) = copy();
    std::fs::remove_file(node.join("expected/vms.json")).unwrap();
    std::fs::write(node.join("expected/error.json"), r#"{"why":"zfs fails"}"#).unwrap();
    assert_eq!(compare_nodes(&node, true).unwrap().failures.len(), 1);
    std::fs::write(node.join("cmd/zfs-list.exit"), "1\n").unwrap();
    assert_eq!(compare_nodes(&node, true).unwrap(), Tally { passed: 1, ..Tally::default() });
}

#[test]
fn what_cannot_be_read_is_neither_pass_nor_fail() {
    let dir = tempfile::tempdir().unwrap();
    assert!(compare_nodes(dir.path(), false).is_err());
    assert!(compare_nodes(&dir.path().join("none"), false).is_err());
    let (_dir, node) = copy();
    std::fs::remove_dir_all(node.join("expected")).unwrap();
    assert!(compare_nodes(&node, false).unwrap().failures[0].contains("neither"));
}
