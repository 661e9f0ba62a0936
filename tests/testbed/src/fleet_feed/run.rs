// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! One run, from the first server to the verdict.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use rig::nats::Nats;
use sdc_clients::Jitter;
use sdc_clients::fleet::{Access, Fleet, FleetEvent, Follower, Position, Shape, make};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::centre::{Hubs, hubs, serve, vm};
use super::children::shown;
use super::judge::{Counted, Told, complete, told};
use super::options::Options;
use crate::process::Child;

/// Nodes of one process.
const TOGETHER: usize = 100;
/// Servers, and consumers that are killed.
const SERVERS: usize = 3;
const MIRRORS: usize = 2;
/// The feed shows the nodes this long after the last death.
const SETTLE: Duration = Duration::from_secs(120);

/// A run that held.
#[derive(Debug)]
pub struct Passed {
    /// What CHANGES has.
    pub changes: Counted,
    /// What the consumer that lived was told.
    pub consumer: Counted,
    /// Servers, processes of agents and consumers that were killed.
    pub killed: [usize; 3],
    /// VMs at the end.
    pub vms: usize,
    /// From the last death until everybody agreed.
    pub settled: Duration,
}

impl fmt::Display for Passed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Passed { changes, consumer, killed: [servers, agents, mirrors], vms, settled } = self;
        let Counted { events, differences, holes } = changes;
        write!(
            f,
            "{events} events each once, {differences} differences, {holes} markers; a consumer was told {} events and {} \
             holes; killed {servers} servers, {agents} processes of agents, {mirrors} consumers; {vms} VMs, agreed {:.1} s \
             after the last death",
            consumer.events,
            consumer.holes,
            settled.as_secs_f64()
        )
    }
}

/// What runs.
struct Site {
    nats: Nats,
    hubs: Hubs,
    hubs_url: String,
    dir: PathBuf,
    program: PathBuf,
    seed: u64,
    agents: Vec<Option<Child>>,
    mirrors: Vec<Option<Child>>,
    nodes: usize,
}

impl Site {
    fn servers(&self) -> Vec<String> {
        self.nats.servers().into_iter().flat_map(|server| ["--server".to_owned(), server]).collect()
    }

    fn spawn(&self, name: &str, args: &[String]) -> anyhow::Result<Child> {
        let args: Vec<String> = [format!("@{name}")]
            .into_iter()
            .chain(self.servers())
            .chain(args.iter().cloned())
            .collect();
        let mut child = Child::spawn(name, &self.program, &args).context(name.to_owned())?;
        child.ignore();
        Ok(child)
    }

    fn start_agents(&mut self, nth: usize) -> anyhow::Result<()> {
        let first = nth * TOGETHER;
        let count = TOGETHER.min(self.nodes - first);
        let args = [
            ("--hubs", self.hubs_url.clone()),
            ("--dir", self.dir.join("agents").display().to_string()),
            ("--first", first.to_string()),
            ("--count", count.to_string()),
            ("--seed", self.seed.to_string()),
        ];
        let args: Vec<String> =
            args.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect();
        self.agents[nth] = Some(self.spawn("fleet-nodes", &args)?);
        Ok(())
    }

    fn seen_by(&self, nth: usize) -> PathBuf {
        self.dir.join(format!("mirror-{nth}"))
    }

    fn start_mirror(&mut self, nth: usize) -> anyhow::Result<()> {
        let out = self.seen_by(nth);
        // What the one before saw is no word of this one.
        let _none = std::fs::remove_file(&out);
        let args = ["--out".to_owned(), out.display().to_string()];
        self.mirrors[nth] = Some(self.spawn("fleet-mirror", &args)?);
        Ok(())
    }

    /// The union of the nodes.
    fn truth(&self) -> BTreeMap<String, String> {
        let of = |(cn, hub): (&String, &mocks::hub::Hub)| {
            let pair = |(name, vm): (String, sdc_clients::vminfod::VmObject)| {
                (format!("{cn} {name}"), vm["alias"].as_str().unwrap_or_default().to_owned())
            };
            hub.vms().into_iter().map(pair).collect::<Vec<_>>()
        };
        self.hubs.iter().flat_map(of).collect()
    }
}

async fn kill(child: &mut Option<Child>) {
    if let Some(mut child) = child.take() {
        child.signal(rustix::process::Signal::KILL);
        let _ended = child.wait().await;
    }
}

