// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Runs the groups of a recording, each against a fresh mock: itself, and through migration-service.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};

use mocks::vmapi::Server;

use super::compare::{self, Memory};
use super::deviations::Row;
use super::front::{self, Front, Jobs};
use super::peers::Calls;
use super::{stream, world};
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
    let wanted = |group: &&Group| only.is_none_or(|only| only == group.name);
    for group in recorded.transcript.groups.iter().filter(wanted) {
        if !LEFT_OUT.contains(&group.name.as_str()) {
            let played = Played { group, recorded, front: None };
            let done = played.play(&mut direct).await;
            leave_out(&group.name, done, &mut direct)?;
        }
        let server = Server::start(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await?;
        let front = Front::start(server.addr(), &recorded.calls).await?;
        let played = Played { group, recorded, front: Some((front, server)) };
        let done = played.play(&mut fronted).await;
        leave_out(&group.name, done, &mut fronted)?;
    }
    let rows = recorded.rows.len();
    direct
        .notes
        .push("left out: the groups of migrations, which the mock does not keep".to_owned());
    fronted.notes.push(format!("through migration-service: {rows} exchanges deviate on purpose"));
    Ok([direct, fronted])
}

/// A group that is played, through the service or not.
struct Played<'a> {
    group: &'a Group,
    recorded: &'a Recorded,
    front: Option<(Front, Server)>,
}

impl Played<'_> {
    async fn play(self, tally: &mut Tally) -> anyhow::Result<()> {
        let (front, server) = match self.front {
            Some((front, server)) => (Some(front), server),
            None => (None, Server::start(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await?),
        };
        let addr = front.as_ref().map_or(server.addr(), |front| front.addr);
        world::begin(server.store(), &self.group.world);
        let mut memory = Memory::default();
        let (mut vm, mut last, mut published) = (String::new(), String::new(), 0);
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
                    let own = match &front {
                        Some(_) => front::change(change, next.unwrap_or_default(), &vm, jobs)?,
                        None => None,
                    };
                    let asked = match own {
                        Some(asked) => vec![asked],
                        None => world::change(server.store(), change, self.group)?,
                    };
                    for asked in asked {
                        let done = exchange(addr, &asked).await?;
                        let status = done.as_ref().map(|done| done.status);
                        anyhow::ensure!(status == Some(200), "{change}: the answer was {done:?}");
                    }
                }
                Step::Exchange(one) => {
                    let faults = match &front {
                        Some(front) => through(self.recorded, front, one, &mut memory).await?,
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

fn is_of_migration(asked: &Asked) -> bool {
    let in_body = asked.body.as_ref().is_some_and(|body| body["action"] == "migrate");
    in_body || asked.query.contains("action=migrate")
}

/// Plays one exchange through the service; returns what is wrong with it.
async fn through(
    recorded: &Recorded,
    front: &Front,
    one: &Exchange,
    memory: &mut Memory,
) -> anyhow::Result<Option<String>> {
    let row = recorded.rows.get(&one.id);
    // What VMAPI asked for its own routes is its own.
    let calls = recorded.calls.get(&one.id).filter(|_| is_of_migration(&one.request));
    front.peers.begin(calls.cloned().unwrap_or_default());
    let (compared, of_row) = match &one.response.stream {
        Some(lines) => {
            let got = stream::watch(front.addr, one, memory).await?;
            anyhow::ensure!(got.status == 200 && got.kind == "application/x-json-stream");
            (memory.lines(lines, &got.lines), row.map(|row| row.check_lines(&got.lines)))
        }
        None => {
            let asked = memory.translated(&encoded(&one.request));
            let got = exchange(front.addr, &asked).await?;
            let of_row = row.filter(|row| row.is_of_reply()).map(|row| row.check(got.as_ref()));
            (memory.answer(&one.response, got.as_ref()), of_row)
        }
    };
    let calls = front.peers.faults();
    Ok(match (row, of_row) {
        (None, _) => compared.err().or(calls),
        (Some(row), Some(_)) if compared.is_ok() => Some(format!("needless row: {}", row.defect)),
        (Some(_), Some(checked)) => checked.err(),
        (Some(row), None) if calls.is_none() => Some(format!("needless row: {}", row.defect)),
        (Some(_), None) => compared.err(),
    })
}
