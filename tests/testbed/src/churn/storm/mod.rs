// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `testbed storm`: makes thousands of changes on a node while listeners come and go, and checks
//! that all of them agree.

pub mod pairs;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::Parser;
use daemon::cli::Progress;
use rand::rngs::StdRng;
use sdc_clients::Http;
use sdc_clients::http::Call;
use sdc_clients::vminfod::VmObject;
use tokio::task::JoinSet;
use tokio::time::Instant;
use vminfod::node::load;

use super::hands::{Change, Done, Hands};
use super::listen::{self, Counts, Habits, Room};
use crate::arguments::{command, seed};
use crate::changes::hub::{Hub, HubOptions};
use crate::changes::{change, same_vms};
use crate::cn::ctx;
use crate::lines::LineStream;
use simnode::{NodeError, Verbs, Wait};

/// Changes made at once.
const HANDS: usize = 4;
/// All listeners have the last event this long after it.
const SETTLE: Duration = Duration::from_secs(120);

/// Listeners are quick.
const HABITS: Habits =
    Habits { lines: 1..100, stay: 3_600_000..3_600_001, stalls: 4, stall: 10..500, pause: 0..80 };

/// How big a storm is.
#[derive(Clone, Debug, Parser)]
#[command(name = "testbed storm", about = "Thousands of changes with listeners coming and going")]
pub struct Options {
    /// Decides everything random; drawn and printed if absent
    #[arg(long)]
    pub seed: Option<u64>,
    /// Changes to make
    #[arg(long, default_value_t = 10_000)]
    pub mutations: usize,
    /// VMs to begin with
    #[arg(long, default_value_t = 200)]
    pub vms: u32,
    /// Listeners that come and go
    #[arg(long, default_value_t = 50)]
    pub listeners: usize,
    /// Create/get, update/get, delete/get pairs through vmadm's verbs before it begins
    #[arg(long, default_value_t = 0)]
    pub pairs: usize,
}

/// What a storm was, when it held.
#[derive(Debug)]
pub struct Passed {
    /// Changes made.
    pub mutations: usize,
    /// Events told.
    pub events: usize,
    /// Readings of `/vms` compared.
    pub reads: usize,
    /// What listeners did.
    pub counts: Counts,
    /// VMs at the end, in the cache as in a fresh load.
    pub vms: usize,
    /// How long it took.
    pub took: Duration,
}

/// Runs the command with these arguments.
pub fn run(args: &[OsString]) -> ExitCode {
    command("testbed storm", args, async |mut options: Options| {
        let seed = seed(options.seed);
        options.seed = Some(seed);
        let shown = Progress::begin("changing VMs, listening and comparing");
        let ended = storm(&options).await;
        drop(shown);
        match &ended {
            Ok(passed) => {
                let Counts { snapshots, resumes, gone, lines, .. } = passed.counts;
                println!(
                    "{} mutations, {} events, {lines} lines read, {snapshots} snapshots, {resumes} resumes \
                     ({gone} too old), {} readings of /vms, {} VMs at the end, {:.1} s",
                    passed.mutations,
                    passed.events,
                    passed.reads,
                    passed.vms,
                    passed.took.as_secs_f64()
                );
            }
            Err(error) => println!("FAIL storm --seed {seed}: {error:#}"),
        }
        println!("{} passed, {} failed", u8::from(ended.is_ok()), u8::from(ended.is_err()));
        Ok(ended.is_ok())
    })
}

/// One storm from beginning to end.
pub async fn storm(options: &Options) -> anyhow::Result<Passed> {
    let began = Instant::now();
    let seed = options.seed.unwrap_or(1);
    let hub = Hub::start(HubOptions::new(options.vms, seed)).await?;
    if options.pairs > 0 {
        pairs::pairs(&hub, options.pairs).await?;
    }

    let (http, room) = (&hub.http, Room::new(true, HABITS));
    let mut people = JoinSet::new();
    people.spawn(listen::stay(Arc::clone(&room), http.clone()));
    people.spawn(listen::read(Arc::clone(&room), http.clone()));
    for nth in 0..options.listeners {
        people.spawn(listen::come_and_go(Arc::clone(&room), http.clone(), nth, seed));
    }

    let done = Arc::<Done>::default();
    let hands = Hands {
        count: HANDS,
        seed,
        per_second: None,
        wanted: options.mutations,
        done: Arc::clone(&done),
    };
    hands.work(Verbs::new(&hub.node, Wait::none())).await?;
    let last = settle(http).await?;
    room.close(last);
    let everybody = async { while people.join_next().await.is_some() {} };
    let in_time = tokio::time::timeout(SETTLE, everybody).await.is_ok();
    let faults = room.faults();
    ensure!(faults.is_empty(), "{} broken promises:\n{}", faults.len(), faults.join("\n"));
    ensure!(in_time, "some listener had not seen event {last} after {SETTLE:?}");

    let vms = compare_with_fresh_load(&hub).await?;
    let (events, reads) = {
        let history = room.history();
        history.check().map_err(anyhow::Error::msg)?;
        history.sizes()
    };
    hub.stop().await?;
    let mutations = done.changes.load(Ordering::Relaxed);
    Ok(Passed { mutations, events, reads, counts: room.counts(), vms, took: began.elapsed() })
}

impl Change for Verbs {
    async fn once(&self, rng: &mut StdRng) -> Result<(), NodeError> {
        change(self, rng).await.map(drop)
    }
}

/// Lets the daemon read all there is, until nothing is committed any more; the last event.
async fn settle(http: &Http) -> anyhow::Result<u64> {
    let mut last = None;
    for _ in 0..100 {
        http.execute(Call::get(&["vms"]).query("sync", "true").timeout(SETTLE)).await?;
        let now = newest(http).await?;
        if last == Some(now) {
            return Ok(now);
        }
        last = Some(now);
    }
    bail!("something is committed at every reading although nothing changes");
}

/// The newest event there is: a new listener's snapshot contains it.
pub async fn newest(http: &Http) -> anyhow::Result<u64> {
    let mut stream = LineStream::events(http).await?;
    let ready = stream.next(SETTLE).await?;
    ready["seq"].as_u64().context("ready has no seq")
}

/// Compares `/vms` with a load of the whole node from nothing; how many VMs there are.
async fn compare_with_fresh_load(hub: &Hub) -> anyhow::Result<usize> {
    let call = Call::get(&["vms"]).body_cap(1 << 30);
    let cached: Vec<VmObject> = hub.http.execute(call).await?.json("VMs")?;
    let fresh = load::objects(&ctx(&hub.node)).await?;
    ensure!(fresh.broken.is_empty(), "a fresh load finds broken zones: {:?}", fresh.broken);
    same_vms(&cached, &fresh.vms).map_err(anyhow::Error::msg)?;
    Ok(cached.len())
}
