// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! SmartOS: verdicts from vminfod's events, with and without a second monitor.

use std::path::PathBuf;
use std::sync::Arc;

use crate::common::qemu::{Qemu, TERM};
use crate::common::{Node, said};
use bytes::Bytes;
use daemon::Shutdown;
use daemon::http::events::{self, Follow};
use daemon::http::{Limits, Router, Server, reply};
use daemon::journal::Journal;
use futures_util::stream;
use http::StatusCode;
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// A vminfod whose events the test makes.
struct Vminfod {
    url: String,
    journal: Arc<Journal>,
}

impl Vminfod {
    async fn start(vms: Value) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let journal = Arc::new(Journal::new(1 << 20));
        let shutdown = Shutdown::new();
        let server = Server::new(Limits::default(), shutdown.clone());
        let (told, counts) = (Arc::clone(&journal), server.counts());
        let answer = move || {
            let ready = json!({"type": "ready", "date": "", "uuid": "u", "vms": vms.to_string()});
            let follow = Follow {
                journal: Arc::clone(&told),
                cursor: 0,
                rewrite: None,
                keep: (),
                counts: Arc::clone(&counts),
                shutdown: shutdown.clone(),
            };
            let lead = stream::iter([Bytes::from(format!("{ready}\n"))]);
            async move { reply(StatusCode::OK, events::open(lead, follow)) }
        };
        tokio::spawn(server.serve(listener, Router::new().fallback(answer)));
        Self { url, journal }
    }

    fn tell(&self, kind: &str, vm: &Value) {
        let line = json!({
            "type": kind, "date": "", "zonename": vm["zonename"], "uuid": vm["zonename"],
            "vm": vm, "changes": [],
        });
        self.journal.push(Bytes::from(format!("{line}\n")));
    }
}

fn vm(name: &str, more: Value) -> Value {
    let mut vm = json!({
        "zonename": name, "uuid": name, "brand": "kvm", "zonepath": format!("/zones/{name}"),
        "zone_state": "running", "state": "running", "autoboot": true,
    });
    vm.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    vm
}

fn rest(name: &str, status: i64, at: &str) -> Value {
    let end = json!({
        "zone_state": "installed", "state": "stopped", "exit_status": status, "exit_timestamp": at,
    });
    vm(name, end)
}

async fn node(vminfod: &Vminfod, more: Value) -> Node {
    let mut node = Node::new();
    let mut zones =
        json!({"enabled": true, "url": vminfod.url, "trust_tcp": true, "settle": "50ms"});
    zones.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    node.settings = json!({"control": {"enabled": false}, "vminfod": zones});
    node.start().await;
    node
}

/// A node that watches the second monitor of zone `a`; with both monitors of the zone, and where they are.
async fn monitored(vminfod: &Vminfod) -> (Node, [Qemu; 2], PathBuf) {
    let node = node(vminfod, json!({"socket": "/tmp/vm.kvmd"})).await;
    let tmp = node.dir.path().join("zones/a/root/tmp");
    std::fs::create_dir_all(&tmp).unwrap();
    let monitors = ["vm.qmp", "vm.kvmd"].map(|name| Qemu::start(&tmp.join(name)).unwrap());
    // The zone is seen again, now that its sockets are there.
    vminfod.tell("modify", &vm("a", json!({"ram": 1})));
    node.watching("a").await;
    (node, monitors, tmp)
}

#[tokio::test]
async fn ends_of_zones_are_told_from_their_facts() {
    let vminfod = Vminfod::start(json!([vm("a", json!({})), vm("b", json!({}))])).await;
    let mut node = node(&vminfod, json!({})).await;
    // The user.
    vminfod
        .tell("modify", &vm("a", json!({"zone_state": "shutting_down", "state": "shutting_down"})));
    vminfod.tell("modify", &rest("a", 0, "t1"));
    let verdict = node.verdict("a").await;
    assert_eq!(
        (said(&verdict).as_str(), &verdict["confidence"]),
        ("guest/poweroff", &json!("low"))
    );
    assert_eq!(
        (&verdict["user"], &verdict["marker"], &verdict["source"]),
        (&json!(true), &json!("none"), &json!("zone"))
    );
    // The operator.
    let stopping = json!({"state": "stopping", "transition_to": "stopped", "autoboot": false});
    vminfod.tell("modify", &vm("b", stopping));
    vminfod.tell("modify", &rest("b", 0, "t1"));
    let verdict = node.verdict("b").await;
    assert_eq!((said(&verdict).as_str(), &verdict["user"]), ("host/powerdown", &json!(false)));
    // The next life of the first one is killed, and what its first end left behind is not taken.
    vminfod.tell("modify", &vm("a", json!({})));
    vminfod.tell("modify", &rest("a", 0, "t1"));
    vminfod.tell("modify", &rest("a", -9, "t2"));
    assert_eq!(said(&node.verdict("a").await), "unknown/abrupt");
    // A reboot: it runs again before its facts have settled.
    vminfod.tell("modify", &vm("a", json!({})));
    vminfod.tell("modify", &vm("a", json!({"state": "stopping", "transition_to": "start"})));
    vminfod.tell("modify", &rest("a", 0, "t3"));
    vminfod.tell("modify", &vm("a", json!({})));
    assert_eq!(said(&node.verdict("a").await), "host/reset");
    assert_eq!(node.verdicts(), 4);
}

