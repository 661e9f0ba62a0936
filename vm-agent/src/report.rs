// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What `/status` and `/plan` contain.

use std::time::Duration;

use daemon::agent::approval_json;
use serde_json::{Value, json};

use crate::parts::Parts;

/// Returns `/status`.
pub(crate) fn status(parts: &Parts) -> Value {
    let now = parts.clock.now();
    let mut page = parts.status.to_json();
    page["uptime_s"] = now.as_secs().into();
    let (here, gone, hidden) = parts.node.with(|known| {
        let hidden = known.here.values().filter(|is_hidden| **is_hidden).count();
        (known.here.len(), known.unsettled(), hidden)
    });
    for (key, value) in [
        ("memory", parts.state_file.sentence().into()),
        ("version", env!("CARGO_PKG_VERSION").into()),
        ("cn_uuid", parts.cn_uuid.clone().into()),
        ("mode", parts.config.basics.mode.name().into()),
        ("mute", parts.gate.writable().err().map(|why| why.to_string()).into()),
        ("vms", here.into()),
        ("hidden", hidden.into()),
        ("gone", gone.into()),
        ("approved", parts.approved().map(|approval| approval_json(&approval, now)).into()),
        ("queue", parts.schedule.queued().0.len().into()),
        ("admissions", parts.clients.pace.taken().into()),
    ] {
        page[key] = value;
    }
    page
}

/// Returns `/plan`: what was last decided about each VM, and the queue.
pub(crate) fn plan(parts: &Parts) -> Value {
    let now = parts.clock.now();
    let ms = |at: Duration| u64::try_from(at.saturating_sub(now).as_millis()).unwrap_or(u64::MAX);
    let (queue, busy) = parts.schedule.queued();
    let queue = queue.into_iter().map(|(vm, at)| json!({"vm": vm, "due_in_ms": ms(at)}));
    let approval = parts.offered().map_or(Value::Null, |(offer, left)| {
        let vms: Vec<&String> = offer.pairs.keys().collect();
        json!({"id": offer.id, "expires_in_s": left.as_secs(), "vms": vms})
    });
    json!({"decisions": parts.status.decisions(), "queue": queue.collect::<Vec<_>>(), "busy": busy,
        "brake": parts.status.brake(), "approval": approval,
        "waiting_for": parts.status.waiting_for()})
}
