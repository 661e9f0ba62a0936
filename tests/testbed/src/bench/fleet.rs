// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The feed on three real nats-servers: from an event at a node to a follower, changes a second, what an agent costs,
//! and when a mirror of 10,000 VMs is complete. Agents are processes.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use rig::nats::Nats;
use rig::port::Port;
use rustix::process::Signal;
use sdc_clients::Jitter;
use sdc_clients::fleet::{
    Access, CHANGES, Fleet, FleetEvent, Follower, Kind, Labels, Position, Shape, VMS, Wire, make,
    subject, subjects_of,
};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use super::served::cpu_of;
use super::setting::Bench;
use super::table::{Row, Samples, Unit};
use crate::fleet_feed::{Hubs, cn, hubs, serve, vm};
use crate::held::memory;
use crate::process::Child;

/// Nodes that change at once, and changes of each of them in one burst: vminfod's ring holds a burst.
const NODES: usize = 20;
const BURST: usize = 40;
/// Changes that are measured one by one.
const SINGLE: usize = 50;
const MIRRORED: usize = 10_000;
/// The rate at which an agent's cost is measured, and for how many changes.
const PACE: Duration = Duration::from_millis(100);
const PACED: u32 = 100;
const PATIENCE: Duration = Duration::from_secs(120);

pub(super) async fn run(bench: &mut Bench) -> anyhow::Result<Vec<Row>> {
    if let Some(why) = rig::nats::why_not() {
        return Ok(vec![Row::skipped("the feed of the data centre", why)]);
    }
    let mut feed = Feed::start().await?;
    let mut agents = feed.agents(0, NODES)?;
    let mut rows = feed.changes(bench.rounds).await?;
    end(&mut agents).await;
    rows.extend(feed.cost().await?);
    rows.push(feed.mirror(bench.rounds).await?);
    Ok(rows)
}

struct Feed {
    nats: Nats,
    fleet: Fleet,
    wire: Wire,
    /// One node more than change at once.
    hubs: Hubs,
    url: String,
    dir: tempfile::TempDir,
    turn: u64,
}

async fn end(child: &mut Child) {
    child.signal(Signal::KILL);
    let _ended = child.wait().await;
}

impl Feed {
    async fn start() -> anyhow::Result<Feed> {
        let nats = Nats::start(3, None).context("nats-server")?;
        let access = Access { servers: nats.servers(), ..Access::default() };
        let client = access.connect("bench", Jitter::from_seed(1)).await?;
        let fleet = Fleet::with_client(client.clone(), &access);
        let shape = Shape { bytes: 1 << 30, ..Shape::default() };
        let until = Instant::now() + Duration::from_secs(60);
        while let Err(error) = make(fleet.jetstream(), &shape).await {
            ensure!(Instant::now() < until, "the streams: {error}");
            sleep(Duration::from_millis(200)).await;
        }
        let hubs = hubs(NODES + 1);
        let url = format!("http://{}", serve(&hubs).await?);
        let (wire, dir) = (Wire::new(client, &access), crate::place::place()?);
        Ok(Feed { nats, fleet, wire, hubs, url, dir, turn: 0 })
    }

    /// The process of the agents of some nodes.
    fn agents(&self, first: usize, count: usize) -> anyhow::Result<Child> {
        let servers = self.nats.servers().into_iter().flat_map(|url| ["--server".to_owned(), url]);
        let dir = self.dir.path().display().to_string();
        let (first, count) = (first.to_string(), count.to_string());
        let args: Vec<String> = ["@fleet-nodes", "--hubs", &self.url, "--dir", &dir]
            .into_iter()
            .chain(["--first", &first, "--count", &count, "--seed", "1"])
            .map(str::to_owned)
            .chain(servers)
            .collect();
        let program: PathBuf = std::env::current_exe()?;
        let mut child = Child::spawn("fleet-nodes", &program, &args)?;
        child.ignore();
        Ok(child)
    }

