// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! One run, from the first server to the verdict.

use std::fmt;
use std::time::Duration;

use anyhow::Context as _;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rig::nats::Nats;
use sdc_clients::Jitter;
use sdc_clients::fleet::{Access, Fleet, FleetEvent, Follower, Position, Shape, make};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::agree::{Heard, agree, changes, started};
use super::centre::{hubs, serve};
use super::judge::{Counted, Told, complete};
use super::options::Options;
use super::progress::Progress;
use super::shake::{Deaths, shake};
use super::site::{BYTES, MIRRORS, SERVERS, Site, TOGETHER, kill};

/// A run that held.
#[derive(Debug)]
pub struct Passed {
    /// What CHANGES has.
    pub changes: Counted,
    /// What the consumer that lived was told.
    pub consumer: Counted,
    /// What was killed and stopped.
    pub deaths: Deaths,
    /// VMs at the end.
    pub vms: usize,
    /// From the last death until everybody agreed.
    pub settled: Duration,
    /// Bytes of memory of a node's agent, among a hundred of one process.
    pub memory: Option<u64>,
}

impl fmt::Display for Passed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Passed { changes, consumer, deaths, vms, settled, memory } = self;
        let Counted { events, differences, holes, lost } = changes;
        let memory = memory.map_or("–".to_owned(), |bytes| format!("{:.1}", bytes as f64 / 1e6));
        write!(
            f,
            "{events} events each once, {differences} differences, {holes} markers; the servers lost what they had \
             acknowledged {lost} times, each told by the next message; a consumer was told {} events and {} holes; {deaths}; {vms} VMs, agreed {:.1} s after the last death; {memory} MB of memory for each node's agent",
            consumer.events,
            consumer.holes,
            settled.as_secs_f64()
        )
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
    let mut progress = Progress::begin();
    progress.goes_on_with(&format!("the agents of {} nodes start", site.nodes));
    (0..site.agents.len()).try_for_each(|nth| site.start_agents(nth))?;
    (0..MIRRORS).try_for_each(|nth| site.start_mirror(nth))?;
    started(&site, &fleet, &mut progress).await?;
    progress.goes_on_with("every node is heard; changes and deaths begin");
    let dice = StdRng::seed_from_u64(seed);
    let deaths = shake(&mut site, &fleet, options, dice, &mut progress).await?;
    progress.goes_on_with("everything runs; does everybody agree?");
    let settled = agree(&site, &fleet, &mut progress).await?;
    progress.goes_on_with("everybody agrees; was each event told once?");
    let memory = site.memory();
    let changes = complete(&changes(&fleet, &site).await?).context("CHANGES")?;
    drop(stop);
    let consumer = complete(&consumer.await?).context("the consumer that lived")?;
    for child in site.agents.iter_mut().chain(&mut site.mirrors) {
        kill(child).await;
    }
    Ok(Passed { changes, consumer, deaths, vms: site.truth().len(), settled, memory })
}

/// Makes the streams, as soon as the servers have elected who leads.
async fn streams(fleet: &Fleet) -> anyhow::Result<()> {
    let shape = Shape { replicas: SERVERS, bytes: BYTES, ..Shape::default() };
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        match make(fleet.jetstream(), &shape).await {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() > until => return Err(error).context("the streams"),
            Err(_) => sleep(Duration::from_millis(200)).await,
        }
    }
}

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
            let told = |at: Position, compared| match compared {
                true => Told::Difference,
                false => Told::Event(at, None),
            };
            let (cn, told) = match event {
                FleetEvent::Changed { vm, compared, .. } => {
                    (vm.cn.clone(), told(vm.at.clone(), compared))
                }
                FleetEvent::Gone { vm, at, compared } => (vm.cn.clone(), told(at, compared)),
                FleetEvent::Resync { cn } => (cn, Told::Hole(None)),
                FleetEvent::Hole | FleetEvent::Again => {
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
