// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `/status`: every key of the shipped service, then our own keys.

use std::collections::BTreeMap;

use daemon::http::{Listeners, now_iso};
use sdc_clients::vminfod::Incomplete;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::compat::{hrtime, pretty};
use crate::reconcile::status::{RefreshEntry, SLOW, Status, UNANNOUNCED, View};
use crate::sources::fswatcher;
use crate::sources::sysevent::Channel;
use crate::store::Published;

/// Returns RFD 39's status: fewer keys, durations as numbers, the running readings by name.
pub(super) fn rfd39(status: &Status, max_jobs: usize) -> Value {
    let view = status.view();
    let rss = daemon::process::usage().resident;
    json!({
        "pid": std::process::id(),
        "uptime": status.started.elapsed().as_secs(),
        "memory": {"rss": rss, "heapTotal": rss, "heapUsed": rss},
        "state": state(&view),
        "status": view.phase(),
        "queue": {
            "paused": view.refresh.is_some(),
            "working": view.pending.len(),
            "max_jobs": max_jobs,
            "channels": view.pending.keys().collect::<Vec<_>>(),
            "backlog": view.queued().into_iter().map(|(name, _)| name).collect::<Vec<_>>(),
        },
    })
}

fn state(view: &View) -> &'static str {
    if view.refresh.is_some() { "paused" } else { "running" }
}

/// Returns the status.
pub(super) fn body(
    published: &Published,
    status: &Status,
    listeners: &Listeners,
    full: bool,
) -> Value {
    let clock = Clock { started: status.started, now: Instant::now() };
    let view = status.view();
    let snapshot = published.snapshot();
    let rss = daemon::process::usage().resident;
    let uptime = clock.now - clock.started;
    let mut out = json!({
        "pid": std::process::id(),
        "uptime": pretty(uptime),
        "memory": {"rss": rss, "heapTotal": rss, "heapUsed": rss},
        "state": state(&view),
        "status": view.phase(),
        "numVms": snapshot.vms.len(),
        "curDate": now_iso(),
        "curTime": hrtime(uptime),
        "queue": queue(&view, &clock),
        "lastRefresh": view.last_refresh.map(|(at, _)| clock.ago(at)),
        "refreshErrors": list(&view.refresh_errors, |(err, at)| {
            json!({"err": err, "time": clock.time(*at), "ago": clock.ago(*at)})
        }),
        "eventsListeners": by_name(listeners.list().iter().map(|(uuid, listener)| {
            let listener = json!({
                "userAgent": listener.user_agent,
                "createdTime": clock.time(listener.created),
                "createdDate": listener.created_date,
                "createdAgo": clock.ago(listener.created),
            });
            (uuid, listener)
        })),
    });
    if full {
        out["refreshLog"] = list(&view.refresh_log, |entry| refresh_entry(entry, &clock));
        let (watching, missing) = status.watching.presence();
        out["fswatcher"] = json!({
            "message_delays": {},
            "watching": watching,
            "not_yet_watching": missing,
            "pending_actions": {},
            "watcher_pid": status.watching.pid(),
            "running": status.is_up(fswatcher::NAME),
        });
    }
    out["errors"] = by_name(view.errors.iter().map(|(name, trouble)| {
        // By the last good object; null: it has none.
        let alias =
            snapshot.vms.get(name.as_ref() as &str).and_then(|vm| vm.object().remove("alias"));
        let trouble = json!({
            "alias": alias,
            "source": trouble.source,
            "message": trouble.message,
            "attempts": trouble.attempts,
            "since": clock.ago(trouble.since),
        });
        (name, trouble)
    }));
    out["incomplete"] = incomplete(view.incomplete());
    out["stale"] = json!(view.stale);
    out["zfs"] = zfs(&view, &clock);
    let word = |is_up: &bool| json!(if *is_up { "running" } else { "down" });
    out["sources"] = by_name(view.sources.iter().map(|(name, is_up)| (name, word(is_up))));
    let c = view.counters;
    out["counters"] = json!({
        "loads": c.loads, "loadFailures": c.load_failures, "refreshes": c.refreshes, "sweeps": c.sweeps,
        "unannounced": view.unannounced.values().sum::<u64>(), "unannouncedBy": view.unannounced,
        "filesConfirmed": c.confirmed, "sourceRestarts": view.restarts.values().sum::<u64>(),
        "rebootsShown": c.reboots_shown,
    });
    let (oldest, newest) = published.journal.span();
    out["journal"] = json!({
        "epoch": published.epoch, "seq": snapshot.seq, "oldest": oldest, "newest": newest,
        "bytes": published.journal.bytes(),
    });
    out
}