    /// The agent of one node: fleet-agent, where it was built beside this program. Returns whether it is that.
    fn agent(&self, nth: usize, port: &Port) -> anyhow::Result<(Child, bool)> {
        let program = std::env::current_exe()?.with_file_name("fleet-agent");
        if !program.exists() {
            return Ok((self.agents(nth, 1)?, false));
        }
        let (cn, dir) = (cn(nth), self.dir.path().join("agent"));
        std::fs::create_dir_all(&dir)?;
        let config = json!({"server_uuid": cn, "nats": {"servers": self.nats.servers()}, "state_dir": dir,
            "programs": {}, "vminfod": {"url": format!("{}/{cn}", self.url), "trust_tcp": true},
            "status": {"listen": port.address().to_string()}});
        let file = dir.join("config.json");
        std::fs::write(&file, config.to_string())?;
        let args = ["serve".to_owned(), "--config".to_owned(), file.display().to_string()];
        let mut child = Child::spawn("fleet-agent", &program, &args)?;
        child.ignore();
        Ok((child, true))
    }

    /// A follower of some nodes that has all there is.
    async fn follower(&self, filter: &str) -> anyhow::Result<Follower> {
        let mut follower = Follower::new(&self.fleet, filter, Jitter::from_seed(2));
        let synced = async { while follower.next().await != FleetEvent::Synced {} };
        timeout(PATIENCE, synced).await.context("no snapshot")?;
        Ok(follower)
    }

    /// One more state of a node's first VM.
    fn change(&mut self, nth: usize) -> String {
        self.turn += 1;
        let (cn, turn) = (cn(nth), self.turn);
        if let Some(hub) = self.hubs.get(&cn) {
            hub.put(vm(&cn, 0, turn));
        }
        format!("vm-{turn}")
    }

    /// Waits until a follower has been given this state.
    async fn given(follower: &mut Follower, alias: &str) -> anyhow::Result<()> {
        let given = async {
            loop {
                if let FleetEvent::Changed { vm, .. } = follower.next().await
                    && vm.object.get("alias").and_then(|it| it.as_str()) == Some(alias)
                {
                    return;
                }
            }
        };
        timeout(PATIENCE, given).await.with_context(|| format!("{alias} does not come"))
    }

    async fn changes(&mut self, rounds: usize) -> anyhow::Result<Vec<Row>> {
        let mut follower = self.follower("vms.*.*").await?;
        for nth in 0..NODES {
            let alias = self.change(nth);
            Self::given(&mut follower, &alias).await?;
        }
        let (mut ours, mut bare) = (Samples::default(), Samples::default());
        let (mut each, mut bare_each) = (Samples::default(), Samples::default());
        for _ in 0..rounds {
            for _ in 0..SINGLE {
                let start = Instant::now();
                let alias = self.change(0);
                Self::given(&mut follower, &alias).await?;
                ours.push(start.elapsed());
                bare.push(self.bare().await?);
            }
            each.push_value(self.burst(&mut follower).await?);
            bare_each.push_value(self.bare_burst().await?);
        }
        let half = (2.0 * bare_each.median()).max(1.0 / 1000.0);
        Ok(vec![
            Row::new("an event at a node, at a follower: p50", Unit::Time, &ours).against(
                "a publish, its acknowledgement, a subscriber",
                bare.median(),
                2.0,
            ),
            Row::new("changes of 20 nodes at once, each", Unit::Time, &each)
                .against("1 ms, or twice a bare publish", half, 1.0)
                .note("1,000 changes/s, or half of what the same servers take of bare publishes"),
        ])
    }

    /// A message that no agent wrote: the same servers, stream and size.
    fn message(&self, nth: usize) -> (String, Bytes) {
        let subject = format!("vms.bench.{nth}");
        (subject, json!({"vm": vm("bench", nth, self.turn)}).to_string().into())
    }

    async fn bare(&mut self) -> anyhow::Result<Duration> {
        let (subject, body) = self.message(0);
        let mut heard = self.fleet.jetstream().client().subscribe(subject.clone()).await?;
        self.fleet.jetstream().client().flush().await?;
        let start = Instant::now();
        let acknowledged = self.fleet.jetstream().publish(subject, body).await?;
        let (done, heard) = tokio::join!(acknowledged.into_future(), heard.next());
        done?;
        ensure!(heard.is_some(), "nothing was heard");
        Ok(start.elapsed())
    }

