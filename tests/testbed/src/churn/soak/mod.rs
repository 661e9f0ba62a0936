// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `testbed soak`: runs vminfod, net-agent and kvmd on a node that changes many times faster than a
//! real one, and checks that nothing in the three processes grows. The churn keeps the number of
//! VMs level, and vminfod's ring of events is small enough to be full early.

pub mod churn;
pub mod judge;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Parser;
use sdc_clients::Http;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

use self::churn::Churn;
use self::judge::{Allowance, MIB, Series, shown};
use super::hands::{Done, Hands};
use super::listen::{self, Counts, Habits, Room};
use crate::arguments::{command, seed};
use crate::held::{Held, held};
use crate::lab::asking::OWN_AGENT;
use crate::lab::world::this_program;
use crate::lab::{World, WorldOptions};
use crate::plot::{Panel, svg};
use simnode::{Verbs, Wait};

/// What a busy node of 40 VMs does in production: each VM gets and loses a snapshot an hour, and
/// about five times a minute somebody or something starts, stops, changes or replaces one.
const PER_MINUTE: f64 = 6.0;
/// vminfod's ring of events here, full within the first quarter of a run of minutes.
const RING: u64 = 512 << 10;
/// A change not seen after this long has been undone by another hand.
const UNSEEN: Duration = Duration::from_secs(10);

/// Changes under way at once: each of them waits until vminfod shows it.
const HANDS: usize = 16;
/// Listeners read for a while or not at all, and disconnect at any moment.
const HABITS: Habits = Habits {
    lines: u32::MAX - 1..u32::MAX,
    stay: 50..6_000,
    stalls: 5,
    stall: 50..6_000,
    pause: 0..1_000,
};

/// How long a soak is, and how hard.
#[derive(Clone, Debug, Parser)]
#[command(name = "testbed soak", about = "Churn for minutes, and what grows")]
pub struct Options {
    /// Minutes of churn
    #[arg(long, default_value_t = 10.0)]
    pub minutes: f64,
    /// Decides everything random; drawn and printed if absent
    #[arg(long)]
    pub seed: Option<u64>,
    /// Directory for soak.csv and soak.svg
    #[arg(long, default_value = "soak")]
    pub out: PathBuf,
    /// VMs of the node
    #[arg(long, default_value_t = 40)]
    pub vms: u32,
    /// How many times production's rate of changes, and how much shorter the daemons' waits
    #[arg(long, default_value_t = 50)]
    pub rate: u32,
    /// Listeners that come and go
    #[arg(long, default_value_t = 16)]
    pub listeners: usize,
}

/// What a soak was.
#[derive(Debug)]
pub struct Soaked {
    /// Every series, judged or only shown.
    pub series: Vec<Series>,
    /// What was done.
    pub done: Arc<Done>,
    /// What listeners did.
    pub counts: Counts,
    /// How long the churn was.
    pub took: Duration,
}

/// Runs the command with these arguments. Exit 1: something grew, or a daemon ended.
pub fn run(args: &[OsString]) -> ExitCode {
    command("testbed soak", args, async |mut options: Options| {
        options.seed = Some(seed(options.seed));
        // On a worker: children end with the thread that started them.
        let soak = tokio::spawn(async move { soak(&this_program()?, &options).await });
        let grew = soak.await.context("the soak")??.grew();
        match grew {
            0 => println!("nothing grew"),
            grew => eprintln!("soak: {grew} series grew beyond what is allowed"),
        }
        Ok(grew == 0)
    })
}

impl Soaked {
    /// How many series grew beyond their allowance.
    pub fn grew(&self) -> usize {
        let verdicts = self.series.iter().filter_map(Series::judge);
        verdicts.filter(judge::Verdict::grew).count()
    }
}

