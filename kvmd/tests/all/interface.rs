// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The interface and the command line: routes, streams with resume, and the small clients.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::Duration;

use crate::common::Node;
use crate::common::qemu::{OFF, QUIT, Qemu};
use futures_util::StreamExt;
use http::Method;
use sdc_clients::http::{Call, Http};
use sdc_clients::vminfod::Lines;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

fn client(node: &Node) -> Http {
    Http::new(&node.url(), "test").unwrap().without_retries()
}

async fn get(node: &Node, path: &str) -> Value {
    Value::Object(client(node).execute(Call::get(&[path])).await.unwrap().object().unwrap())
}

/// The first `count` lines of a stream.
async fn lines(node: &Node, call: Call, count: usize) -> Vec<Value> {
    let mut body = client(node).open(call).await.unwrap().body;
    let (mut lines, mut found) = (Lines::new(1 << 20), Vec::new());
    while found.len() < count {
        let piece =
            tokio::time::timeout(Duration::from_secs(30), body.next()).await.expect("silence");
        lines.push(&piece.unwrap().unwrap());
        while let Some(line) = lines.next_line().unwrap() {
            found.push(serde_json::from_slice(&line).unwrap());
        }
    }
    found
}

async fn life(node: &mut Node, name: &str, word: &str) {
    let qemu = Qemu::start(&node.socket(name)).unwrap();
    node.watching(name).await;
    qemu.say(word).await;
    qemu.end().await;
    node.verdict(name).await;
}