    /// Seconds for each of the changes of all nodes at once.
    async fn burst(&mut self, follower: &mut Follower) -> anyhow::Result<f64> {
        let start = Instant::now();
        let mut wanted = 0;
        for _ in 0..BURST {
            for nth in 0..NODES {
                self.change(nth);
                wanted += 1;
            }
        }
        let all = async {
            let mut given = 0;
            while given < wanted {
                given += usize::from(matches!(follower.next().await, FleetEvent::Changed { .. }));
            }
        };
        timeout(PATIENCE, all).await.context("a burst does not end")?;
        Ok(start.elapsed().as_secs_f64() / f64::from(u32::try_from(wanted)?))
    }

    /// The same of bare publishes: each publisher waits for its acknowledgement.
    async fn bare_burst(&self) -> anyhow::Result<f64> {
        let start = Instant::now();
        let publisher = async |nth: usize| -> anyhow::Result<()> {
            for _ in 0..BURST {
                let (subject, body) = self.message(nth);
                self.fleet.jetstream().publish(subject, body).await?.await?;
            }
            Ok(())
        };
        futures_util::future::try_join_all((0..NODES).map(publisher)).await?;
        Ok(start.elapsed().as_secs_f64() / (NODES * BURST) as f64)
    }

    /// What one agent costs at ten changes a second.
    async fn cost(&mut self) -> anyhow::Result<Vec<Row>> {
        let mut follower = self.follower(&format!("vms.{}.*", cn(NODES))).await?;
        let port = Port::local()?;
        let (mut agent, is_itself) = self.agent(NODES, &port)?;
        let alias = self.change(NODES);
        Self::given(&mut follower, &alias).await?;
        let pid = agent.id().context("it has ended")?;
        let (before, start) = (cpu_of(pid)?, Instant::now());
        let mut pace = tokio::time::interval(PACE);
        for _ in 0..PACED {
            pace.tick().await;
            let alias = self.change(NODES);
            Self::given(&mut follower, &alias).await?;
        }
        let used = (cpu_of(pid)? - before).as_secs_f64() / start.elapsed().as_secs_f64();
        let held = memory(pid, "VmRSS")? as f64;
        end(&mut agent).await;
        let note = match is_itself {
            true => "fleet-agent, as it was built beside this program",
            false => "fleet-agent is not built: the testbed's process, which is larger",
        };
        Ok(vec![
            Row::one("an agent at 10 changes/s, CPU", Unit::Percent, 100.0 * used).against(
                "1 % of a core",
                1.0,
                1.0,
            ),
            Row::one("an agent at 10 changes/s, memory", Unit::Bytes, held)
                .against("20 MB", 20e6, 1.0)
                .note(note),
        ])
    }

    /// The mirror of 10,000 VMs, against the bytes of its stream.
    async fn mirror(&mut self, rounds: usize) -> anyhow::Result<Row> {
        let node = cn(1000);
        let publish = async |nth: usize| {
            let vm = vm(&node, nth, 1);
            let subject = subject(&node, vm.get("uuid").and_then(|uuid| uuid.as_str()));
            let at = Position { epoch: "bench".to_owned(), seq: nth as u64 + 1 };
            let labels = Labels::of(Kind::Create, at);
            let body = json!({"type": "create", "vm": vm}).to_string();
            self.wire.publish(&subject, &labels, body.into(), 0).await
        };
        let mut all = stream::iter(0..MIRRORED).map(publish).buffer_unordered(64);
        while let Some(published) = all.next().await {
            published?;
        }
        drop(all);
        let filter = subjects_of(&node).replace('>', "*");
        let until = Instant::now() + PATIENCE;
        while self.wire.subjects(VMS, &filter).await?.len() < MIRRORED {
            ensure!(Instant::now() < until, "VMS stays behind {CHANGES}");
            sleep(Duration::from_millis(200)).await;
        }
        let (mut ready, mut read) = (Samples::default(), Samples::default());
        for _ in 0..rounds {
            let start = Instant::now();
            let follower = self.follower(&filter).await?;
            ready.push(start.elapsed());
            ensure!(follower.mirror().len() == MIRRORED, "{} VMs", follower.mirror().len());
            let start = Instant::now();
            ensure!(self.fleet.changes(&filter).await?.len() == MIRRORED, "other messages");
            read.push(start.elapsed());
        }
        Ok(Row::new("a mirror of 10,000 VMs is complete", Unit::Time, &ready).against(
            "reading as many messages",
            read.median(),
            2.0,
        ))
    }
}
