// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `testbed conform real-runs FILE`: what our programs asked of the real services in whole runs, replayed against the
//! mocks. A proxy wrote it down, so that the runs begin in the middle of the services' lives: what a service has is
//! what its answers show, and what other clients changed between two of them is taken over before the next. Then the
//! other way around: ours make the same changes again in process, fed the recorded answers, and have to ask the same.

mod services; // our mocks in the place of the services of a run

mod shown; // what an answer shows of the service's records

mod player; // the services of a run, which answer as recorded and compare what they are asked

mod volume; // volapi creates a volume again

mod migration; // migration-service moves a VM again

use std::path::Path;

use anyhow::Context as _;
use serde_json::{Value, json};

use self::player::{Call, Player};
use super::services as kinds;
use super::tally::Tally;
use super::transcript::{Answered, Asked, Exchange, Group, Step, Transcript};

/// The name of the recording in a directory of fixtures.
pub(super) const FILE: &str = "real-runs.jsonl";

/// A run, and what an operator did in it.
type Run = (&'static str, &'static [&'static str]);

const VOLUME: &str = "volapi-create-ours";
/// The runs that ours make again: those whose recording has what each of the services answered. Of the others VMAPI's
/// answers are missing, or they are refused at begin today.
const RUNS: [Run; 4] = [
    (VOLUME, &[]),
    ("migration-begin-sync-switch-rollback", &["begin", "sync", "switch", "rollback"]),
    ("migration-begin-create-25s", &["begin"]),
    ("migration-begin-image-gone", &["begin"]),
];

const DEVIATIONS: &str = include_str!("../../fixtures/real-runs-deviations.jsonl");

/// Compares with the recording at the path; `--only "RUN PEER"` replays one group.
pub(super) fn check(path: &Path, flags: &[String]) -> anyhow::Result<Tally> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    if let [flag, run] = flags
        && let Some(run) = RUNS.iter().find(|known| flag == "--only" && known.0 == run)
    {
        let mut tally = Tally::default();
        asked_again(&text, run, &mut tally)?;
        return Ok(tally);
    }
    let mut tally = kinds::check::<services::Peer>(&read(&text)?, flags, DEVIATIONS)?;
    for run in RUNS.iter().filter(|_| flags.is_empty()) {
        asked_again(&text, run, &mut tally)?;
    }
    Ok(tally)
}

/// Ours do what they did in this run, in paused time, among services that answer as recorded.
fn asked_again(text: &str, (run, actions): &Run, tally: &mut Tally) -> anyhow::Result<()> {
    eprintln!("again: {run}");
    let (at, calls) = calls(text, run)?;
    let names = if *run == VOLUME { Vec::new() } else { migration::names(&calls)? };
    let player = Player::new(run, calls.clone(), &names)?;
    let done = crate::clock::paused()?.block_on(async {
        match *run {
            VOLUME => volume::create(&player).await,
            _ => migration::again(&player, &calls, at, actions).await,
        }
    });
    player.enter(tally);
    if let Err(why) = done {
        tally.case(run, &[format!("{why:#}")]);
    }
    Ok(())
}

/// When a run began, and what it asked in the order of asking.
fn calls(text: &str, run: &str) -> anyhow::Result<(jiff::Timestamp, Vec<Call>)> {
    let lines = text.lines().map(|line| serde_json::from_str(line).context("a line of a run"));
    let mut lines = lines.collect::<anyhow::Result<Vec<Value>>>()?;
    lines.retain(|line| line["run"] == run);
    lines.sort_by_key(|line| line["n"].as_u64());
    let call = |line: &Value| {
        let peer = line["to"].as_str().unwrap_or_default().to_owned();
        Ok(Call { peer, exchange: exchange(line)? })
    };
    let at = lines.first().and_then(|line| line["t"].as_str()).context("a run has a time")?;
    Ok((at.parse()?, lines.iter().map(call).collect::<anyhow::Result<_>>()?))
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
    let etag = line["etag"].as_str().map(|etag| json!({ "etag": etag }));
    let response: Answered =
        serde_json::from_value(json!({ "status": status, "body": line["res"], "headers": etag }))?;
    let id = format!("{}/{}", word("run"), line["n"]);
    Ok(Exchange { id, request, response, concurrent: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The exchanges of the runs that ours make again.
    const AGAIN: usize = 176;

    #[test] // D7, D8
    fn the_runs_at_the_real_services_are_answered_alike() {
        let dir = recordings::unpacked().unwrap();
        let tally = check(&dir.path().join(FILE), &[]).unwrap();
        assert_eq!((tally.failures, tally.passed), (Vec::new(), 948 + AGAIN));
        let left: Vec<_> = tally.notes.iter().filter(|it| !it.contains("on purpose")).collect();
        assert!(left.is_empty(), "{left:?}");
    }

    #[test] // D8
    fn what_ours_ask_otherwise_than_in_a_run_is_noticed() {
        let dir = recordings::unpacked().unwrap();
        let text = std::fs::read_to_string(dir.path().join(FILE)).unwrap();
        let release = "/tickets/84209168-c3fe-436c-b783-10f1103e1549/release";
        let dataset = r#""delegate_dataset":true,"#;
        for (run, was, is, said) in [
            (0, r#""scope":"nfs_volume","id""#, r#""scope":"volume","id""#, "body.scope"),
            (0, dataset, r#""delegate_dataset":true,"quota":9,"#, "body.quota"),
            (0, dataset, "", "expected no delegate_dataset"),
            (0, release, "/nowhere", "the run does not have it"),
            (0, release, "/nowhere", "it is asked no more"),
            (1, r#"{"reserved":true}"#, r#"{"reserved":false}"#, "body.reserved"),
        ] {
            let changed = text.replace(was, is);
            assert_ne!(changed, text, "{was}");
            let mut tally = Tally::default();
            asked_again(&changed, &RUNS[run], &mut tally).unwrap();
            let is_said = tally.failures.iter().any(|it| it.contains(said));
            assert!(is_said, "{was}: {:?}", tally.failures);
        }
    }
}
