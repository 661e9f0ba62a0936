// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Statements 18–25: `/status`.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use vminfod::config::Config;

use crate::common::FakeNode;
use crate::common::scene::{A, B, one_vm, refreshing};

/// Digits, a dot, nine digits.
fn is_hrtime(text: &str) -> bool {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    text.split_once('.').is_some_and(|(s, n)| digits(s) && digits(n) && n.len() == 9)
}

/// The same, `s (`, anything, `)`.
fn is_duration(value: &Value) -> bool {
    let parts = value.as_str().and_then(|text| text.split_once("s ("));
    parts.is_some_and(|(time, rest)| is_hrtime(time) && rest.len() > 1 && rest.ends_with(')'))
}

#[tokio::test(flavor = "multi_thread")] // S18
async fn all_base_keys_of_an_idle_daemon_have_their_forms() {
    let (_node, served) = one_vm().await;
    let status = served.json("/status").await;
    let keys: Vec<&str> = status.as_object().unwrap().keys().map(String::as_str).take(12).collect();
    let shipped = "pid uptime memory state status numVms curDate curTime queue lastRefresh \
                   refreshErrors eventsListeners";
    assert_eq!(keys.join(" "), shipped);
    for key in ["pid", "numVms"] {
        assert!(status[key].is_u64(), "{key}: {status}");
    }
    // S20
    assert_eq!((&status["state"], &status["status"]), (&json!("running"), &json!("working")));
    // S19
    assert!(is_hrtime(status["curTime"].as_str().unwrap()), "{status}");
    let date = status["curDate"].as_str().unwrap();
    let form: String = date.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    assert_eq!(form, "0000-00-00T00:00:00.000Z", "{date}");
    for key in ["uptime", "lastRefresh"] {
        assert!(is_duration(&status[key]), "{key}: {}", status[key]);
    }
    for key in ["rss", "heapTotal", "heapUsed"] {
        assert!(status["memory"][key].is_u64(), "{key}: {status}");
    }
    assert_eq!(status["pid"], std::process::id());
    assert_eq!(status["numVms"], 1);
    assert!(status["refreshErrors"].is_array() && status["eventsListeners"].is_object());
    let queue = &status["queue"];
    assert!(is_hrtime(queue["now"].as_str().unwrap()), "{queue}");
    assert!(queue["paused"].is_boolean() && queue["idle"].is_boolean(), "{queue}");
    let inner = &queue["vasync_queue"];
    for key in ["concurrency", "npending", "nqueued"] {
        assert!(inner[key].is_u64(), "{key}: {queue}");
    }
    assert!(inner["pending"].is_object() && inner["queued"].is_array(), "{queue}");
}

#[tokio::test(flavor = "multi_thread")] // S21
async fn refresh_shows_as_a_pause_with_all_its_keys() {
    const PAUSED: [&str; 4] = ["paused_at", "paused_ago", "paused_nqueued", "paused_queue"];
    let (node, served) = one_vm().await;
    let queue = served.json("/status").await["queue"].clone();
    assert_eq!(queue["paused"], false);
    assert!(PAUSED.iter().all(|key| queue.get(key).is_none()), "{queue}");

    let asked = refreshing(&node, &served).await;
    let status = served.json("/status").await;
    let queue = &status["queue"];
    assert_eq!(queue["paused"], true);
    assert!(PAUSED.iter().all(|key| queue.get(key).is_some()), "{queue}");
    assert!(queue["paused_nqueued"].is_u64() && queue["paused_queue"].is_array(), "{queue}");
    assert_ne!(status["status"], "working");

    node.release();
    assert_eq!(asked.await.unwrap(), 200);
    let queue = served.json("/status").await["queue"].clone();
    assert!(PAUSED.iter().all(|key| queue.get(key).is_none()), "{queue}");
}

