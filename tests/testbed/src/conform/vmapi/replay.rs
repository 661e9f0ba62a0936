// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Runs the groups of a recording, each against a fresh mock: itself, and through migration-service.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};

use mocks::vmapi::Server;
use serde_json::Value;

use super::compare::{self, Memory};
use super::deviations::Row;
use super::front::{self, Front};
use super::jobs::{self, Jobs};
use super::peers::Calls;
use super::{purpose, stream, world};
use crate::conform::purpose::{Case, Rules};
use crate::conform::reply::Response;
use crate::conform::services::replay::leave_out;
use crate::conform::tally::Tally;
use crate::conform::transcript::{Asked, Exchange, Group, Step, Transcript};
use crate::conform::wire::exchange;

/// The groups that need migrations.
const LEFT_OUT: [&str; 6] =
    ["migrate-errors", "migrate-table", "migrate-life", "migrations", "watch", "config"];

/// What was recorded besides the exchanges.
pub(super) struct Recorded {
    pub(super) transcript: Transcript,
    pub(super) calls: Calls,
    pub(super) jobs: Jobs,
    pub(super) rows: HashMap<String, Row>,
}

/// Replays the recording, or one group of it: what is not of migrations against the mock itself, and all
/// through migration-service.
pub(super) async fn replay(recorded: &Recorded, only: Option<&str>) -> anyhow::Result<[Tally; 2]> {
    let (mut direct, mut fronted) = (Tally::default(), Tally::default());
    let mut ledger = Ledger { rules: Rules::new(&purpose::RULES), rows: 0 };
    let wanted = |group: &&Group| only.is_none_or(|only| only == group.name);
    for group in recorded.transcript.groups.iter().filter(wanted) {
        fronted.begins(group);
        if !LEFT_OUT.contains(&group.name.as_str()) {
            let played = Played { group, recorded, front: None };
            let done = played.play(&mut direct, &mut ledger).await;
            leave_out(&group.name, done, &mut direct)?;
        }
        let server = Server::start(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await?;
        let front = Front::start(server.addr(), &recorded.calls).await?;
        let played = Played { group, recorded, front: Some((front, server)) };
        let done = played.play(&mut fronted, &mut ledger).await;
        leave_out(&group.name, done, &mut fronted)?;
    }
    let on_purpose = ledger.rules.count() + ledger.rows;
    if only.is_none() && !fronted.notes.iter().any(|note| note.starts_with("left out: ")) {
        fronted.failures.extend(ledger.rules.idle());
    }
    direct
        .notes
        .push("left out: the groups of migrations, which the mock does not keep".to_owned());
    fronted
        .notes
        .push(format!("through migration-service: {on_purpose} exchanges deviate on purpose"));
    Ok([direct, fronted])
}

/// What deviated on purpose so far.
struct Ledger {
    rules: Rules,
    /// How many exchanges have a row of their own.
    rows: usize,
}

/// A group that is played, through the service or not.
struct Played<'a> {
    group: &'a Group,
    recorded: &'a Recorded,
    front: Option<(Front, Server)>,
}

impl Played<'_> {
    async fn play(self, tally: &mut Tally, ledger: &mut Ledger) -> anyhow::Result<()> {
        let (front, server) = match self.front {
            Some((front, server)) => (Some(front), server),
            None => (None, Server::start(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await?),
        };
        let addr = front.as_ref().map_or(server.addr(), |front| front.addr);
        world::begin(server.store(), &self.group.world);
        let mut memory = Memory::default();
        let (mut vm, mut last, mut published) = (String::new(), String::new(), 0);
        let mut jobs_away = false;
        for (at, step) in self.group.steps.iter().enumerate() {
            match step {
                Step::World(change) => {
                    let next = self.group.steps[at..].iter().find_map(|step| match step {
                        Step::Exchange(one) => Some(one.id.as_str()),
                        Step::World(_) | Step::Published(_) => None,
                    });
                    if let Some(path) =
                        change["do"].as_str().and_then(|it| it.strip_prefix("PUT /vms/"))
                    {
                        path.clone_into(&mut vm);
                    }
                    let jobs = &self.recorded.jobs;
                    let next = next.unwrap_or_default();
                    if let Some(front) = &front
                        && front::change(front, change, next, &vm, jobs).await?
                    {
                        continue;
                    }
                    for asked in world::change(server.store(), change, self.group)? {
                        let done = exchange(addr, &asked).await?;
                        let status = done.as_ref().map(|done| done.status);
                        anyhow::ensure!(status == Some(200), "{change}: the answer was {done:?}");
                    }
                }
                Step::Exchange(one) => {
                    let faults = match &front {
                        Some(front) => {
                            let storage_away = !server.store().peers().storage;
                            jobs_away |= !server.store().peers().workflow;
                            let asked =
                                Through { recorded: self.recorded, front, storage_away, jobs_away };
                            asked.play(one, &mut memory, ledger).await?
                        }
                        None => {
                            let got = exchange(addr, &encoded(&one.request)).await?;
                            memory.answer(&one.response, got.as_ref()).err()
                        }
                    };
                    tally.case(&one.place(&self.group.name), faults.as_slice());
                    last.clone_from(&one.id);
                }
                // VMAPI publishes, whoever asks it; only the mock is compared.
                Step::Published(items) if front.is_none() => {
                    let all = server.store().published();
                    let new = all.get(published..).unwrap_or_default();
                    let faults = compare::published(items, new).err();
                    let place = format!("{} published for {last}", self.group.name);
                    tally.case(&place, faults.as_slice());
                    published = all.len();
                }
                Step::Published(_) => {}
            }
        }
        if let Some(front) = front {
            front.stop().await;
        }
        server.stop().await;
        Ok(())
    }
}

