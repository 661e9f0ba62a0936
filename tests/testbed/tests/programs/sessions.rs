// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The example sessions of RFD 39 on a simulated node: what `vminfod events` prints while a VM is
//! created, renamed, given other memory, another quota, a NIC and a snapshot.
//!
//! Times and numbers that the node makes are masked. Two things are not as in the RFD's text of
//! 2016: the shipped loader has empty metadata from the first object on, so nothing adds them, and
//! it has fields that came later; those are named in [`LATER`] and may stand between the lines.

use std::time::{Duration, SystemTime};

use sdc_clients::Http;
use sdc_clients::http::Call;
use serde_json::{Map, Value, json};
use simnode::{Node, Verbs, Wait, sample};
use testbed::client::{EventStream, Options, tools::fetch};
use testbed::lines::LineStream;
use testbed::process::Child;

use super::common::{LATE, Lab, program, until};

const VM: &str = "6af640c5-9042-6985-bc94-ed532f779664";
/// Fields that the shipped loader has and that of the RFD had not.
const LATER: [&str; 8] = [
    "zfs_root_compression",
    "zfs_filesystem_limit",
    "zfs_snapshot_limit",
    "init_restarts",
    "provisioning",
    "create_timestamp",
    "autoboot",
    "snapshots",
];

struct Session {
    lab: Lab,
    events: Child,
    rfd: EventStream,
    verbs: Verbs,
}

async fn session() -> Session {
    let lab = Lab::start(|options| (options.speed, options.vms) = (1, 2)).await;
    let url = lab.vminfod_url();
    let events = Child::spawn("events", &program(), &["@vminfod", "events", "--url", &url]);
    let rfd = EventStream::open(&url, Options::named("sessions")).await.unwrap();
    until("both listen", async || {
        let status = fetch(&url, "/status").await.unwrap();
        status["eventsListeners"].as_object().unwrap().len() == 2
    })
    .await;
    // Each state lasts a moment, as it does on a real node.
    let mut node = Node::open(lab.node().dir()).unwrap();
    node.set_info(|info| info.pace_ms = 1000).unwrap();
    let verbs = Verbs::new(&node, Wait::at(&url).unwrap());
    Session { lab, events: events.unwrap(), rfd, verbs }
}

/// `path action :: old -> new` of a printed line, times and made-up numbers masked; `None` for
/// lines of other VMs.
fn masked(line: &str) -> Option<String> {
    let rest = line.split_once("] ")?.1.strip_prefix(VM)?;
    let Some(change) = rest.strip_prefix(" modify: ") else { return Some(rest.trim().to_owned()) };
    let (head, values) = change.split_once(" :: ").unwrap();
    let path = head.split(' ').next().unwrap();
    let mask = |value: &str| match (path, value) {
        (_, "null") => "null".to_owned(),
        ("last_modified" | "transition_expire", _) => "T".to_owned(),
        ("boot_timestamp", "\"1970-01-01T00:00:00.000Z\"") => "EPOCH".to_owned(),
        ("boot_timestamp", _) => "T".to_owned(),
        ("zoneid" | "pid", value) if value != "0" => "N".to_owned(),
        (_, value) => value.to_owned(),
    };
    let (old, new) = values.split_once(" -> ").unwrap();
    Some(format!("{head} :: {} -> {}", mask(old), mask(new)))
}

impl Session {
    /// Reads lines until all expected ones came in their order. Lines between them must be of
    /// fields that came later, or repeat the time of the files.
    async fn prints(&mut self, expected: &[&str]) -> Vec<String> {
        let mut all = Vec::new();
        let mut left: Vec<&str> = expected.to_vec();
        while !left.is_empty() {
            let line = tokio::time::timeout(LATE, self.events.line()).await;
            let line =
                line.unwrap_or_else(|_| panic!("waiting for {left:#?} after {all:#?}")).unwrap();
            let Some(line) = masked(&line) else { continue };
            all.push(line.clone());
            // A dataset is there a moment before its quota is, and the hub may have looked then.
            let line = match &*line {
                "quota added :: null -> 0" => continue,
                "quota changed :: 0 -> 10" => "quota added :: null -> 10".to_owned(),
                _ => line,
            };
            if left.first() == Some(&line.as_str()) {
                left.remove(0);
                continue;
            }
            // One event's lines stand in the order of its object, which is not the RFD's.
            if let Some(at) = left.iter().take(5).position(|one| *one == line) {
                left.remove(at);
                continue;
            }
            let path = line.split([' ', '.']).next().unwrap();
            assert!(LATER.contains(&path) || path == "last_modified", "{line} in {all:#?}");
        }
        all
    }

    /// The next line about a field.
    async fn next_of(&mut self, field: &str) -> String {
        loop {
            let line = tokio::time::timeout(LATE, self.events.line()).await.unwrap().unwrap();
            if let Some(line) = masked(&line).filter(|line| line.starts_with(field)) {
                return line;
            }
        }
    }

    async fn stop(self) {
        drop(self.events);
        self.lab.stop().await;
    }

