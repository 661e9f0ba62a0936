// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The events of a node: all of them, in order, to every follower, in the words of the real ones.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::{Value, json};
use simnode::state::ZoneState;
use simnode::{CreateOptions, Node};
use tempfile::TempDir;

use super::{TESTBED, fails, new_node, ok, run, stopped, vm};

/// The states of a zone that boots, and of one that is halted.
const BOOT: &str = "initialized ready ready running";
const HALT: &str = "shutting_down shutting_down shutting_down shutting_down uninitialized free";

/// A running `sysevent`; killed when dropped.
struct Follower {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Follower {
    fn start(node: &Node, args: &[&str]) -> Follower {
        let mut child = Command::new(node.tool("sysevent"))
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(ready["type"], "ready");
        Follower { child, lines }
    }

    fn zones(node: &Node) -> Follower {
        Follower::start(node, &["-rj", "-c", "com.sun:zones:status"])
    }

    fn zfs(node: &Node) -> Follower {
        Follower::start(node, &["-rj", "EC_zfs", "ESC_ZFS_history_event"])
    }

    fn line(&mut self) -> String {
        self.lines.next().unwrap().unwrap()
    }

    fn event(&mut self) -> Value {
        serde_json::from_str(&self.line()).unwrap()
    }

    /// The states that the next events name.
    fn states(&mut self, n: usize) -> String {
        let mut state = || self.event()["data"]["newstate"].as_str().unwrap().to_owned();
        (0..n).map(|_| state()).collect::<Vec<_>>().join(" ")
    }
}

impl Follower {
    /// What the next events of zfs say was done.
    fn actions(&mut self, n: usize) -> Vec<String> {
        let mut action = || self.event()["data"]["history_internal_name"].clone();
        (0..n).map(|_| action().as_str().unwrap().to_owned()).collect()
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn two_hundred_boots_by_several_processes_arrive_in_order() {
    let (_dir, node) = new_node(40);
    let mut follower = Follower::zones(&node);
    let vms = stopped(&node);
    assert!(vms.len() >= 10, "{} stopped VMs", vms.len());
    let vms = &vms[..10];
    const ROUNDS: usize = 20;
    std::thread::scope(|scope| {
        for lane in vms.chunks(3) {
            let node = &node;
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    for uuid in lane {
                        ok(run(node.tool("zoneadm"), &["-z", uuid, "boot"]));
                        ok(run(node.tool("zoneadm"), &["-z", uuid, "halt"]));
                    }
                }
            });
        }
        let one = format!("{BOOT} {HALT}");
        let one: Vec<&str> = one.split(' ').collect();
        let mut seen: HashMap<String, usize> = HashMap::new();
        let mut last_when = 0;
        for _ in 0..ROUNDS * vms.len() * one.len() {
            let event = follower.event();
            let data = &event["data"];
            let at = seen.entry(data["zonename"].as_str().unwrap().to_string()).or_default();
            assert_eq!(data["newstate"], one[*at % one.len()]);
            *at += 1;
            let when = data["when"].as_u64().unwrap();
            assert!(when >= last_when, "events overtook each other");
            last_when = when;
        }
        assert!(seen.values().all(|n| *n == ROUNDS * one.len()));
    });
    assert!(vms.iter().all(|uuid| stopped(&node).contains(uuid)));
}

#[test]
fn a_killed_follower_blocks_nobody_and_is_forgotten() {
    let (_dir, node) = new_node(12);
    let mut dead = Follower::zones(&node);
    let mut alive = Follower::zones(&node);
    dead.child.kill().unwrap();
    dead.child.wait().unwrap();
    let uuid = stopped(&node)[0].clone();
    ok(run(node.tool("zoneadm"), &["-z", &uuid, "boot"]));
    assert_eq!(alive.states(4), BOOT);
    assert_eq!(simnode::sysevent::followers(&node.run_dir()).len(), 1);
}

#[test]
fn a_stopped_follower_costs_the_node_little() {
    let (_dir, node) = new_node(12);
    let frozen = Follower::zones(&node);
    let mut alive = Follower::zones(&node);
    ok(run("/bin/kill", &["-STOP", &frozen.child.id().to_string()]));
    let uuid = stopped(&node)[0].clone();
    for _ in 0..20 {
        ok(run(node.tool("zoneadm"), &["-z", &uuid, "boot"]));
        ok(run(node.tool("zoneadm"), &["-z", &uuid, "halt"]));
    }
    assert_eq!(alive.states(200).split(' ').count(), 200);
}

