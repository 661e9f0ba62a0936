// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Runs the groups of the recording, each against a fresh service on a socket of its own.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use daemon::http::{Limits, Server};
use daemon::{Shutdown, Tasks};
use store::Store;
use tokio::net::TcpListener;
use volapi::service::Service;

use super::calls::{self, Recorded};
use super::compare::Memory;
use super::rows::{self, Row};
use super::{purpose, world};
use crate::conform::purpose::{Case, Rules};
use crate::conform::reply::Response;
use crate::conform::services::replay::leave_out;
use crate::conform::tally::Tally;
use crate::conform::transcript::{Asked, Exchange, Group, Step, Transcript};
use crate::conform::wire::exchange;
use crate::volapi::fuse::{Fuse, STORAGE_AWAY};
use crate::volapi::peers::{Call, DataCentre};
use crate::volapi::running::start;

/// Replays the recording, or one group of it.
pub(super) async fn replay(
    transcript: &Transcript,
    calls: Recorded,
    only: Option<&str>,
) -> anyhow::Result<Tally> {
    let rules = Rules::new(&purpose::RULES);
    let mut replay =
        Replay { rows: rows::read()?, rules, calls, tally: Tally::default(), compared: 0 };
    let wanted = |group: &&Group| only.is_none_or(|only| only == group.name);
    let mut on_purpose = 0;
    for group in transcript.groups.iter().filter(wanted) {
        replay.tally.begins(group);
        let played = replay.group(group, &mut on_purpose).await;
        leave_out(&group.name, played, &mut replay.tally)?;
    }
    let compared = replay.compared;
    on_purpose += replay.rules.count();
    replay.tally.notes.push(format!(
        "{on_purpose} exchanges are answered otherwise on purpose; \
         the calls of {compared} were compared"
    ));
    // A part of the recording does not need all of them.
    if only.is_none() && !replay.tally.notes.iter().any(|note| note.starts_with("left out: ")) {
        replay.tally.failures.extend(replay.rules.idle());
        let left =
            replay.rows.keys().map(|id| format!("FAIL {id}: its row belongs to no exchange"));
        replay.tally.failures.extend(left);
    }
    Ok(replay.tally)
}

struct Replay {
    rows: BTreeMap<String, Row>,
    rules: Rules,
    calls: Recorded,
    tally: Tally,
    compared: usize,
}

struct Running {
    service: Arc<Service>,
    addr: SocketAddr,
    shutdown: Shutdown,
    tasks: Tasks,
}

impl Running {
    async fn start(
        store: &Store,
        data_centre: &DataCentre,
        fuse: &Arc<Fuse>,
    ) -> anyhow::Result<Running> {
        let service = start(store, data_centre, fuse).await?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let addr = listener.local_addr()?;
        let shutdown = Shutdown::new();
        let tasks = Tasks::new(shutdown.clone());
        let routes = volapi::http::router(Arc::clone(&service), tasks.clone(), "replay");
        let limits = Limits { requests_per_second: 0, ..Limits::default() };
        tasks.spawn("http", Server::new(limits, shutdown.clone()).serve(listener, routes));
        Ok(Running { service, addr, shutdown, tasks })
    }

    async fn stop(self) {
        self.shutdown.trigger();
        self.tasks.drain(Duration::from_secs(5)).await;
    }
}

