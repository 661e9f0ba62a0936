// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Where our volapi answers otherwise than the recorded one on purpose.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::conform::purpose::Rule;

/// The list. What is meant for one exchange alone has a row in the file.
pub(super) const RULES: [Rule; 5] = [
    Rule {
        defect: "while the storage is away a volume is not found, /ping is well, and the process may die",
        covers: |case| case.storage_away && !case.is_of_calls,
        holds: |case| match case.asks("GET", "/ping", "") {
            true => case.status == Some(503) && case.body["healthy"] == false,
            false => case.is_refused(503, "ServiceUnavailable"),
        },
    },
    Rule {
        defect: "the process dies",
        covers: |case| case.one.response.status.is_none() && !case.is_of_calls,
        holds: |case| {
            let says = case.body["message"].as_str().unwrap_or_default();
            matches!(case.status, Some(404 | 409))
                && case.body["code"].is_string()
                && !says.is_empty()
        },
    },
    Rule {
        defect: "a second volume of one uuid is an internal error",
        covers: |case| {
            case.asks("POST", "/volumes", "/volumes")
                && case.one.response.status == Some(500)
                && !case.is_of_calls
        },
        holds: |case| case.is_refused(409, "VolumeAlreadyExists"),
    },
    Rule {
        defect: "the first reference that an event adds is lost, and those of VMs that are gone stay",
        covers: |case| case.asks("GET", "/volumes/", "/references") && !case.is_of_calls,
        holds: |case| {
            let (recorded, ours) = (names(case.recorded()), names(&case.body));
            let (lost, left) = (ours.difference(&recorded), recorded.difference(&ours));
            case.status == Some(200)
                && lost.into_iter().all(|vm| !(case.is_gone)(vm))
                && left.into_iter().all(|vm| (case.is_gone)(vm))
        },
    },
    Rule {
        defect: "a ticket that did not become active, or whose request failed, is not released",
        covers: |case| case.is_of_calls,
        holds: |case| case.is_same_without,
    },
];

fn names(list: &Value) -> BTreeSet<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}
