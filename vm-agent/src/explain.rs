// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What is known of one VM on each side, and what would be done. It makes requests and writes nothing.

use serde_json::{Value, json};

use crate::apply::judge_now;
use crate::parts::Parts;

/// Explains. A hidden VM is looked at on the node alone.
pub(crate) async fn explain(parts: &Parts, vm: &str) -> Value {
    let _admitted = parts.admission().await;
    let decision = judge_now(parts, vm).await;
    let now = parts.clock.now();
    let (here, is_hidden, is_told, gone) = parts.node.with(|known| {
        let here = known.here.get(vm).copied();
        (
            here.is_some(),
            here == Some(true) || known.was_hidden(vm, now) == Some(true),
            known.told.contains(vm),
            known.gone.get(vm).map(|it| it.since),
        )
    });
    let vmapi = match is_hidden {
        true => Value::Null,
        false => match parts.clients.vmapi.record(vm).await {
            Ok(record) => {
                json!({"state": record.get("state"), "zone_state": record.get("zone_state"),
                "server_uuid": record.get("server_uuid"), "last_modified": record.get("last_modified")})
            }
            Err(error) if error.is_not_found_resource() => Value::Null,
            Err(error) => json!({"unknown": error.to_string()}),
        },
    };
    json!({"vm": vm, "node": {"here": here, "hidden": is_hidden,
        "gone_for_s": gone.map(|since| parts.clock.now().saturating_sub(since).as_secs())},
        "vmapi": vmapi, "told": is_told, "action": decision.name(),
        "reason": decision.reason().to_string(),
        "mute": parts.gate.writable().err().map(|why| why.to_string())})
}
