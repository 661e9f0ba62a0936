// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `testbed storm`: makes thousands of changes on a node while listeners come and go, and checks
//! that all of them agree.

pub mod history;
pub mod hub;
pub mod listen;
pub mod mutate;
pub mod pairs;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::Parser;
use daemon::cli::progress::during;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sdc_clients::Http;
use sdc_clients::http::Call;
use sdc_clients::vminfod::{VmObject, key_of};
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::Instant;
use vminfod::node::root::Root;
use vminfod::node::{Ctx, load};

use self::history::History;
use self::hub::{Hub, HubOptions};
use self::listen::{Counts, Room};
use self::mutate::Mutation;
use simnode::{Node, Verbs, Wait};

/// Changes made at once.
const HANDS: usize = 4;
/// All listeners have the last event this long after it.
const SETTLE: Duration = Duration::from_secs(120);

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
    let mut options: Options = match crate::arguments::parse("testbed storm", args) {
        Ok(options) => options,
        Err(status) => return status,
    };
    let seed = *options.seed.get_or_insert_with(rand_seed);
    println!("seed {seed}");
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("storm: starting the runtime: {error}");
            return ExitCode::from(2);
        }
    };
    match during("changing VMs, listening and comparing", || runtime.block_on(storm(&options))) {
        Ok(passed) => {
            let Counts { snapshots, resumes, gone, lines } = passed.counts;
            println!(
                "{} mutations, {} events, {} lines read, {snapshots} snapshots, {resumes} resumes ({gone} too old), \
                 {} readings of /vms, {} VMs at the end, {:.1} s",
                passed.mutations,
                passed.events,
                lines,
                passed.reads,
                passed.vms,
                passed.took.as_secs_f64()
            );
            println!("1 passed, 0 failed");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("FAIL storm --seed {seed}: {error:#}");
            println!("0 passed, 1 failed");
            ExitCode::FAILURE
        }
    }
}

fn rand_seed() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().0
}

/// One storm from beginning to end.
///
/// # Errors
/// The first promises that did not hold, or why it could not be run.
pub async fn storm(options: &Options) -> anyhow::Result<Passed> {
    let began = Instant::now();
    let seed = options.seed.unwrap_or(1);
    let hub = Hub::start(HubOptions::new(options.vms, seed)).await?;
    if options.pairs > 0 {
        pairs::pairs(&hub, options.pairs).await?;
    }

    let (tell_last, last) = tokio::sync::watch::channel(None);
    let room = Room {
        http: hub.http.clone(),
        history: Arc::default(),
        faults: Arc::default(),
        counts: Arc::default(),
        last,
        shutdown: hub.shutdown(),
    };
    let mut people = JoinSet::new();
    people.spawn(listen::stay(room.clone()));
    for nth in 0..options.listeners {
        people.spawn(listen::come_and_go(room.clone(), nth, seed.wrapping_add(1000 + nth as u64)));
    }
    people.spawn(listen::read(room.clone()));

    let mutations = mutate_all(&hub.node, options.mutations, seed).await?;
    let last = settle(&hub.http).await?;
    tell_last.send_replace(Some(last));
    let everybody = async { while people.join_next().await.is_some() {} };
    let in_time = tokio::time::timeout(SETTLE, everybody).await.is_ok();
    let faults = room.faults.lock().unwrap_or_else(PoisonError::into_inner).clone();
    ensure!(faults.is_empty(), "{} broken promises:\n{}", faults.len(), faults.join("\n"));
    ensure!(in_time, "some listener had not seen event {last} after {SETTLE:?}");

    let vms = compare_with_fresh_load(&hub).await?;
    let (events, reads) = judged(&room.history.lock().unwrap_or_else(PoisonError::into_inner))?;
    let counts = *room.counts.lock().unwrap_or_else(PoisonError::into_inner);
    hub.stop().await?;
    Ok(Passed { mutations, events, reads, counts, vms, took: began.elapsed() })
}

/// Holds the history to its promises; how many events and reads it has.
fn judged(history: &History) -> anyhow::Result<(usize, usize)> {
    history.check().map_err(anyhow::Error::msg)?;
    Ok(history.sizes())
}

