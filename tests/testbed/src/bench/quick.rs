// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The work done, as counts that no machine changes: child processes, readings, serialisations,
//! bytes. Runs in seconds; a count above the one written here is a regression.

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use daemon::command::Spawned;
use serde_json::{Value, json};
use tokio::time::Instant;
use vm_model::js::serialisations as written;
use vminfod::config::Config;

use super::client::Client;
use super::cn::{Change, Cn, Stream};
use super::served::Served;
use super::streams::Listeners;
use super::vm_agent::VmAgent;
use super::volumes::Volumes;
use crate::client::tools::fetch;
use crate::cn::Vminfod;

const VMS: u32 = 100;
/// A node whose VMs take much more than what every daemon takes.
const MANY: u32 = 2000;
const LISTENERS: usize = 400;
/// A file whose stamp is younger than this may be written again without another stamp.
const YOUNG: Duration = Duration::from_secs(3);
/// What follows from a change has ended after this, repeated readings included.
const SETTLED: Duration = Duration::from_millis(1500);
const LIMIT: Duration = Duration::from_secs(30);
/// Their JSON has 2,100 bytes. The most is while a start composes them.
const MOST_EACH_VM: usize = 28_000;
/// The HTTP library's buffers are 16 KiB of it.
const MOST_EACH_LISTENER: usize = 32_000;

pub(super) struct Count {
    what: &'static str,
    got: usize,
    most: usize,
}

