// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The watcher: what it says about a stream, and about the time without one.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream;
use pretty_assertions::assert_eq;
use sdc_clients::http::StreamResponse;
use sdc_clients::vminfod::{View, Vminfod, WatchEvent, Watcher, watch};
use sdc_clients::{Class, Error, Jitter};
use serde_json::{Value, json};

use crate::script::{Script, serve};

fn vm(name: &str, ram: u32) -> Value {
    json!({ "zonename": name, "uuid": name, "ram": ram })
}

fn line(value: Value) -> Bytes {
    Bytes::from(format!("{value}\n"))
}

fn ready(vms: &[Value]) -> Bytes {
    line(json!({ "type": "ready", "date": "d", "uuid": "l", "vms": Value::from(vms).to_string() }))
}

fn create(vm: Value) -> Bytes {
    line(json!({ "type": "create", "date": "d", "zonename": vm["zonename"], "vm": vm }))
}

fn modify(vm: Value) -> Bytes {
    let change = json!({ "prettyPath": "ram", "path": ["ram"], "action": "changed", "oldValue": 1, "newValue": 2 });
    line(
        json!({ "type": "modify", "date": "d", "zonename": vm["zonename"], "vm": vm, "changes": [change] }),
    )
}

fn delete(name: &str) -> Bytes {
    line(json!({ "type": "delete", "date": "d", "zonename": name, "uuid": name }))
}

/// A snapshot of a service that counts its events.
fn counted(vms: &[Value], seq: u64, epoch: &str) -> Bytes {
    let vms = Value::from(vms).to_string();
    line(
        json!({ "type": "ready", "date": "d", "uuid": "l", "vms": vms, "seq": seq, "epoch": epoch }),
    )
}

fn resume(seq: u64, newest: u64, epoch: &str) -> Bytes {
    line(json!({ "type": "resume", "date": "d", "epoch": epoch, "seq": seq, "newest": newest }))
}

/// The same event under a number.
fn numbered(line: Bytes, seq: u64) -> Bytes {
    let mut value: Value = serde_json::from_slice(&line).unwrap();
    value["seq"] = seq.into();
    self::line(value)
}

/// What one connection gives before it ends; an open one stays silent instead.
#[derive(Clone)]
struct Connection {
    pieces: Vec<Bytes>,
    open: bool,
}

fn ends(pieces: Vec<Bytes>) -> Option<Connection> {
    Some(Connection { pieces, open: false })
}

fn stays(pieces: Vec<Bytes>) -> Option<Connection> {
    Some(Connection { pieces, open: true })
}

/// A watcher of a service that serves these connections in turn (`None`
/// refuses), and then refuses for ever.
fn watched(connections: Vec<Option<Connection>>) -> (Watcher, Arc<Script>) {
    let queue = Mutex::new(VecDeque::from(connections));
    let script = Script::streaming(move |request| {
        let next = queue.lock().unwrap().pop_front().flatten();
        let Some(connection) = next else {
            return Err(Error::connect(&request.method, request.target(), "refused"));
        };
        let pieces = stream::iter(connection.pieces.into_iter().map(Ok));
        let body =
            if connection.open { pieces.chain(stream::pending()).boxed() } else { pieces.boxed() };
        let status = 200u16.try_into().unwrap();
        Ok(StreamResponse { status, headers: Default::default(), body })
    });
    (watch(&Vminfod::with_http(script.http()), Jitter::from_seed(7)), script)
}

/// An event in one short word per VM.
fn say(event: WatchEvent) -> String {
    let name = |vm: &serde_json::Map<String, Value>| {
        format!("{}/{}", vm["zonename"].as_str().unwrap(), vm.get("ram").unwrap_or(&Value::Null))
    };
    match event {
        WatchEvent::Synced(vms) => {
            let names: Vec<String> = vms.iter().map(|vm| name(vm)).collect();
            format!("synced {}", names.join(" "))
        }
        WatchEvent::Created(vm) => format!("created {}", name(&vm)),
        WatchEvent::Modified { vm, old, changes } => {
            format!("modified {} from {} with {}", name(&vm), name(&old), changes.len())
        }
        WatchEvent::Deleted { vm } => format!("deleted {}", name(&vm)),
        WatchEvent::Hidden { vm } => format!("hidden {}", name(&vm)),
        WatchEvent::Shown { vm } => format!("shown {}", name(&vm)),
        WatchEvent::Lost(error) => format!("lost {}", error.class().as_str()),
    }
}

