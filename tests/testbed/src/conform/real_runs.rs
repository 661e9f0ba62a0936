// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `testbed conform real-runs FILE`: what our programs asked of the real services in whole runs, replayed against the
//! mocks. A proxy wrote it down, so that the runs begin in the middle of the services' lives: what a service has is
//! what its answers show, and what other clients changed between two of them is taken over before the next.

mod services; // our mocks in the place of the services of a run

mod shown; // what an answer shows of the service's records

use std::path::Path;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::services as kinds;
use super::tally::Tally;
use super::transcript::{Answered, Asked, Exchange, Group, Step, Transcript};

/// The name of the recording in a directory of fixtures.
pub(super) const FILE: &str = "real-runs.jsonl";

const DEVIATIONS: &str = include_str!("../../fixtures/real-runs-deviations.jsonl");

/// Compares with the recording at the path; `--only "RUN PEER"` replays one group.
pub(super) fn check(path: &Path, flags: &[String]) -> anyhow::Result<Tally> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    kinds::check::<services::Peer>(&read(&text)?, flags, DEVIATIONS)
}

/// A group for each run and service.
fn read(text: &str) -> anyhow::Result<Transcript> {
    let mut groups: Vec<Group> = Vec::new();
    let lines = text.lines().map(|line| serde_json::from_str(line).context("a line of a run"));
    let mut lines = lines.collect::<anyhow::Result<Vec<Value>>>()?;
    // A wait for a ticket is answered after the release that ends it.
    lines.sort_by_key(answered);
    for line in lines {
        let word = |name: &str| line[name].as_str().unwrap_or_default();
        let name = format!("{} {}", word("run"), word("to"));
        if groups.last().is_none_or(|group| group.name != name)
            && !groups.iter().any(|group| group.name == name)
        {
            let (mode, world) = (word("to").to_owned(), json!({ "at": line["t"] }));
            groups.push(Group {
                name: name.clone(),
                mode,
                world,
                preparation: Vec::new(),
                has_base: false,
                steps: Vec::new(),
            });
        }
        let step = Step::Exchange(Box::new(exchange(&line)?));
        groups
            .iter_mut()
            .filter(|group| group.name == name)
            .for_each(|group| group.steps.push(step.clone()));
    }
    Ok(Transcript { groups })
}

/// When an answer came, in milliseconds since 1970.
fn answered(line: &Value) -> i64 {
    let at = line["t"].as_str().and_then(|at| at.parse::<jiff::Timestamp>().ok());
    at.unwrap_or_default().as_millisecond() + line["ms"].as_i64().unwrap_or_default()
}

fn exchange(line: &Value) -> anyhow::Result<Exchange> {
    let word = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
    let (path, query) = match word("path").split_once('?') {
        Some((path, query)) => (path.to_owned(), query.to_owned()),
        None => (word("path"), String::new()),
    };
    let body = Some(line["req"].clone()).filter(|body| !body.is_null());
    let headers = body.iter().map(|_| ("content-type".to_owned(), "application/json".to_owned()));
    let request = Asked {
        method: word("method"),
        path,
        query,
        headers: headers.collect(),
        body,
        ..Asked::default()
    };
    // A connection that was refused or cut has a word in the place of its status.
    let status = line["status"].as_u64();
    let response: Answered =
        serde_json::from_value(json!({ "status": status, "body": line["res"] }))?;
    let id = format!("{}/{}", word("run"), line["n"]);
    Ok(Exchange { id, request, response, concurrent: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // D7
    fn the_runs_at_the_real_services_are_answered_alike() {
        let dir = recordings::unpacked().unwrap();
        let tally = check(&dir.path().join(FILE), &[]).unwrap();
        assert_eq!((tally.failures, tally.passed), (Vec::new(), 948));
        let left: Vec<_> = tally.notes.iter().filter(|it| !it.contains("on purpose")).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}
