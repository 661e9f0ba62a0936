// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Sysevents: the time until their line, and the CPU time of each kind of change.

use std::time::{Duration, SystemTime};

use serde_json::json;
use tokio::time::{Instant, sleep, sleep_until};

use super::arrival::Arrivals;
use super::cn::{Change, Cn, Stream, Zone};
use super::limits;
use super::served::Served;
use super::setting::Bench;
use super::streams::{Listeners, latest};
use super::table::{Row, Samples, Unit};

/// Changes of each kind in each round.
const CHANGES: u64 = 100;
/// How often the commands of an event are run by themselves in each round.
const COMMANDS: u64 = 10;
/// The zones that change, one after the other.
const ZONES: usize = 50;
/// Between two changes: longer than vminfod's least time between two readings.
const REST: Duration = Duration::from_millis(20);
/// Between two zone events of a start, and how many there are in ten seconds.
const START_PACE: Duration = Duration::from_millis(250);
const START_EVENTS: usize = 40;
/// Zone events in a second, and for how many seconds.
const RATE: u32 = 200;
const RATE_SECONDS: u32 = 5;
const STORM: usize = 10_000;
const STORM_VMS: usize = 100;

pub(super) async fn run(bench: &mut Bench) -> anyhow::Result<Vec<Row>> {
    let rounds = bench.rounds;
    let small = Measured::of(bench.node(1000).await?, rounds).await?;
    let large = Measured::of(bench.node(5000).await?, rounds).await?;
    let mut rows = Vec::new();
    for (measured, size) in [(&small, "1,000 VMs"), (&large, "5,000 VMs")] {
        let [zone, dataset] = &measured.commands;
        rows.extend([
            Row::new(format!("zone event, {size}, p50"), Unit::Time, &measured.zone).against(
                "zoneadm and zone-kstats",
                zone.median(),
                1.5,
            ),
            Row::new(format!("zfs event, {size}, p50"), Unit::Time, &measured.dataset).against(
                "its zfs list",
                dataset.median(),
                1.5,
            ),
        ]);
    }
    for ((what, small), (_, large)) in small.cpu.iter().zip(&large.cpu) {
        let name = format!("CPU: {what}, 5,000 VMs");
        rows.push(Row::new(name, Unit::Time, large).against("with 1,000 VMs", small.median(), 1.3));
    }
    rows.push(at_a_rate(bench.node(5000).await?, rounds).await?);
    rows.push(after_a_start(bench.node(5000).await?, rounds).await?);
    rows.extend(storm(bench.node(1000).await?, rounds).await?);
    Ok(rows)
}

/// What is measured on one node.
#[derive(Default)]
struct Measured {
    /// From the event to its line.
    zone: Samples,
    dataset: Samples,
    /// The time of the commands of a zone event and of a zfs event.
    commands: [Samples; 2],
    /// CPU time of each change, by rounds.
    cpu: Vec<(&'static str, Samples)>,
}

impl Measured {
    async fn of(cn: &mut Cn, rounds: usize) -> anyhow::Result<Measured> {
        let zones = cn.busy(ZONES);
        for zone in &zones {
            cn.set_quota(&zone.name, 1000)?;
        }
        let served = Served::start(cn, json!({ "sweep": "1h" })).await?;
        let mut listener = Arrivals::open(served.address).await?;
        let mut measured = Measured::default();
        let mut numbers = 0..;
        for (change, what) in [
            (Change::Zone, "zone event"),
            (Change::Xml, "XML edit"),
            (Change::Dataset, "zfs event"),
        ] {
            let mut cpu = Samples::default();
            for _ in 0..rounds {
                let took = measured.round(cn, &served, &mut listener, &zones, change, &mut numbers);
                cpu.push(took.await?);
            }
            measured.cpu.push((what, cpu));
        }
        drop(listener);
        served.stop().await?;
        Ok(measured)
    }

    /// Makes a round of changes; returns the CPU time of each.
    async fn round(
        &mut self,
        cn: &mut Cn,
        served: &Served,
        listener: &mut Arrivals,
        zones: &[Zone],
        change: Change,
        numbers: &mut impl Iterator<Item = u64>,
    ) -> anyhow::Result<Duration> {
        served.quiet().await?;
        let before = served.cpu()?;
        for (at, n) in numbers.take(CHANGES as usize).enumerate() {
            // Each zone twice in a row: down and up.
            let zone = &zones[(n / 2) as usize % zones.len()];
            let start = cn.change(change, zone, n).await?;
            let took = tokio::task::block_in_place(|| listener.line())?.duration_since(start)?;
            sleep(REST).await;
            match change {
                Change::Zone => self.zone.push(took),
                Change::Dataset => self.dataset.push(took),
                Change::Xml | Change::Tags => continue,
            }
            // In turns: how long a command takes differs from one second to the next.
            if (at as u64).is_multiple_of(CHANGES / COMMANDS) {
                self.run_commands(cn, zone, change).await?;
            }
        }
        served.quiet().await?;
        Ok((served.cpu()? - before) / CHANGES as u32)
    }

