// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The work done, as counts that no machine changes: child processes, readings, serialisations,
//! bytes. Runs in seconds; a count above the one written here is a regression.

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use daemon::Shutdown;
use serde_json::{Value, json};
use tokio::time::Instant;
use vminfod::config::Config;
use vminfod::node::commands::{CommandPaths, RealCommands};

use super::client::Client;
use super::cn::{Cn, Stream, zfs_event};
use super::served::Served;
use super::streams::Listeners;

const VMS: u32 = 100;
/// A node whose VMs take much more than what every daemon takes.
const MANY: u32 = 2000;
const LISTENERS: usize = 400;
/// Their JSON has 2,100 bytes.
const MOST_EACH_VM: usize = 14_000;
/// The HTTP library's buffers alone would be 16 KiB.
const MOST_EACH_LISTENER: usize = 12_000;

/// One count.
pub(super) struct Count {
    what: &'static str,
    got: usize,
    most: usize,
}

/// All counts as text; whether none is too high.
pub(super) fn report(counts: &[Count], as_json: bool) -> bool {
    if as_json {
        let all: Value = counts
            .iter()
            .map(|c| json!({ "count": c.what, "got": c.got, "most": c.most, "pass": c.got <= c.most }))
            .collect();
        println!("{all}");
    } else {
        for c in counts {
            let result = if c.got <= c.most { "pass" } else { "FAIL" };
            println!("{:<58} {:>8} of at most {:>8}  {result}", c.what, c.got, c.most);
        }
    }
    let failed = counts.iter().filter(|c| c.got > c.most).count();
    if !as_json {
        println!("{} passed, {failed} failed", counts.len() - failed);
    }
    failed == 0
}