/// What a URI may not have was sent as it is; the HTTP library of both servers refuses it.
fn encoded(asked: &Asked) -> Asked {
    Asked { query: asked.query.replace('>', "%3E"), ..asked.clone() }
}

/// An exchange through the service, and what is away meanwhile.
struct Through<'a> {
    recorded: &'a Recorded,
    front: &'a Front,
    storage_away: bool,
    jobs_away: bool,
}

/// What came, and how it differs from the recorded answer.
struct Came {
    got: Option<Response>,
    difference: Option<String>,
    /// Without what is only ours, it is the recorded answer.
    is_same_without: bool,
}

impl Through<'_> {
    /// Plays it; returns what is wrong with it.
    async fn play(
        &self,
        one: &Exchange,
        memory: &mut Memory,
        ledger: &mut Ledger,
    ) -> anyhow::Result<Option<String>> {
        // What VMAPI asked for its own routes is its own.
        let calls =
            self.recorded.calls.get(&one.id).filter(|_| purpose::asks_to_migrate(&one.request));
        self.front.peers.begin(calls.cloned().unwrap_or_default());
        let came = self.ask(one, memory).await?;
        let unasked = self.front.peers.faults();
        if let Some(row) = self.recorded.rows.get(&one.id) {
            ledger.rows += 1;
            return Ok(match came.difference {
                None => Some(format!("needless row: {}", row.defect)),
                Some(_) => row.check(came.got.as_ref()).err(),
            });
        }
        let is_of_calls = came.difference.is_none();
        let Some(difference) = came.difference.or(unasked) else { return Ok(None) };
        let is_same_without = !is_of_calls && came.is_same_without;
        let case = Case {
            one,
            status: came.got.as_ref().map(|got| got.status),
            body: came.got.as_ref().and_then(Response::json).unwrap_or_default(),
            is_of_calls,
            is_same_without,
            storage_away: self.storage_away,
            jobs_away: self.jobs_away,
            is_gone: &|_| false,
        };
        Ok(ledger.rules.judge(&case, difference))
    }

    async fn ask(&self, one: &Exchange, memory: &mut Memory) -> anyhow::Result<Came> {
        let Some(lines) = &one.response.stream else {
            let asked = memory.translated(&encoded(&one.request));
            let service = &self.front.service;
            let vm = one.request.path.rsplit('/').next().unwrap_or_default();
            let got = match finalizes(one) {
                Some(failure) => {
                    let asked = async { anyhow::Ok(exchange(self.front.addr, &asked).await?) };
                    tokio::try_join!(asked, jobs::finalize(service, vm, failure))?.0
                }
                None => exchange(self.front.addr, &asked).await?,
            };
            if purpose::asks_for(&one.request, "begin") {
                jobs::begun(service, vm).await?;
            }
            jobs::written(service, &asked).await?;
            let difference = memory.answer(&one.response, got.as_ref()).err();
            let want = one.response.body.clone().unwrap_or_default();
            let ours = got.as_ref().and_then(Response::json).unwrap_or_default();
            let is_same_without =
                difference.is_some() && memory.is_same(&want, &without_owners(ours, &want));
            return Ok(Came { got, difference, is_same_without });
        };
        let came = stream::watch(self.front, one, memory).await?;
        anyhow::ensure!(came.status == 200 && came.kind == "application/x-json-stream");
        let difference = memory.lines(lines, &came.lines).err();
        let mut others = lines.clone();
        others.retain(|line| line.what.line["transfer_bytes_second"].is_null());
        let is_same_without = difference.is_some() && memory.lines(&others, &came.lines).is_ok();
        Ok(Came { got: None, difference, is_same_without })
    }
}

/// Returns the failure of a finalize that was begun, if it failed; none for every other exchange.
fn finalizes(one: &Exchange) -> Option<Option<&str>> {
    let is_it = purpose::asks_for(&one.request, "finalize");
    match one.response.status {
        Some(200) if is_it => Some(None),
        Some(500) if is_it => {
            let message = one.response.body.as_ref()?["message"].as_str()?;
            Some(Some(message.trim_start_matches("Migration finalize failed: ")))
        }
        _ => None,
    }
}

/// Our records without the account that asked, and without what the recorded one has not: the owner, what it waits
/// for, who is needed.
fn without_owners(mut ours: Value, want: &Value) -> Value {
    let bare = |record: &mut Value, want: &Value| {
        if let Some(fields) = record.as_object_mut() {
            fields.shift_remove("account_uuid");
            for ours in ["owner_uuid", "waits_for", "needs", "why", "where", "silence", "journal"] {
                if want.get(ours).is_none() {
                    fields.shift_remove(ours);
                }
            }
        }
    };
    match &mut ours {
        Value::Array(all) => {
            all.iter_mut().enumerate().for_each(|(at, record)| bare(record, &want[at]));
        }
        one => bare(one, want),
    }
    ours
}
