// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The data centre: two nodes of the lab with all their daemons, and a VM that is moved from one to the other and back
//! again.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use mocks::faults::Listening;
use sdc_clients::Http;
use sdc_clients::napi::Napi;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::choice::Choice;
use super::gate;
use super::points::{Due, Points};
use super::relay::{Between, relay};
use crate::faults::Party;
use crate::held::{Process, processes};
use crate::lab::asking::OWN_AGENT;
use crate::lab::world::this_program;
use crate::lab::{World, WorldOptions, seed};
use crate::moving::ending::{Ending, Side, open_tickets, wrong_words};
use crate::moving::judge::Judge;
use crate::moving::operator::{Operator, Story, Waits};
use crate::moving::subject::VM;
use crate::process;
use migration_core::intent::End;

const WAITS: Waits = Waits {
    patience: Duration::from_secs(120),
    look: Duration::from_millis(50),
    again: Duration::from_millis(500),
};
/// After a story everything has to be right within this.
const SETTLES: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(100);
/// net-agent and vm-agent wait so much less than in production.
const SPEED: u32 = 600;
/// Kills that wait to be done: there is one at a time.
const DUE: usize = 4;

/// What came of a story.
pub struct Told {
    /// The kills that happened.
    pub kills: Vec<String>,
    /// What was wrong.
    pub faults: Vec<String>,
    /// What happened, for people.
    pub notes: Vec<String>,
    /// How long it took.
    pub took: Duration,
}

/// The data centre.
pub struct Site {
    worlds: [World; 2],
    /// On which node the VM is.
    at: usize,
    points: Arc<Points>,
    due: mpsc::Receiver<Due>,
    /// The VM's NICs as NAPI had them at first.
    nics: Vec<Value>,
    _relays: Vec<Listening>,
    _between: Vec<Between>,
}

impl Site {
    /// Starts it, with the VM on the first node.
    pub async fn start(dir: &Path, seed: u64) -> Result<Site> {
        let options = WorldOptions::new(dir.join("cn"), this_program()?);
        let options = WorldOptions { vms: 2, seed, speed: SPEED, ..options };
        let first = World::create(options).await?;
        let second = first.beside(1).await?;
        let mut worlds = [first, second];
        let (send, due) = mpsc::channel(DUE);
        let points = Points::new(Arc::new(Judge::new(VM)), send);
        let (relays, between) = lay(&mut worlds, &points).await?;
        for world in &mut worlds {
            world.start_vminfod().await?;
            let vms = world.hub()?.vms(true).await?.vms;
            seed::fill_right(world, &vms)?;
            world.start_agent().await?;
            world.start_vm_agent().await?;
            world.start_migration_agent().await?;
        }
        worlds[0].start_migration_service().await?;
        let authority = worlds[0].authority_file();
        between.iter().try_for_each(|it| it.hold(&authority))?;
        let nics = worlds[0].provision().await?;
        Ok(Site { worlds, at: 0, points, due, nics, _relays: relays, _between: between })
    }

    /// Stops all of it.
    pub async fn stop(self) -> Result<()> {
        let [first, second] = self.worlds;
        second.stop().await?;
        Ok(first.stop().await?)
    }

    /// Tells a story with at most `kills` kills, one in each operation; with `is_plain` none, and what can happen in it
    /// becomes known.
    pub async fn tell(
        &mut self,
        story: Story,
        kills: usize,
        choice: &mut Choice,
        is_plain: bool,
    ) -> Result<Told> {
        let began = Instant::now();
        let judge = Arc::new(Judge::new(VM));
        judge.know(self.worlds[0].vmapi.store());
        for end in [End::Source, End::Target] {
            judge.add(end, self.worlds[self.place(end)].node());
        }
        self.points.turn(&judge, self.at);
        judge.write(End::Source, self.worlds[self.at].node());
        let mut happened = Vec::new();
        for (nth, op) in story.ops().iter().enumerate() {
            let may_kill = !is_plain && happened.len() < kills;
            let planned = if may_kill { choice.take((story, nth)) } else { None };
            self.points.begin(planned.clone());
            let cn = |end| self.worlds[self.place(end)].node().cn_uuid().parse();
            let (source, target) = (cn(End::Source)?, cn(End::Target)?);
            let client = self.worlds[0].migrations()?;
            let operator = Operator { client, source, target, judge: &judge, waits: WAITS };
            let points = Arc::clone(&self.points);
            let done = {
                let done = operator.op(*op, || points.is_calm());
                tokio::pin!(done);
                loop {
                    // Cancel-safe: a kill that is due stays in the channel.
                    tokio::select! {
                        done = &mut done => break done,
                        Some((party, waits)) = self.due.recv() => {
                            self.kill(party, waits).await.with_context(|| format!("{party} again"))?;
                            judge.note(format!("-- {party} is started"));
                        }
                    }
                }
            };
            let (labels, was_killed) = self.points.end();
            if is_plain {
                choice.know((story, nth), &labels);
            }
            if let Some(planned) = planned.filter(|_| was_killed) {
                let moment = format!("{:?}", planned.moment).to_lowercase();
                happened.push(format!("{op:?}, {moment} {}: {}", planned.at, planned.fault));
            }
            if let Err(error) = done {
                judge.fault("told", &format!("{error:#}"));
                break;
            }
        }
        if judge.faults().is_empty() {
            self.judge_the_end(story, &judge).await?;
        }
        if story.end() == End::Target {
            self.at = 1 - self.at;
        }
        let (faults, notes) = (judge.faults(), judge.notes());
        Ok(Told { kills: happened, faults, notes, took: began.elapsed() })
    }

