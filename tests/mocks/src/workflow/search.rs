// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The parameters of `GET /jobs`, and the page that they ask for. Pure.

use serde_json::{Map, Value, json};

use super::jobs::EXTRAS;
use crate::faults::glob;
use crate::restify::Params;
use crate::router::Answer;

const OWN: [&str; 7] = ["execution", "offset", "limit", "since", "until", "target", "name"];
const EXECUTIONS: [&str; 5] = ["queued", "failed", "succeeded", "canceled", "running"];

/// The jobs that a query asks for, newest first; or why it is refused.
pub(super) fn found(mut jobs: Vec<Map<String, Value>>, query: &Params) -> Result<Answer, Answer> {
    let conflict = |message: &str| Err(Answer::error(409, "ConflictError", message));
    let is_known = |name: &str| OWN.contains(&name) || EXTRAS.contains(&name);
    let unknown: Vec<&str> =
        query.keys().map(String::as_str).filter(|name| !is_known(name)).collect();
    if !unknown.is_empty() {
        let message = format!("Invalid parameters for jobs search: {}", unknown.join(", "));
        return Err(Answer::error(409, "InvalidArgument", message));
    }
    let text = |name: &str| query.get(name).and_then(Value::as_str);
    match text("execution") {
        Some("") => {
            let message = "excution is required and must be one of\"queued\", \"failed\", \
                           \"succeeded\", \"canceled\", \"running\"\"retried\", \"waiting\"";
            return Err(Answer::error(409, "InvalidArgument", message));
        }
        Some(wanted) if !EXECUTIONS.contains(&wanted) => {
            return conflict(
                "Execution must be one of queued, failed, succeeded, canceled or running",
            );
        }
        _ => {}
    }
    for name in ["execution", "target", "name"].iter().chain(&EXTRAS) {
        let Some(wanted) = text(name) else { continue };
        jobs.retain(|job| {
            job.get(*name).and_then(Value::as_str).is_some_and(|is| glob(wanted, is))
        });
    }
    let made =
        |job: &Map<String, Value>| job.get("created_at").and_then(Value::as_str).and_then(ms);
    if let Some(since) = text("since") {
        jobs.retain(|job| ms(since).is_some_and(|since| made(job) >= Some(since)));
    }
    if let Some(until) = text("until") {
        jobs.retain(|job| ms(until).is_some_and(|until| made(job) <= Some(until)));
    }
    let number = |name: &str| match text(name).and_then(|text| text.parse::<i64>().ok()) {
        Some(negative) if negative < 0 => Err(Answer::storage(&format!(
            "findObjects expects \"options\" (args[2]) to be a valid options object: \
             options.{name} should be >= 0"
        ))),
        other => Ok(other.and_then(|it| usize::try_from(it).ok()).filter(|it| *it > 0)),
    };
    let (limit, offset) = (number("limit")?.unwrap_or(1000), number("offset")?.unwrap_or(0));
    // As they were added, of one moment too; the newest is the first.
    jobs.sort_by_key(|job| made(job));
    let count = jobs.len();
    let page = jobs.into_iter().rev().skip(offset).take(limit).map(|mut job| {
        for of_one in ["chain", "onerror", "info"] {
            job.remove(of_one);
        }
        job
    });
    Ok(Answer::ok(json!(page.collect::<Vec<_>>())).with("x-count", count))
}

/// A time in ISO or in milliseconds.
fn ms(text: &str) -> Option<i64> {
    let iso = text.parse::<jiff::Timestamp>().map(|at| at.as_millisecond());
    iso.ok().or_else(|| text.parse().ok())
}
