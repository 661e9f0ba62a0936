// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Statement 130: each field of `/status` is what it names, as seen from outside the daemon.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use daemon::http::now_iso;
use serde_json::{Value, json};
use simnode::{Verbs, Wait};
use testbed::client::tools::fetch;
use tokio::time::Instant;

use super::super::common::{Lab, until};
use super::{follow, one_in, uuid_of};

/// Keys whose members' names differ from node to node.
const NAMED: [&str; 4] = ["eventsListeners", "errors", "sources", "queue.vasync_queue.pending"];

/// A map of what a busy machine may make slow: its members are not looked at.
const SLOW: &str = "zfs.slow";

/// The paths of all values that are neither an object nor a list; `*` stands for a name, `[]` for an index.
fn leaves(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    let below = |key: &str| match path {
        "" => key.to_owned(),
        _ if NAMED.contains(&path) => format!("{path}.*"),
        _ => format!("{path}.{key}"),
    };
    match value {
        Value::Object(map) if !map.is_empty() && path != SLOW => {
            map.iter().for_each(|(key, value)| leaves(value, &below(key), found));
        }
        Value::Array(list) if list.iter().any(Value::is_object) => {
            list.iter().for_each(|value| leaves(value, &format!("{path}[]"), found));
        }
        _ => {
            found.insert(path.to_owned());
        }
    }
}

/// The seconds of `12.345678901` and of `12.345678901s (12.35s)`.
fn seconds(value: &Value) -> f64 {
    value.as_str().unwrap().split("s (").next().unwrap().parse().unwrap()
}

/// A moment between two others, of which both are known from outside.
struct Between {
    first: Instant,
    last: Instant,
}

impl Between {
    /// Returns true if this is how long ago the moment is.
    fn is_ago(&self, value: &Value) -> bool {
        (self.last.elapsed().as_secs_f64() - 1.0..=self.first.elapsed().as_secs_f64())
            .contains(&seconds(value))
    }
}

/// A field of `/proc/PID/status`.
fn of_process(pid: &Value, field: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
    line.split_whitespace().next().unwrap_or("0").parse().unwrap()
}