    async fn run_commands(&mut self, cn: &Cn, zone: &Zone, change: Change) -> anyhow::Result<()> {
        let [of_zone, of_dataset] = &mut self.commands;
        if change == Change::Dataset {
            let args = ["list", "-H", "-p", "-d", "1", &format!("zones/{}", zone.name)];
            of_dataset.push(limits::command(&cn.tool("zfs"), &args).await?);
            return Ok(());
        }
        let id = zone.id().unwrap_or_default().to_string();
        let zoneadm =
            limits::command(&cn.tool("zoneadm"), &["-z", &zone.name, "list", "-p"]).await?;
        of_zone.push(zoneadm + limits::command(&cn.tool("kstat"), &[&id]).await?);
        Ok(())
    }
}

/// Zone events at a steady rate: from the first one to the last line.
async fn at_a_rate(cn: &mut Cn, rounds: usize) -> anyhow::Result<Row> {
    let served = Served::start(cn, json!({ "sweep": "1h" })).await?;
    let mut listener = Listeners::open(served.address, 1).await?;
    let events = RATE * RATE_SECONDS;
    let zones = cn.busy(events as usize);
    let (mut took, mut sent) = (Samples::default(), Samples::default());
    for round in 0..rounds as u64 {
        served.quiet().await?;
        let start = Instant::now();
        for n in 0..events {
            let zone = &zones[n as usize % zones.len()];
            cn.change(Change::Zone, zone, round).await?;
            sleep_until(start + Duration::from_secs(1) / RATE * (n + 1)).await;
        }
        sent.push(start.elapsed());
        took.push(latest(&listener.lines(events as usize).await?, start));
    }
    for zone in &zones {
        cn.set_state(zone, "running")?;
    }
    drop(listener);
    served.stop().await?;
    Ok(Row::new("1,000 zone events, 200/s, 5,000 VMs", Unit::Time, &took)
        .against("the time in which they are sent", sent.median(), 1.1)
        .note("from the first event to the last line"))
}

/// The slowest of the zone events of the first ten seconds after a start.
async fn after_a_start(cn: &mut Cn, rounds: usize) -> anyhow::Result<Row> {
    let zones = cn.busy(START_EVENTS);
    let (mut first, mut later) = (Samples::default(), Samples::default());
    for _ in 0..rounds {
        let served = Served::start(cn, json!({ "sweep": "1h" })).await?;
        let mut listener = Arrivals::open(served.address).await?;
        for (slowest, n) in [(&mut first, 0), (&mut later, 1)] {
            let mut took = Samples::default();
            for zone in &zones {
                let start = cn.change(Change::Zone, zone, n).await?;
                let line = tokio::task::block_in_place(|| listener.line())?;
                took.push(line.duration_since(start)?);
                let spent = SystemTime::now().duration_since(start)?;
                sleep(START_PACE.saturating_sub(spent)).await;
            }
            slowest.push_value(took.quantile(1.0));
        }
        drop(listener);
        served.stop().await?;
    }
    Ok(Row::new("zone events of the first 10 s, 5,000 VMs: the slowest", Unit::Time, &first)
        .against("the slowest at rest", later.median(), 2.0))
}

/// Very many zfs events of few VMs, all at once.
async fn storm(cn: &mut Cn, rounds: usize) -> anyhow::Result<[Row; 2]> {
    let zones = cn.busy(STORM_VMS);
    for zone in &zones {
        cn.set_quota(&zone.name, 1000)?;
    }
    let served = Served::start(cn, json!({ "sweep": "1h" })).await?;
    let event = |n: usize| cn.zfs_event(&zones[n % zones.len()]);
    let lines: String = (0..STORM).map(event).collect();
    let (mut lists, mut cpu) = (Samples::default(), Samples::default());
    for round in 0..rounds as u64 {
        for zone in &zones {
            cn.set_quota(&zone.name, 3000 + round)?;
        }
        served.quiet().await?;
        cn.ran()?;
        let before = served.cpu()?;
        let mut listener = Listeners::open(served.address, 1).await?;
        cn.post(Stream::Datasets, lines.as_bytes()).await?;
        listener.lines(zones.len()).await?;
        served.quiet().await?;
        let listed = cn.ran()?.iter().filter(|line| line.contains(" -d 1 ")).count();
        lists.push_value(listed as f64 / STORM_VMS as f64);
        cpu.push(served.cpu()? - before);
    }
    served.stop().await?;
    let name = "10,000 zfs events on 100 VMs";
    Ok([
        Row::new(format!("{name}: zfs list per VM"), Unit::Count, &lists).against("one", 1.0, 2.0),
        Row::new(format!("{name}: CPU"), Unit::Time, &cpu).against("1 s", 1.0, 1.0),
    ])
}
