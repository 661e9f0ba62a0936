// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The simulated compute node, seen from outside: its executables as real processes.

#![allow(clippy::unwrap_used)] // a failed step is a failed test
#![allow(clippy::disallowed_methods)] // these tests are about processes: they start and kill them

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::Arc;

use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::node::state::ZoneState;
use testbed::node::{CreateOptions, Node, Verbs, Wait};
use vminfod::commands::{CommandPaths, RealCommands};
use vminfod::load::Ctx;
use vminfod::root::Root;

const TESTBED: &str = env!("CARGO_BIN_EXE_testbed");
const COLUMNS: &str = "compression,creation,filesystem_limit,mountpoint,name,quota,recsize,refquota,refreservation,\
    snapshot_limit,type,usedbysnapshots,userrefs,volblocksize,volsize,written,zoned";

fn new_node(vms: u32) -> (TempDir, Node) {
    let dir = TempDir::new().unwrap();
    let options = CreateOptions {
        vms,
        program: Some(TESTBED.into()),
        ..CreateOptions::new(dir.path().join("cn"))
    };
    let node = Node::create(&options).unwrap();
    (dir, node)
}

fn run(program: impl AsRef<Path>, args: &[&str]) -> Output {
    Command::new(program.as_ref()).args(args).stdin(Stdio::null()).output().unwrap()
}

fn ok(output: Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{:?}: {stderr}", output.status);
    assert_eq!(stderr, "");
    String::from_utf8(output.stdout).unwrap()
}

fn fails(output: Output, status: i32) -> String {
    assert_eq!(output.status.code(), Some(status));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(stderr.trim_end().lines().count(), 1, "one line: {stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
    stderr
}

fn vm(node: &Node, args: &[&str]) -> Output {
    let dir = node.dir().to_str().unwrap();
    run(TESTBED, &[&["vm", "--cn", dir], args].concat())
}

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
    fn states(&mut self, n: usize) -> Vec<String> {
        (0..n).map(|_| self.event()["data"]["newstate"].as_str().unwrap().to_string()).collect()
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn stopped(node: &Node) -> Vec<String> {
    let zones = node.zones().unwrap();
    zones.iter().filter(|z| z.state == ZoneState::Installed).map(|z| z.uuid.clone()).collect()
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
        const ONE: [&str; 10] = [
            "initialized",
            "ready",
            "ready",
            "running",
            "shutting_down",
            "shutting_down",
            "shutting_down",
            "shutting_down",
            "uninitialized",
            "free",
        ];
        let mut seen: HashMap<String, usize> = HashMap::new();
        let mut last_when = 0;
        for _ in 0..ROUNDS * vms.len() * ONE.len() {
            let event = follower.event();
            let data = &event["data"];
            let at = seen.entry(data["zonename"].as_str().unwrap().to_string()).or_default();
            assert_eq!(data["newstate"], ONE[*at % ONE.len()]);
            *at += 1;
            let when = data["when"].as_u64().unwrap();
            assert!(when >= last_when, "events overtook each other");
            last_when = when;
        }
        assert!(seen.values().all(|n| *n == ROUNDS * ONE.len()));
    });
    assert!(vms.iter().all(|uuid| stopped(&node).contains(uuid)));
}

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
fn a_killed_follower_blocks_nobody_and_is_forgotten() {
    let (_dir, node) = new_node(12);
    let mut dead = Follower::zones(&node);
    let mut alive = Follower::zones(&node);
    dead.child.kill().unwrap();
    dead.child.wait().unwrap();
    let uuid = stopped(&node)[0].clone();
    ok(run(node.tool("zoneadm"), &["-z", &uuid, "boot"]));
    assert_eq!(alive.states(4), ["initialized", "ready", "ready", "running"]);
    assert_eq!(testbed::node::sysevent::followers(&node.run_dir()).len(), 1);
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
    assert_eq!(alive.states(200).len(), 200);
}

