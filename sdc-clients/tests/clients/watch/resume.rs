// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A service that counts its events: gaps, repeats, resuming, and what cannot be resumed.

use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use pretty_assertions::assert_eq;
use sdc_clients::http::StreamResponse;
use sdc_clients::vminfod::{Filter, Mirror, VmFields as _, Vminfod, WatchEvent, watch};
use sdc_clients::{Class, Jitter};
use serde_json::{Value, json};

use super::{
    counted, create, delete, ends, line, modify, numbered, ready, resume, say, says, stays, vm,
    watched, watched_through,
};
use crate::script::Script;

#[tokio::test(start_paused = true)]
async fn a_gap_in_seq_is_a_loss() {
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
async fn a_broken_stream_is_resumed() {
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
async fn a_filtered_stream_has_gaps_and_begins_anew() {
    let first = vec![
        counted(&[vm("a", 1)], 8, "e1"),
        numbered(modify(vm("a", 2)), 11),
        numbered(create(vm("b", 1)), 15),
    ];
    let second = vec![counted(&[vm("b", 2)], 19, "e1")];
    let filter = Filter::default().states(&["running", "stopped"]).uuids(&[]).fields(&["ram"]);
    let (mut watcher, script) = watched_through(filter, vec![ends(first), stays(second)]);
    assert_eq!(
        says(&mut watcher, 7).await,
        [
            "synced a/1",
            "modified a/2 from a/1 with 1",
            "created b/1",
            "lost interrupted",
            "modified b/2 from b/1 with 0",
            "deleted a/2",
            "synced b/2",
        ]
    );
    let query = "filter=1&state=running%2Cstopped&fields=ram%2Cdo_not_inventory%2Ccreate_timestamp";
    assert_eq!(script.targets(), vec![format!("/events?{query}"); 2]);
}

#[tokio::test(start_paused = true)]
async fn a_watcher_is_a_stream_too() {
    let (watcher, _) = watched(vec![stays(vec![ready(&[vm("a", 1)]), modify(vm("a", 2))])]);
    let said: Vec<String> = watcher.into_stream().take(2).map(say).collect().await;
    assert_eq!(said, ["synced a/1", "modified a/2 from a/1 with 1"]);
}

#[tokio::test(start_paused = true)]
async fn a_bad_line_is_not_requested_again() {
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
async fn a_recreated_vm_is_another_one() {
    let made = |at: &str, ram: u32| json!({ "zonename": "a", "uuid": "a", "ram": ram, "create_timestamp": at, "server_uuid": "cn" });
    let first =
        vec![ready(&[made("t1", 1)]), modify(made("t1", 2)), delete("a"), create(made("t2", 1))];
    // Deleted and created again while the watcher was away: the snapshot shows it by what never changes.
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
            WatchEvent::Deleted(vm) => seen.push(format!("deleted {}", vm.incarnation())),
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
async fn waits_end_for_present_and_future_states() {
    let limit = Duration::from_secs(60);
    let connection =
        || stays(vec![ready(&[vm("a", 1)]), modify(vm("a", 2)), create(vm("b", 1)), delete("a")]);
    let ram = |name: &'static str, ram: u32| {
        move |view: &Mirror| view.get(name).is_some_and(|vm| vm["ram"] == ram)
    };
    let wait = async |holds: &mut dyn FnMut(&Mirror) -> bool| {
        let (mut watcher, _) = watched(vec![None, connection()]);
        watcher.wait_for(holds, limit).await
    };
    wait(&mut ram("a", 1)).await.unwrap();
    wait(&mut ram("a", 2)).await.unwrap();
    wait(&mut |view: &Mirror| view.len() == 1 && view.get("b").is_some()).await.unwrap();
    let never = wait(&mut ram("c", 1)).await.unwrap_err();
    assert!(matches!(never.class(), Class::Timeout(_)), "{never}");
}
