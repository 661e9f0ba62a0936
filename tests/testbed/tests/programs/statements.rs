// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Statements 26 and 98–107 of vminfod's contract: real vminfod, real files and signals of a
//! simulated node, and a client that is as strict as the deployed ones.

mod smf;

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value, json};
use simnode::{Verbs, Wait};
use tempfile::TempDir;
use testbed::client::tools::{fetch, vmadm_get, vminfo_status};
use testbed::client::{EventStream, Mirror, Options, Thrown, ZoneEvents};
use testbed::lab::{World, WorldOptions};
use tokio::time::Instant;
use vminfod::cli::supply::{FromDaemon, FromNode, Supplier};
use vminfod::cli::vmadm;
use vminfod::node::Ctx;
use vminfod::node::commands::{CommandPaths, RealCommands};
use vminfod::node::root::Root;

/// What VM.js waits with.
const MINUTE: Duration = Duration::from_secs(60);

fn program() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_testbed"))
}

async fn world() -> (TempDir, World) {
    let dir = tempfile::tempdir().unwrap();
    let options =
        WorldOptions { speed: 1, vms: 12, ..WorldOptions::new(dir.path().join("cn"), program()) };
    let mut world = World::create(options).await.unwrap();
    world.start_vminfod().await.unwrap();
    (dir, world)
}

async fn follow(world: &World) -> EventStream {
    EventStream::open(&world.vminfod_url(), Options::named("vmadm")).await.unwrap()
}

/// Verbs that wait for nobody, as the strict client does the waiting.
fn verbs(world: &World) -> Verbs {
    Verbs::new(world.node(), Wait::none())
}

async fn vms(world: &World) -> Vec<Value> {
    let list = fetch(&world.vminfod_url(), "/vms").await.unwrap();
    list.as_array().unwrap().clone()
}

async fn one_in(world: &World, state: &str) -> Value {
    let with_nic = |vm: &Value| vm["nics"].as_array().is_some_and(|nics| !nics.is_empty());
    let all = vms(world).await;
    all.into_iter().find(|vm| vm["state"] == state && with_nic(vm)).unwrap()
}

fn uuid_of(vm: &Value) -> &str {
    vm["uuid"].as_str().unwrap()
}