impl Count {
    fn new(what: &'static str, got: usize, most: usize) -> Count {
        Count { what, got, most }
    }
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

/// Counts everything on a small node.
pub(super) async fn run() -> anyhow::Result<Vec<Count>> {
    let mut cn = Cn::make(VMS).await?;
    // What is younger when it is read is read once more.
    tokio::time::sleep(YOUNG).await;
    let mut counts = start_and_sweeps(&mut cn).await?;
    counts.extend(requests_and_events(&mut cn).await?);
    counts.extend(vm_agent(&mut cn).await?);
    counts.extend(memory(&mut cn).await?);
    counts.extend(volapi().await?);
    Ok(counts)
}

async fn start_and_sweeps(cn: &mut Cn) -> anyhow::Result<Vec<Count>> {
    let before = written();
    let daemon = Daemon::start(cn, Duration::from_millis(200)).await?;
    let serialised = written() - before;
    let children = cn.ran()?.len();
    // What follows a start has ended by then.
    let sweeps = daemon.sweeps(10).await?;
    let again = daemon.counter("loads").await?;
    cn.ran()?;
    let more = daemon.sweeps(sweeps + 3).await? - sweeps;
    let swept = cn.ran()?.len();
    let loads = daemon.counter("loads").await? - again;
    daemon.stop().await;
    Ok(vec![
        // Three helpers, zoneadm, zone-kstats, datasets, where they are mounted, snapshots.
        Count::new("start: child processes", children, 8),
        Count::new("start: serialisations", serialised, VMS as usize + 5),
        Count::new("after a start: VMs read again", again, 0),
        Count::new("sweeps: child processes beyond one each", swept.saturating_sub(more + 1), 0),
        Count::new("sweeps, nothing changed: VMs read", loads, 0),
    ])
}

async fn requests_and_events(cn: &mut Cn) -> anyhow::Result<Vec<Count>> {
    let zones = cn.busy(10);
    for zone in &zones {
        cn.set_quota(&zone.name, 1000)?;
    }
    let daemon = Daemon::start(cn, Duration::from_secs(3600)).await?;
    tokio::time::sleep(SETTLED).await;
    let address = daemon.0.running.address;
    let mut counts = Vec::new();
    let mut count = |what, got, most| counts.push(Count::new(what, got, most));
    let before = written();
    let body = daemon.json("/vms").await?.to_string().len();
    let all = tokio::task::spawn_blocking(move || {
        let mut client = Client::connect(address)?;
        (1..20).try_for_each(|_| client.get("/vms").map(drop))?;
        client.get("/vms")
    });
    let all = all.await??;
    count("21 GET /vms: serialisations", written() - before, 0);
    // A chunk for each VM would cost 8.
    count("GET /vms: bytes beyond the list, for each VM", (all - body) / VMS as usize, 3);

    let mut listeners = Listeners::open(address, 50).await?;
    let before = written();
    cn.set_tags(&zones[0].name, 1)?;
    listeners.lines(1).await?;
    count("a change told to 50 listeners: serialisations", written() - before, 5);
    drop(listeners);
    let mut listener = Listeners::open(address, 1).await?;
    for (change, names, most) in [
        (Change::Tags, ["a config edit: VMs read", "a config edit: child processes"], [1, 0]),
        (Change::Xml, ["an XML edit: VMs read", "an XML edit: child processes"], [1, 0]),
        (Change::Zone, ["a zone event: VMs read", "a zone event: child processes"], [1, 2]),
        (Change::Dataset, ["a zfs event: VMs read", "a zfs event: child processes"], [1, 2]),
    ] {
        tokio::time::sleep(SETTLED).await;
        let loads = daemon.counter("loads").await?;
        cn.ran()?;
        cn.change(change, &zones[1], 2).await?;
        listener.lines(1).await?;
        tokio::time::sleep(SETTLED).await;
        count(names[0], daemon.counter("loads").await? - loads, most[0]);
        count(names[1], cn.ran()?.len(), most[1]);
    }
    for zone in &zones {
        cn.set_quota(&zone.name, 3000)?;
    }
    let event = |n: usize| cn.zfs_event(&zones[n % zones.len()]);
    let storm: String = (0..1000).map(event).collect();
    cn.post(Stream::Datasets, storm.as_bytes()).await?;
    listener.lines(zones.len()).await?;
    tokio::time::sleep(SETTLED).await;
    count("1,000 zfs events on 10 VMs: zfs processes", zfs_of(&cn.ran()?), 4 * zones.len());

    // The first refresh reads what was too young to be known by its stamp.
    daemon.json("/vms?sync=true").await?;
    cn.ran()?;
    let before = written();
    daemon.json("/vms?sync=true").await?;
    tokio::time::sleep(SETTLED).await;
    // Datasets, where they are mounted, snapshots.
    count("a refresh, nothing changed: zfs processes", zfs_of(&cn.ran()?), 3);
    count("a refresh, nothing changed: serialisations", written() - before, 10);
    daemon.stop().await;
    Ok(counts)
}

/// What vm-agent asks of VMAPI where nothing differs, and where one VM has changed.
async fn vm_agent(cn: &mut Cn) -> anyhow::Result<[Count; 4]> {
    let zones = cn.busy(1);
    cn.show(&zones[0].name)?;
    let daemon = Daemon::start(cn, Duration::from_secs(3600)).await?;
    let agent = VmAgent::start(daemon.0.running.address, cn.uuid()).await?;
    let (lists, others) = agent.asked();
    cn.change(Change::Tags, &zones[0], 4).await?;
    tokio::time::sleep(SETTLED).await;
    agent.calm().await?;
    let (more_lists, after) = agent.asked();
    let puts = after.iter().filter(|seen| seen.method == "PUT").count();
    if puts == 0 {
        bail!("a changed VM is not told to VMAPI");
    }
    agent.stop().await?;
    daemon.stop().await;
    Ok([
        Count::new("vm-agent starts, nothing differs: lists", lists.len(), 1),
        Count::new("vm-agent starts, nothing differs: other requests", others.len(), 0),
        // Its record is read before.
        Count::new("vm-agent, a changed VM: PUTs", puts, 1),
        Count::new(
            "vm-agent, a changed VM: other requests",
            after.len() + more_lists.len() - lists.len() - puts,
            1,
        ),
    ])
}

/// What volapi asks of its store for a list, and for the event of one VM, among 500 volumes.
async fn volapi() -> anyhow::Result<[Count; 5]> {
    let volumes = Volumes::start(5).await?;
    volumes.list(1).await?;
    let (listed, _) = volumes.calls.take();
    let before = volumes.versions().await?;
    volumes.calls.take();
    volumes.hear(0, "running").await?;
    let (_, calm) = volumes.calls.take();
    volumes.hear(0, "destroyed").await?;
    let (reads, commits) = volumes.calls.take();
    let after = volumes.versions().await?;
    let written = before.iter().filter(|(key, etag)| after.get(*key) != Some(*etag)).count();
    volumes.stop().await;
    if written == 0 {
        bail!("a VM that is destroyed still uses its volumes");
    }
    Ok([
        Count::new("volapi, a list of an owner's volumes: reads of its store", listed, 1),
        Count::new("volapi, an event that changes nothing: writes", calm, 0),
        // The volumes that it uses, those that it serves, its reservations.
        Count::new("volapi, a VM that uses 10 volumes ends: reads", reads, 3),
        Count::new("volapi, a VM that uses 10 volumes ends: batches", commits, 1),
        Count::new("volapi, a VM that uses 10 volumes ends: records written", written, 10),
    ])
}

/// vminfod in this process, asked without blocking its runtime.
struct Daemon(Vminfod);

impl Daemon {
    async fn start(cn: &mut Cn, sweep: Duration) -> anyhow::Result<Daemon> {
        cn.arm()?;
        cn.ran()?;
        let config = Config { root: cn.root(), sweep, ..Config::default() };
        Ok(Daemon(Vminfod::start(config, Arc::new(Spawned::new(cn.commands())), 1).await?))
    }

