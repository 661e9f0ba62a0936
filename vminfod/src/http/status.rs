// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `/status`: every key of the shipped service, then our own keys.

use daemon::http::{Listeners, now_iso};
use sdc_clients::vminfod::Incomplete;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::compat::{hrtime, pretty};
use crate::reconcile::status::{Status, UNANNOUNCED, View};
use crate::sources::fswatcher;
use crate::sources::sysevent::Channel;
use crate::store::Published;

/// Returns RFD 39's status: fewer keys, durations as numbers, the running readings by name.
pub(super) fn rfd39(board: &Status, max_jobs: usize) -> Value {
    let view = board.view();
    let rss = daemon::process::usage().resident;
    let names = |names: Vec<&String>| json!(names);
    json!({
        "pid": std::process::id(),
        "uptime": board.started.elapsed().as_secs(),
        "memory": {"rss": rss, "heapTotal": rss, "heapUsed": rss},
        "state": state(&view),
        "status": view.phase(),
        "queue": {
            "paused": view.refresh.is_some(),
            "working": view.pending.len(),
            "max_jobs": max_jobs,
            "channels": names(view.pending.keys().collect()),
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
    board: &Status,
    listeners: &Listeners,
    full: bool,
) -> Value {
    let clock = Clock { started: board.started, now: Instant::now() };
    let view = board.view();
    let snapshot = published.snapshot();
    let rss = daemon::process::usage().resident;
    let mut out = Map::new();
    let mut put = |key: &str, value: Value| out.insert(key.to_owned(), value);
    put("pid", json!(board.watching.pid()));
    put("uptime", json!(pretty(clock.now - clock.started)));
    put("memory", json!({"rss": rss, "heapTotal": rss, "heapUsed": rss}));
    put("state", json!(state(&view)));
    put("status", json!(view.phase()));
    put("numVms", json!(snapshot.vms.len()));
    put("curDate", json!(now_iso()));
    put("curTime", json!(hrtime(clock.now - clock.started)));
    put("queue", queue(&view, &clock));
    put("lastRefresh", view.last_refresh.map_or(Value::Null, |(at, _)| json!(clock.ago(at))));
    put(
        "refreshErrors",
        view.refresh_errors
            .iter()
            .map(|(err, at)| json!({"err": err, "time": clock.time(*at), "ago": clock.ago(*at)}))
            .collect(),
    );
    put(
        "eventsListeners",
        listeners
            .list()
            .into_iter()
            .map(|(uuid, listener)| {
                (
                    uuid,
                    json!({
                        "userAgent": listener.user_agent,
                        "createdTime": clock.time(listener.created),
                        "createdDate": listener.created_date,
                        "createdAgo": clock.ago(listener.created),
                    }),
                )
            })
            .collect::<Map<_, _>>()
            .into(),
    );
    if full {
        put("refreshLog", refresh_log(&view, &clock));
        let (watching, missing) = board.watching.presence();
        put(
            "fswatcher",
            json!({
                "message_delays": {},
                "watching": watching,
                "not_yet_watching": missing,
                "pending_actions": {},
                "watcher_pid": board.watching.pid(),
                "running": board.is_up(fswatcher::NAME),
            }),
        );
    }
    put("errors", errors(&view, &clock));
    put("incomplete", incomplete(view.incomplete()));
    put("stale", json!(view.stale));
    put("zfs", zfs(&view, &clock));
    put(
        "sources",
        view.sources
            .iter()
            .map(|(name, up)| ((*name).to_owned(), json!(if *up { "running" } else { "down" })))
            .collect::<Map<_, _>>()
            .into(),
    );
    let c = view.counters;
    put(
        "counters",
        json!({
            "loads": c.loads, "loadFailures": c.load_failures, "refreshes": c.refreshes, "sweeps": c.sweeps,
            "unannounced": view.unannounced.values().sum::<u64>(), "unannouncedBy": view.unannounced, "filesConfirmed": c.confirmed, "sourceRestarts": view.restarts.values().sum::<u64>(), "rebootsShown": c.reboots_shown,
        }),
    );
    let (oldest, newest) = published.journal.span();
    put(
        "journal",
        json!({
            "epoch": published.epoch, "seq": snapshot.seq, "oldest": oldest, "newest": newest,
            "bytes": published.journal.bytes(),
        }),
    );
    Value::Object(out)
}

fn queue(view: &View, clock: &Clock) -> Value {
    let idle = view.is_idle();
    let pending: Map<String, Value> = view
        .pending
        .iter()
        .map(|(name, (asked, began))| {
            (
                name.clone(),
                json!({
                    "description": format!("load {name}"),
                    "created_at": clock.time(*asked),
                    "started_at": clock.time(*began),
                    "created_ago": clock.ago(*asked),
                    "started_ago": clock.ago(*began),
                    "start_latency": pretty(began.saturating_duration_since(*asked)),
                }),
            )
        })
        .collect();
    let queued: Vec<Value> = view
        .queued()
        .into_iter()
        .map(|(name, asked)| {
            json!({
                "description": format!("load {name}"),
                "created_at": clock.time(asked),
                "created_ago": clock.ago(asked),
            })
        })
        .collect();
    let mut out =
        json!({"now": clock.time(clock.now), "paused": view.refresh.is_some(), "idle": idle});
    if let Some(refresh) = view.refresh {
        // Nothing is paused here; deployed clients read these keys.
        out["paused_at"] = json!(clock.time(refresh.began));
        out["paused_ago"] = json!(clock.ago(refresh.began));
        out["paused_nqueued"] = json!(0);
        out["paused_queue"] = json!([]);
    }
    out["vasync_queue"] = json!({
        "concurrency": 1, "npending": pending.len(), "nqueued": queued.len(), "pending": pending, "queued": queued,
    });
    out
}

fn refresh_log(view: &View, clock: &Clock) -> Value {
    view.refresh_log
        .iter()
        .map(|entry| {
            let changes: Vec<Value> = entry
                .vm_changes
                .iter()
                .map(|(name, action)| json!({"zonename": name, "action": action}))
                .collect();
            json!({
                "cacheChanges": [],
                "vmChanges": changes,
                "started": clock.time(entry.started),
                "ended": clock.time(entry.ended),
                "took": pretty(entry.ended - entry.started),
                "endedAgo": clock.ago(entry.ended),
            })
        })
        .collect()
}

fn errors(view: &View, clock: &Clock) -> Value {
    view.errors
        .iter()
        .map(|(name, trouble)| {
            (
                name.clone(),
                json!({
                    "source": trouble.source,
                    "message": trouble.message,
                    "attempts": trouble.attempts,
                    "since": clock.ago(trouble.since),
                }),
            )
        })
        .collect::<Map<_, _>>()
        .into()
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
    json!({"listedAgo": view.datasets_listed.map(|at| clock.ago(at)), "announced": why.is_none(), "changes": seen})
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