impl Replay {
    /// Counts those of its exchanges that have a row.
    async fn group(&mut self, group: &Group, on_purpose: &mut usize) -> anyhow::Result<()> {
        let data_centre = DataCentre::new(&group.world)?;
        let (store, fuse) = (Store::in_memory()?, Fuse::none());
        let mut running = Running::start(&store, &data_centre, &fuse).await?;
        let mut memory = Memory::default();
        let (mut unread, mut raced) = (Vec::new(), None);
        let mut storage_away = false;
        let mut steps = group.steps.as_slice();
        while let Some((first, rest)) = steps.split_first() {
            steps = rest;
            let first = match first {
                Step::World(world) => {
                    let service = &running.service;
                    let then = world::change(world, &data_centre, service, &memory, &mut unread);
                    let then = then.await.with_context(|| world.to_string())?;
                    if then.restart {
                        fuse.clear();
                        running.stop().await;
                        running = Running::start(&store, &data_centre, &fuse).await?;
                    }
                    if let Some(is_there) = then.storage {
                        storage_away = !is_there;
                        match is_there {
                            true => drop(fuse.clear()),
                            false => fuse.set(STORAGE_AWAY, 0),
                        }
                    }
                    continue;
                }
                Step::Exchange(one) => one,
                Step::Published(_) => continue, // only VMAPI publishes
            };
            let mut batch = vec![&**first];
            while let (Some(tag), Some((Step::Exchange(next), rest))) =
                (&first.concurrent, steps.split_first())
                && next.concurrent.as_ref() == Some(tag)
            {
                batch.push(next);
                steps = rest;
            }
            if first.request.method == "GET" {
                for vm in unread.drain(..) {
                    running.service.follower.follow(&vm, None).await?;
                }
            }
            data_centre.take_calls();
            let sent: Vec<Asked> = batch.iter().map(|one| asked(one, &memory)).collect();
            let answers = sent.iter().map(|asked| exchange(running.addr, asked));
            let answers = futures_util::future::join_all(answers).await;
            let answers = answers.into_iter().collect::<std::io::Result<Vec<_>>>()?;
            let asked_of_others = data_centre.take_calls();
            if batch.len() > 1 {
                self.race(group, &batch, &answers, &mut memory);
                raced = Some(batch.len());
                continue;
            }
            // What a GET after a race shows depends on who won it.
            let free = raced.take().is_some() && first.request.method == "GET";
            let mut faults = Vec::new();
            let row = self.rows.remove(&first.id);
            *on_purpose += usize::from(row.is_some());
            let got = answers[0].as_ref();
            let differs = one(first, &sent[0], got, row.as_ref(), free, &mut memory);
            let ours = got.map(|got| memory.recorded(&String::from_utf8_lossy(&got.body)));
            let names = memory.clone();
            let gone = |vm: &str| is_gone(&data_centre, &names.ours(vm));
            let mut case = Case {
                one: first,
                status: got.map(|got| got.status),
                body: ours.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default(),
                is_of_calls: false,
                is_same_without: false,
                storage_away,
                jobs_away: false,
                is_gone: &gone,
            };
            let judged = |rules: &mut Rules, case: &Case<'_>, what| match row.is_some() {
                true => Some(what),
                false => rules.judge(case, what),
            };
            faults.extend(differs.and_then(|what| judged(&mut self.rules, &case, what)));
            if let Some(recorded) = self.calls.get(&first.id) {
                let (differs, is_same) = calls_of(&mut memory, recorded, &asked_of_others);
                (case.is_of_calls, case.is_same_without) = (true, is_same);
                self.compared += 1;
                match (differs, row.as_ref().is_some_and(|row| row.calls)) {
                    (Some(_), true) | (None, false) => {}
                    (Some(what), false) => faults.extend(judged(&mut self.rules, &case, what)),
                    (None, true) => faults.push("its calls deviate no more".to_owned()),
                }
            }
            self.tally.case(&first.place(&group.name), &faults);
        }
        fuse.clear();
        if data_centre.tickets() > 0 && group.name != "tickets" {
            let left = data_centre.tickets();
            self.tally
                .failures
                .push(format!("FAIL {}: {left} tickets were not given back", group.name));
        }
        running.stop().await;
        Ok(())
    }

    /// Requests sent at the same moment: who wins is open, but as many win as did, and the losers are told
    /// so in the recorded way. Between a delete and a create of its name the other one may win, too.
    fn race(
        &mut self,
        group: &Group,
        batch: &[&Exchange],
        answers: &[Option<Response>],
        memory: &mut Memory,
    ) {
        let outcome = |status: Option<u16>, code: Option<&str>| format!("{status:?} {code:?}");
        let is_mixed = batch.iter().any(|one| one.request.method != batch[0].request.method);
        let mut want: Vec<String> = Vec::new();
        let mut got: Vec<String> = Vec::new();
        for (one, answer) in batch.iter().zip(answers) {
            let recorded = one.response.body.as_ref();
            let code = recorded.and_then(|body| body.get("code")?.as_str());
            let body = answer.as_ref().and_then(Response::json).unwrap_or_default();
            let status = answer.as_ref().map(|it| it.status);
            let is_other_winner =
                is_mixed && code == Some("VolumeAlreadyExists") && status == Some(201);
            match is_other_winner {
                true => want.push(outcome(status, None)),
                false => want.push(outcome(one.response.status, code)),
            }
            got.push(outcome(status, body.get("code").and_then(|it| it.as_str())));
            if let Some(recorded) = recorded {
                memory.learn(&one.request, recorded, &body);
            }
        }
        want.sort();
        got.sort();
        let faults =
            if want == got { None } else { Some(format!("expected {want:?}, got {got:?}")) };
        for one in batch {
            let row = self.rows.remove(&one.id);
            let faults = faults.clone().filter(|_| row.is_none());
            self.tally.case(&one.place(&group.name), faults.as_slice());
        }
    }
}