    /// vmadm writes the configuration anew with every update.
    fn touch(&self) {
        let file = self.lab.node().zone_xml(VM);
        let file = std::fs::File::options().write(true).open(file).unwrap();
        file.set_modified(SystemTime::now() + Duration::from_secs(2)).unwrap();
    }

    async fn create(&mut self) {
        let vm = json!({"uuid": VM, "brand": "joyent-minimal", "alias": "foo", "tmpfs": 256,
            "max_physical_memory": 256, "image_uuid": sample::image("joyent-minimal")});
        let Value::Object(vm) = vm else { panic!() };
        let verbs = self.verbs.clone();
        let creating = tokio::spawn(async move { verbs.create(&vm).await });
        let zfs = format!("zfs_filesystem added :: null -> \"zones/{VM}\"");
        self.prints(&[
            "create",
            "zone_state changed :: \"configured\" -> \"incomplete\"",
            "quota added :: null -> 10",
            "zfs_root_recsize added :: null -> 131072",
            &zfs,
            "zpool added :: null -> \"zones\"",
            "zone_state changed :: \"incomplete\" -> \"installed\"",
            "zone_state changed :: \"installed\" -> \"ready\"",
            "zoneid changed :: null -> N",
            "boot_timestamp added :: null -> EPOCH",
            "pid added :: null -> 0",
            "zone_state changed :: \"ready\" -> \"running\"",
            "boot_timestamp changed :: EPOCH -> T",
            "pid changed :: 0 -> N",
            "state changed :: \"provisioning\" -> \"running\"",
            "transition_to removed :: \"running\" -> null",
            "transition_expire removed :: T -> null",
        ])
        .await;
        creating.await.unwrap().unwrap();
    }

    async fn update(&mut self, changes: Value) {
        self.verbs.update(VM, changes.as_object().unwrap()).await.unwrap();
        self.touch();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rfd39_create_then_alias_memory_and_quota() {
    let mut session = session().await;
    session.create().await;

    session.update(json!({"alias": "bar"})).await;
    session
        .prints(&["alias changed :: \"foo\" -> \"bar\"", "last_modified changed :: T -> T"])
        .await;

    let memory = json!({"max_physical_memory": 128, "max_locked_memory": 128, "tmpfs": 128});
    session.update(memory).await;
    session
        .prints(&[
            "max_physical_memory changed :: 256 -> 128",
            "max_locked_memory changed :: 256 -> 128",
            "tmpfs changed :: 256 -> 128",
            "last_modified changed :: T -> T",
        ])
        .await;

    session.update(json!({"quota": 20})).await;
    session.prints(&["quota changed :: 10 -> 20"]).await;
    // Behind vmadm's back: the event of zfs is enough.
    let dataset = format!("zones/{VM}");
    session.lab.node().zfs(|all| all.set(&dataset, "quota", "10737418240")).unwrap();
    session.prints(&["quota changed :: 20 -> 10"]).await;
    session.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rfd39_a_nic_is_added_and_a_snapshot_taken() {
    let mut session = session().await;
    session.create().await;
    let http = Http::new(&session.lab.vminfod_url(), "sessions").unwrap();
    let call = Call::get(&["events"]).query("format", "rfd39");
    let mut indexed = LineStream::open(&http, call).await.unwrap();
    let nic = json!({"interface": "net0", "nic_tag": "external", "mac": "b2:1e:ba:a5:6e:71",
        "ip": "10.2.121.71", "ips": ["10.2.121.71/16"], "netmask": "255.255.0.0",
        "gateway": "10.2.121.1", "gateways": ["10.2.121.1"]});
    let Value::Object(nic) = nic else { panic!() };
    session.verbs.add_nic(VM, &nic).await.unwrap();
    let line = session.next_of("nics").await;
    // The shipped stream names no index (`*`); the RFD's own form does.
    let change = loop {
        let event = indexed.next(LATE).await.unwrap();
        let list = event["changes"].as_array().map(Vec::as_slice).unwrap_or_default();
        if let Some(change) = list.iter().find(|change| change["path"] == "nics.0") {
            break change.clone();
        }
    };
    assert_eq!((&change["action"], &change["from"]), (&json!("added"), &Value::Null), "{change}");
    assert_eq!(change["to"], Value::Object(nic.clone()));
    let value = line.strip_prefix("nics.* added :: null -> ").unwrap_or_else(|| panic!("{line}"));
    assert_eq!(serde_json::from_str::<Map<String, Value>>(value).unwrap(), nic);

    session.verbs.snapshot(VM, "before").await.unwrap();
    let line = session.next_of("snapshots").await;
    let value =
        line.strip_prefix("snapshots.* added :: null -> ").unwrap_or_else(|| panic!("{line}"));
    assert_eq!(serde_json::from_str::<Value>(value).unwrap()["name"], "before");
    // The same stream, read strictly, had nothing that a deployed client stumbles over.
    let pattern = json!({"uuid": VM, "vm": {"nics": [], "alias": "foo"}});
    let wanted = json!([{"path": ["nics", null], "action": "added", "newValue": {"mac": nic["mac"]}},
        {"path": ["snapshots", null], "action": "added", "newValue": {"name": "before"}}]);
    session.rfd.watch_for_changes(&pattern, &wanted, LATE).await.unwrap();
    session.stop().await;
}