#[tokio::test(flavor = "multi_thread")] // S22
async fn full_follows_javascript_truthiness() {
    let (_node, served) = one_vm().await;
    for query in ["full=true", "full=1", "full=false"] {
        let status = served.json(&format!("/status?{query}")).await;
        assert!(status["refreshLog"].is_array(), "{query}");
        let watcher = &status["fswatcher"];
        assert!(watcher["watching"].is_array() && watcher["not_yet_watching"].is_array());
        assert!(watcher["message_delays"].is_object() && watcher["pending_actions"].is_object());
        assert!(watcher["running"].is_boolean() && watcher["watcher_pid"].is_u64(), "{watcher}");
    }
    for query in ["full", "full=", "FULL=1", "x=full"] {
        let status = served.json(&format!("/status?{query}")).await;
        assert!(status.get("refreshLog").is_none() && status.get("fswatcher").is_none(), "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")] // S23
async fn listeners_have_the_uuid_of_their_ready_line() {
    let (_node, served) = one_vm().await;
    let listed = |status: &Value| -> BTreeSet<String> {
        status["eventsListeners"].as_object().unwrap().keys().cloned().collect()
    };
    assert!(listed(&served.json("/status").await).is_empty());
    let (first, second) = (served.events().await, served.events().await);
    let [one, other] = [&first, &second].map(|it| it.ready["uuid"].as_str().unwrap().to_owned());
    let status = served.json("/status").await;
    assert_eq!(listed(&status), BTreeSet::from([one.clone(), other.clone()]));
    let one = &status["eventsListeners"][&one];
    assert!(is_hrtime(one["createdTime"].as_str().unwrap()), "{one}");
    assert!(is_duration(&one["createdAgo"]) && one["createdDate"].is_string(), "{one}");
    drop(first);
    let left = BTreeSet::from([other]);
    served.status_until(|status| listed(status) == left).await;
}

#[tokio::test(flavor = "multi_thread")] // S24
async fn user_agent_is_echoed_and_always_a_string() {
    let (_node, served) = one_vm().await;
    let url = format!("{}/events", served.url);
    let client = reqwest::Client::new();
    let named = client.get(&url).header("User-Agent", "vmadm - cn/17 (/usr/vm/sbin/vmadm)");
    let named = named.send().await.unwrap();
    let silent = served.events().await;
    let listeners = |status: &Value| status["eventsListeners"].as_object().unwrap().clone();
    let status = served.status_until(|status| listeners(status).len() == 2).await;
    let listeners = listeners(&status);
    let agents: Vec<&Value> = listeners.values().map(|one| &one["userAgent"]).collect();
    assert!(agents.contains(&&json!("vmadm - cn/17 (/usr/vm/sbin/vmadm)")), "{agents:?}");
    // The deployed tool throws where this is no text.
    assert!(agents.iter().all(|agent| agent.is_string()), "{agents:?}");
    drop((named, silent));
}

#[tokio::test(flavor = "multi_thread")] // S25
async fn refresh_errors_and_log_keep_five_entries() {
    let node = FakeNode::one();
    // A VM that is read again after a failed refresh would leave nothing for the next one to find.
    let late = Duration::from_secs(3600);
    let served = node.serve_as(Config { retry: (late, late), ..node.quiet() }).await;
    served.idle().await;
    for n in 0..7 {
        node.with(|state| state.failing.insert("zfs", format!("failure {n}")));
        assert_eq!(served.get("/vms?sync=true").await.0, 503);
        node.with(|state| state.failing.clear());
        node.set_zone(A, if n % 2 == 0 { "installed" } else { "running" }, None);
        assert_eq!(served.get("/vms?sync=true").await.0, 200);
    }
    let status = served.json("/status?full=1").await;
    let errors = status["refreshErrors"].as_array().unwrap();
    assert_eq!(errors.len(), 5, "{errors:?}");
    assert!(errors[4]["err"].as_str().unwrap().contains("failure 6"), "{errors:?}");
    assert!(is_hrtime(errors[0]["time"].as_str().unwrap()) && is_duration(&errors[0]["ago"]));
    let log = status["refreshLog"].as_array().unwrap();
    assert_eq!(log.len(), 5, "{log:?}");
    assert_eq!(log[4]["vmChanges"][0]["zonename"], A);
    assert_eq!(log[4]["vmChanges"][0]["action"], "modify");
    assert!(log.iter().all(|one| one["cacheChanges"].is_array() && is_duration(&one["took"])));
}

#[tokio::test(flavor = "multi_thread")] // B19, B17
async fn closed_listeners_leave_no_trace() {
    let (node, served) = one_vm().await;
    let mut open = Vec::new();
    for _ in 0..40 {
        open.push(served.events().await);
    }
    assert_eq!(served.json("/status").await["eventsListeners"].as_object().unwrap().len(), 40);
    node.add_zone(B, "configured", None, "two");
    node.zone_event(B, "configured", -1).await;
    for events in &mut open {
        assert_eq!(events.soon().await["type"], "create");
    }
    drop(open);
    served.status_until(|status| status["eventsListeners"].as_object().unwrap().is_empty()).await;
    // Every timer and task ends with the daemon, and the child that it followed.
    drop(served);
    let mut pipe = node.with(|state| state.streams.remove("zones")).unwrap();
    assert!(pipe.write_all(b"{}\n").await.is_err(), "vminfod reads it no more");
}