    fn place(&self, end: End) -> usize {
        if end == End::Source { self.at } else { 1 - self.at }
    }

    /// Kills a program, and what it had started, as SMF ends what is left of a service; then starts it again.
    async fn kill(&mut self, party: Party, waits: tokio::sync::oneshot::Sender<()>) -> Result<()> {
        let (world, name) = match party {
            Party::Agent(end) => (self.place(end), "migration-agent"),
            _ => (0, "migration-service"),
        };
        let world = &mut self.worlds[world];
        let left = world.pid(name).map(below).unwrap_or_default();
        world.end(name, true).await?;
        left.into_iter().for_each(process::kill);
        // Whoever was killed does not wait for this any more.
        let _gone = waits.send(());
        match party {
            Party::Agent(_) => world.start_migration_agent().await?,
            _ => world.start_migration_service().await?,
        }
        Ok(())
    }

    async fn judge_the_end(&self, story: Story, judge: &Judge) -> Result<()> {
        let side = |end: End| {
            let world = &self.worlds[self.place(end)];
            Side { end, node: world.node().clone(), holds: world.agent_state_dir() }
        };
        let world = &self.worlds[0];
        let ending = Ending {
            judge,
            here: side(story.end()),
            there: side(story.end().other()),
            vmapi: world.vmapi.store(),
            napi: world.napi.store(),
            addresses: Napi::new(Http::new(&world.napi.url(), OWN_AGENT)?),
            nics: &self.nics,
            with_agents: true,
            is_watched: false,
        };
        judge.rest();
        let until = Instant::now() + SETTLES;
        let mut wrongs = ending.wrongs().await;
        while !wrongs.is_empty() && Instant::now() < until {
            tokio::time::sleep(LOOK).await;
            wrongs = ending.wrongs().await;
        }
        for (promise, what) in wrongs {
            judge.fault(promise, &what);
        }
        judge.check("delete: the end");
        for ticket in open_tickets(world.centre().cnapi.store()) {
            judge.fault("P14", &ticket);
        }
        for words in wrong_words(world.napi.store(), world.vmapi.store(), &self.nics) {
            judge.fault("P14", &format!("the VM or a NIC was told to be gone: {words}"));
        }
        Ok(())
    }
}

/// Lays relays and gates between the programs, all of which are still to be started.
async fn lay(
    worlds: &mut [World; 2],
    points: &Arc<Points>,
) -> Result<(Vec<Listening>, Vec<Between>)> {
    let gate = gate::open(Arc::clone(points)).await?;
    let (mut relays, mut between) = (Vec::new(), Vec::new());
    let mut agents = Map::new();
    for (number, world) in worlds.iter_mut().enumerate() {
        let commands = gate::scripts(world.node().dir(), number, gate)?;
        world.options().migration_agent.insert("commands".to_owned(), commands);
        let cn = world.node().cn_uuid().to_owned();
        let agent = (number, cn.parse()?);
        let laid = Between::start(agent, &world.migration_agent_url(), points).await?;
        agents.insert(cn, json!(format!("https://{}", laid.at)));
        between.push(laid);
    }
    let services = [
        ("upstream_vmapi", "VMAPI", worlds[0].vmapi.url()),
        ("cnapi_url", "CNAPI", worlds[0].cnapi_url()),
        ("napi_url", "NAPI", worlds[0].napi.url()),
    ];
    for (key, name, url) in services {
        let laid = relay(name, &url, points).await?;
        let url = json!(format!("http://{}", laid.addr()));
        worlds[0].options().migration_service.insert(key.to_owned(), url);
        relays.push(laid);
    }
    let agents = json!({ "urls": agents });
    worlds[0].options().migration_service.insert("agents".to_owned(), agents);
    Ok((relays, between))
}

/// All processes that a process started, and those that they started.
fn below(pid: u32) -> Vec<u32> {
    let all: Vec<Process> = processes().collect();
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        found.extend(all.iter().filter(|one| one.parent == parent).map(|one| one.pid));
        next += 1;
    }
    found.split_off(1)
}