// R10
#[tokio::test]
async fn a_deleted_vm_has_no_verdict() {
    let vminfod = Vminfod::start(json!([vm("a", json!({}))])).await;
    let mut node = node(&vminfod, json!({})).await;
    vminfod.tell("modify", &rest("a", 0, "t1"));
    node.verdict("a").await;
    vminfod.tell("delete", &rest("a", 0, "t1"));
    node.until("it is forgotten", || node.ledger().snapshot().verdicts().is_empty()).await;
    // A VM that is deleted as it runs was the host's to end.
    vminfod.tell("create", &vm("b", json!({"brand": "bhyve"})));
    vminfod.tell("delete", &vm("b", json!({"brand": "bhyve"})));
    assert_eq!(said(&node.verdict("b").await), "host/quit");
}

#[tokio::test]
async fn a_second_monitor_tells_what_the_facts_cannot() {
    let vminfod = Vminfod::start(json!([vm("a", json!({}))])).await;
    let (mut node, [public, second], tmp) = monitored(&vminfod).await;
    // By exit status and facts alone a TERM looks like a power-off.
    second.say(TERM).await;
    second.end().await;
    vminfod.tell("modify", &rest("a", 0, "t1"));
    let verdict = node.verdict("a").await;
    assert_eq!((said(&verdict).as_str(), &verdict["source"]), ("host/signal", &json!("qmp")));
    assert_eq!(node.verdicts(), 1, "one for each life, whoever speaks");
    // The platform's monitor was not touched, and there is no marker in a zone.
    assert_eq!(public.clients(), 0);
    assert_eq!(files(&tmp), ["vm.qmp"]);
}

#[tokio::test]
async fn a_second_monitor_that_ends_late_is_waited_for() {
    let vminfod = Vminfod::start(json!([vm("a", json!({})), vm("b", json!({}))])).await;
    let (mut node, [_public, second], _) = monitored(&vminfod).await;
    vminfod.tell("modify", &rest("a", 0, "t1"));
    vminfod.tell("modify", &rest("b", 0, "t1"));
    // Its facts have settled after those of the first.
    node.verdict("b").await;
    second.say(TERM).await;
    second.end().await;
    let verdict = node.verdict("a").await;
    assert_eq!((said(&verdict).as_str(), &verdict["source"]), ("host/signal", &json!("qmp")));
}

#[tokio::test]
async fn a_verdict_that_comes_after_its_zone_runs_again_is_not_the_next_lifes() {
    let vminfod = Vminfod::start(json!([vm("a", json!({}))])).await;
    let (mut node, [_public, second], _) = monitored(&vminfod).await;
    vminfod.tell("modify", &rest("a", 0, "t1"));
    vminfod.tell("modify", &vm("a", json!({})));
    assert_eq!(
        node.verdict("a").await["source"],
        json!("zone"),
        "it runs again: judged by its facts"
    );
    second.say(TERM).await;
    second.end().await;
    node.until("its first QEMU is gone", || node.ledger().snapshot().instances.is_empty()).await;
    vminfod.tell("modify", &rest("a", 0, "t2"));
    let verdict = node.verdict("a").await;
    assert_eq!((said(&verdict).as_str(), &verdict["source"]), ("guest/poweroff", &json!("zone")));
}

fn files(dir: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[tokio::test]
async fn no_link_leads_out_of_a_zone() {
    let vminfod = Vminfod::start(json!([vm("a", json!({}))])).await;
    let node = node(&vminfod, json!({"socket": "/tmp/vm.kvmd"})).await;
    let outside: PathBuf = node.dir.path().join("outside");
    std::fs::create_dir_all(&outside).unwrap();
    let elsewhere = Qemu::start(&outside.join("vm.kvmd")).unwrap();
    let root = node.dir.path().join("zones/a/root");
    std::fs::create_dir_all(&root).unwrap();
    std::os::unix::fs::symlink(&outside, root.join("tmp")).unwrap();
    vminfod.tell("modify", &vm("a", json!({"ram": 1})));
    // A second zone, whose monitor is a proper one, shows that the first was looked at.
    let proper = node.dir.path().join("zones/b/root/tmp");
    std::fs::create_dir_all(&proper).unwrap();
    let _qemu = Qemu::start(&proper.join("vm.kvmd")).unwrap();
    vminfod.tell("create", &vm("b", json!({})));
    node.watching("b").await;
    assert_eq!(elsewhere.clients(), 0);
}
