// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Runs the groups of a recording, each against a fresh mock. A group with a step that the runner does not know
//! is left out from there on, and that is said.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::Value;

pub(crate) use super::compare::Memory;
use super::rules::Rules;
use crate::conform::reply::Response;
use crate::conform::tally::Tally;
use crate::conform::transcript::{Asked, Exchange, Group, Step, Transcript, UnknownStep};
use crate::conform::wire::exchange;

/// Where nothing came, so long is waited for nothing.
const PATIENCE: Duration = Duration::from_secs(1);

/// A mock with its surroundings.
pub(crate) trait World: Sized {
    /// The kind, as the file of deviations names it.
    const KIND: &'static str;

    /// What a group starts from.
    async fn begin(group: &Group) -> anyhow::Result<Self>;

    /// Where the mock listens.
    fn addr(&self) -> SocketAddr;

    /// Makes one change of the surroundings.
    async fn change(&mut self, change: &Value, group: &Group) -> anyhow::Result<()>;

    /// Does what went on beside the service before this exchange.
    fn before(&mut self, _one: &Exchange, _memory: &Memory) {}

    /// Requests were sent at the same moment: who won is open.
    fn raced(&mut self) {}

    /// Compares an answer with the recorded one.
    fn compare(
        &mut self,
        one: &Exchange,
        got: Option<&Response>,
        memory: &mut Memory,
    ) -> Result<(), String> {
        memory.answer(&one.response, got)
    }
}

/// Replays the recording, or one group of it.
pub(super) async fn replay<W: World>(
    transcript: &Transcript,
    mut rules: Rules,
    only: Option<&str>,
) -> anyhow::Result<Tally> {
    let mut tally = Tally::default();
    let wanted = |group: &&Group| only.is_none_or(|only| only == group.name);
    for group in transcript.groups.iter().filter(wanted) {
        tally.begins(group);
        let played = play::<W>(group, &mut rules, &mut tally).await;
        leave_out(&group.name, played, &mut tally)?;
    }
    let notes = rules.notes().into_iter();
    // A part of the recording does not need all rows.
    tally.notes.extend(notes.filter(|note| only.is_none() || !note.starts_with("a row")));
    Ok(tally)
}

/// Says that a group was left out because of a step that nobody knows; other errors end the replay.
pub(crate) fn leave_out(
    group: &str,
    played: anyhow::Result<()>,
    tally: &mut Tally,
) -> anyhow::Result<()> {
    match played {
        Err(error) => match error.downcast_ref::<UnknownStep>() {
            Some(unknown) => {
                tally.notes.push(format!("left out: the rest of {group}: {unknown}"));
                Ok(())
            }
            None => Err(error).with_context(|| group.to_owned()),
        },
        Ok(()) => Ok(()),
    }
}

async fn play<W: World>(group: &Group, rules: &mut Rules, tally: &mut Tally) -> anyhow::Result<()> {
    let mut world = W::begin(group).await?;
    let mut memory = Memory::default();
    let mut steps = group.steps.as_slice();
    while let Some((first, rest)) = steps.split_first() {
        steps = rest;
        let first = match first {
            Step::World(change) => {
                world.change(change, group).await?;
                continue;
            }
            Step::Published(items) => return Err(UnknownStep(Value::from(items.clone())).into()),
            Step::Exchange(one) => &**one,
        };
        let mut batch = vec![first];
        while let (Some(tag), Some((Step::Exchange(next), rest))) =
            (&first.concurrent, steps.split_first())
            && next.concurrent.as_ref() == Some(tag)
        {
            batch.push(next);
            steps = rest;
        }
        world.before(first, &memory);
        let sent: Vec<Asked> = batch.iter().map(|one| memory.translated(&one.request)).collect();
        let answers = batch.iter().zip(&sent).map(|(one, asked)| ask(world.addr(), one, asked));
        let answers = futures_util::future::join_all(answers).await;
        let answers = answers.into_iter().collect::<std::io::Result<Vec<_>>>()?;
        let raced = (batch.len() > 1).then(|| race(&batch, &answers));
        for (one, got) in batch.iter().zip(&answers) {
            let difference = match &raced {
                Some(raced) => {
                    memory.learn(&one.response, got.as_ref());
                    raced.clone()
                }
                None => world.compare(one, got.as_ref(), &mut memory).err(),
            };
            let status = got.as_ref().map(|got| got.status);
            let faults = rules.judge(one, status, difference);
            tally.case(&one.place(&group.name), faults.as_slice());
        }
        if raced.is_some() {
            world.raced();
        }
    }
    Ok(())
}

/// Sends a request, and others while it waits. Where no answer was recorded within the recorder's patience none may
/// come within ours.
async fn ask(addr: SocketAddr, one: &Exchange, asked: &Asked) -> std::io::Result<Option<Response>> {
    let meanwhile = asked.meanwhile.iter().map(async |other| {
        tokio::time::sleep(Duration::from_millis(other.ms)).await;
        exchange(addr, &other.what).await
    });
    let answer = async {
        match one.response.timeout {
            false => exchange(addr, asked).await,
            true => tokio::time::timeout(PATIENCE, exchange(addr, asked)).await.unwrap_or(Ok(None)),
        }
    };
    let (answer, others) = tokio::join!(answer, futures_util::future::join_all(meanwhile));
    others.into_iter().collect::<std::io::Result<Vec<_>>>()?;
    answer
}

/// Requests sent at the same moment: who wins is open; the answers are compared as a set.
pub(crate) fn race(batch: &[&Exchange], answers: &[Option<Response>]) -> Option<String> {
    let code = |body: Option<&Value>| body.and_then(|it| it["code"].as_str()).map(str::to_owned);
    let mut want: Vec<_> =
        batch.iter().map(|one| (one.response.status, code(one.response.body.as_ref()))).collect();
    let mut got: Vec<_> = answers
        .iter()
        .map(|got| {
            let body = got.as_ref().and_then(Response::json);
            (got.as_ref().map(|got| got.status), code(body.as_ref()))
        })
        .collect();
    want.sort();
    got.sort();
    (want != got).then(|| format!("expected the set {want:?}, got {got:?}"))
}
