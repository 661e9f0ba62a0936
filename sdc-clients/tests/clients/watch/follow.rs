// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A stream and the time without one: snapshots, changes, silence, refusals.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use pretty_assertions::assert_eq;
use sdc_clients::http::StreamResponse;
use sdc_clients::vminfod::{Vminfod, WatchEvent, watch};
use sdc_clients::{Class, Jitter};
use serde_json::{Value, json};

use super::{create, delete, ends, line, modify, ready, say, says, stays, vm, watched};
use crate::script::{Script, serve};

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
async fn changes_during_a_gap_come_before_synced() {
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
async fn create_of_a_known_vm_and_modify_of_an_unknown_one() {
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
async fn refusals_delete_nothing_and_back_off() {
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
async fn ready_comes_first_and_within_30_s() {
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
    let vminfod = Vminfod::new(&serve(router).await, "test/1").unwrap();
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
    let vminfod = Vminfod::new(&serve(router).await, "test/1").unwrap();
    let mut watcher = watch(&vminfod, Jitter::from_seed(3));
    let WatchEvent::Lost(error) = watcher.next().await else { panic!("not lost") };
    assert_eq!(error.class(), Class::NotFoundRoute);
    assert_eq!(error.path(), "/events");
}