fn map(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        other => panic!("{other} is no object"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s026_the_status_tool_prints_with_and_without_listeners() {
    let (_dir, world) = world().await;
    let url = world.vminfod_url();
    for path in ["/status", "/status?full=true"] {
        let text = vminfo_status(&fetch(&url, path).await.unwrap()).unwrap();
        assert!(text.starts_with("state: running (working)\npid: "), "{text}");
        assert!(text.contains("eventsListeners: (0 listeners)"), "{text}");
    }
    let _named = follow(&world).await;
    // One that does not say who it is makes the tool throw on the deployed daemon.
    let _silent = EventStream::open(&url, Options::named("")).await.unwrap();
    for path in ["/status", "/status?full=true"] {
        let text = vminfo_status(&fetch(&url, path).await.unwrap()).unwrap();
        assert!(text.contains("eventsListeners: (2 listeners)\n  - vmadm - cn/"), "{text}");
        assert_eq!(text.contains("fswatcher\n  running: true\n"), path.len() > 8, "{text}");
    }
    world.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn s098_s099_s007_a_create_meets_every_wait_of_vmadm() {
    let (_dir, world) = world().await;
    let uuid = "9a3c1c5e-57a5-4b1c-8f0e-2b6c5d4e3f21";
    let payload = map(json!({"uuid": uuid, "brand": "joyent-minimal", "alias": "new", "quota": 5,
        "tags": {"a": 1}, "customer_metadata": {"k": "v"}}));
    assert!(matches!(vmadm_get(&world.vminfod_url(), uuid).await, Err(Thrown::Message(_))));
    let mut stream = follow(&world).await;
    let verbs = Verbs::new(world.node(), Wait::at(&world.vminfod_url()).unwrap());
    let creating = tokio::spawn(async move { verbs.create(&payload).await });
    let create = json!({"type": "create", "uuid": uuid});
    let event = stream.watch_for_event(&create, MINUTE).await.unwrap();
    assert_eq!(event["vm"]["uuid"], uuid);
    let installed = json!({"uuid": uuid, "vm": {"zone_state": "installed", "zpool": "zones",
        "zfs_filesystem": format!("zones/{uuid}"), "zonepath": format!("/zones/{uuid}")}});
    stream.watch_for_event(&installed, MINUTE).await.unwrap();
    let files = json!({"uuid": uuid, "vm": {"tags": {"a": 1}, "customer_metadata": {"k": "v"}}});
    stream.watch_for_event(&files, MINUTE).await.unwrap();
    let running = json!([{"path": ["state"], "newValue": "running"}]);
    let of_vm = json!({"uuid": uuid});
    let marker = json!([{"path": ["provisioning"], "action": "removed"}]);
    stream.watch_for_changes(&of_vm, &running, MINUTE).await.unwrap();
    stream.watch_for_changes(&of_vm, &marker, MINUTE).await.unwrap();
    creating.await.unwrap().unwrap();
    assert_eq!(vmadm_get(&world.vminfod_url(), uuid).await.unwrap()["alias"], "new");
    world.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn s100_alternatives_are_met_by_whichever_comes() {
    let (_dir, world) = world().await;
    let vm = one_in(&world, "stopped").await;
    let wanted = json!([[{"path": ["state"], "newValue": "running"}, {"path": ["state"], "newValue": "stopped"}]]);
    let pattern = json!({"uuid": uuid_of(&vm)});
    let mut stream = follow(&world).await;
    verbs(&world).boot(uuid_of(&vm)).await.unwrap();
    stream.watch_for_changes(&pattern, &wanted, MINUTE).await.unwrap();
    // The same VM is stopped as `vmadm stop` sees it: state and both exits as single records.
    let mut stream = follow(&world).await;
    verbs(&world).halt(uuid_of(&vm), 256).await.unwrap();
    let stopped = json!([{"path": ["state"], "newValue": "stopped"},
        {"path": ["exit_status"], "action": "added"}, {"path": ["exit_timestamp"], "action": "added"}]);
    stream.watch_for_changes(&pattern, &stopped, MINUTE).await.unwrap();
    world.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn s101_an_edited_nic_is_found_by_its_mac() {
    let (_dir, world) = world().await;
    let vm = one_in(&world, "running").await;
    let mac = vm["nics"][0]["mac"].as_str().unwrap();
    let mut stream = follow(&world).await;
    let change = map(json!({"mac": mac, "ip": "192.0.2.77"}));
    verbs(&world).update_nic(uuid_of(&vm), &change).await.unwrap();
    let wanted = json!([{"path": ["nics", null, "ip"], "ident": mac, "newValue": "192.0.2.77"}]);
    stream.watch_for_changes(&json!({"uuid": uuid_of(&vm)}), &wanted, MINUTE).await.unwrap();
    // A whole-array record would leave vmadm waiting for ever: the client knows the difference.
    let mut stream = follow(&world).await;
    let added =
        verbs(&world).add_nic(uuid_of(&vm), &map(json!({"ip": "192.0.2.78"}))).await.unwrap();
    let wanted = json!([{"path": ["nics", null], "action": "added", "newValue": {"mac": added}}]);
    stream.watch_for_changes(&json!({"uuid": uuid_of(&vm)}), &wanted, MINUTE).await.unwrap();
    world.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn s102_a_snapshot_comes_and_goes_as_one_element() {
    let (_dir, world) = world().await;
    let vm = one_in(&world, "running").await;
    let pattern = json!({"uuid": uuid_of(&vm)});
    let mut stream = follow(&world).await;
    verbs(&world).snapshot(uuid_of(&vm), "before").await.unwrap();
    let wanted =
        json!([{"path": ["snapshots", null], "action": "added", "newValue": {"name": "before"}}]);
    stream.watch_for_changes(&pattern, &wanted, MINUTE).await.unwrap();
    verbs(&world).delete_snapshot(uuid_of(&vm), "before").await.unwrap();
    let wanted =
        json!([{"path": ["snapshots", null], "action": "removed", "oldValue": {"name": "before"}}]);
    stream.watch_for_changes(&pattern, &wanted, MINUTE).await.unwrap();
    world.stop().await.unwrap();
}

/// The node read without any daemon, as before the switch to vminfod.
fn directly(world: &World) -> FromNode {
    let tool = |name: &str| world.node().tool(name);
    let commands = CommandPaths {
        zoneadm: tool("zoneadm"),
        zfs: tool("zfs"),
        kstat: tool("kstat"),
        sysevent: tool("sysevent"),
        fswatcher: tool("fswatcher"),
    };
    let commands = std::sync::Arc::new(RealCommands::new(commands));
    FromNode::new(Ctx::new(Root::new(world.node().root()), commands))
}

async fn printed(words: &str, supplier: &dyn Supplier) -> String {
    let args: Vec<String> = words.split(' ').map(str::to_owned).collect();
    let result = match vmadm::plan(&args) {
        Ok(plan) => vmadm::run(plan, supplier).await,
        Err(failure) => Err(failure),
    };
    let printed = vmadm::Printed::of(result, "/usr/sbin/vmadm");
    format!("{}\n{}\n{}", printed.code, printed.stdout, printed.stderr)
}

#[tokio::test(flavor = "multi_thread")]
async fn s103_s104_vmadm_prints_the_same_with_vminfod_as_before_it() {
    let (_dir, world) = world().await;
    let daemon = FromDaemon::new(&world.vminfod_url(), "vmadm").unwrap();
    let node = directly(&world);
    let unknown = "9a3c1c5e-57a5-4b1c-8f0e-2b6c5d4e3f21";
    let missing = printed(&format!("get {unknown}"), &daemon).await;
    assert_eq!(missing, format!("1\n\nzoneadm: {unknown}: No such zone configured\n"));
    let thrown = vmadm_get(&world.vminfod_url(), unknown).await.unwrap_err();
    assert!(missing.contains(&thrown.to_string()), "{thrown}");
    // After some changes the cache still prints what a fresh reading prints.
    let vm = one_in(&world, "running").await;
    let waiting = Verbs::new(world.node(), Wait::at(&world.vminfod_url()).unwrap());
    waiting.set_quota(uuid_of(&vm), 33).await.unwrap();
    waiting.snapshot(uuid_of(&vm), "s104").await.unwrap();
    let one = format!("get {}", uuid_of(&vm));
    for words in [
        "list",
        "list -p -o uuid,type,ram,quota,state,alias -s -quota,alias",
        "list -H state=running",
        "lookup state=running",
        "lookup -j -o uuid,zoneid,pid,snapshots",
        "lookup -j",
        "lookup -1 quota=33",
        "get none",
        one.as_str(),
    ] {
        assert_eq!(printed(words, &daemon).await, printed(words, &node).await, "vmadm {words}");
    }
    world.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn s105_vmadm_events_prints_a_ready_object_by_zonename() {
    let (_dir, world) = world().await;
    let options = Options { parse_ready: true, ..Options::named("vmadm events") };
    let stream = EventStream::open(&world.vminfod_url(), options).await.unwrap();
    let by_name = map(stream.ready["vms"].clone());
    let all = vms(&world).await;
    assert_eq!(by_name.len(), all.len());
    assert!(all.iter().all(|vm| by_name[vm["zonename"].as_str().unwrap()] == *vm));
    // Ours prints the same line.
    let raw = follow(&world).await.ready;
    let plan = vmadm::plan(&["events".to_owned(), "-rj".to_owned()]);
    let Ok(vmadm::Plan::Events(plan)) = plan else { panic!("no plan for events") };
    let line = vmadm::printer(&plan).line(raw.to_string().as_bytes()).unwrap();
    let ready: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&ready["type"], &ready["vms"]), (&json!("ready"), &Value::Object(by_name)));
    world.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn s106_scar_clients_see_the_daemon_die_and_agents_are_back_in_seconds() {
    let (_dir, mut world) = world().await;
    let options = Options { parse_ready: true, ..Options::named("vm-agent") };
    let mut stream = EventStream::open(&world.vminfod_url(), options.clone()).await.unwrap();
    let before = Mirror::of(&stream.ready).unwrap();
    let (boots, goes) = (one_in(&world, "stopped").await, one_in(&world, "running").await);
    world.end_vminfod(true).await.unwrap();
    let end = tokio::time::timeout(MINUTE, stream.event()).await.unwrap();
    assert!(matches!(end, Err(Thrown::Ended)), "{end:?}");

    verbs(&world).boot(uuid_of(&boots)).await.unwrap();
    verbs(&world).delete_raw(uuid_of(&goes)).await.unwrap();
    world.start_vminfod().await.unwrap();
    let began = Instant::now();
    let stream = EventStream::again(&world.vminfod_url(), &options, MINUTE).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let (created, changed, deleted) = before.against(&Mirror::of(&stream.ready).unwrap());
    assert_eq!(created, [""; 0]);
    assert_eq!(changed, [uuid_of(&boots)]);
    assert_eq!(deleted, [uuid_of(&goes)]);

    // An orderly end looks the same to them.
    let mut stream = stream;
    world.end_vminfod(false).await.unwrap();
    let end = tokio::time::timeout(MINUTE, stream.event()).await.unwrap();
    assert!(matches!(end, Err(Thrown::Ended)), "{end:?}");
    world.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn s107_sixty_listeners_follow_a_lifetime_without_a_warning() {
    let (dir, world) = world().await;
    let vm = one_in(&world, "running").await;
    let uuid = uuid_of(&vm).to_owned();
    let mut followers = Vec::new();
    for n in 0..60 {
        let options = Options { parse_ready: true, ..Options::named(&format!("listener-{n}")) };
        let mut stream = EventStream::open(&world.vminfod_url(), options).await.unwrap();
        let uuid = uuid.clone();
        followers.push(tokio::spawn(async move {
            let mut mirror = Mirror::of(&stream.ready)?;
            let mut states = Vec::new();
            loop {
                let event = stream.event().await?;
                mirror.take(&event)?;
                states.extend(ZoneEvents.take(&event)?);
                if event["type"] == "delete" && event["uuid"] == uuid {
                    return Ok::<_, Thrown>((mirror, states));
                }
            }
        }));
    }
    let verbs = Verbs::new(world.node(), Wait::at(&world.vminfod_url()).unwrap());
    verbs.reboot(&uuid).await.unwrap();
    verbs.delete(&uuid).await.unwrap();
    let mut seen = Vec::new();
    for follower in followers {
        let ended = tokio::time::timeout(MINUTE, follower).await.unwrap().unwrap();
        seen.push(ended.unwrap());
    }
    let (mirror, states) = seen.pop().unwrap();
    assert!(!mirror.0.contains_key(&uuid));
    assert!(states.iter().any(|one| one.oldstate != "running" && one.newstate == "running"));
    assert!(states.iter().any(|one| one.newstate.is_empty()), "the delete, as vmadmd sees it");
    assert!(seen.iter().all(|(other, others)| *other == mirror && *others == states));
    // What the deployed daemon warned of were its listeners.
    let log = std::fs::read_to_string(dir.path().join("cn/vminfod.log")).unwrap();
    let about_listeners = |line: &&str| {
        let Ok(line) = serde_json::from_str::<Value>(line) else { return true };
        let component = line["component"].as_str().unwrap_or_default();
        line["level"].as_u64() >= Some(40) && !component.starts_with("vminfod::reconcile")
    };
    assert_eq!(log.lines().find(about_listeners), None);
    world.stop().await.unwrap();
}
