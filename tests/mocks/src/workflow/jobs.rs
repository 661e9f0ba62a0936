// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What a job looks like, and how it goes on. Pure.

use serde_json::{Map, Value, json};

use crate::restify;

/// What can be searched for beside the job's own fields: it stands in the job and in its parameters.
pub(super) const EXTRAS: [&str; 6] =
    ["vm_uuid", "server_uuid", "image_uuid", "creator_uuid", "origin", "task"];
/// What an order says of the job itself.
const OWN: [&str; 7] =
    ["workflow", "target", "uuid", "exec_after", "num_attempts", "locks", "max_attempts"];

/// Who runs the jobs.
const RUNNER: &str = "5c1d0000-0000-4000-8000-000000000001";

/// A job that was just ordered.
pub(super) fn queued(
    workflow: &Map<String, Value>,
    given: &Map<String, Value>,
    now_ms: i64,
) -> Map<String, Value> {
    let now = restify::iso(now_ms);
    let params: Map<String, Value> = given
        .iter()
        .filter(|(name, _)| !OWN.contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let mut job = Map::new();
    let mut set = |name: &str, value: Value| drop(job.insert(name.to_owned(), value));
    set("execution", json!("queued"));
    set("chain_results", json!([]));
    set("params", Value::Object(params));
    set("workflow", workflow.get("uuid").cloned().unwrap_or_default());
    for name in ["target", "locks"].iter().chain(&EXTRAS) {
        if let Some(value) = given.get(*name) {
            set(name, value.clone());
        }
    }
    set("exec_after", json!(time(given.get("exec_after")).unwrap_or_else(|| now.clone())));
    set("num_attempts", given.get("num_attempts").cloned().unwrap_or_else(|| json!(0)));
    for name in ["name", "chain", "onerror", "max_attempts", "timeout"] {
        if let Some(value) = workflow.get(name) {
            set(name, value.clone());
        }
    }
    set("workflow_uuid", workflow.get("uuid").cloned().unwrap_or_default());
    set("created_at", json!(now));
    let uuid = given.get("uuid").filter(|uuid| uuid.is_string()).cloned();
    set("uuid", uuid.unwrap_or_else(|| json!(uuid::Uuid::new_v4().to_string())));
    job
}

/// The time when a job may be taken: ISO, or milliseconds.
fn time(given: Option<&Value>) -> Option<String> {
    match given? {
        Value::String(text) => {
            let at: jiff::Timestamp = text.parse().ok()?;
            Some(restify::iso(at.as_millisecond()))
        }
        other => other.as_i64().map(restify::iso),
    }
}

/// What a runner makes of a job.
pub(super) fn go_on(job: &mut Map<String, Value>, execution: &str, results: &[Value], now_ms: i64) {
    let now = json!(restify::iso(now_ms));
    job.insert("execution".to_owned(), json!(execution));
    let shown = |it: &Value| {
        json!({ "result": it["result"], "error": it["error"], "name": it["name"],
            "started_at": now, "finished_at": now })
    };
    let results: Vec<Value> = results.iter().map(shown).collect();
    job.insert("chain_results".to_owned(), json!(results));
    if execution == "failed"
        && let Some(tidy) = job.get("onerror").and_then(Value::as_array)
    {
        let done =
            |task: &Value| shown(&json!({ "name": task["name"], "result": "done", "error": "" }));
        let tidied: Vec<Value> = tidy.iter().map(done).collect();
        job.insert("onerror_results".to_owned(), json!(tidied));
    }
    match execution {
        "running" => drop(job.insert("runner_id".to_owned(), json!(RUNNER))),
        _ => drop(job.remove("runner_id")),
    }
    if matches!(execution, "succeeded" | "failed" | "waiting") {
        job.insert("exec_after".to_owned(), Value::Null);
        job.insert("started".to_owned(), json!(now_ms));
        job.insert("elapsed".to_owned(), json!(0.02));
    }
}

/// A job that waits goes on, with this result of the task that waited.
pub(super) fn resume(job: &mut Map<String, Value>, result: Option<&Value>, now_ms: i64) {
    job.insert("execution".to_owned(), json!("queued"));
    let results = job.get_mut("chain_results").and_then(Value::as_array_mut);
    if let Some(last) = results.and_then(|all| all.last_mut()) {
        last["result"] = result.cloned().unwrap_or_default();
        last["error"] = json!("");
        last["finished_at"] = json!(restify::iso(now_ms));
    }
}
