// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The operations on a small pool.

use super::*;

fn pool() -> Datasets {
    let mut all = Datasets::default();
    all.create("zones").unwrap();
    all.create("zones/a").unwrap();
    all.set("zones/a", "quota", "10g").unwrap();
    all.create_volume("zones/a/v", 1 << 30).unwrap();
    all.snapshot("zones/a@one", true).unwrap();
    all.snapshot("zones/a@two", false).unwrap();
    all
}

fn names(all: &Datasets) -> Vec<&str> {
    all.sorted().into_iter().map(|d| d.name.as_str()).collect()
}

fn actions(history: &[History]) -> Vec<(&str, &str)> {
    history.iter().map(|h| (h.action, h.dsname.as_str())).collect()
}

#[test]
fn the_stored_table_reads_back() {
    let mut all = pool();
    all.set("zones/a", "com.example:note", "two words").unwrap();
    let again: Datasets = serde_json::from_value(serde_json::json!(all)).unwrap();
    assert_eq!(again, all);
    assert_eq!(again.get("zones/a").unwrap().get("com.example:note"), "two words");
    assert_eq!(again.get("zones/a").unwrap().get("quota"), "10737418240");
}

#[test]
fn snapshots_of_one_command_are_of_one_moment_or_not_made() {
    let mut all = pool();
    all.snapshot("zones/a@three", true).unwrap();
    let txg = |name: &str| all.get(name).unwrap().txg;
    assert_eq!(txg("zones/a@three"), txg("zones/a/v@three"));
    assert!(txg("zones/a@two") < txg("zones/a@three"));
    let names = ["zones/a@four".to_string(), "zones/a/v@three".to_string()];
    assert!(all.clone().snapshot_at_once(&names, false).is_err());
}

#[test]
fn a_recursive_destroy_records_every_dataset_children_first() {
    let mut all = pool();
    assert_eq!(
        names(&all),
        ["zones", "zones/a", "zones/a@one", "zones/a@two", "zones/a/v", "zones/a/v@one"]
    );
    assert!(all.destroy("zones/a", false).is_err());
    let history = all.destroy("zones/a", true).unwrap();
    let gone: Vec<&str> = history.iter().map(|h| h.dsname.as_str()).collect();
    assert_eq!(gone, ["zones/a/v@one", "zones/a@two", "zones/a@one", "zones/a/v", "zones/a"]);
    assert_eq!(names(&all), ["zones"]);
}

#[test]
fn a_rollback_destroys_what_is_newer_and_swaps() {
    let mut all = pool();
    assert!(all.rollback("zones/a@one", false).is_err());
    let history = all.rollback("zones/a@one", true).unwrap();
    assert_eq!(
        actions(&history),
        [
            ("destroy", "zones/a@two"),
            ("destroy", "zones/a/%rollback"),
            ("clone swap", "zones/a/%rollback")
        ]
    );
}