#[test]
fn events_can_be_lost_on_purpose() {
    let (_dir, node) = new_node(12);
    let mut follower = Follower::zones(&node);
    let uuid = stopped(&node)[0].clone();
    ok(vm(&node, &["--lose-events", "boot", &uuid]));
    node.announce(&testbed::node::sysevent::Sysevent::zone_ping()).unwrap();
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
    let names: Vec<&String> = event["data"].as_object().unwrap().keys().collect();
    assert_eq!(
        names,
        [
            "pool_name",
            "pool_guid",
            "history_hostname",
            "history_dsname",
            "history_internal_str",
            "history_internal_name",
            "history_dsid",
            "history_txg",
            "history_time",
        ]
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
    assert_eq!(
        zones.states(8),
        [
            "configured",
            "incomplete",
            "installed",
            "initialized",
            "ready",
            "ready",
            "running",
            "configured",
        ]
    );
    let actions: Vec<Value> =
        (0..5).map(|_| zfs.event()["data"]["history_internal_name"].clone()).collect();
    assert_eq!(actions, ["clone", "set", "create", "set", "create"]);
    let xml = std::fs::read_to_string(node.zone_xml(&uuid)).unwrap();
    assert!(xml.contains("autoboot=\"true\"") && !xml.contains("provisioning"), "{xml}");
    ok(vm(&node, &["delete", &uuid]));
    assert_eq!(
        zones.states(9),
        [
            "shutting_down",
            "shutting_down",
            "shutting_down",
            "shutting_down",
            "uninitialized",
            "free",
            "incomplete",
            "configured",
            "",
        ]
    );
    let actions: Vec<Value> =
        (0..3).map(|_| zfs.event()["data"]["history_internal_name"].clone()).collect();
    assert_eq!(actions, ["destroy", "destroy", "destroy"]);
    let index = std::fs::read_to_string(node.path("/etc/zones/index")).unwrap();
    assert!(!index.contains(&uuid));
    assert!(!node.zone_xml(&uuid).exists() && !node.path(&format!("/zones/{uuid}")).exists());
    let gone = fails(run(node.tool("zoneadm"), &["-z", &uuid, "-u", &uuid, "list", "-p"]), 1);
    assert!(gone.trim_end().ends_with("No such zone configured"), "{gone}");
}

fn ctx(node: &Node) -> Ctx {
    let paths = CommandPaths {
        zoneadm: node.tool("zoneadm"),
        zfs: node.tool("zfs"),
        kstat: node.tool("kstat"),
        sysevent: node.tool("sysevent"),
    };
    Ctx::new(Root::new(node.root()), Arc::new(RealCommands::new(paths)))
}

async fn load(node: &Node) -> HashMap<String, Value> {
    let loaded = vminfod::load::node(&ctx(node)).await.unwrap();
    assert!(loaded.broken.is_empty(), "{:?}", loaded.broken);
    loaded
        .vms
        .into_iter()
        .map(|vm| (vm["uuid"].as_str().unwrap().to_string(), Value::Object(vm)))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_vm_of_a_created_node_composes() {
    let (_dir, node) = new_node(24);
    let vms = load(&node).await;
    assert_eq!(vms.len(), 24);
    let mut macs = std::collections::HashSet::new();
    for vm in vms.values() {
        assert_eq!(vm["server_uuid"], node.cn_uuid());
        assert!(
            vm["zfs_filesystem"].is_string()
                && vm["owner_uuid"].is_string()
                && vm["tags"].is_object(),
            "{vm}"
        );
        assert!(vm["quota"].as_u64().unwrap() > 0);
        let running = vm["zone_state"] == "running";
        assert_eq!(running, vm["state"] == "running");
        assert_eq!(running, vm["pid"].is_number());
        assert_eq!(running, vm.get("exit_status").is_none());
        for nic in vm["nics"].as_array().unwrap() {
            assert!(macs.insert(nic["mac"].as_str().unwrap().to_string()), "a MAC twice");
            assert!(nic["network_uuid"].is_string());
        }
        for disk in vm.get("disks").and_then(Value::as_array).into_iter().flatten() {
            assert!(disk.get("missing").is_none() && disk["size"].as_u64().unwrap() > 0, "{disk}");
        }
    }
    for brand in ["joyent", "joyent-minimal", "lx", "kvm", "bhyve", "builder"] {
        assert!(vms.values().any(|vm| vm["brand"] == brand), "no {brand}");
    }
    assert!(vms.values().any(|vm| vm["docker"] == true));
    assert!(vms.values().any(|vm| vm["state"] == "stopped"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_verbs_do_is_what_the_loader_finds() {
    let (_dir, node) = new_node(12);
    let verbs = Verbs::new(&node, Wait::none());
    for brand in ["joyent", "docker", "kvm", "bhyve"] {
        let sample = testbed::node::sample::fresh(brand, Some(77)).unwrap();
        let mut sample = sample.clone();
        sample.insert("uuid".into(), json!(uuid::Uuid::new_v4().to_string()));
        let uuid = verbs.create(&sample).await.unwrap();
        let vm = load(&node).await.remove(&uuid).unwrap();
        assert_eq!((&vm["state"], &vm["autoboot"]), (&json!("running"), &json!(true)), "{brand}");
        for key in [
            "alias",
            "owner_uuid",
            "quota",
            "max_physical_memory",
            "resolvers",
            "tags",
            "routes",
            "internal_metadata",
        ] {
            assert_eq!(vm[key], sample[key], "{brand} {key}");
        }
        for (nic, wanted) in
            vm["nics"].as_array().unwrap().iter().zip(sample["nics"].as_array().unwrap())
        {
            for (key, value) in wanted.as_object().unwrap() {
                assert_eq!(&nic[key], value, "{brand} {key}");
            }
        }
        verbs.halt(&uuid, 256).await.unwrap();
        let mac = verbs
            .add_nic(&uuid, json!({"ip": "10.1.1.9", "nic_tag": "admin"}).as_object().unwrap())
            .await
            .unwrap();
        verbs.snapshot(&uuid, "before").await.unwrap();
        let changes = json!({"alias": "ünder \"<&>\"", "quota": 3, "set_tags": {"k": [1]}, "remove_tags": ["role"], "cpu_cap": 50});
        verbs.update(&uuid, changes.as_object().unwrap()).await.unwrap();
        verbs.hide(&uuid, true).await.unwrap();
        let vm = load(&node).await.remove(&uuid).unwrap();
        assert_eq!(
            (&vm["state"], &vm["exit_status"], &vm["autoboot"]),
            (&json!("stopped"), &json!(1), &json!(false))
        );
        assert_eq!(
            (&vm["alias"], &vm["quota"], &vm["cpu_cap"]),
            (&json!("ünder \"<&>\""), &json!(3), &json!(50))
        );
        assert_eq!((&vm["tags"]["k"], vm["tags"].get("role")), (&json!([1]), None));
        assert_eq!(
            (&vm["do_not_inventory"], &vm["snapshots"][0]["name"]),
            (&json!(true), &json!("before"))
        );
        assert_eq!(vm["nics"].as_array().unwrap().last().unwrap()["mac"], mac);
        verbs.rollback(&uuid, "before").await.unwrap();
        verbs.remove_nic(&uuid, &mac.to_uppercase()).await.unwrap();
        verbs.hide(&uuid, false).await.unwrap();
        verbs.boot(&uuid).await.unwrap();
        verbs.reboot(&uuid).await.unwrap();
        let vm = load(&node).await.remove(&uuid).unwrap();
        assert_eq!(
            (&vm["tags"], vm.get("do_not_inventory")),
            (&sample["tags"], None),
            "files came back"
        );
        assert_eq!(vm["nics"].as_array().unwrap().len(), sample["nics"].as_array().unwrap().len());
        verbs.delete_raw(&uuid).await.unwrap();
        assert!(!load(&node).await.contains_key(&uuid));
    }
    let left = node.datasets().unwrap();
    assert!(left.sorted().iter().all(|d| !d.name.contains("@vmsnap-")));
}

#[test]
fn the_same_seed_makes_the_same_node() {
    let files = |node: &Node| {
        let list = ok(run(node.tool("zoneadm"), &["list", "-p", "-c"]));
        let zfs =
            ok(run(node.tool("zfs"), &["list", "-H", "-p", "-t", "all", "-o", COLUMNS, "-d", "2"]));
        let kstat = ok(run(node.tool("kstat"), &[]));
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
    ok(zfs(&["create", "-o", "quota=10g", "zones/a"]));
    ok(zfs(&["create", "-V", "1G", "zones/a/v"]));
    ok(zfs(&["snapshot", "-r", "zones/a@s"]));
    assert_eq!(list(&["-t", "all", "-d", "1", "zones/a"]), "zones/a\nzones/a@s\nzones/a/v\n");
    assert_eq!(
        list(&["-t", "all", "-r", "zones/a"]),
        "zones/a\nzones/a@s\nzones/a/v\nzones/a/v@s\n"
    );
    let row = ok(zfs(&[
        "list",
        "-H",
        "-p",
        "-t",
        "filesystem,snapshot,volume",
        "-o",
        COLUMNS,
        "-d",
        "1",
        "zones/a/v",
    ]));
    assert!(row.lines().all(|l| l.split('\t').count() == 17), "{row}");
    assert!(row.contains("\t1073741824\t"), "{row}");
    let depth_two = ok(zfs(&["list", "-H", "-p", "-t", "all", "-o", "name", "-d", "2"]));
    assert!(depth_two.contains("zones/a@s\n") && !depth_two.contains("zones/a/v@s"));
    ok(zfs(&["hold", "tag", "zones/a@s"]));
    fails(zfs(&["destroy", "-r", "zones/a"]), 1);
    ok(zfs(&["release", "tag", "zones/a@s"]));
    fails(zfs(&["destroy", "zones/a"]), 1);
    ok(zfs(&["rename", "zones/a", "zones/b"]));
    assert!(node.path("/zones/b").is_dir() && !node.path("/zones/a").exists());
    ok(zfs(&["set", "compression=gzip", "zones/b"]));
    ok(zfs(&["inherit", "compression", "zones/b"]));
    ok(zfs(&["destroy", "-r", "zones/b"]));
    let gone = fails(zfs(&["list", "-H", "-d", "1", "zones/b"]), 1);
    assert_eq!(gone, "cannot open 'zones/b': dataset does not exist\n");
    for bad in [
        &["set", "quota=many", "zones"][..],
        &["set", "nonsense=1", "zones"],
        &["create", "zones/no/parent"],
        &["create", "zones/../../x"],
        &["rollback", "zones@none"],
        &["rename", "zones/opt", "zones/opt/below"],
    ] {
        fails(zfs(bad), 1);
    }
}

#[test]
fn wrong_input_is_one_line_and_no_panic() {
    let (dir, node) = new_node(2);
    let running = node.zones().unwrap().iter().next().unwrap().uuid.clone();
    for args in [
        &["boot", "nobody"][..],
        &["boot", &running],
        &["delete", "../../etc"],
        &["remove-nic", &running, "90:b8:d0:00:00:00"],
        &["rollback", &running, "none"],
        &["create", "--file", "/nonexistent"],
    ] {
        fails(vm(&node, args), 1);
    }
    for args in [
        &["frobnicate", "x"][..],
        &["set-quota", &running, "much"],
        &["set-quota", &running, "18446744073709551615"],
        &["remove-nic", &running, "zz"],
        &["snapshot", &running, "a/b@c"],
        &["update", &running, "ram=lots"],
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
    std::fs::write(node.state_dir().join("zfs.tsv"), "1\t2\n").unwrap();
    assert!(fails(run(node.tool("zfs"), &["list"]), 1).contains("line 1"));
}

#[test]
fn nobody_waits_for_a_vminfod_that_is_down() {
    let (_dir, mut node) = new_node(12);
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    node.set_info(|info| info.vminfod_url = Some(url)).unwrap();
    let uuid = stopped(&node)[0].clone();
    ok(vm(&node, &["boot", &uuid]));
    ok(vm(&node, &["--wait", "false", "halt", &uuid]));
    assert_eq!(node.zone(&uuid).unwrap().state, ZoneState::Installed);
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
    assert_eq!(follower.states(4), ["initialized", "ready", "ready", "running"]);
}