#[tokio::test]
async fn verdicts_are_events_with_snapshot_and_resume() {
    let mut node = Node::running().await;
    life(&mut node, "vm1", OFF).await;
    let _vm2 = Qemu::start(&node.socket("vm2")).unwrap();
    node.watching("vm2").await;
    let ready = lines(&node, Call::get(&["events"]), 1).await.remove(0);
    assert_eq!(ready["type"], "ready");
    assert_eq!(ready["verdicts"][0]["name"], "vm1");
    assert_eq!(ready["instances"]["vm2"]["state"], "watching");
    assert_eq!(ready["seq"], 3);
    let epoch = ready["epoch"].as_str().unwrap().to_owned();
    assert_eq!(epoch.len(), 16);
    // From the beginning, as far as the ring goes back.
    let call = |since: u64| {
        Call::get(&["events"]).query("epoch", &epoch).query("since", since.to_string())
    };
    let all = lines(&node, call(0), 4).await;
    let kinds: Vec<_> = all.iter().map(|line| line["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["resume", "watching", "verdict", "watching"]);
    let verdict = &all[2];
    for (key, value) in [
        ("name", json!("vm1")),
        ("initiator", json!("guest")),
        ("kind", json!("poweroff")),
        ("confidence", json!("high")),
        ("user", json!(true)),
        ("rule", json!("reason")),
        ("marker", json!("written")),
        ("source", json!("qmp")),
        ("evidence", json!(["SHUTDOWN guest-shutdown"])),
        ("generation", json!(1)),
        ("seq", json!(2)),
        ("epoch", json!(epoch)),
    ] {
        assert_eq!(verdict[key], value, "{key}");
    }
    assert_eq!(lines(&node, call(2), 2).await[1]["name"], "vm2");
    // Another daemon's position, and one that is not yet.
    for bad in [call(99), Call::get(&["events"]).query("epoch", "0").query("since", "1")] {
        let refused = client(&node).open(bad).await.err().unwrap();
        assert_eq!((refused.status(), refused.code()), (Some(410), Some("Gone")));
    }
    assert_eq!(get(&node, "ping").await, json!({"ping": "pong"}));
    let status = get(&node, "status").await;
    assert_eq!((&status["counts"]["verdicts"], &status["rule"]), (&json!(1), &json!("reason")));
    let metrics = reqwest_text(&node, "metrics").await;
    for line in
        ["kvmd_verdicts_total 1", "kvmd_users_total 1", "kvmd_instances{state=\"watching\"} 1"]
    {
        assert!(metrics.contains(line), "{line} missing in {metrics}");
    }
    let missing = client(&node).execute(Call::get(&["nothing"])).await.err().unwrap();
    assert_eq!(missing.status(), Some(404));
}

#[tokio::test]
async fn a_parameter_that_a_page_does_not_take_is_named() {
    let node = Node::running().await;
    for (call, named) in [
        (Call::get(&["status"]).query("state", "queued"), Some("state")),
        (Call::get(&["status"]), None),
    ] {
        let answer = client(&node).execute(call).await.unwrap();
        let told = answer.headers().get("kvmd-ignored").map(|it| it.to_str().unwrap());
        assert_eq!(told, named);
    }
}

#[tokio::test] // M146
async fn the_document_has_the_paths_and_the_status() {
    let mut node = Node::running().await;
    life(&mut node, "vm1", OFF).await;
    let _vm2 = Qemu::start(&node.socket("vm2")).unwrap();
    node.watching("vm2").await;
    let document = get(&node, "openapi.json").await;
    for path in document["paths"].as_object().unwrap().keys() {
        let name = [path.trim_start_matches('/')];
        client(&node).open(Call::get(&name)).await.unwrap();
        let refused = client(&node).execute(Call::new(Method::POST, &name)).await.err().unwrap();
        let told = (refused.status(), refused.code());
        assert_eq!(told, (Some(405), Some("MethodNotAllowedError")), "{path}");
    }
    let status = get(&node, "status").await;
    let named = |schema: &str| document["components"]["schemas"][schema]["properties"].clone();
    for (schema, told) in [
        ("Status", &status),
        ("VerdictEvent", &status["verdicts"][0]),
        ("Instance", &status["instances"]["vm2"]),
        ("Counts", &status["counts"]),
    ] {
        let keys = |map: &Value| map.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
        assert_eq!(keys(told), keys(&named(schema)), "{schema}");
    }
}

async fn reqwest_text(node: &Node, path: &str) -> String {
    let mut body = client(node).open(Call::get(&[path])).await.unwrap().body;
    let mut text = Vec::new();
    while let Some(piece) = body.next().await {
        text.extend_from_slice(&piece.unwrap());
    }
    String::from_utf8(text).unwrap()
}

#[tokio::test]
async fn the_clients_show_people_and_programs_the_same() {
    let mut node = Node::running().await;
    life(&mut node, "web01", OFF).await;
    life(&mut node, "db01", QUIT).await;
    let _other = Qemu::start(&node.socket("cache01")).unwrap();
    node.watching("cache01").await;
    let url = node.url();
    let said = |output: &std::process::Output| String::from_utf8(output.stdout.clone()).unwrap();
    for (args, told) in [
        (&["status", "-H", "-o", "name,state,qemu"][..], "cache01  watching  7.2.22\n"),
        (
            &["verdicts", "-p", "-s", "name", "-o", "name,initiator,kind,confidence,user"],
            "db01:host:quit:high:-\nweb01:guest:poweroff:high:user\n",
        ),
        (&["verdicts", "web01", "-H", "-o", "marker"], "written\n"),
        (&["ping"], "{\n  \"ping\": \"pong\"\n}\n"),
    ] {
        let output = node.kvmd(&[args, &["--url", &url]].concat()).await;
        assert_eq!((output.status.code(), said(&output).as_str()), (Some(0), told), "{args:?}");
    }
    let rows = said(&node.kvmd(&["verdicts", "-j", "--url", &url]).await);
    assert_eq!(serde_json::from_str::<Value>(&rows).unwrap()[0]["name"], "web01");
    for wrong in [
        &["verdicts", "-o", "nope"][..],
        &["verdicts", "nobody"],
        &["status", "-s", "nope"],
        &["watch", "-o", "x"],
    ] {
        let output = node.kvmd(&[wrong, &["--url", &url]].concat()).await;
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{wrong:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 1, "{wrong:?}");
    }
    let output = node.kvmd(&["status", "-j", "--url", &url]).await;
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(status["verdicts"].as_array().unwrap().len(), 2);
    assert!(node.kvmd(&["ping", "--url", &url]).await.status.success());
    let nobody = node.kvmd(&["ping", "--url", "http://127.0.0.1:1"]).await;
    assert_eq!(nobody.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&nobody.stderr).lines().count(), 1);
}

#[tokio::test]
async fn watch_goes_on_over_a_restart_of_the_daemon_and_tells_nothing_twice() {
    let mut node = Node::new();
    // Both daemons on one port, so that the client finds the second.
    let port = rig::port::Port::local().unwrap();
    node.settings = json!({"listen": port.address().to_string()});
    node.start().await;
    #[allow(clippy::disallowed_methods)] // The program under test.
    let mut watch = tokio::process::Command::new(env!("CARGO_BIN_EXE_kvmd"))
        .args(["watch", "-j", "--url", &node.url()])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut told = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut next = async || -> Value {
        let line = tokio::time::timeout(Duration::from_secs(30), told.next_line()).await;
        serde_json::from_str(&line.expect("silence").unwrap().unwrap()).unwrap()
    };
    assert_eq!(next().await["type"], "ready");
    life(&mut node, "vm1", OFF).await;
    assert_eq!(next().await["type"], "watching");
    assert_eq!(next().await["name"], "vm1");
    node.stop().await;
    port.refuses().await.unwrap();
    node.start().await;
    // Another epoch: it begins anew with a snapshot.
    assert_eq!(next().await["type"], "ready");
    life(&mut node, "vm2", OFF).await;
    assert_eq!(next().await["type"], "watching");
    assert_eq!(next().await["name"], "vm2");
}

#[tokio::test]
async fn start_in_the_background_returns_when_it_serves() {
    let mut node = Node::new();
    let port = rig::port::Port::local().unwrap();
    node.settings = json!({"listen": port.address().to_string()});
    let config = node.config_file();
    let log = node.dir.path().join("kvmd.log");
    let start = ["start", "--background", "--config", &config, "--log", log.to_str().unwrap()];
    let output = node.kvmd(&start).await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let url = port.url();
    let status = node.kvmd(&["status", "-j", "--url", &url]).await;
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    // Again: it runs already, and nothing is left that would take its place.
    assert_eq!(node.kvmd(&start).await.status.code(), Some(0));
    assert!(std::fs::read_to_string(&log).unwrap().contains("runs already"));
    let pid = i32::try_from(status["pid"].as_u64().unwrap()).unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let lock = node.run_dir().join("lock");
    let free = async {
        while daemon::Lock::take(&lock).is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await; // A poll: the kernel frees it.
        }
    };
    tokio::time::timeout(Duration::from_secs(30), free).await.expect("it goes on");
    assert!(std::fs::read_to_string(log).unwrap().contains("\"name\":\"kvmd\""));
}

