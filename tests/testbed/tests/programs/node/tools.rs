// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The tools and verbs of a node on the command line: they answer as the real ones do, and bad
//! input gets one line.

use simnode::Node;
use simnode::state::ZoneState;

use simnode::recorded::LIST_ALL;

use super::platform::kstats;
use super::{TESTBED, fails, new_node, ok, run, stopped, vm};

#[test]
fn two_processes_that_change_the_pool_lose_nothing() {
    let (_dir, node) = new_node(2);
    let names = ["left", "right"];
    std::thread::scope(|scope| {
        for name in names {
            let node = &node;
            scope.spawn(move || {
                for n in 0..30 {
                    ok(run(node.tool("zfs"), &["create", &format!("zones/{name}{n}")]));
                }
            });
        }
    });
    let listed = ok(run(node.tool("zfs"), &["list", "-H", "-o", "name"]));
    for name in names {
        for n in 0..30 {
            assert!(listed.lines().any(|l| l == format!("zones/{name}{n}")));
            assert!(node.path(&format!("/zones/{name}{n}")).is_dir());
        }
    }
}

#[test]
fn the_same_seed_makes_the_same_node() {
    let files = |node: &Node| {
        let list = ok(run(node.tool("zoneadm"), &["list", "-p", "-c"]));
        let zfs = ok(run(node.tool("zfs"), &LIST_ALL));
        let kstat = kstats(&ok(run(node.tool("kstat"), &[])));
        let xml: Vec<String> = node
            .zones()
            .unwrap()
            .iter()
            .map(|z| std::fs::read_to_string(node.zone_xml(&z.zonename)).unwrap())
            .collect();
        (list, zfs, kstat, xml, node.info().cn_uuid.clone())
    };
    let ((_a, one), (_b, two)) = (new_node(14), new_node(14));
    assert_eq!(files(&one), files(&two));
}

#[test]
fn zfs_answers_as_zfs_does() {
    let (_dir, node) = new_node(3);
    let zfs = |args: &[&str]| run(node.tool("zfs"), args);
    let list =
        |args: &[&str]| ok(run(node.tool("zfs"), &[&["list", "-H", "-o", "name"], args].concat()));
    ok(zfs(&["create", "zones/a"]));
    ok(zfs(&["create", "-V", "1G", "zones/a/v"]));
    ok(zfs(&["snapshot", "-r", "zones/a@s"]));
    assert_eq!(list(&["-t", "all", "-d", "1", "zones/a"]), "zones/a\nzones/a@s\nzones/a/v\n");
    assert_eq!(
        list(&["-t", "all", "-r", "zones/a"]),
        "zones/a\nzones/a@s\nzones/a/v\nzones/a/v@s\n"
    );
    let row = ok(zfs(&[&LIST_ALL[..8], &["1", "zones/a/v"]].concat()));
    assert!(row.lines().all(|l| l.split('\t').count() == 17), "{row}");
    assert!(row.contains("\t1073741824\t"), "{row}");
    let depth_two = ok(zfs(&["list", "-H", "-p", "-t", "all", "-o", "name", "-d", "2"]));
    assert!(depth_two.contains("zones/a@s\n") && !depth_two.contains("zones/a/v@s"));
    fails(zfs(&["destroy", "zones/a"]), 1);
    ok(zfs(&["set", "com.example:note=x", "zones/a"]));
    ok(zfs(&["inherit", "com.example:note", "zones/a"]));
    ok(zfs(&["rename", "zones/a", "zones/b"]));
    assert_eq!(list(&["-t", "all", "-d", "1", "zones/b"]), "zones/b\nzones/b@s\nzones/b/v\n");
    assert_eq!(ok(zfs(&["list", "-H", "-o", "mountpoint", "zones/b"])), "/zones/b\n");
    assert!(node.path("/zones/b").is_dir() && !node.path("/zones/a").exists());
    ok(zfs(&["rename", "zones/b", "zones/a"]));
    ok(zfs(&["destroy", "-r", "zones/a"]));
    let gone = fails(zfs(&["list", "-H", "-d", "1", "zones/a"]), 1);
    assert_eq!(gone, "cannot open 'zones/a': dataset does not exist\n");
    for bad in [
        &["set", "quota=many", "zones"][..],
        &["set", "nonsense=1", "zones"],
        &["create", "zones/no/parent"],
        &["create", "zones/../../x"],
        &["create", "zones/a\tb"],
        &["rollback", "zones@none"],
        &["rename", "zones/none", "zones/x"],
        &["rename", "zones", "zones/x"],
    ] {
        fails(zfs(bad), 1);
    }
}

#[test]
fn a_dataset_that_a_running_zone_uses_is_busy() {
    let (_dir, node) = new_node(4);
    let zones = node.zones().unwrap();
    let running = zones.iter().find(|zone| zone.state == ZoneState::Running).unwrap();
    let (dataset, away) = (&running.zonepath[1..], "zones/away");
    let data = format!("{dataset}/data");
    ok(run(node.tool("zfs"), &["set", "zoned=on", &data]));
    let delegated = fails(run(node.tool("zfs"), &["rename", dataset, away]), 1);
    let whose = "child dataset with inherited mountpoint is used in a non-global zone";
    assert_eq!(delegated, format!("cannot rename '{dataset}': {whose}\n"));
    ok(run(node.tool("zfs"), &["set", "zoned=off", &data]));
    let busy = fails(run(node.tool("zfs"), &["rename", dataset, away]), 1);
    assert_eq!(busy, format!("cannot unmount '{}': Device busy\n", running.zonepath));
    ok(run(node.tool("zoneadm"), &["-z", &running.zonename, "halt"]));
    ok(run(node.tool("zfs"), &["rename", dataset, away]));
    assert!(node.path("/zones/away/config").is_dir());
}

