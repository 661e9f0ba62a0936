// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What `/status`, `/plan`, `/holds` and `/metrics` contain.

use std::time::Duration;

use daemon::agent::{Mode, approval_json};
use daemon::log::clip;
use serde_json::{Value, json};

use crate::metrics::{Gauge, Reading};
use crate::parts::Parts;
use crate::status::Count;

/// Zones of one kind that are named as something to wait for.
const SHOWN: usize = 8;

/// Returns `/status`.
pub(crate) async fn status(parts: &Parts) -> Value {
    let mut page = parts.status.to_json();
    let (unread, older) = parts.node.look(|i| (i.view.unread.clone(), i.view.older.clone()));
    if let Some(waiting) = page["waiting_for"].as_array_mut() {
        let shown = unread.iter().take(SHOWN);
        waiting.extend(shown.map(|zone| {
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
        ("vms", parts.node.look(|i| i.view.vms.len()).into()),
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
    let holds = parts.holds.read_or_hold_all().await;
    all.extend(holds.in_force(parts.gate.time()).take(SHOWN).map(|hold| {
        let what = hold.vm.as_deref().unwrap_or("the whole node");
        clip(&format!("the end of the hold on {what}: {}", hold.reason))
    }));
    let departed = parts.departures.all();
    if let Some((mac, first)) = departed.first() {
        let count = departed.len();
        let why = clip(&first.why.to_string());
        all.push(format!("{count} NICs that left the node, the first {mac}: {why}"));
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

/// Returns `/holds`: the holds in force.
pub(crate) async fn holds(parts: &Parts) -> Value {
    let holds = parts.holds.read_or_hold_all().await;
    let in_force: Vec<_> = holds.in_force(parts.gate.time()).collect();
    serde_json::to_value(in_force).unwrap_or_default()
}

/// Reads all metrics.
pub(crate) async fn metrics(parts: &Parts) -> Reading {
    let status = &parts.status;
    let flag = |on: bool| f64::from(u8::from(on));
    let size = |n: usize| f64::from(u32::try_from(n).unwrap_or(u32::MAX));
    let holds = holds(parts).await.as_array().map_or(0, Vec::len);
    let last_pass = status.last_pass().map_or(0, |at| at.as_second());
    let last_pass = Duration::from_secs(u64::try_from(last_pass).unwrap_or(0));
    let gauge = |gauge| match gauge {
        Gauge::Listed => size(usize::try_from(status.get(Count::Listed)).unwrap_or(0)),
        Gauge::Unreadable => size(usize::try_from(status.get(Count::Unreadable)).unwrap_or(0)),
        Gauge::Vms => size(parts.node.look(|i| i.view.vms.len())),
        Gauge::Brake => flag(parts.brake.sentence().is_some()),
        Gauge::Writing => flag(parts.gate.writable().is_ok()),
        Gauge::Candidates => size(parts.brake.candidates()),
        Gauge::Departed => size(parts.departures.count()),
        Gauge::Holds => size(holds),
        Gauge::MemoryFault => flag(parts.state_file.sentence().is_some()),
        Gauge::LastPass => last_pass.as_secs_f64(),
        Gauge::Uptime => parts.clock.now().as_secs_f64(),
    };
    Reading {
        counts: Count::ALL.iter().map(|count| (*count, status.get(*count))).collect(),
        passes: status.passes(),
        requests: parts.clients.pace.taken(),
        gauges: Gauge::ALL.iter().map(|of| (*of, gauge(*of))).collect(),
    }
}
