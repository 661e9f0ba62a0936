// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Runs the groups of a recording, each against a fresh mock in the group's mode.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::compare::Memory;
use crate::conform::reply::Response;
use crate::conform::tally::Tally;
use crate::conform::transcript::{Asked, Exchange, Group, Transcript};
use crate::conform::wire::exchange;
use mocks::napi::{Options, Server};

/// Replays the recording, or one group of it.
pub async fn replay(transcript: &Transcript, only: Option<&str>) -> Tally {
    let mut tally = Tally::default();
    let wanted = |group: &&Group| only.is_none_or(|only| only == group.name);
    for group in transcript.groups.iter().filter(wanted) {
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
    let commit_delay = if races { Duration::from_millis(20) } else { Duration::ZERO };
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
        let compared = if batch.len() > 1 {
            race(batch, &answers, &mut memory)
        } else {
            let results = batch.iter().zip(&answers);
            results
                .map(|(one, got)| memory.answer(&one.request, &one.response, got.as_ref()))
                .collect()
        };
        for (one, result) in batch.iter().zip(compared) {
            match result {
                Ok(()) => tally.passed += 1,
                Err(error) => tally.failures.push(format!("{}: {error}", one.place(&group.name))),
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

/// Requests sent at the same moment: who wins is open, but somebody does, and the losers are
/// told so in one of the ways the real service has.
fn race(
    batch: &[&Exchange],
    answers: &[Option<Response>],
    memory: &mut Memory,
) -> Vec<Result<(), String>> {
    for one in batch {
        let named = one.request.body.as_ref().and_then(|body| body["mac"].as_str());
        let in_path =
            one.request.path.rsplit('/').next().filter(|_| one.request.path.starts_with("/nics/"));
        memory.raced.extend(named.or(in_path).map(str::to_owned));
    }
    let status = |got: &Option<Response>| got.as_ref().map(|got| got.status);
    let won = answers.iter().any(|got| matches!(status(got), Some(200 | 204)));
    batch
        .iter()
        .zip(answers)
        .map(|(one, got)| {
            let allowed: &[u16] = match one.request.method.as_str() {
                "PUT" => &[200, 404, 412, 500],
                "DELETE" => &[204, 404, 412, 500],
                "POST" => &[200, 422],
                _ => &[200, 404],
            };
            let expected = format!("status: expected one of {allowed:?} with one winner");
            match status(got) {
                Some(status) if won && allowed.contains(&status) => Ok(()),
                other => Err(format!("{expected}, got {other:?}")),
            }
        })
        .collect()
}
