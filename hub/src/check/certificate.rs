// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! How the certificate of migration-agent stands, as it says itself.

use sdc_clients::http::{Call, Http, user_agent};
use serde_json::Value;

use super::finding::Finding;
use crate::place::Place;

pub(super) async fn check(place: &Place) -> Finding {
    let agent = user_agent("hub", env!("CARGO_PKG_VERSION"), None);
    let Ok(http) = Http::new(&place.migration_agent, &agent) else {
        return Finding::fails("B26", "the address of its status is none");
    };
    let status = http.without_retries().execute(Call::get(&["status"])).await;
    let Ok(status) = status.and_then(|reply| reply.object()) else {
        return Finding::unknown("B26", "nothing answers: migration-agent does not run");
    };
    match status.get("certificate") {
        None | Some(Value::Null) => Finding::unknown("B26", "its status has no certificate"),
        Some(certificate) if certificate["needs"].is_null() => Finding::holds("B26", "valid"),
        // What it needs may have addresses in it.
        Some(certificate) if certificate["until"].is_null() => {
            Finding::fails("B26", "it has none: see `migration-agent status`")
        }
        Some(_) => Finding::fails(
            "B26",
            "it has expired, expires within 14 days, or is refused: see `migration-agent status`",
        ),
    }
}
