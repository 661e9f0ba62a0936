// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Where migration-service in front of VMAPI answers otherwise than the recorded VMAPI on purpose.

use serde_json::Value;

use crate::conform::purpose::{Case, Rule};
use crate::conform::transcript::Asked;

/// The list. What is meant for one exchange alone has a row in the file.
pub(super) const RULES: [Rule; 14] = [
    Rule {
        defect: "jobs elsewhere do the steps and write the records",
        covers: |case| {
            ["/store", "/progress", "/updateVmServerUuid"]
                .iter()
                .any(|route| case.asks("POST", "/migrations/", route))
        },
        holds: |case| case.is_refused(403, "Forbidden"),
    },
    Rule {
        defect: "a slash at the end makes the uuid or a name empty, which the query or body then gives",
        covers: |case| case.one.request.path.ends_with('/'),
        holds: |case| case.is_refused(400, "InvalidPath"),
    },
    Rule {
        defect: "the process dies, and the connection closes without a reply",
        covers: |case| case.one.response.status.is_none(),
        // What is passed on is VMAPI's own, and that died of it.
        holds: |case| match is_of_migration(case) {
            false => case.is_refused(503, "ServiceUnavailableError"),
            true => matches!(case.status, Some(404 | 409)) && case.body["code"].is_string(),
        },
    },
    Rule {
        defect: "a migration needs the workflow API",
        covers: |case| {
            case.jobs_away && (is_of_migration(case) || case.one.request.method == "DELETE")
        },
        holds: |case| {
            let begins =
                |record: &Value| record["phase"] == "begin" && record["state"] == "running";
            match case.status {
                Some(202) => begins(&case.body["migration"]),
                Some(200) => begins(&case.body) || entries(&case.body).iter().all(begins),
                // A VM that migrates is not deleted.
                _ => case.is_refused(409, "ConflictError"),
            }
        },
    },
    Rule {
        defect: "migrations need the storage of the VMs",
        covers: |case| case.storage_away && is_of_migration(case),
        holds: |case| case.status == Some(200) || case.is_refused(409, "InvalidArgument"),
    },
    Rule {
        defect: "the record of a VM that has moved was erased",
        covers: |case| case.asks("GET", "/vms", "") && !erased(case.recorded()).is_empty(),
        holds: |case| {
            let (erased, ours) = (erased(case.recorded()), entries(&case.body));
            erased.iter().all(|old| ours.iter().any(|vm| is_whole(old, vm)))
        },
    },
    Rule {
        defect: "the migration cannot be found while its VM moves",
        covers: |case| {
            case.asks("GET", "/migrations/", "") && case.one.response.status == Some(404)
        },
        holds: |case| {
            let moves = ["switch", "rollback"].iter().any(|phase| case.body["phase"] == *phase);
            case.status == Some(200) && moves && case.body["state"] == "running"
        },
    },
    Rule {
        defect: "the last event of a sync that is over is sent to who watches another step",
        covers: |case| case.one.response.stream.is_some(),
        holds: |case| case.is_same_without,
    },
    Rule {
        defect: "limit is ignored in the list of migrations",
        covers: |case| case.asks("GET", "/migrations", "/migrations") && limit(case).is_some(),
        holds: |case| {
            let (recorded, ours) = (entries(case.recorded()).len(), entries(&case.body).len());
            case.status == Some(200) && limit(case) == Some(ours) && ours < recorded
        },
    },
    Rule {
        defect: "a record says neither who asked (RFD 34) nor what it waits for",
        covers: |case| case.asks("GET", "/migrations", "") && case.is_same_without,
        holds: |case| {
            let says = |name: &str| entries(&case.body).iter().any(|it| !it[name].is_null());
            ["account_uuid", "waits_for", "needs"].into_iter().any(says)
        },
    },
    Rule {
        defect: "a begin looks at less before it is accepted or refused",
        covers: |case| case.is_of_calls && asks_for(&case.one.request, "begin"),
        holds: |_| true, // the answer is the recorded one
    },
    Rule {
        defect: "an estimate is a task of CNAPI; ours is an agent's, and none answers here",
        covers: |case| asks_for(&case.one.request, "estimate"),
        holds: |case| case.is_refused(500, "InternalError"),
    },
    Rule {
        defect: "a finalize that fails does not always say so",
        covers: |case| {
            asks_for(&case.one.request, "finalize") && case.one.response.status == Some(500)
        },
        holds: |case| {
            let [ours, why] = [&case.body, case.recorded()].map(|it| it["message"].as_str());
            case.is_refused(500, "InternalError")
                && ours.zip(why).is_some_and(|(ours, why)| ours.ends_with(why))
        },
    },
    Rule {
        defect: "an action is in the record only when its job has begun",
        covers: |case| asks_to_migrate(&case.one.request) && case.one.response.status == Some(202),
        holds: |case| {
            let (want, ours) = (&case.recorded()["migration"], &case.body["migration"]);
            let same = ["phase", "state", "vm_uuid", "source_server_uuid"];
            case.status == Some(202) && same.iter().all(|name| want[name] == ours[name])
        },
    },
];

/// A request for a migration of a VM.
pub(super) fn asks_to_migrate(asked: &Asked) -> bool {
    let in_body = asked.body.as_ref().is_some_and(|body| body["action"] == "migrate");
    in_body || asked.query.contains("action=migrate")
}

/// A request for this action of a migration.
pub(super) fn asks_for(asked: &Asked, action: &str) -> bool {
    let in_body = asked.body.as_ref().is_some_and(|body| body["migration_action"] == action);
    asks_to_migrate(asked)
        && (in_body || asked.query.contains(&format!("migration_action={action}")))
}

fn is_of_migration(case: &Case<'_>) -> bool {
    let asked = &case.one.request;
    asked.path.starts_with("/migrations") || asks_to_migrate(asked)
}

/// How many records the request wants at most.
fn limit(case: &Case<'_>) -> Option<usize> {
    let mut pairs = case.one.request.query.split('&');
    pairs.find_map(|pair| pair.strip_prefix("limit=")?.parse().ok())
}

/// The records of an answer: of a list, or the one.
fn entries(body: &Value) -> Vec<Value> {
    body.as_array().cloned().unwrap_or_else(|| vec![body.clone()])
}

/// The recorded VMs that are on a server, and have nothing else.
fn erased(recorded: &Value) -> Vec<Value> {
    let is_erased = |vm: &Value| {
        !vm["uuid"].is_null()
            && !vm["server_uuid"].is_null()
            && vm["brand"].is_null()
            && vm["alias"].is_null()
    };
    let mut all = entries(recorded);
    all.retain(is_erased);
    all
}

/// Ours is the recorded VM on the recorded server, and says what else it is.
fn is_whole(recorded: &Value, ours: &Value) -> bool {
    let is_same = |field: &str| recorded[field] == ours[field];
    is_same("uuid")
        && is_same("server_uuid")
        && (ours["brand"].is_string() || ours["state"].is_string())
}