fn by_name(entries: impl Iterator<Item = (impl ToString, Value)>) -> Value {
    entries.map(|(name, value)| (name.to_string(), value)).collect::<Map<_, _>>().into()
}

fn list<'a, T: 'a>(all: impl IntoIterator<Item = &'a T>, one: impl Fn(&T) -> Value) -> Value {
    all.into_iter().map(one).collect()
}

fn queue(view: &View, clock: &Clock) -> Value {
    let pending = by_name(view.pending.iter().map(|(name, (asked, began))| {
        let reading = json!({
            "description": format!("load {name}"),
            "created_at": clock.time(*asked),
            "started_at": clock.time(*began),
            "created_ago": clock.ago(*asked),
            "started_ago": clock.ago(*began),
            "start_latency": pretty(began.saturating_duration_since(*asked)),
        });
        (name, reading)
    }));
    let waiting = view.queued();
    let queued = list(&waiting, |(name, asked)| {
        json!({
            "description": format!("load {name}"),
            "created_at": clock.time(*asked),
            "created_ago": clock.ago(*asked),
        })
    });
    let mut out = json!({
        "now": clock.time(clock.now), "paused": view.refresh.is_some(), "idle": view.is_idle(),
    });
    if let Some(refresh) = view.refresh {
        // Nothing is paused here; deployed clients read these keys.
        out["paused_at"] = json!(clock.time(refresh.began));
        out["paused_ago"] = json!(clock.ago(refresh.began));
        out["paused_nqueued"] = json!(0);
        out["paused_queue"] = json!([]);
    }
    out["vasync_queue"] = json!({
        "concurrency": 1, "npending": view.pending.len(), "nqueued": waiting.len(),
        "pending": pending, "queued": queued,
    });
    out
}

fn refresh_entry(entry: &RefreshEntry, clock: &Clock) -> Value {
    json!({
        "cacheChanges": [],
        "vmChanges": list(&entry.vm_changes, |(name, action)| json!({"zonename": name, "action": action})),
        "started": clock.time(entry.started),
        "ended": clock.time(entry.ended),
        "took": pretty(entry.ended - entry.started),
        "endedAgo": clock.ago(entry.ended),
    })
}

/// When the datasets were listed, and how late a change of them can be shown.
fn zfs(view: &View, clock: &Clock) -> Value {
    let why = if view.is_down(Channel::Datasets.name()) {
        Some("the zfs event source is down")
    } else if view.are_datasets_silent {
        Some("the last refreshes found changes that the zfs event source had not announced")
    } else {
        None
    };
    let (often, seldom) = (UNANNOUNCED.as_secs(), view.refresh_every.as_secs());
    let seen = match why {
        None => "changes are shown when their event comes".to_owned(),
        Some(why) => format!(
            "{why}: filesystems and volumes are listed every {often} s, snapshots every {seldom} s"
        ),
    };
    let mut slow: BTreeMap<&str, String> =
        view.slow.iter().map(|(name, took)| (name.as_str(), pretty(*took))).collect();
    let under_way = view.listings.iter().filter(|(_, began)| began.elapsed() >= SLOW);
    slow.extend(under_way.map(|(name, began)| (name.as_str(), clock.ago(*began))));
    json!({
        "listedAgo": view.datasets_listed.map(|at| clock.ago(at)), "announced": why.is_none(),
        "changes": seen, "slow": slow,
    })
}

/// The names of the zones, or `*`.
fn incomplete(incomplete: Incomplete) -> Value {
    match incomplete {
        Incomplete::Nothing => json!([]),
        Incomplete::Zones(names) => json!(names),
        Incomplete::Everything => json!(["*"]),
    }
}

struct Clock {
    started: Instant,
    now: Instant,
}

impl Clock {
    fn time(&self, at: Instant) -> String {
        hrtime(at.saturating_duration_since(self.started))
    }

    fn ago(&self, at: Instant) -> String {
        pretty(self.now.saturating_duration_since(at))
    }
}