    async fn stop(self) {
        self.0.end().await;
    }

    async fn json(&self, path: &str) -> anyhow::Result<Value> {
        Ok(fetch(&format!("http://{}", self.0.running.address), path).await?)
    }

    /// One of the counters of `/status`.
    async fn counter(&self, name: &str) -> anyhow::Result<usize> {
        let status = self.json("/status").await?;
        Ok(status["counters"][name].as_u64().unwrap_or_default() as usize)
    }

    /// Waits until there were so many sweeps; returns how many there were.
    async fn sweeps(&self, wanted: usize) -> anyhow::Result<usize> {
        let end = Instant::now() + LIMIT;
        loop {
            let sweeps = self.counter("sweeps").await?;
            if sweeps >= wanted {
                return Ok(sweeps);
            }
            if Instant::now() > end {
                bail!("no sweeps come");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// What VMs and listeners take, in processes of their own: the most there ever was at once, which
/// a tree of values for each VM would show in.
async fn memory(few: &mut Cn) -> anyhow::Result<[Count; 2]> {
    let served = Served::start(few, json!({ "sweep": "1h" })).await?;
    served.json("/vms").await?;
    served.quiet().await?;
    let (small, idle) = (served.memory("VmHWM")?, served.memory("VmRSS")?);
    let listeners = Listeners::open(served.address, LISTENERS).await?;
    let each = (served.memory("VmRSS")? - idle).max(0.0) as usize / LISTENERS;
    drop(listeners);
    served.stop().await?;
    let mut many = Cn::make(MANY).await?;
    let served = Served::start(&mut many, json!({ "sweep": "1h" })).await?;
    served.json("/vms").await?;
    served.quiet().await?;
    let more = (served.memory("VmHWM")? - small).max(0.0) as usize / (MANY - VMS) as usize;
    served.stop().await?;
    Ok([
        Count::new("memory: the most at once, bytes for each VM", more, MOST_EACH_VM),
        Count::new("memory: bytes for each listener that waits", each, MOST_EACH_LISTENER),
    ])
}

fn zfs_of(ran: &[String]) -> usize {
    ran.iter().filter(|line| line.starts_with("zfs ")).count()
}
