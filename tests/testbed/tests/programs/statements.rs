// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Statements 26 and 98–107 of vminfod's contract: real vminfod, real files and signals of a
//! simulated node, and a client that is as strict as the deployed ones.

mod smf;
mod status;

use std::time::Duration;

use serde_json::{Map, Value, json};
use testbed::client::tools::{fetch, vmadm_get, vminfo_status};
use testbed::client::{EventStream, Mirror, Options, Thrown, ZoneEvents};
use tokio::time::Instant;
use vminfod::cli::supply::{FromDaemon, Supplier};
use vminfod::cli::vmadm;

use super::common::{Lab, ctx};

/// What VM.js waits with.
const MINUTE: Duration = Duration::from_secs(60);

async fn lab() -> Lab {
    Lab::start(|options| options.speed = 1).await
}

async fn follow(lab: &Lab) -> EventStream {
    EventStream::open(&lab.vminfod_url(), Options::named("vmadm")).await.unwrap()
}

async fn vms(lab: &Lab) -> Vec<Value> {
    let list = fetch(&lab.vminfod_url(), "/vms").await.unwrap();
    list.as_array().unwrap().clone()
}

async fn one_in(lab: &Lab, state: &str) -> Value {
    let with_nic = |vm: &Value| vm["nics"].as_array().is_some_and(|nics| !nics.is_empty());
    let all = vms(lab).await;
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

#[tokio::test(flavor = "multi_thread")] // S26
async fn the_status_tool_prints_with_and_without_listeners() {
    let lab = lab().await;
    let url = lab.vminfod_url();
    for path in ["/status", "/status?full=true"] {
        let text = vminfo_status(&fetch(&url, path).await.unwrap()).unwrap();
        assert!(text.starts_with("state: running (working)\npid: "), "{text}");
        assert!(text.contains("eventsListeners: (0 listeners)"), "{text}");
    }
    let _named = follow(&lab).await;
    // One that does not say who it is makes the tool throw on the deployed daemon.
    let _silent = EventStream::open(&url, Options::named("")).await.unwrap();
    for path in ["/status", "/status?full=true"] {
        let text = vminfo_status(&fetch(&url, path).await.unwrap()).unwrap();
        assert!(text.contains("eventsListeners: (2 listeners)\n  - vmadm - cn/"), "{text}");
        assert_eq!(text.contains("fswatcher\n  running: true\n"), path.len() > 8, "{text}");
    }
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")] // S98, S99, S7
async fn a_create_meets_every_wait_of_vmadm() {
    let lab = lab().await;
    let uuid = "9a3c1c5e-57a5-4b1c-8f0e-2b6c5d4e3f21";
    let payload = map(json!({"uuid": uuid, "brand": "joyent-minimal", "alias": "new", "quota": 5,
        "image_uuid": simnode::sample::image("joyent-minimal"),
        "tags": {"a": 1}, "customer_metadata": {"k": "v"}}));
    assert!(matches!(vmadm_get(&lab.vminfod_url(), uuid).await, Err(Thrown::Message(_))));
    let mut stream = follow(&lab).await;
    let verbs = lab.waiting_verbs();
    let creating = tokio::spawn(async move { verbs.create(&payload).await });
    let create = json!({"type": "create", "uuid": uuid});
    let event = stream.watch_for_event(&create, MINUTE).await.unwrap();
    assert_eq!(event["vm"]["uuid"], uuid);
    let installed = json!({"uuid": uuid, "vm": {"zone_state": "installed", "zpool": "zones",
        "zfs_filesystem": format!("zones/{uuid}"), "zonepath": format!("/zones/{uuid}")}});
    stream.watch_for_event(&installed, MINUTE).await.unwrap();
    let files = json!({"uuid": uuid, "vm": {"tags": {"a": 1}, "customer_metadata": {"k": "v"}}});
    stream.watch_for_event(&files, MINUTE).await.unwrap();
    let running = json!([{"path": ["zone_state"], "newValue": "running"}]);
    let of_vm = json!({"uuid": uuid});
    let marker = json!([{"path": ["provisioning"], "action": "removed"}]);
    stream.watch_for_changes(&of_vm, &running, MINUTE).await.unwrap();
    stream.watch_for_changes(&of_vm, &marker, MINUTE).await.unwrap();
    creating.await.unwrap().unwrap();
    assert_eq!(vmadm_get(&lab.vminfod_url(), uuid).await.unwrap()["alias"], "new");
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")] // S100
async fn alternatives_are_met_by_whichever_comes() {
    let lab = lab().await;
    let vm = one_in(&lab, "stopped").await;
    let wanted = json!([[{"path": ["state"], "newValue": "running"}, {"path": ["state"], "newValue": "stopped"}]]);
    let pattern = json!({"uuid": uuid_of(&vm)});
    let mut stream = follow(&lab).await;
    lab.verbs().boot(uuid_of(&vm)).await.unwrap();
    stream.watch_for_changes(&pattern, &wanted, MINUTE).await.unwrap();
    // The same VM is stopped as `vmadm stop` sees it: state and both exits as single records.
    let mut stream = follow(&lab).await;
    lab.verbs().halt(uuid_of(&vm), 256).await.unwrap();
    let stopped = json!([{"path": ["state"], "newValue": "stopped"},
        {"path": ["exit_status"], "action": "added"}, {"path": ["exit_timestamp"], "action": "added"}]);
    stream.watch_for_changes(&pattern, &stopped, MINUTE).await.unwrap();
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")] // S101
async fn an_edited_nic_is_found_by_its_mac() {
    let lab = lab().await;
    let vm = one_in(&lab, "running").await;
    let mac = vm["nics"][0]["mac"].as_str().unwrap();
    let mut stream = follow(&lab).await;
    let change = map(json!({"mac": mac, "ip": "192.0.2.77"}));
    lab.verbs().update_nic(uuid_of(&vm), &change).await.unwrap();
    let wanted = json!([{"path": ["nics", null, "ip"], "ident": mac, "newValue": "192.0.2.77"}]);
    stream.watch_for_changes(&json!({"uuid": uuid_of(&vm)}), &wanted, MINUTE).await.unwrap();
    // A whole-array record would leave vmadm waiting for ever: the client knows the difference.
    let mut stream = follow(&lab).await;
    let nic = json!({"mac": "90:b8:d0:0a:00:07", "ip": "192.0.2.78", "netmask": "255.255.255.0",
        "nic_tag": "admin"});
    let added = lab.verbs().add_nic(uuid_of(&vm), &map(nic)).await.unwrap();
    assert_eq!(added, "90:b8:d0:0a:00:07", "objects show what zonecfg keeps");
    let wanted = json!([{"path": ["nics", null], "action": "added", "newValue": {"mac": added}}]);
    stream.watch_for_changes(&json!({"uuid": uuid_of(&vm)}), &wanted, MINUTE).await.unwrap();
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")] // S102
async fn a_snapshot_comes_and_goes_as_one_element() {
    let lab = lab().await;
    let vm = one_in(&lab, "running").await;
    let pattern = json!({"uuid": uuid_of(&vm)});
    let mut stream = follow(&lab).await;
    lab.verbs().snapshot(uuid_of(&vm), "before").await.unwrap();
    let wanted =
        json!([{"path": ["snapshots", null], "action": "added", "newValue": {"name": "before"}}]);
    stream.watch_for_changes(&pattern, &wanted, MINUTE).await.unwrap();
    lab.verbs().delete_snapshot(uuid_of(&vm), "before").await.unwrap();
    let wanted =
        json!([{"path": ["snapshots", null], "action": "removed", "oldValue": {"name": "before"}}]);
    stream.watch_for_changes(&pattern, &wanted, MINUTE).await.unwrap();
    lab.stop().await;
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

#[tokio::test(flavor = "multi_thread")] // S103, S104
async fn vmadm_prints_the_same_with_vminfod_as_before_it() {
    let lab = lab().await;
    let daemon = FromDaemon::new(&lab.vminfod_url(), "vmadm").unwrap();
    // The node read without any daemon, as before the switch to vminfod.
    let node = ctx(lab.node());
    let unknown = "9a3c1c5e-57a5-4b1c-8f0e-2b6c5d4e3f21";
    let missing = printed(&format!("get {unknown}"), &daemon).await;
    assert_eq!(missing, format!("1\n\nzoneadm: {unknown}: No such zone configured\n"));
    let thrown = vmadm_get(&lab.vminfod_url(), unknown).await.unwrap_err();
    assert!(missing.contains(&thrown.to_string()), "{thrown}");
    // After some changes the cache still prints what a fresh reading prints.
    let vm = one_in(&lab, "running").await;
    let waiting = lab.waiting_verbs();
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
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")] // S105
async fn vmadm_events_prints_a_ready_object_by_zonename() {
    let lab = lab().await;
    let options = Options { parse_ready: true, ..Options::named("vmadm events") };
    let stream = EventStream::open(&lab.vminfod_url(), options).await.unwrap();
    let by_name = map(stream.ready["vms"].clone());
    let all = vms(&lab).await;
    assert_eq!(by_name.len(), all.len());
    assert!(all.iter().all(|vm| by_name[vm["zonename"].as_str().unwrap()] == *vm));
    // Ours prints the same line.
    let raw = follow(&lab).await.ready;
    let plan = vmadm::plan(&["events".to_owned(), "-rj".to_owned()]);
    let Ok(vmadm::Plan::Events(printer)) = plan else { panic!("no plan for events") };
    let line = printer.line(raw.to_string().as_bytes()).unwrap();
    let ready: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&ready["type"], &ready["vms"]), (&json!("ready"), &Value::Object(by_name)));
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")] // S106
async fn clients_see_the_daemon_die_and_agents_are_back_in_seconds() {
    let mut lab = lab().await;
    let options = Options { parse_ready: true, ..Options::named("vm-agent") };
    let mut stream = EventStream::open(&lab.vminfod_url(), options.clone()).await.unwrap();
    let before = Mirror::of(&stream.ready).unwrap();
    let (boots, goes) = (one_in(&lab, "stopped").await, one_in(&lab, "running").await);
    lab.end("vminfod", true).await.unwrap();
    let end = tokio::time::timeout(MINUTE, stream.event()).await.unwrap();
    assert!(matches!(end, Err(Thrown::Ended)), "{end:?}");

    lab.verbs().boot(uuid_of(&boots)).await.unwrap();
    lab.verbs().delete_raw(uuid_of(&goes)).await.unwrap();
    lab.start_vminfod().await.unwrap();
    let began = Instant::now();
    let stream = EventStream::again(&lab.vminfod_url(), &options, MINUTE).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    let (created, changed, deleted) = before.against(&Mirror::of(&stream.ready).unwrap());
    assert_eq!(created, [""; 0]);
    assert_eq!(changed, [uuid_of(&boots)]);
    assert_eq!(deleted, [uuid_of(&goes)]);

    // An orderly end looks the same to them.
    let mut stream = stream;
    lab.end("vminfod", false).await.unwrap();
    let end = tokio::time::timeout(MINUTE, stream.event()).await.unwrap();
    assert!(matches!(end, Err(Thrown::Ended)), "{end:?}");
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")] // S107
async fn sixty_listeners_follow_a_lifetime_without_a_warning() {
    let lab = lab().await;
    let vm = one_in(&lab, "running").await;
    let uuid = uuid_of(&vm).to_owned();
    let mut followers = Vec::new();
    for n in 0..60 {
        let options = Options { parse_ready: true, ..Options::named(&format!("listener-{n}")) };
        let mut stream = EventStream::open(&lab.vminfod_url(), options).await.unwrap();
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
    let verbs = lab.waiting_verbs();
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
    // What the deployed daemon warned of were its listeners. The node has reasons of its own: a directory
    // that goes while fswatcher renews its watch makes vminfod start fswatcher again.
    const OF_THE_NODE: [&str; 2] = ["vminfod::reconcile", "vminfod::sources"];
    let log = lab.log();
    let about_listeners = |line: &&str| {
        let Ok(line) = serde_json::from_str::<Value>(line) else { return true };
        let component = line["component"].as_str().unwrap_or_default();
        line["level"].as_u64() >= Some(40)
            && !OF_THE_NODE.iter().any(|node| component.starts_with(node))
    };
    assert_eq!(log.lines().find(about_listeners), None);
    lab.stop().await;
}