#[test]
fn zoneadm_knows_the_zones_that_the_index_names_and_those_that_run() {
    let (_dir, node) = new_node(8);
    let stopped = stopped(&node).remove(0);
    let zoneadm = |args: &[&str]| run(node.tool("zoneadm"), args);
    let before = ok(zoneadm(&["list", "-pc"]));
    assert!(before.contains(&stopped));
    let index = node.path("/etc/zones/index");
    let whole = std::fs::read_to_string(&index).unwrap();
    std::fs::write(&index, "global:installed:/\nnonsense\n").unwrap();
    let after = ok(zoneadm(&["list", "-pc"]));
    let running: String =
        before.lines().filter(|row| !row.starts_with('-')).map(|row| format!("{row}\n")).collect();
    assert_eq!(after, running);
    for verb in ["boot", "list"] {
        let gone = fails(zoneadm(&["-z", &stopped, verb]), 1);
        assert_eq!(gone, format!("zoneadm: {stopped}: No such zone configured\n"));
    }
    std::fs::write(&index, whole).unwrap();
    assert_eq!(ok(zoneadm(&["list", "-pc"])), before);
}

#[test]
fn wrong_input_is_one_line_and_no_panic() {
    let (dir, node) = new_node(2);
    let running = node.zones().unwrap().iter().next().unwrap().uuid.clone();
    for args in [
        &["boot", "nobody"][..],
        &["boot", &running],
        &["delete", "../../etc"],
        &["rollback", &running, "none"],
        &["update", &running, "ram=lots"],
        &["create", "--file", "/nonexistent"],
    ] {
        fails(vm(&node, args), 1);
    }
    for args in [
        &["frobnicate", "x"][..],
        &["set-quota", &running, "much"],
        &["set-quota", &running, "18446744073709551615"],
        &["snapshot", &running, "a/b@c"],
        &["update", &running, "novalue"],
        &["create", "--brand", "vax"],
        &["--wait", "perhaps", "boot", "x"],
    ] {
        fails(vm(&node, args), 2);
    }
    fails(run(TESTBED, &["vm", "--cn", dir.path().to_str().unwrap(), "list"]), 1);
    fails(run(TESTBED, &["cn", "show", "/nonexistent"]), 1);
    fails(run(TESTBED, &["cn", "create", node.dir().to_str().unwrap()]), 1);
    // A damaged node says which file, too.
    std::fs::write(node.state_dir().join("zones.json"), "{").unwrap();
    assert!(fails(run(node.tool("zoneadm"), &["list", "-p", "-c"]), 1).contains("zones.json"));
    std::fs::write(node.state_dir().join("zfs.json"), "1\t2\n").unwrap();
    assert!(fails(run(node.tool("zfs"), &["list"]), 1).contains("line 1"));
}

#[test] // P1, P3
fn vmadm_validate_speaks_on_stderr_and_changes_nothing() {
    let (dir, node) = new_node(1);
    let file = dir.path().join("payload.json");
    let path = file.to_str().unwrap();
    let validate = |payload: &str, args: &[&str]| {
        std::fs::write(&file, payload).unwrap();
        let output = vm(&node, &[&["validate"], args].concat());
        assert_eq!(output.stdout, b"");
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let kvm = r#"{"brand": "kvm", "ram": 512, "state": "running", "vcpus": 0}"#;
    let lists = "{\n  \"bad_values\": [\n    \"vcpus\"\n  ],\n  \"bad_properties\": [\n    \"state\"\n  ],\n  \
                 \"missing_properties\": []\n}\n";
    assert_eq!(validate(kvm, &["create", "-f", path]), (1, lists.to_owned()));
    let good = (0, "VALID 'create' payload for kvm brand VMs.\n".to_owned());
    assert_eq!(validate(r#"{"brand": "kvm", "ram": 512}"#, &["create", "-f", path]), good);
    let good = (0, "VALID 'update' payload for lx brand VMs.\n".to_owned());
    assert_eq!(validate(r#"{"ram": 512}"#, &["update", "lx", "-f", path]), good);
    let (status, usage) = validate("{}", &["update", "-f", path]);
    assert_eq!((status, usage.starts_with("usage: ")), (2, true), "{usage}");
    let none = (1, "{\n  \"bad_brand\": \"undefined\"\n}\n".to_owned());
    assert_eq!(validate("{}", &["create", "-f", path]), none);
    let (status, why) = validate("{", &["create", "-f", path]);
    assert_eq!((status, why.starts_with("Invalid JSON payload: ")), (1, true), "{why}");
    let gone = (1, "File: /nonexistent does not exist.\n".to_owned());
    assert_eq!(validate("{}", &["create", "-f", "/nonexistent"]), gone);
    assert_eq!(node.zones().unwrap().iter().count(), 1);
}

#[test]
fn nobody_waits_for_a_vminfod_that_is_down() {
    let (_dir, mut node) = new_node(12);
    let nobody = rig::port::Port::local().unwrap();
    node.set_info(|info| info.vminfod_url = Some(nobody.url())).unwrap();
    let uuid = stopped(&node)[0].clone();
    ok(vm(&node, &["boot", &uuid]));
    ok(vm(&node, &["--wait", "false", "halt", &uuid]));
    assert_eq!(node.zone(&uuid).unwrap().state, ZoneState::Installed);
}