/// What differs in the calls of an exchange, and whether nothing does but tickets that only ours gives back.
fn calls_of(memory: &mut Memory, recorded: &[Call], ours: &[Call]) -> (Option<String>, bool) {
    let without = |calls: &[Call]| -> Vec<Call> {
        calls.iter().filter(|call| !calls::releases(call)).cloned().collect()
    };
    let differs = calls::compare(memory, recorded, ours).err();
    let is_same = calls::compare(&mut memory.clone(), &without(recorded), &without(ours)).is_ok();
    let count = |calls: &[Call]| calls.iter().filter(|call| calls::releases(call)).count();
    (differs, is_same && count(ours) > count(recorded))
}

/// VMAPI does not know the VM, or only that it was.
fn is_gone(data_centre: &DataCentre, vm: &str) -> bool {
    let record = data_centre.vms.get(vm);
    record.is_none_or(|vm| {
        vm.get("state").is_some_and(|state| state == "destroyed" || state == "failed")
    })
}

/// Compares one answer with the recorded one, or with its row.
fn one(
    one: &Exchange,
    sent: &Asked,
    got: Option<&Response>,
    row: Option<&Row>,
    free: bool,
    memory: &mut Memory,
) -> Option<String> {
    let as_recorded = |memory: &mut Memory| memory.answer(sent, &one.response, got).err();
    match row {
        Some(Row { status: Some(status), body, .. }) => {
            let Some(got) = got else { return Some("no answer".to_owned()) };
            if as_recorded(memory).is_none() {
                return Some("it deviates no more: its row is not needed".to_owned());
            }
            if got.status != *status {
                return Some(format!("its row says {status}, it is {}", got.status));
            }
            let body = Some(body).filter(|body| !body.is_null());
            memory.body(sent, body, got).err().map(|what| format!("its row: {what}"))
        }
        _ => {
            let what = as_recorded(memory)?;
            let is_alike = free && got.map(|got| got.status) == one.response.status;
            let ours = got.map(|got| memory.recorded(&String::from_utf8_lossy(&got.body)));
            (!is_alike).then(|| {
                format!("{what}\n  OURS {:?} {}", got.map(|it| it.status), ours.unwrap_or_default())
            })
        }
    }
}

/// The request with our values in place of the recorded ones.
fn asked(one: &Exchange, memory: &Memory) -> Asked {
    let mut asked = one.request.clone();
    asked.path = memory.ours(&asked.path);
    if let Some(whole) = asked.whole_body() {
        asked.body_raw = Some(whole);
    }
    asked
}
