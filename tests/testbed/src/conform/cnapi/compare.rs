// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! When two answers of CNAPI are the same, given what is random and what differs from run to run. Pure.

use serde_json::{Map, Value, json};

use crate::conform::reply::Response;
use crate::conform::transcript::Answered;

/// Fields of a node that depend on the start of CNAPI, and not on what it was asked.
const FREE: [&str; 2] = ["boot_params", "boot_platform"];
/// Those of which it counts that they are there.
const ANY: [&str; 3] = ["last_heartbeat", "req_id", "score"];
/// What the winner of a race has written.
const RACED: [&str; 4] = ["comments", "reserved", "rack_identifier", "vms"];

/// Returns both answers without what may differ; `is_free` after a race.
pub(super) fn masked(
    want: &Answered,
    got: Option<&Response>,
    is_free: bool,
) -> Result<(Answered, Option<Response>), String> {
    let mut want = want.clone();
    let Some(mut ours) = got.cloned() else { return Ok((want, None)) };
    let (Some(recorded), Some(mut body)) = (&mut want.body, ours.json()) else {
        return Ok((want, Some(ours)));
    };
    cut(recorded, &mut body)?;
    choice(recorded, &mut body)?;
    for side in [&mut *recorded, &mut body] {
        mask(side);
        if is_free {
            free(side);
        }
    }
    ours.body = body.to_string().into_bytes();
    Ok((want, Some(ours)))
}

/// Of a long list the beginning was recorded, and how many more there were.
fn cut(recorded: &mut Value, body: &mut Value) -> Result<(), String> {
    let (Some(want), Some(got)) = (recorded.as_array_mut(), body.as_array_mut()) else {
        return Ok(());
    };
    let more = want
        .last()
        .and_then(Value::as_str)
        .and_then(|text| text.strip_prefix("...")?.strip_suffix(" more")?.parse::<usize>().ok());
    let Some(more) = more else { return Ok(()) };
    want.pop();
    if got.len() != want.len() + more {
        return Err(format!("expected {} entries, got {}", want.len() + more, got.len()));
    }
    got.truncate(want.len());
    Ok(())
}

/// Of several nodes that are left any may be chosen.
fn choice(recorded: &mut Value, body: &mut Value) -> Result<(), String> {
    let Some(last) = recorded["steps"].as_array().and_then(|steps| steps.last()) else {
        return Ok(());
    };
    let left = last["remaining"].as_array().cloned().unwrap_or_default();
    let (want, got) = (recorded["server"]["uuid"].clone(), body["server"]["uuid"].clone());
    if !left.contains(&got) {
        return Err(format!("expected one of {}, got {got}", json!(left)));
    }
    if want != got {
        recorded["server"] = json!({});
        body["server"] = json!({});
    }
    Ok(())
}

fn mask(value: &mut Value) {
    match value {
        Value::Array(all) => all.iter_mut().for_each(mask),
        Value::Object(fields) => {
            fields.retain(|name, _| !FREE.contains(&name.as_str()));
            for name in ANY {
                if let Some(any) = fields.get_mut(name) {
                    *any = json!("any");
                }
            }
            // About 90 s after a start a node that is not set up is not running any more.
            if fields.get("setup") == Some(&Value::Bool(false)) && fields.contains_key("status") {
                fields.insert("status".to_owned(), json!("running, or unknown"));
            }
            if fields.contains_key("step") && fields.contains_key("remaining") {
                step(fields);
            }
            if let Some(Value::String(message)) = fields.get_mut("message")
                && let Some((before, _)) = message.split_once("was expected to have etag")
            {
                *message = before.to_owned();
            }
            // They were made at the same moment.
            if let Some(Value::String(id)) = fields
                .get_mut("id")
                .filter(|it| it.as_str().is_some_and(|it| it.starts_with("many-")))
            {
                "many".clone_into(id);
                fields.insert("uuid".to_owned(), json!("of one of many"));
            }
            fields.values_mut().for_each(mask);
        }
        _ => {}
    }
}

/// The nodes are shuffled, and each score that equal nodes get depends on that.
fn step(step: &mut Map<String, Value>) {
    if let Some(Value::Array(remaining)) = step.get_mut("remaining") {
        remaining.sort_by_key(Value::to_string);
    }
    let name = step.get("step").and_then(Value::as_str).unwrap_or_default().to_owned();
    let is_score = name.starts_with("Score") || name.starts_with("Increase");
    if let Some(Value::Object(reasons)) = step.get_mut("reasons").filter(|_| is_score) {
        let scores = reasons.iter_mut().filter(|(name, _)| name.len() == 36);
        scores.for_each(|(_, score)| *score = json!("a score"));
    }
}

fn free(value: &mut Value) {
    match value {
        Value::Array(all) => {
            let mut states: Vec<Value> = all.iter().map(|one| one["status"].clone()).collect();
            states.sort_by_key(Value::to_string);
            *all = states;
        }
        Value::Object(fields) => fields.retain(|name, _| {
            !RACED.contains(&name.as_str())
                && !name.starts_with("unreserved")
                && !name.starts_with("memory")
        }),
        _ => {}
    }
}
