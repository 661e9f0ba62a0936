// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The pager: the record of every VM that matches, or an error.

use std::collections::HashSet;

use ::http::StatusCode;
use serde_json::{Map, Value};

use super::types::VmQuery;
use crate::error::Error;
use crate::http::{Call, Http, LIST_TIMEOUT};
use crate::uuids::uuid_value;

/// A page of VMs with much metadata.
const LIST_CAP: usize = 256 << 20;
/// The server's own maximum.
const PAGE: usize = 1000;
const MOST_VMS: usize = 1_000_000;
/// UUIDs in one request: an address line of some 4 kB.
pub(super) const MOST_UUIDS: usize = 100;

/// Returns the uuid of a record.
pub(super) fn uuid_of(record: &Map<String, Value>) -> Option<String> {
    record.get("uuid").and_then(Value::as_str).map(uuid_value)
}

pub(super) async fn list(http: &Http, query: &VmQuery) -> Result<Vec<Map<String, Value>>, Error> {
    if query.uuids.len() <= MOST_UUIDS {
        return pages(http, query).await;
    }
    let mut found = Vec::new();
    for some in query.uuids.chunks(MOST_UUIDS) {
        found.extend(pages(http, &VmQuery { uuids: some.to_vec(), ..query.clone() }).await?);
    }
    Ok(found)
}

async fn pages(http: &Http, query: &VmQuery) -> Result<Vec<Map<String, Value>>, Error> {
    let mut found: Vec<Map<String, Value>> = Vec::new();
    let mut seen = HashSet::new();
    let mut marker: Option<String> = None;
    loop {
        let call = Call::get(&["vms"]).timeout(LIST_TIMEOUT).body_cap(LIST_CAP);
        let call = query.apply(call).query("limit", PAGE).query_opt("marker", marker.as_ref());
        let reply = http.execute(call).await?;
        reply.require(StatusCode::OK)?;
        let vms: Vec<Map<String, Value>> = reply.json("an array of VMs")?;
        if vms.len() > PAGE {
            return Err(reply.unexpected(&format!("at most {PAGE} VMs")));
        }
        let whole = vms.len() == PAGE;
        // Counts all that match, not what follows the marker: what came or went since the first
        // page would mislead.
        let count = reply.text("x-joyent-resource-count").and_then(|count| count.parse().ok());
        let is_all = marker.is_none() && count == Some(vms.len());
        let before = found.len();
        for vm in vms {
            let Some(uuid) = uuid_of(&vm) else {
                // One bad record must not hide the others.
                tracing::warn!("ignored a record of VMAPI without a uuid");
                continue;
            };
            // An object, as the service asks for it.
            marker = Some(serde_json::json!({ "uuid": uuid }).to_string());
            if seen.insert(uuid) {
                found.push(vm);
            }
        }
        if !whole || is_all {
            return Ok(found);
        }
        if found.len() == before {
            return Err(reply.unexpected("another page than the ones before"));
        }
        if found.len() >= MOST_VMS {
            return Err(reply.unexpected(&format!("fewer than {MOST_VMS} VMs")));
        }
    }
}
