// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What `/status`, `/plan`, `/history` and `/holds` contain.

use std::time::Duration;

use daemon::agent::{Mode, approval_json};
use daemon::disk;
use daemon::http::{Body, ok, refuse};
use daemon::log::clip;
use daemon::text::counted;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use crate::history::Query;
use crate::holds::Hold;
use crate::parts::Parts;

/// Entries of the history that the page has.
const REMEMBERED: usize = 200;
/// Zones of one kind that are named as something to wait for.
const SHOWN: usize = 8;

/// Returns `/status`.
pub(crate) async fn status(parts: &Parts) -> Value {
    let mut page = parts.status.to_json();
    let (unknown, unread, older) = parts.node.with(|i| {
        let unknown: Vec<_> = i.view.unknown().take(SHOWN).cloned().collect();
        (unknown, i.view.unread.clone(), i.view.older.clone())
    });
    if let Some(waiting) = page["waiting_for"].as_array_mut() {
        waiting.extend(unknown.iter().map(|zone| {
            format!("vminfod: the NICs of zone {zone} are not known, so nothing is deleted").into()
        }));
    }
    if let Some(waiting) = page["waiting_for"].as_array_mut() {
        waiting.extend(held_up(parts).await.into_iter().map(Value::from));
    }
    let config = &parts.config;
    let approved = parts.brake.approval_given();
    let strays = parts.departures.strays();
    for (key, value) in [
        ("brake", parts.brake.sentence().into()),
        ("approved", approved.map(|approval| approval_json(&approval, parts.clock.now())).into()),
        ("memory", parts.state_file.sentence().into()),
        ("version", env!("CARGO_PKG_VERSION").into()),
        ("cn_uuid", config.policy.cn_uuid.clone().into()),
        ("mode", config.basics.mode.name().into()),
        ("mute", parts.gate.writable().err().map(|refusal| refusal.to_string()).into()),
        ("vms", parts.node.with(|i| i.view.vms.len()).into()),
        ("unread_zones", unread.into_iter().collect()),
        ("zones_as_read_earlier", older.into_iter().collect()),
        ("candidates", parts.brake.candidates().into()),
        ("requests", parts.clients.pace.taken().into()),
        ("holds", holds(parts).await),
        ("departed", departed(parts)),
        ("from_last_run", strays.keys().map(ToString::to_string).collect()),
    ] {
        page[key] = value;
    }
    page
}

/// Returns what holds work up besides what the tasks wait for.
async fn held_up(parts: &Parts) -> Vec<String> {
    let mut all = Vec::new();
    if parts.brake.sentence().is_some() {
        all.push(match parts.brake.approval_given() {
            Some(approval) if approval.left > 0 => {
                format!("the deletes of {} approved records", approval.left)
            }
            _ => "an operator: the brake is on, see `net-agent plan --fresh`".to_owned(),
        });
    }
    if parts.config.basics.mode == Mode::Report {
        all.push("mode \"on\": in report mode nothing is written".to_owned());
    }
    all.extend(in_force(parts).await.iter().take(SHOWN).map(|hold| {
        let what = hold.vm.as_deref().unwrap_or("the whole node");
        clip(&format!("the end of the hold on {what}: {}", hold.reason))
    }));
    let departed = parts.departures.all();
    if let Some((mac, first)) = departed.first() {
        let count = counted(departed.len(), "NIC", "NICs");
        let why = clip(&first.why.to_string());
        all.push(format!("{count} that left the node, the first {mac}: {why}"));
    }
    all
}

/// Returns `/plan`.
pub(crate) fn plan(parts: &Parts) -> Value {
    let mut page = parts.status.plan_json();
    page["departed"] = departed(parts);
    page["braked"] = parts.brake.sentence().into();
    page["approval"] = parts.brake.offered().map_or(Value::Null, |(offer, left)| {
        let nics =
            offer.pairs.iter().map(|(mac, etag)| json!({"mac": mac.to_string(), "etag": etag}));
        let nics: Vec<Value> = nics.collect();
        json!({"id": offer.id, "expires_in_s": left.as_secs(), "nics": nics})
    });
    page
}

fn departed(parts: &Parts) -> Value {
    let now = parts.clock.now();
    let ms = |due: Duration| u64::try_from(due.saturating_sub(now).as_millis());
    let all = parts.departures.all().into_iter().map(|(mac, d)| {
        json!({"mac": mac.to_string(), "vm": d.vm, "why": clip(&d.why.to_string()), "tries": d.tries,
            "left": d.left, "due_in_ms": ms(d.due).unwrap_or(u64::MAX)})
    });
    all.collect()
}

/// Answers `/history`: the newest entries, the oldest of them first.
pub(crate) async fn history(parts: &Parts) -> Response<Body> {
    let file = parts.history.clone();
    let read = disk::blocking(move || file.read(&Query::default())).await;
    let why = match read {
        Some(Ok(all)) => {
            let newest = all.get(all.len().saturating_sub(REMEMBERED)..).unwrap_or_default();
            return ok(&serde_json::to_value(newest).unwrap_or_default());
        }
        Some(Err(err)) => err.to_string(),
        None => "the reading was aborted".to_owned(),
    };
    refuse(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", &format!("the history: {why}"))
}

/// Returns the holds in force.
pub(crate) async fn in_force(parts: &Parts) -> Vec<Hold> {
    parts.holds.read_or_hold_all().await.in_force(parts.gate.time()).cloned().collect()
}

/// Returns `/holds`.
pub(crate) async fn holds(parts: &Parts) -> Value {
    serde_json::to_value(in_force(parts).await).unwrap_or_default()
}