/// Makes the world, churns, looks, and writes what was seen; `program` is the testbed.
pub async fn soak(program: &Path, options: &Options) -> anyhow::Result<Soaked> {
    std::fs::create_dir_all(&options.out).with_context(|| options.out.display().to_string())?;
    let seed = options.seed.unwrap_or_default();
    let dir = tempfile::tempdir()?;
    let mut world = World::create(WorldOptions {
        vms: options.vms,
        seed,
        speed: options.rate,
        vminfod: json!({"ring_bytes": RING}).as_object().cloned().unwrap_or_default(),
        ..WorldOptions::new(dir.path().join("cn"), program)
    })
    .await?;
    world.start_vminfod().await?;
    let hub = world.hub()?;
    let (vms, cn) = (hub.vms(true).await?.vms, world.node().cn_uuid().to_owned());
    world.vmapi.store().seed_from_vms(&vms, &cn);
    world.napi.store().seed_from_vms(&vms, &cn).map_err(anyhow::Error::msg)?;
    world.start_agent().await?;
    world.start_vm_agent().await?;
    world.start_kvmd().await?;

    let (done, room) = (Arc::<Done>::default(), Room::new(false, HABITS));
    let mut people = JoinSet::new();
    let hands = Hands {
        count: HANDS,
        seed,
        per_second: Some(PER_MINUTE * f64::from(options.rate) / 60.0),
        wanted: usize::MAX,
        done: Arc::clone(&done),
    };
    let churn = Churn {
        verbs: Verbs::new(world.node(), Wait::at(&world.vminfod_url())?.with_limit(UNSEEN)),
        hub,
        napi: world.napi.store().clone(),
        level: vms.len(),
    };
    people.spawn(async { drop(hands.work(churn).await) });
    for nth in 0..options.listeners {
        // Every fourth listens to kvmd.
        let url = if nth % 4 == 3 { world.kvmd_url() } else { world.vminfod_url() };
        let http = Http::new(&url, OWN_AGENT)?.without_retries();
        people.spawn(listen::come_and_go(Arc::clone(&room), http, nth, seed));
    }
    let began = Instant::now();
    let looked = measure(&world, options, &done).await;
    let took = began.elapsed();
    // A change that another hand has undone is waited for in vain: nobody waits for that.
    people.shutdown().await;
    let soaked = Soaked { series: looked?, done, counts: room.counts(), took };
    world.stop().await?;
    ensure!(soaked.done.changes.load(Ordering::Relaxed) > 0, "nothing could be changed");
    write(&soaked, options, seed).with_context(|| options.out.display().to_string())?;
    Ok(soaked)
}

/// Measures everything, at even distances, for as long as the soak is.
async fn measure(world: &World, options: &Options, done: &Done) -> anyhow::Result<Vec<Series>> {
    let whole = Duration::from_secs_f64(options.minutes.max(0.01) * 60.0);
    let every = (whole / 240).clamp(Duration::from_millis(50), Duration::from_secs(5));
    let daemons = ["vminfod", "net-agent", "vm-agent", "kvmd"].map(|who| (who, world.pid(who)));
    let mut series = Vec::new();
    for what in ["memory", "descriptors", "threads", "watches", "children", "zombies"] {
        // Only vminfod watches files and starts commands.
        let whose = if matches!(what, "watches" | "zombies") { 1 } else { daemons.len() };
        for (who, _) in daemons.iter().take(whose) {
            series.push(Series { who, what, values: Vec::new(), allowed: Some(allowance(what)) });
        }
    }
    for (what, who, judged) in [
        ("ring", "vminfod", true),
        ("VMs", "node", false),
        ("NICs", "NAPI", true),
        ("changes", "node", false),
    ] {
        let allowed = judged.then(|| allowance(what));
        series.push(Series { who, what, values: Vec::new(), allowed });
    }

    let hub = world.hub()?;
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (end, mut changes) = (Instant::now() + whole, 0);
    while Instant::now() < end {
        ticks.tick().await;
        let status = hub.status().await.context("vminfod's status")?;
        let now = done.changes.load(Ordering::Relaxed);
        let mut holds = Vec::new();
        for (who, pid) in daemons {
            let pid = pid.with_context(|| format!("{who} has ended"))?;
            holds.push((who, held(pid).with_context(|| format!("looking at {who}"))?));
        }
        for one in &mut series {
            let value = match (one.what, holds.iter().find(|(who, _)| *who == one.who)) {
                ("ring", _) => status["journal"]["bytes"].as_f64().unwrap_or(0.0),
                ("VMs", _) => status["numVms"].as_f64().unwrap_or(0.0),
                ("NICs", _) => world.napi.store().nics().len() as f64,
                ("changes", _) => (now - changes) as f64,
                (what, Some((_, held))) => part(held, what),
                (_, None) => 0.0,
            };
            one.values.push(value);
        }
        changes = now;
    }
    Ok(series)
}

