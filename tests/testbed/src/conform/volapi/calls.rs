// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the service asked of others for an exchange, against what the real one asked.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::compare::Memory;
use crate::volapi::peers::Call;

/// The recorded calls by the id of the exchange.
pub(super) type Recorded = BTreeMap<String, Vec<Call>>;

/// Asked at times of their own, not for an exchange.
const ON_THEIR_OWN: [&str; 2] = ["imgapi", "wfapi"];

/// Reads the recorded calls.
pub(super) fn read(path: &Path) -> anyhow::Result<Recorded> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let mut recorded = Recorded::new();
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).context("a line of recorded calls")?;
        let Some(id) = line["id"].as_str() else { continue };
        let call = |call: &Value| Call {
            peer: call["peer"].as_str().unwrap_or_default().to_owned(),
            method: call["method"].as_str().unwrap_or_default().to_owned(),
            url: call["url"].as_str().unwrap_or_default().to_owned(),
            body: Some(call["body"].clone()).filter(|body| !body.is_null()),
            status: call["status"].as_u64().and_then(|it| it.try_into().ok()).unwrap_or_default(),
        };
        let calls = line["calls"].as_array().into_iter().flatten().map(call);
        recorded.insert(id.to_owned(), calls.collect());
    }
    Ok(recorded)
}

/// Compares the calls of one exchange, in their order; the error says what differs.
pub(super) fn compare(memory: &mut Memory, want: &[Call], got: &[Call]) -> Result<(), String> {
    let is_meant = |call: &&Call| !ON_THEIR_OWN.contains(&&*call.peer);
    for (want, got) in want.iter().filter(is_meant).zip(got.iter().filter(is_meant)) {
        if let (Some(want), Some(got)) = (&want.body, &got.body) {
            memory.learn_vm(want, got);
        }
    }
    let want: Vec<String> =
        want.iter().filter(is_meant).map(|it| plain(memory, it, true)).collect();
    let got: Vec<String> = got.iter().filter(is_meant).map(|it| plain(memory, it, false)).collect();
    if want == got {
        return Ok(());
    }
    Err(format!("calls: expected\n    {}\n  got\n    {}", want.join("\n    "), got.join("\n    ")))
}

/// Returns true if a call gives a ticket back.
pub(super) fn releases(call: &Call) -> bool {
    call.method == "PUT" && call.url.starts_with("/tickets/") && call.url.ends_with("/release")
}

/// A call without what differs from run to run. Where the real service looked for the owner in the wrong
/// place, its ticket ids say `undefined`; ours have the owner of the record.
fn plain(memory: &Memory, call: &Call, is_recorded: bool) -> String {
    let url = if is_recorded { memory.ours(&call.url) } else { call.url.clone() };
    let url = match url.strip_prefix("/tickets/") {
        Some(rest) => format!("/tickets/T{}", rest.get(36..).unwrap_or_default()),
        None => url,
    };
    let mut body = call.body.clone().unwrap_or_default();
    if is_recorded {
        body = memory.ours_in(&body);
    }
    if body.get("expires_at").is_some_and(Value::is_string) {
        // Ours is an ISO time: CNAPI never ends a ticket with the form that the recorded service sends.
        body["expires_at"] = json!("a time");
    }
    if let Some(id) = body.get("id").and_then(Value::as_str) {
        let name = id.strip_prefix("undefined-").or_else(|| id.get(37..)).unwrap_or(id);
        body["id"] = json!(name);
    }
    if let Some(script) = body.pointer_mut("/customer_metadata/user-script") {
        *script = json!("a script");
    }
    format!("{} {} {url} {body} → {}", call.peer, call.method, call.status)
}