/// Runs it.
/// Fails if something is not as it has to be.
pub async fn feed(options: &Options) -> anyhow::Result<Passed> {
    let seed = options.seed.unwrap_or(1);
    let dir = crate::place::place()?;
    let program = match &options.program {
        Some(program) => program.clone(),
        None => std::env::current_exe()?,
    };
    let hubs = hubs(options.nodes);
    let hubs_url = format!("http://{}", serve(&hubs).await?);
    let mut site = Site {
        nats: Nats::start(SERVERS, None).context("nats-server")?,
        hubs,
        hubs_url,
        dir: dir.path().to_owned(),
        program,
        seed,
        agents: (0..options.nodes.div_ceil(TOGETHER)).map(|_| None).collect(),
        mirrors: (0..MIRRORS).map(|_| None).collect(),
        nodes: options.nodes,
    };
    let access = Access { servers: site.nats.servers(), ..Access::default() };
    let fleet = Fleet::connect(&access, "fleet-feed", Jitter::from_seed(seed)).await?;
    streams(&fleet).await?;
    let (stop, consumer) = consumer(&fleet);
    (0..site.agents.len()).try_for_each(|nth| site.start_agents(nth))?;
    (0..MIRRORS).try_for_each(|nth| site.start_mirror(nth))?;
    let killed = shake(&mut site, &fleet, options, StdRng::seed_from_u64(seed)).await?;
    let settled = agree(&site, &fleet).await?;
    let changes = complete(&changes(&fleet, &site).await?).context("CHANGES")?;
    drop(stop);
    let consumer = complete(&consumer.await?).context("the consumer that lived")?;
    for child in site.agents.iter_mut().chain(&mut site.mirrors) {
        kill(child).await;
    }
    Ok(Passed { changes, consumer, killed, vms: site.truth().len(), settled })
}

/// Makes the streams, as soon as the servers have elected who leads.
async fn streams(fleet: &Fleet) -> anyhow::Result<()> {
    let shape = Shape { replicas: SERVERS, bytes: 1 << 30, ..Shape::default() };
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        match make(fleet.jetstream(), &shape).await {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() > until => return Err(error).context("the streams"),
            Err(_) => sleep(Duration::from_millis(200)).await,
        }
    }
}

type Heard = BTreeMap<String, Vec<Told>>;

/// A consumer that lives all the time; it ends when the sender is dropped.
fn consumer(fleet: &Fleet) -> (mpsc::Sender<()>, tokio::task::JoinHandle<Heard>) {
    let (stop, mut stopped) = mpsc::channel(1);
    let mut follower = Follower::new(fleet, "vms.*.*", Jitter::from_seed(1));
    let heard = tokio::spawn(async move {
        let mut heard = Heard::new();
        loop {
            // Both arms are cancel-safe.
            let event = tokio::select! {
                event = follower.next() => event,
                _ = stopped.recv() => return heard,
            };
            let told =
                |at: Position, compared| if compared { Told::Difference } else { Told::Event(at) };
            let (cn, told) = match event {
                FleetEvent::Changed { vm, compared, .. } => {
                    (vm.cn.clone(), told(vm.at.clone(), compared))
                }
                FleetEvent::Gone { vm, at, compared } => (vm.cn.clone(), told(at, compared)),
                FleetEvent::Resync { cn } => (cn, Told::Hole(None)),
                FleetEvent::Hole => {
                    heard.values_mut().for_each(|told| told.push(Told::Hole(None)));
                    continue;
                }
                _ => continue,
            };
            heard.entry(cn).or_default().push(told);
        }
    });
    (stop, heard)
}

/// Changes VMs and kills what runs, for so many seconds; at the end everything runs again.
async fn shake(
    site: &mut Site,
    fleet: &Fleet,
    options: &Options,
    mut dice: StdRng,
) -> anyhow::Result<[usize; 3]> {
    let mut killed = [0; 3];
    let names: Vec<String> = site.hubs.keys().cloned().collect();
    let (mut turn, mut down): (u64, Option<(usize, Instant)>) = (0, None);
    let until = Instant::now() + Duration::from_secs(options.seconds);
    let mut death = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until {
        for _ in 0..dice.random_range(1..8) {
            turn += 1;
            let cn = &names[dice.random_range(0..names.len())];
            let (hub, nth) = (&site.hubs[cn], dice.random_range(0..options.vms));
            match dice.random_range(0..200) {
                0 => hub.restart(),
                1 => hub.forget(),
                2..30 => hub.remove(vm(cn, nth, 0)["zonename"].as_str().unwrap_or_default()),
                _ => hub.put(vm(cn, nth, turn)),
            }
        }
        if down.is_some_and(|(_, back)| Instant::now() > back)
            && let Some((nth, _)) = down.take()
        {
            site.nats.run(nth)?;
        }
        if Instant::now() > death {
            death = Instant::now() + Duration::from_millis(dice.random_range(500..3000));
            match dice.random_range(0..3) {
                // While one is behind, another death would leave no majority that has everything.
                0 if down.is_none() && is_whole(fleet).await => {
                    let nth = dice.random_range(0..SERVERS);
                    site.nats.kill(nth);
                    killed[0] += 1;
                    down = Some((
                        nth,
                        Instant::now() + Duration::from_millis(dice.random_range(0..4000)),
                    ));
                }
                1 => {
                    let nth = dice.random_range(0..site.agents.len());
                    kill(&mut site.agents[nth]).await;
                    killed[1] += 1;
                    site.start_agents(nth)?;
                }
                _ => {
                    let nth = dice.random_range(0..MIRRORS);
                    kill(&mut site.mirrors[nth]).await;
                    killed[2] += 1;
                    site.start_mirror(nth)?;
                }
            }
        }
        sleep(Duration::from_millis(dice.random_range(5..40))).await;
    }
    if let Some((nth, _)) = down {
        site.nats.run(nth)?;
    }
    Ok(killed)
}

