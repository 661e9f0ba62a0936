// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The content of `/status`.

use serde_json::{Map, Value, json};
use trust::Keeper;

use super::parts::Parts;

/// Returns `/status`: what the tasks wait for, the open migrations with their orders, and what was refused.
pub fn status(parts: &Parts, keeper: Option<&Keeper>) -> Value {
    let doing = parts.works.all();
    let open = parts.memory.open();
    let waiting = open.values().filter(|entry| entry.waits.is_some()).map(|entry| {
        format!("migration-service's answer about VM {}, which does not boot before", entry.vm)
    });
    let waiting: Vec<String> = waiting.chain(parts.status.waiting_for()).collect();
    let migrations = open.iter().map(|(migration, entry)| {
        let order = doing.iter().find(|(id, _)| id == migration).map(|(_, doing)| doing);
        json!({
            "migration": migration, "vm": entry.vm, "end": entry.end, "revision": entry.revision,
            "held": entry.hold, "hidden": entry.hidden, "quotas": entry.quotas,
            "waits": entry.waits.is_some(), "replaced": entry.replaced, "order": order,
        })
    });
    let counted = |counts: &mut dyn Iterator<Item = (&'static str, u64)>| -> Map<String, Value> {
        counts.map(|(name, count)| (name.to_owned(), count.into())).collect()
    };
    let mut page = parts.status.to_json();
    for (key, value) in [
        ("version", env!("CARGO_PKG_VERSION").into()),
        ("waiting_for", waiting.into()),
        ("cn_uuid", json!(parts.cn)),
        ("mbps", parts.streams.rate.mbps().into()),
        ("migrations", migrations.collect()),
        ("refused_requests", counted(&mut parts.counts.refusals()).into()),
        ("refused_streams", counted(&mut parts.streams.refusals.counts()).into()),
        ("certificate", keeper.map(certificate).into()),
    ] {
        page[key] = value;
    }
    page
}

/// The state of the agent's certificate.
fn certificate(keeper: &Keeper) -> Value {
    let standing = keeper.standing();
    json!({
        "until": standing.until.map(trust::date),
        "authority": standing.issuer,
        "key": standing.key,
        "needs": keeper.needs(),
    })
}
