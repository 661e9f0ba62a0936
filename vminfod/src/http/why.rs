// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `/why/UUID`: the source of each field of a VM; for each source the time of its last reading, whether it
//! is stale, and its error; and which witnesses have the zone.

use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::reconcile::asks::{SourceWhy, Why};
use crate::store::Snapshot;
use vm_model::compose::origin::source_of;

/// `{"uuid","witnesses":{"row","index","xml","dataset","seen_to_go"},
/// "sources":{NAME:{"read_ms_ago","stale","error"}},"fields":{FIELD:SOURCE}}`
pub(super) fn body(why: &Why, snapshot: &Snapshot) -> Value {
    let now = Instant::now();
    let sources: Map<String, Value> =
        why.sources.iter().map(|source| (source.name.clone(), one(source, now))).collect();
    let object = snapshot.vms.get(why.zonename.as_str()).map(|vm| vm.object());
    let fields: Map<String, Value> = object
        .into_iter()
        .flat_map(|object| object.into_iter())
        .map(|(field, _)| {
            let source = json!(source_of(&field));
            (field, source)
        })
        .collect();
    let witnesses = json!({
        "row": why.witnesses.map(|it| it.row),
        "index": why.witnesses.map(|it| it.index),
        "xml": why.witnesses.map(|it| it.xml),
        "dataset": why.dataset,
        "seen_to_go": why.seen_to_go,
    });
    json!({"uuid": why.uuid, "witnesses": witnesses, "sources": sources, "fields": fields})
}

fn one(source: &SourceWhy, now: Instant) -> Value {
    let age = source
        .read_at
        .map(|at| u64::try_from(now.saturating_duration_since(at).as_millis()).unwrap_or(u64::MAX));
    json!({"read_ms_ago": age, "stale": source.stale, "error": source.error})
}