/// Whether every server has all of every stream.
async fn is_whole(fleet: &Fleet) -> bool {
    let health = tokio::time::timeout(Duration::from_secs(2), fleet.health()).await;
    health.is_ok_and(|all| all.is_ok_and(|all| all.iter().all(|stream| stream.behind.is_empty())))
}

/// Waits until the feed and every consumer show the union of the nodes, and every event was published.
async fn agree(site: &Site, fleet: &Fleet) -> anyhow::Result<Duration> {
    let (began, truth) = (Instant::now(), site.truth());
    let mut why;
    loop {
        why = match disagreement(site, fleet, &truth).await {
            Ok(None) => return Ok(began.elapsed()),
            Ok(Some(why)) => why,
            Err(error) => format!("{error:#}"),
        };
        ensure!(began.elapsed() < SETTLE, "after {SETTLE:?}: {why}");
        sleep(Duration::from_millis(500)).await;
    }
}

async fn disagreement(
    site: &Site,
    fleet: &Fleet,
    truth: &BTreeMap<String, String>,
) -> anyhow::Result<Option<String>> {
    let mut follower = Follower::new(fleet, "vms.*.*", Jitter::from_seed(2));
    loop {
        match follower.next().await {
            FleetEvent::Synced => break,
            FleetEvent::Lost(error) => return Err(error.into()),
            _ => {}
        }
    }
    if let Some(why) = differs("VMS", truth, &shown(follower.mirror())) {
        return Ok(Some(why));
    }
    for nth in 0..MIRRORS {
        let seen = read(&site.seen_by(nth)).unwrap_or_default();
        if let Some(why) = differs(&format!("consumer {nth}"), truth, &seen) {
            return Ok(Some(why));
        }
    }
    let beats = fleet.nodes().await?;
    let position = |cn: &String| {
        beats
            .iter()
            .find(|beat| beat.node.cn_uuid == *cn)
            .and_then(|beat| beat.node.position.clone())
    };
    let behind = site.hubs.iter().find(|(cn, hub)| {
        let (epoch, seq) = hub.position();
        position(cn) != Some(Position { epoch, seq })
    });
    Ok(behind
        .map(|(cn, hub)| format!("{cn} says {:?}, it is at {:?}", position(cn), hub.position())))
}

fn read(path: &Path) -> Option<BTreeMap<String, String>> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

fn differs(
    who: &str,
    truth: &BTreeMap<String, String>,
    seen: &BTreeMap<String, String>,
) -> Option<String> {
    let missing = truth.iter().find(|(vm, state)| seen.get(*vm) != Some(state));
    let ghost = seen.keys().find(|vm| !truth.contains_key(*vm));
    (missing.is_some() || ghost.is_some()).then(|| {
        let seen_as = missing.and_then(|(vm, _)| seen.get(vm));
        format!(
            "{who} shows {} VMs of {}: {missing:?} is {seen_as:?}, too many: {ghost:?}",
            seen.len(),
            truth.len()
        )
    })
}

/// What `CHANGES` has, by node.
async fn changes(fleet: &Fleet, site: &Site) -> anyhow::Result<Heard> {
    let mut all: Heard = site.hubs.keys().map(|cn| (cn.clone(), Vec::new())).collect();
    for message in fleet.changes("vms.*.*").await? {
        let labels = &message.labels;
        all.entry(message.target.cn).or_default().push(told(
            labels.kind,
            &labels.at,
            labels.compared,
        ));
    }
    Ok(all)
}