#[tokio::test]
async fn help_manual_and_completions_are_there() {
    let node = Node::new();
    let output = node.kvmd(&["--help"]).await;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && text.contains("Examples:") && text.contains("kvmd clear web01")
    );
    for verb in
        ["start", "serve", "ping", "status", "verdicts", "watch", "clear", "completions", "man"]
    {
        let output = node.kvmd(&[verb, "--help"]).await;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("Examples:\n  kvmd"), "{verb}: {text}");
    }
    let page = String::from_utf8(node.kvmd(&["man"]).await.stdout).unwrap();
    assert!(page.contains(".TH kvmd 8"), "{page}");
    let pages = node.dir.path().join("man8");
    assert!(node.kvmd(&["man", pages.to_str().unwrap()]).await.status.success());
    assert!(pages.join("kvmd-verdicts.8").exists());
    for shell in ["bash", "zsh", "fish"] {
        assert!(!node.kvmd(&["completions", shell]).await.stdout.is_empty());
    }
    let wrong = node.kvmd(&["--nonsense"]).await;
    assert_eq!(wrong.status.code(), Some(2));
    assert_eq!(String::from_utf8_lossy(&wrong.stderr).lines().count(), 1);
    let check = ["serve", "--check-config", "--config", &node.config_file()];
    assert!(node.kvmd(&check).await.status.success());
}