#[cfg(target_os = "linux")] // reads /proc
#[tokio::test(flavor = "multi_thread")] // S130
async fn each_field_of_the_status_is_what_it_names() {
    let first = Instant::now();
    let lab = Lab::start(|options| options.vms = 24).await;
    let start = Between { first, last: Instant::now() };
    let (url, asked_at) = (lab.vminfod_url(), now_iso());
    let pid = lab.pid("vminfod").unwrap();

    // A VM that cannot be read, a listener, and a refresh that finds what nobody announced.
    let (broken, quiet) = (one_in(&lab, "stopped").await, one_in(&lab, "running").await);
    std::fs::write(lab.node().zone_xml(uuid_of(&broken)), "<zone").unwrap();
    let failing = |status: &Value| status["errors"].get(uuid_of(&broken)).is_some();
    until("it cannot be read", async || failing(&fetch(&url, "/status").await.unwrap())).await;
    let first = Instant::now();
    let stream = follow(&lab).await;
    let listening = Between { first, last: Instant::now() };
    let losing = lab.node().losing_events();
    Verbs::new(&losing, Wait::none()).set_quota(uuid_of(&quiet), 77).await.unwrap();
    let first = Instant::now();
    fetch(&url, "/vms?sync=true").await.unwrap();
    let refresh = Between { first, last: Instant::now() };

    // The VM that cannot be read is tried again between any two answers: the answer that shows rest is compared.
    let status = Mutex::new(Value::Null);
    until("it rests", async || {
        let now = fetch(&url, "/status?full=true").await.unwrap();
        let queue = &now["queue"];
        let rests = queue["idle"] == true
            && queue["vasync_queue"]["nqueued"] == 0
            && now["state"] == "running";
        *status.lock().unwrap() = now;
        rests
    })
    .await;
    let status = status.into_inner().unwrap();
    let vms = fetch(&url, "/vms").await.unwrap().as_array().unwrap().len();
    let at = |path: &str| path.split('.').fold(&status, |value, key| &value[key]).clone();
    let count = |path: &str| at(path).as_u64().unwrap();
    let one_of = |path: &str| {
        at(path).as_object().unwrap().iter().next().map(|(k, v)| (k.clone(), v.clone())).unwrap()
    };
    let (listener_uuid, listener) = one_of("eventsListeners");
    let (failing_zone, trouble) = one_of("errors");
    let entry = at("refreshLog").as_array().unwrap().last().cloned().unwrap();
    let is_there = |path: &Value| Path::new(path.as_str().unwrap()).exists();
    let helper = at("fswatcher.watcher_pid");
    let helper_runs = std::fs::read(format!("/proc/{helper}/cmdline")).unwrap_or_default();
    let rss = of_process(&json!(pid), "VmRSS:").max(1) * 1024;
    let is_rss = |path: &str| (rss / 2..=rss * 2).contains(&count(path));
    let all =
        |path: &str, holds: &dyn Fn(&Value) -> bool| at(path).as_array().unwrap().iter().all(holds);
    let is_date = |value: &Value| {
        let now = now_iso();
        (asked_at.as_str()..=now.as_str()).contains(&value.as_str().unwrap())
    };
    let epoch = &stream.ready["epoch"];

    let rows: Vec<(&str, bool)> = vec![
        ("pid", at("pid") == pid),
        ("uptime", start.is_ago(&at("uptime"))),
        ("memory.rss", is_rss("memory.rss")),
        ("memory.heapTotal", is_rss("memory.heapTotal")),
        ("memory.heapUsed", is_rss("memory.heapUsed")),
        ("state", at("state") == "running"),
        ("status", at("status") == "working"),
        ("numVms", at("numVms") == vms && vms == 24),
        ("curDate", is_date(&at("curDate"))),
        ("curTime", start.is_ago(&at("curTime"))),
        ("queue.now", start.is_ago(&at("queue.now"))),
        ("queue.paused", at("queue.paused") == false),
        ("queue.idle", at("queue.idle") == true),
        ("queue.vasync_queue.concurrency", count("queue.vasync_queue.concurrency") == 1),
        ("queue.vasync_queue.npending", count("queue.vasync_queue.npending") == 0),
        (
            "queue.vasync_queue.nqueued",
            count("queue.vasync_queue.nqueued") as usize
                == at("queue.vasync_queue.queued").as_array().unwrap().len(),
        ),
        ("queue.vasync_queue.pending", at("queue.vasync_queue.pending") == json!({})),
        ("queue.vasync_queue.queued", at("queue.vasync_queue.queued") == json!([])),
        ("lastRefresh", refresh.is_ago(&at("lastRefresh"))),
        ("refreshErrors", at("refreshErrors") == json!([])),
        (
            "eventsListeners.*.userAgent",
            listener_uuid == stream.ready["uuid"].as_str().unwrap()
                && listener["userAgent"].as_str().unwrap().starts_with("vmadm - cn/"),
        ),
        (
            "eventsListeners.*.createdTime",
            seconds(&listener["createdTime"]) <= seconds(&at("curTime")),
        ),
        ("eventsListeners.*.createdDate", is_date(&listener["createdDate"])),
        ("eventsListeners.*.createdAgo", listening.is_ago(&listener["createdAgo"])),
        ("refreshLog[].cacheChanges", entry["cacheChanges"] == json!([])),
        (
            "refreshLog[].vmChanges[].zonename",
            entry["vmChanges"][0]["zonename"] == quiet["zonename"],
        ),
        ("refreshLog[].vmChanges[].action", entry["vmChanges"][0]["action"] == "modify"),
        ("refreshLog[].started", seconds(&entry["started"]) <= seconds(&entry["ended"])),
        ("refreshLog[].ended", seconds(&entry["ended"]) <= seconds(&at("curTime"))),
        (
            "refreshLog[].took",
            (seconds(&entry["took"]) - seconds(&entry["ended"]) + seconds(&entry["started"])).abs()
                < 0.001,
        ),
        ("refreshLog[].endedAgo", refresh.is_ago(&entry["endedAgo"])),
        ("fswatcher.message_delays", at("fswatcher.message_delays") == json!({})),
        (
            "fswatcher.watching",
            all("fswatcher.watching", &is_there)
                && at("fswatcher.watching").as_array().unwrap().len() > vms,
        ),
        ("fswatcher.not_yet_watching", all("fswatcher.not_yet_watching", &|path| !is_there(path))),
        ("fswatcher.pending_actions", at("fswatcher.pending_actions") == json!({})),
        (
            "fswatcher.watcher_pid",
            of_process(&helper, "PPid:") == u64::from(pid)
                && String::from_utf8_lossy(&helper_runs).contains("fswatcher"),
        ),
        ("fswatcher.running", at("fswatcher.running") == true),
        ("errors.*.source", failing_zone == uuid_of(&broken) && trouble["source"] == "zone_xml"),
        ("errors.*.alias", trouble["alias"].is_string() && trouble["alias"] == broken["alias"]),
        ("errors.*.message", trouble["message"].as_str().unwrap().contains(uuid_of(&broken))),
        ("errors.*.attempts", trouble["attempts"].as_u64() > Some(0)),
        ("errors.*.since", start.last.elapsed().as_secs_f64() > seconds(&trouble["since"])),
        ("incomplete", at("incomplete") == json!([broken["zonename"]])),
        ("stale", at("stale") == false),
        ("zfs.listedAgo", refresh.is_ago(&at("zfs.listedAgo"))),
        ("zfs.announced", at("zfs.announced") == true),
        (SLOW, at(SLOW).is_object()),
        ("zfs.changes", at("zfs.changes") == "changes are shown when their event comes"),
        (
            "sources.*",
            at("sources")
                == json!({"zone events": "running", "zfs events": "running", "files": "running"}),
        ),
        ("counters.loads", count("counters.loads") > 0),
        (
            "counters.loadFailures",
            (1..=trouble["attempts"].as_u64().unwrap()).contains(&count("counters.loadFailures")),
        ),
        ("counters.refreshes", count("counters.refreshes") == 2),
        (
            "counters.sweeps",
            (count("counters.sweeps") as f64) <= start.first.elapsed().as_secs_f64(),
        ),
        ("counters.unannounced", count("counters.unannounced") == 1),
        ("counters.unannouncedBy.zfs", count("counters.unannouncedBy.zfs") == 1),
        ("counters.filesConfirmed", count("counters.filesConfirmed") <= 5 * vms as u64),
        ("counters.sourceRestarts", count("counters.sourceRestarts") == 0),
        ("counters.rebootsShown", count("counters.rebootsShown") == 0),
        ("journal.epoch", at("journal.epoch") == *epoch),
        (
            "journal.seq",
            at("journal.seq") == at("journal.newest")
                && count("journal.seq") > stream.ready["seq"].as_u64().unwrap(),
        ),
        ("journal.oldest", count("journal.oldest") <= count("journal.newest")),
        ("journal.newest", count("journal.newest") > 0),
        ("journal.bytes", count("journal.bytes") > 0),
    ];
    let wrong = rows.iter().filter(|(_, holds)| !holds).map(|(path, _)| {
        let shown = at(path.split(['*', '[']).next().unwrap().trim_end_matches('.'));
        format!("{path} is not what it names: {shown}")
    });
    assert_eq!(wrong.collect::<Vec<_>>(), Vec::<String>::new(), "vminfod has the pid {pid}");
    let known: BTreeSet<String> = rows.iter().map(|(path, _)| (*path).to_owned()).collect();
    let mut shown = BTreeSet::new();
    leaves(&status, "", &mut shown);
    assert_eq!(shown, known, "a field that nobody looks at, or a row without a field");
    let rfd39 = fetch(&url, "/status?format=rfd39").await.unwrap();
    assert_eq!(rfd39["pid"], pid);
    assert!(Duration::from_secs(rfd39["uptime"].as_u64().unwrap()) <= start.first.elapsed());
    lab.stop().await;
}