/// Makes so many changes with several hands; those that a VM's state forbids do not count.
async fn mutate_all(node: &Node, wanted: usize, seed: u64) -> anyhow::Result<usize> {
    let done = Arc::new(AtomicUsize::new(0));
    let gone = Arc::new(Mutex::new(None));
    let mut hands = JoinSet::new();
    for hand in 0..HANDS {
        let (verbs, done, gone) =
            (Verbs::new(node, Wait::none()), Arc::clone(&done), Arc::clone(&gone));
        hands.spawn(async move {
            let mut rng = StdRng::seed_from_u64(seed.wrapping_add(hand as u64));
            let mut refused = 0;
            while done.load(Ordering::Relaxed) < wanted {
                let names: Vec<String> = match verbs.node().zones() {
                    Ok(zones) => zones.iter().map(|zone| zone.zonename.clone()).collect(),
                    Err(error) => {
                        *gone.lock().unwrap_or_else(PoisonError::into_inner) =
                            Some(error.to_string());
                        return;
                    }
                };
                let mutation = match names.len() {
                    0 => Mutation::Create("joyent-minimal", rng.random()),
                    _ => Mutation::draw(&mut rng),
                };
                let name = match names.len() {
                    0 => String::new(),
                    count => names[rng.random_range(0..count)].clone(),
                };
                match mutation.perform(&verbs, &name).await {
                    Ok(()) => {
                        refused = 0;
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                    // Stopped VMs do not stop, and other hands are at work.
                    Err(_) if refused < 1000 => refused += 1,
                    Err(error) => {
                        *gone.lock().unwrap_or_else(PoisonError::into_inner) =
                            Some(error.to_string());
                        return;
                    }
                }
            }
        });
    }
    while let Some(ended) = hands.join_next().await {
        ended.context("a hand of the storm")?;
    }
    if let Some(why) = gone.lock().unwrap_or_else(PoisonError::into_inner).take() {
        bail!("the node cannot be changed: {why}");
    }
    Ok(done.load(Ordering::Relaxed))
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
    let mut stream = crate::conform::vminfod_events::stream::Stream::open(http).await?;
    let ready = stream.next(SETTLE).await?;
    ready["seq"].as_u64().context("ready has no seq")
}

/// Compares `/vms` with a load of the whole node from nothing; how many VMs there are.
async fn compare_with_fresh_load(hub: &Hub) -> anyhow::Result<usize> {
    let call = Call::get(&["vms"]).body_cap(1 << 30);
    let cached: Vec<VmObject> = hub.http.execute(call).await?.json("VMs")?;
    let ctx = Ctx::new(Root::new(hub.node.root()), Arc::new(hub.commands.clone()));
    let fresh = load::objects(&ctx).await?;
    ensure!(fresh.broken.is_empty(), "a fresh load finds broken zones: {:?}", fresh.broken);
    same_vms(&cached, &fresh.vms).map_err(anyhow::Error::msg)?;
    Ok(cached.len())
}

/// Are these the same VMs, whatever their order?
///
/// # Errors
/// What differs first.
pub fn same_vms(cached: &[VmObject], fresh: &[VmObject]) -> Result<(), String> {
    if cached.len() != fresh.len() {
        return Err(format!("{} VMs are cached, a fresh load finds {}", cached.len(), fresh.len()));
    }
    for vm in fresh {
        let name = key_of(vm).unwrap_or_default();
        let Some(other) = cached.iter().find(|other| key_of(other) == Some(name)) else {
            return Err(format!("{name} is not cached"));
        };
        if other != vm {
            let keys = vm.keys().chain(other.keys());
            let differing = keys.into_iter().find(|key| vm.get(*key) != other.get(*key));
            let show = |vm: &VmObject| differing.and_then(|key| vm.get(key)).map(Value::to_string);
            return Err(format!(
                "{name}: {} is cached as {:?}, a fresh load finds {:?}",
                differing.map_or("?", String::as_str),
                show(other),
                show(vm)
            ));
        }
    }
    Ok(())
}