/// Counts everything on a small node, with the daemon in this process.
pub(super) async fn run() -> anyhow::Result<Vec<Count>> {
    let mut cn = Cn::make(VMS).await?;
    let mut counts = Vec::new();
    let mut count = |what, got, most| counts.push(Count { what, got, most });
    let zones = cn.with_dataset(10);
    for zone in &zones {
        cn.set_quota(zone, 1000)?;
    }
    cn.arm()?;
    let paths = CommandPaths {
        zoneadm: cn.tool("zoneadm"),
        zfs: cn.tool("zfs"),
        kstat: cn.tool("kstat"),
        sysevent: cn.tool("sysevent"),
        fswatcher: cn.tool("fswatcher"),
    };
    let config = Config {
        root: cn.root(),
        listen: "127.0.0.1:0".parse()?,
        sweep: Duration::from_millis(200),
        ..Config::default()
    };
    let shutdown = Shutdown::new();
    let written = vm_model::js::serialisations;
    let commands = Arc::new(RealCommands::new(paths));
    let before = written();
    let running = vminfod::serve(config, commands, shutdown.clone()).await?;
    let address = running.address;
    count("start: child processes", cn.ran()?.len(), 5);
    count("start: serialisations", written() - before, VMS as usize + 5);

    // Sweeps look at every file and read none.
    let status = async |path: &'static str| {
        tokio::task::spawn_blocking(move || -> anyhow::Result<Value> {
            Client::connect(address)?.json(path)
        })
        .await?
    };
    let counter =
        |status: &Value, name: &str| status["counters"][name].as_u64().unwrap_or_default() as usize;
    let began = Instant::now();
    let sweeps_from = async |from: usize, more: usize| loop {
        let sweeps = counter(&status("/status").await?, "sweeps") - from;
        if sweeps >= more {
            return anyhow::Ok(sweeps);
        }
        if began.elapsed() > Duration::from_secs(30) {
            bail!("no sweeps come");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    // The watcher makes everything that it begins to watch stale once: until that is done.
    sweeps_from(0, 10).await?;
    cn.ran()?;
    let first = status("/status").await?;
    let sweeps = sweeps_from(counter(&first, "sweeps"), 3).await?;
    let children = cn.ran()?.len();
    count("three sweeps: child processes beyond one each", children.saturating_sub(sweeps + 1), 0);
    let loads = counter(&status("/status").await?, "loads") - counter(&first, "loads");
    count("three sweeps, nothing changed: VMs read", loads, 0);

    // Requests.
    let before = written();
    let bytes = tokio::task::spawn_blocking(move || -> anyhow::Result<(usize, usize)> {
        let mut client = Client::connect(address)?;
        let body = client.json("/vms")?.to_string().len();
        let mut all = 0;
        for _ in 0..20 {
            all = client.get("/vms")?;
        }
        Ok((all, body))
    });
    let (all, body) = bytes.await??;
    count("21 GET /vms: serialisations", written() - before, 0);
    // A chunk for each VM would cost 8.
    count("GET /vms: bytes beyond the list, for each VM", (all - body) / VMS as usize, 3);

    // Events.
    let listeners = Listeners::open(address, 50).await?;
    let before = written();
    cn.set_tags(&zones[0], r#"{"quick":1}"#)?;
    listeners.lines(1).await?;
    count("a change told to 50 listeners: serialisations", written() - before, 5);
    drop(listeners);
    let listener = Listeners::open(address, 1).await?;
    cn.ran()?;
    cn.set_quota(&zones[1], 2000)?;
    cn.post(Stream::Datasets, zfs_event(&format!("zones/{}", zones[1])).as_bytes()).await?;
    listener.lines(1).await?;
    count("a zfs event: zfs processes", zfs_of(&cn.ran()?), 1);
    for zone in &zones {
        cn.set_quota(zone, 3000)?;
    }
    let storm: String =
        (0..1000).map(|n| zfs_event(&format!("zones/{}", zones[n % zones.len()]))).collect();
    cn.post(Stream::Datasets, storm.as_bytes()).await?;
    listener.lines(zones.len()).await?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    count("1,000 zfs events on 10 VMs: zfs processes", zfs_of(&cn.ran()?), 2 * zones.len());

    // A refresh; the one before has read what was too young to be known by its stamp.
    tokio::task::spawn_blocking(move || Client::connect(address)?.get("/vms?sync=true")).await??;
    cn.ran()?;
    let before = written();
    tokio::task::spawn_blocking(move || Client::connect(address)?.get("/vms?sync=true")).await??;
    count("a refresh, nothing changed: zfs processes", zfs_of(&cn.ran()?), 1);
    count("a refresh, nothing changed: serialisations", written() - before, 10);
    shutdown.trigger();
    running.ended().await;
    counts.extend(memory(&mut cn).await?);
    Ok(counts)
}

/// What VMs and listeners take, in processes of their own: the most there ever was at once, which
/// a tree of values for each VM would show in.
async fn memory(few: &mut Cn) -> anyhow::Result<[Count; 2]> {
    let served = Served::start(few, json!({ "sweep": "1h" })).await?;
    served.json("/vms")?;
    served.quiet().await?;
    let (small, idle) = (served.peak()?, served.rss()?);
    let listeners = Listeners::open(served.address, LISTENERS).await?;
    let each = (served.rss()? - idle).max(0.0) as usize / LISTENERS;
    drop(listeners);
    served.stop().await?;
    let mut many = Cn::make(MANY).await?;
    let served = Served::start(&mut many, json!({ "sweep": "1h" })).await?;
    served.json("/vms")?;
    served.quiet().await?;
    let more = (served.peak()? - small).max(0.0) as usize / (MANY - VMS) as usize;
    served.stop().await?;
    let count = |what, got, most| Count { what, got, most };
    Ok([
        count("memory: the most at once, bytes for each VM", more, MOST_EACH_VM),
        count("memory: bytes for each listener that waits", each, MOST_EACH_LISTENER),
    ])
}

fn zfs_of(ran: &[String]) -> usize {
    ran.iter().filter(|line| line.starts_with("zfs ")).count()
}