async fn says(watcher: &mut Watcher, count: usize) -> Vec<String> {
    let mut said = Vec::new();
    for _ in 0..count {
        said.push(say(watcher.next().await));
    }
    said
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_then_what_changes() {
    let pieces = vec![
        ready(&[vm("b", 1), vm("a", 1)]),
        modify(vm("a", 2)),
        create(vm("c", 1)),
        delete("b"),
        delete("b"),
    ];
    let (mut watcher, script) = watched(vec![ends(pieces)]);
    assert_eq!(
        says(&mut watcher, 5).await,
        [
            "synced b/1 a/1",
            "modified a/2 from a/1 with 1",
            "created c/1",
            "deleted b/1",
            "lost interrupted",
        ]
    );
    assert_eq!(script.targets(), ["/events"]);
}

#[tokio::test(start_paused = true)]
async fn what_happened_while_away_is_derived_before_synced() {
    let hidden = json!({ "zonename": "h", "ram": 1, "do_not_inventory": true });
    let first = vec![ready(&[vm("kept", 1), vm("gone", 1), vm("grown", 1), vm("h", 1)])];
    let second = vec![ready(&[vm("new", 1), vm("grown", 2), vm("kept", 1), hidden])];
    let third = vec![ready(&[vm("new", 1), vm("grown", 2), vm("kept", 1), vm("h", 1)])];
    let (mut watcher, _) = watched(vec![ends(first), ends(second), stays(third)]);
    assert_eq!(
        says(&mut watcher, 10).await,
        [
            "synced kept/1 gone/1 grown/1 h/1",
            "lost interrupted",
            "created new/1",
            "modified grown/2 from grown/1 with 0",
            "hidden h/1",
            "deleted gone/1",
            "synced new/1 grown/2 kept/1 h/1",
            "lost interrupted",
            "shown h/1",
            "synced new/1 grown/2 kept/1 h/1",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_create_of_a_known_vm_and_a_modify_of_an_unknown_one() {
    let pieces = vec![
        ready(&[vm("a", 1)]),
        create(vm("a", 1)),
        create(vm("a", 2)),
        modify(vm("b", 1)),
        delete("nobody"),
        line(json!({ "type": "news", "date": "d" })),
        create(vm("c", 1)),
    ];
    let (mut watcher, _) = watched(vec![stays(pieces)]);
    assert_eq!(
        says(&mut watcher, 4).await,
        ["synced a/1", "modified a/2 from a/1 with 0", "created b/1", "created c/1"]
    );
}

#[tokio::test(start_paused = true)]
async fn silence_is_a_quiet_node() {
    let (mut watcher, script) = watched(vec![stays(vec![ready(&[vm("a", 1)])])]);
    assert_eq!(says(&mut watcher, 1).await, ["synced a/1"]);
    let week = Duration::from_secs(7 * 86_400);
    assert!(tokio::time::timeout(week, watcher.next()).await.is_err());
    assert!(watcher.is_following());
    assert_eq!(script.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn refusals_never_delete_and_are_asked_about_ever_more_slowly() {
    let mut connections = vec![ends(vec![ready(&[vm("a", 1)])])];
    connections.extend(vec![None; 20]);
    connections.push(stays(vec![ready(&[vm("a", 1)])]));
    let (mut watcher, script) = watched(connections);
    assert_eq!(says(&mut watcher, 2).await, ["synced a/1", "lost interrupted"]);
    assert!(says(&mut watcher, 20).await.iter().all(|said| said == "lost connect"));
    assert_eq!(says(&mut watcher, 1).await, ["synced a/1"], "nothing changed, nothing is derived");
    let times = script.times();
    assert!(times[1] - times[0] <= Duration::from_secs(1), "from one second");
    let longest = times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
    assert!(longest > Duration::from_secs(1) && longest <= Duration::from_secs(5), "{longest:?}");
}

#[tokio::test(start_paused = true)]
async fn ready_must_come_within_thirty_seconds_and_first() {
    let started = tokio::time::Instant::now();
    let (mut watcher, _) =
        watched(vec![stays(vec![]), stays(vec![Bytes::from_static(b"{\"type\":")])]);
    assert_eq!(says(&mut watcher, 1).await, ["lost timeout"]);
    assert_eq!(started.elapsed().as_secs(), 30);
    assert_eq!(says(&mut watcher, 1).await, ["lost timeout"], "half a line is no line");
    let (mut watcher, _) = watched(vec![
        stays(vec![create(vm("a", 1))]),
        stays(vec![Bytes::from_static(b"<html>\n")]),
        stays(vec![Bytes::from_static(b"\n")]),
        stays(vec![line(json!({ "type": "ready", "vms": "[{}]" }))]),
        stays(vec![ready(&[]), ready(&[])]),
    ]);
    let said = says(&mut watcher, 6).await;
    assert_eq!(
        said,
        [
            "lost protocol",
            "lost protocol",
            "lost protocol",
            "lost protocol",
            "synced ",
            "lost protocol"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_gap_in_the_numbers_is_a_loss_and_repeats_are_none() {
    let numbered = |bytes: Bytes, seq: u64| {
        let mut value: Value = serde_json::from_slice(&bytes).unwrap();
        value["seq"] = seq.into();
        value["epoch"] = "00000000000000ab".into();
        line(value)
    };
    let pieces = vec![
        numbered(ready(&[vm("a", 1)]), 10),
        numbered(modify(vm("a", 1)), 10),
        numbered(modify(vm("a", 2)), 11),
        numbered(modify(vm("a", 3)), 13),
    ];
    let (mut watcher, _) = watched(vec![stays(pieces)]);
    assert_eq!(says(&mut watcher, 2).await, ["synced a/1", "modified a/2 from a/1 with 1"]);
    assert_eq!(watcher.position(), (Some("00000000000000ab"), Some(11)));
    assert_eq!(says(&mut watcher, 1).await, ["lost protocol"]);
}

#[tokio::test(start_paused = true)]
async fn cut_anywhere_even_inside_a_character() {
    let mut named = vm("ä-日本-🦀", 1);
    named["alias"] = json!("žluťoučký");
    let mut whole = ready(&[named.clone()]).to_vec();
    whole.extend_from_slice(&create(vm("b", 1)));
    let pieces = whole.chunks(1).map(Bytes::copy_from_slice).collect();
    let (mut watcher, _) = watched(vec![stays(pieces)]);
    let WatchEvent::Synced(vms) = watcher.next().await else { panic!("not synced") };
    assert_eq!(Value::Object(vms[0].object().clone()), named);
    assert_eq!(says(&mut watcher, 1).await, ["created b/1"]);
}

#[tokio::test(start_paused = true)]
async fn dropping_next_loses_nothing() {
    let body = stream::unfold(0u32, |n| async move {
        tokio::time::sleep(Duration::from_millis(700)).await;
        let piece = if n == 0 { ready(&[]) } else { create(vm(&format!("v{n}"), n)) };
        let half = piece.len() / 2;
        Some((stream::iter([Ok(piece.slice(..half)), Ok(piece.slice(half..))]), n + 1))
    });
    let body = Mutex::new(Some(body.flatten().boxed()));
    let script = Script::streaming(move |_| {
        let body = body.lock().unwrap().take().unwrap();
        Ok(StreamResponse { status: 200u16.try_into().unwrap(), headers: Default::default(), body })
    });
    let mut watcher = watch(&Vminfod::with_http(script.http()), Jitter::from_seed(1));
    let mut said = Vec::new();
    while said.len() < 5 {
        if let Ok(event) = tokio::time::timeout(Duration::from_millis(300), watcher.next()).await {
            said.push(say(event));
        }
    }
    assert_eq!(said, ["synced ", "created v1/1", "created v2/2", "created v3/3", "created v4/4"]);
}

#[tokio::test]
async fn over_real_sockets_reconnects_included() {
    let served = Arc::new(Mutex::new(0));
    let router = Router::new().route(
        "/events",
        get(move || {
            let mut count = served.lock().unwrap();
            *count += 1;
            let mut vms = vec![vm("a", 1)];
            if *count > 1 {
                vms.push(vm("b", 1));
            }
            let last = *count > 1;
            async move {
                let pieces =
                    stream::iter([ready(&vms), modify(vm("a", 2))].map(Ok::<_, std::io::Error>));
                if last {
                    Body::from_stream(pieces.chain(stream::pending()))
                } else {
                    Body::from_stream(pieces)
                }
            }
        }),
    );
    let vminfod = Vminfod::new(&serve(router).await).unwrap();
    let mut watcher = watch(&vminfod, Jitter::from_seed(3));
    assert_eq!(
        says(&mut watcher, 7).await,
        [
            "synced a/1",
            "modified a/2 from a/1 with 1",
            "lost interrupted",
            "modified a/1 from a/2 with 0",
            "created b/1",
            "synced a/1 b/1",
            "modified a/2 from a/1 with 1",
        ]
    );
}

#[tokio::test]
async fn a_service_without_the_route_says_so() {
    let router = Router::new()
        .fallback(|| async { (axum::http::StatusCode::NOT_FOUND, "Unsupported URL Path") });
    let vminfod = Vminfod::new(&serve(router).await).unwrap();
    let mut watcher = watch(&vminfod, Jitter::from_seed(3));
    let WatchEvent::Lost(error) = watcher.next().await else { panic!("not lost") };
    assert_eq!(error.class(), Class::NotFoundRoute);
    assert_eq!(error.path(), "/events");
}

#[tokio::test(start_paused = true)]
async fn a_broken_stream_is_resumed_and_complete_once_it_has_caught_up() {
    let first = vec![counted(&[vm("a", 1), vm("b", 1)], 7, "e1"), numbered(modify(vm("a", 2)), 8)];
    let second = vec![
        resume(8, 10, "e1"),
        numbered(delete("b"), 9),
        numbered(create(vm("b", 1)), 10),
        numbered(modify(vm("b", 2)), 11),
    ];
    let (mut watcher, script) = watched(vec![ends(first), None, stays(second)]);
    assert_eq!(
        says(&mut watcher, 4).await,
        ["synced a/1 b/1", "modified a/2 from a/1 with 1", "lost interrupted", "lost connect"]
    );
    assert!(!watcher.is_following());
    // A delete and a create of one name are two events, which a snapshot would not have shown.
    assert_eq!(
        says(&mut watcher, 4).await,
        ["deleted b/1", "created b/1", "synced a/2 b/1", "modified b/2 from b/1 with 1"]
    );
    assert_eq!(watcher.position(), (Some("e1"), Some(11)));
    assert_eq!(
        script.targets(),
        ["/events", "/events?epoch=e1&since=8", "/events?epoch=e1&since=8"]
    );
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_resumed_begins_with_a_snapshot() {
    let gone = || {
        let body = json!({ "code": "Gone", "epoch": "e2", "oldest": 1, "newest": 3 }).to_string();
        let body = stream::iter([Ok(Bytes::from(body))]).boxed();
        StreamResponse { status: 410u16.try_into().unwrap(), headers: Default::default(), body }
    };
    let asked = Mutex::new(0);
    let script = Script::streaming(move |request| {
        let mut asked = asked.lock().unwrap();
        *asked += 1;
        let resumes = request.target().contains("since=");
        assert_eq!(resumes, *asked == 2);
        if resumes {
            return Ok(gone());
        }
        let (vms, seq) = if *asked == 1 { (vec![vm("a", 1)], 7) } else { (vec![vm("b", 1)], 2) };
        let epoch = if *asked == 1 { "e1" } else { "e2" };
        let pieces = stream::iter([Ok(counted(&vms, seq, epoch))]);
        let body =
            if *asked == 1 { pieces.boxed() } else { pieces.chain(stream::pending()).boxed() };
        Ok(StreamResponse { status: 200u16.try_into().unwrap(), headers: Default::default(), body })
    });
    let mut watcher = watch(&Vminfod::with_http(script.http()), Jitter::from_seed(7));
    assert_eq!(
        says(&mut watcher, 5).await,
        ["synced a/1", "lost interrupted", "created b/1", "deleted a/1", "synced b/1"]
    );
    assert_eq!(watcher.position(), (Some("e2"), Some(2)));
    // Being told so is no failure: there was no pause before the third request.
    let times = script.times();
    assert_eq!(times[1], times[2]);
}

#[tokio::test(start_paused = true)]
async fn a_line_that_made_no_sense_is_not_asked_for_again() {
    for bad in [Bytes::from_static(b"{\n"), numbered(modify(vm("a", 3)), 11), resume(8, 8, "e1")] {
        let first = vec![counted(&[vm("a", 1)], 8, "e1"), bad];
        let second = vec![counted(&[vm("a", 3)], 11, "e1")];
        let (mut watcher, script) = watched(vec![ends(first), stays(second)]);
        let said = says(&mut watcher, 4).await;
        assert_eq!(said[1..], ["lost protocol", "modified a/3 from a/1 with 0", "synced a/3"]);
        assert_eq!(script.targets(), ["/events", "/events"]);
    }
    // Nor is a resume that goes on elsewhere believed.
    let first = vec![counted(&[vm("a", 1)], 8, "e1")];
    for other in [resume(7, 8, "e1"), resume(8, 8, "e2")] {
        let second = vec![other];
        let third = vec![counted(&[vm("a", 1)], 8, "e1")];
        let (mut watcher, _) = watched(vec![ends(first.clone()), ends(second), stays(third)]);
        assert_eq!(
            says(&mut watcher, 4).await,
            ["synced a/1", "lost interrupted", "lost protocol", "synced a/1"]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_is_made_again_is_another_and_knows_its_node() {
    let made = |at: &str, ram: u32| json!({ "zonename": "a", "uuid": "a", "ram": ram, "create_timestamp": at, "server_uuid": "cn" });
    let first =
        vec![ready(&[made("t1", 1)]), modify(made("t1", 2)), delete("a"), create(made("t2", 1))];
    // Deleted and created again while nobody looked: the snapshot shows it by what never changes.
    let second = vec![ready(&[made("t3", 1)])];
    let (mut watcher, _) = watched(vec![ends(first), stays(second)]);
    let mut seen = Vec::new();
    for _ in 0..8 {
        match watcher.next().await {
            WatchEvent::Synced(vms) => seen.push(format!("synced {}", vms[0].incarnation())),
            WatchEvent::Created(vm) => {
                assert_eq!(vm.node_uuid(), Some("cn"));
                seen.push(format!("created {}", vm.incarnation()));
            }
            WatchEvent::Modified { vm, old, .. } => {
                seen.push(format!("modified {} {}", old.incarnation(), vm.incarnation()));
            }
            WatchEvent::Deleted { vm } => seen.push(format!("deleted {}", vm.incarnation())),
            WatchEvent::Lost(_) => seen.push("lost".to_owned()),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(
        seen,
        [
            "synced 1",
            "modified 1 1",
            "deleted 1",
            "created 2",
            "lost",
            "deleted 2",
            "created 3",
            "synced 3"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn waiting_ends_for_what_is_so_already_and_for_what_comes_to_be() {
    let limit = Duration::from_secs(60);
    let connection =
        || stays(vec![ready(&[vm("a", 1)]), modify(vm("a", 2)), create(vm("b", 1)), delete("a")]);
    let ram = |name: &'static str, ram: u32| {
        move |view: &View| view.get(name).is_some_and(|vm| vm["ram"] == ram)
    };
    let wait = async |holds: &mut dyn FnMut(&View) -> bool| {
        let (mut watcher, _) = watched(vec![None, connection()]);
        watcher.wait_for(holds, limit).await
    };
    wait(&mut ram("a", 1)).await.unwrap();
    wait(&mut ram("a", 2)).await.unwrap();
    wait(&mut |view: &View| view.len() == 1 && view.get("b").is_some()).await.unwrap();
    let never = wait(&mut ram("c", 1)).await.unwrap_err();
    assert!(matches!(never.class(), Class::Timeout(_)), "{never}");
}