fn part(held: &Held, what: &str) -> f64 {
    let value = match what {
        "memory" => held.rss,
        "descriptors" => held.fds,
        "threads" => held.threads,
        "watches" => held.watches,
        "children" => held.children,
        _ => held.zombies,
    };
    value as f64
}

/// What the last quarter may have more than the second. Memory: what an allocator keeps for later;
/// descriptors: listeners, whose number varies; threads: a pool that breathes; watches and NICs:
/// the few VMs that there may be more.
fn allowance(what: &str) -> Allowance {
    let (share, more) = match what {
        "memory" => (0.05, 4.0 * MIB),
        "descriptors" => (0.10, 8.0),
        "threads" => (0.10, 3.0),
        "watches" | "NICs" => (0.10, 4.0),
        "children" => (0.0, 2.0),
        // Full at its size, and once more that.
        "ring" => (0.0, 1.1 * RING as f64),
        // The unreaped: none is owed to anybody.
        _ => (0.0, 0.0),
    };
    Allowance { share, more }
}

/// The table on stdout, the values as CSV and as a picture.
fn write(soaked: &Soaked, options: &Options, seed: u64) -> std::io::Result<()> {
    let count = |n: &std::sync::atomic::AtomicUsize| n.load(Ordering::Relaxed);
    let Counts { snapshots, resumes, gone, failed, lines } = soaked.counts;
    let (changes, seconds) = (count(&soaked.done.changes), soaked.took.as_secs_f64());
    let rate = changes as f64 / seconds * 60.0 / PER_MINUTE;
    println!(
        "{:.1} min, {changes} changes ({rate:.0} × production's {PER_MINUTE:.0} a minute; {} refused), \
         {} connections ({} resumed, {} refused), {} lines read",
        seconds / 60.0,
        count(&soaked.done.refused),
        snapshots + resumes,
        resumes,
        gone + failed,
        lines,
    );
    println!(
        "{:<10} {:<12} {:>12} {:>12} {:>12} {:>12}",
        "", "", "2nd quarter", "last", "allowed", "most"
    );
    for one in &soaked.series {
        let Some(verdict) = one.judge() else { continue };
        let show = |value| shown(one.what, value);
        println!(
            "{:<10} {:<12} {:>12} {:>12} {:>12} {:>12}  {}",
            one.who,
            one.what,
            show(verdict.second),
            show(verdict.last),
            verdict.limit.map_or_else(|| "-".to_owned(), show),
            show(verdict.most),
            if verdict.grew() { "GREW" } else { "" },
        );
    }
    std::fs::write(options.out.join("soak.csv"), csv(&soaked.series, seconds))?;
    let title = format!("soak, seed {seed}: {} VMs, {rate:.0} × production's rate", options.vms);
    std::fs::write(options.out.join("soak.svg"), picture(&title, &soaked.series, seconds))
}

/// A panel for each kind of series, with a line for each process.
fn picture(title: &str, series: &[Series], seconds: f64) -> String {
    let mut panels: Vec<Panel<'_>> = Vec::new();
    for one in series {
        let line = (one.who, one.values.clone());
        if let Some(panel) = panels.iter_mut().find(|panel| panel.title == one.what) {
            panel.lines.push(line);
            continue;
        }
        let times = (String::new(), format!("{seconds:.0} s"));
        let title = one.what.to_owned();
        panels.push(Panel { title, lines: vec![line], level: None, most: shown, times });
    }
    svg(title, &panels)
}

/// A line for each look: seconds since the start, then every series.
fn csv(series: &[Series], seconds: f64) -> String {
    let mut out = String::from("seconds");
    for one in series {
        out.push_str(&format!(",{} {}", one.who, one.what));
    }
    let looks = series.iter().map(|one| one.values.len()).max().unwrap_or(0);
    for n in 0..looks {
        // Writing to a string cannot fail.
        let _never = write!(out, "\n{:.1}", seconds * n as f64 / looks as f64);
        for one in series {
            let _never = write!(out, ",{}", one.values.get(n).copied().unwrap_or(0.0));
        }
    }
    out.push('\n');
    out
}