#[test]
fn events_can_be_lost_on_purpose() {
    let (_dir, node) = new_node(12);
    let mut follower = Follower::zones(&node);
    let uuid = stopped(&node)[0].clone();
    ok(vm(&node, &["--lose-events", "boot", &uuid]));
    node.announce(&simnode::sysevent::Sysevent::zone_ping()).unwrap();
    let event = follower.event();
    assert_eq!((&event["subclass"], event.get("data")), (&json!("ping"), None));
    assert_eq!(node.zone(&uuid).unwrap().state, ZoneState::Running);
}

#[test]
fn lines_have_the_real_form() {
    let (_dir, node) = new_node(12);
    let (mut zones, mut zfs) = (Follower::zones(&node), Follower::zfs(&node));
    let uuid = stopped(&node)[0].clone();
    ok(vm(&node, &["boot", &uuid]));
    let line = zones.line();
    let keys = [
        "{\"date\":\"",
        "\"type\":\"event\",\"vendor\":\"sun.com\",\"publisher\":\"kernel\",\"class\":\"status\",\
        \"subclass\":\"change\",\"pid\":0,\"data\":{\"zonename\":\"",
        "\"newstate\":\"initialized\",\"oldstate\":\"uninitialized\",\
        \"zoneid\":",
        "\"when\":",
    ];
    let mut rest = line.as_str();
    for key in keys {
        rest = rest.split_once(key).unwrap_or_else(|| panic!("{line} lacks {key}")).1;
    }
    assert!(line.ends_with("},\"channel\":\"com.sun:zones:status\"}"), "{line}");
    ok(vm(&node, &["set-quota", &uuid, "7"]));
    let event = zfs.event();
    let keys: Vec<&String> = event.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["date", "type", "vendor", "publisher", "class", "subclass", "pid", "data"]);
    assert_eq!(event["data"]["history_dsname"], format!("zones/{uuid}"));
    let detail = event["data"]["history_internal_str"].as_str().unwrap();
    assert!(detail.ends_with("quota=7516192768"), "{detail}");
    let names: Vec<&str> = event["data"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(
        names.join(" "),
        "pool_name pool_guid history_hostname history_dsname history_internal_str \
         history_internal_name history_dsid history_txg history_time"
    );
    // Not the other stream's event, and nothing for a class that never comes.
    fails_usage(&node);
}

fn fails_usage(node: &Node) {
    for args in [&["-x"][..], &["-rj", "-c"], &["-r", "EC_zfs"]] {
        assert_eq!(run(node.tool("sysevent"), args).status.code(), Some(1), "{args:?}");
    }
}

#[test]
fn create_and_delete_announce_what_smartos_announces() {
    let (_dir, node) = new_node(1);
    let (mut zones, mut zfs) = (Follower::zones(&node), Follower::zfs(&node));
    let uuid = ok(vm(&node, &["create", "--brand", "joyent", "--seed", "5"])).trim().to_string();
    // The second one is of the delegated dataset.
    let created = format!("configured incomplete installed configured {BOOT} configured");
    assert_eq!(zones.states(9), created);
    assert_eq!(zfs.actions(5), ["clone", "set", "create", "set", "create"]);
    let xml = std::fs::read_to_string(node.zone_xml(&uuid)).unwrap();
    assert!(xml.contains("autoboot=\"true\"") && !xml.contains("provisioning"), "{xml}");
    ok(vm(&node, &["delete", &uuid]));
    assert_eq!(zones.states(9), format!("{HALT} incomplete configured "));
    assert_eq!(zfs.actions(3), ["destroy", "destroy", "destroy"]);
    let index = std::fs::read_to_string(node.path("/etc/zones/index")).unwrap();
    assert!(!index.contains(&uuid));
    assert!(!node.zone_xml(&uuid).exists() && !node.path(&format!("/zones/{uuid}")).exists());
    let gone = fails(run(node.tool("zoneadm"), &["-z", &uuid, "-u", &uuid, "list", "-p"]), 1);
    assert!(gone.trim_end().ends_with("No such zone configured"), "{gone}");
}

#[test]
fn a_long_directory_still_has_events() {
    let dir = TempDir::new().unwrap();
    let deep = dir.path().join("x".repeat(60)).join("y".repeat(60));
    std::fs::create_dir_all(&deep).unwrap();
    let options =
        CreateOptions { program: Some(TESTBED.into()), ..CreateOptions::new(deep.join("cn")) };
    let node = Node::create(&options).unwrap();
    let mut follower = Follower::zones(&node);
    ok(run(node.tool("zoneadm"), &["-z", &stopped(&node)[0], "boot"]));
    assert_eq!(follower.states(4), BOOT);
}
