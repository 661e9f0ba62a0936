// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Runs the groups of a recording, each against a fresh mock in the group's mode.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use mocks::napi::{Options, Server};
use serde_json::Value;

use super::compare::Memory;
use crate::conform::reply::Response;
use crate::conform::services::replay::race;
use crate::conform::tally::Tally;
use crate::conform::transcript::{Asked, Exchange, Group, Step, Transcript, UnknownStep};
use crate::conform::wire::exchange;

/// So long a check is before its commit where requests race: all of them are checked by then.
const RACE: Duration = Duration::from_millis(250);

/// Replays the recording, or one group of it.
pub async fn replay(transcript: &Transcript, only: Option<&str>) -> Tally {
    let mut tally = Tally::default();
    let wanted = |group: &&Group| only.is_none_or(|only| only == group.name);
    for group in transcript.groups.iter().filter(wanted) {
        tally.begins(group);
        let unknown = group.steps.iter().find_map(|step| match step {
            Step::Exchange(_) => None,
            Step::World(change) => Some(change.clone()),
            Step::Published(items) => Some(Value::from(items.clone())),
        });
        if let Some(step) = unknown {
            tally.notes.push(format!("left out: {}: {}", group.name, UnknownStep(step)));
            continue;
        }
        if let Err(error) = replay_group(group, &mut tally).await {
            let what = format!("{}: expected a mock that answers, got {error}", group.name);
            tally.failures.push(what);
        }
    }
    tally
}

async fn replay_group(group: &Group, tally: &mut Tally) -> std::io::Result<()> {
    // Races only happen if there is time between a check and its commit.
    let exchanges: Vec<&Exchange> = group.exchanges().collect();
    let races = exchanges.iter().any(|exchange| exchange.concurrent.is_some());
    let commit_delay = if races { RACE } else { Duration::ZERO };
    let era = group.mode.parse().map_err(std::io::Error::other)?;
    let options = Options { commit_delay, ..Options::era(era) };
    let server = Server::start(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), options).await?;
    let addr = server.addr();
    for (at, asked) in group.preparation.iter().enumerate() {
        let got = exchange(addr, asked).await?;
        if got.as_ref().map(|got| got.status) != asked.expect_status {
            let (wanted, body) = (asked.expect_status, got.map(|got| got.body).unwrap_or_default());
            let body = String::from_utf8_lossy(&body);
            tally.failures.push(format!(
                "{} preparation {at} {} {}: expected {wanted:?}, got {body}",
                group.name, asked.method, asked.path
            ));
        }
    }
    let mut memory = Memory::default();
    let mut rest = exchanges.as_slice();
    while let Some(first) = rest.first() {
        let together = match &first.concurrent {
            None => 1,
            tag => rest.iter().take_while(|exchange| &exchange.concurrent == tag).count(),
        };
        let (batch, later) = rest.split_at(together);
        rest = later;
        let sent = batch.iter().map(|exchange| with_tags(exchange, &memory)).collect::<Vec<_>>();
        let answers =
            futures_util::future::join_all(sent.iter().map(|asked| exchange(addr, asked))).await;
        let answers = answers.into_iter().collect::<std::io::Result<Vec<Option<Response>>>>()?;
        for (one, got) in batch.iter().zip(&answers) {
            let ours = got.as_ref().and_then(|got| got.header("etag"));
            if let (Some(recorded), Some(ours)) = (one.response.header("etag"), ours) {
                memory.etags.insert(one.id.clone(), (recorded.to_owned(), ours.to_owned()));
            }
        }
        let differs = (batch.len() > 1).then(|| race(batch, &answers));
        if differs.is_some() {
            raced(batch, &mut memory);
        }
        for (one, got) in batch.iter().zip(&answers) {
            let fault = match &differs {
                Some(differs) => differs.clone(),
                None => memory.answer(&one.request, &one.response, got.as_ref()).err(),
            };
            match fault {
                None => tally.passed += 1,
                Some(error) => tally.failures.push(format!("{}: {error}", one.place(&group.name))),
            }
        }
    }
    server.stop().await;
    Ok(())
}

/// The request with the tags of this run in place of the recorded ones.
fn with_tags(exchange: &Exchange, memory: &Memory) -> Asked {
    let mut asked = exchange.request.clone();
    for (name, references) in &exchange.request.refs {
        for reference in references.as_array().into_iter().flatten() {
            if let (Some((recorded, ours)), Some(value)) =
                (memory.etags.get(&reference["of"].to_string()), asked.headers.get_mut(name))
            {
                *value = value.replace(recorded, ours);
            }
        }
    }
    asked
}

/// Requests sent at the same moment: who wins is open, and so is what the NICs in them show afterwards.
fn raced(batch: &[&Exchange], memory: &mut Memory) {
    for one in batch {
        let named = one.request.body.as_ref().and_then(|body| body["mac"].as_str());
        let in_path =
            one.request.path.rsplit('/').next().filter(|_| one.request.path.starts_with("/nics/"));
        memory.raced.extend(named.or(in_path).map(str::to_owned));
    }
}
