// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The time from a change of the node to its line.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::arrival::Arrivals;
use super::cn::{Cn, Stream, zfs_event, zone_event};
use super::limits;
use super::served::Served;
use super::setting::Bench;
use super::streams::{Listeners, latest};
use super::table::{Row, Samples, Unit};

/// Signals of one VM within this are one, so a file's change waits for it.
const FOLD: f64 = 0.010;
const CHANGES: usize = 1000;
const ZONE_CHANGES: usize = 100;
/// How often what an event needs is run by itself.
const COMMANDS: usize = 50;
/// In each round.
const FILE_CHANGES: usize = 200;
/// As long as a change rests in the fold.
const REST: Duration = Duration::from_millis(10);
const STORM: usize = 10_000;
const STORM_VMS: usize = 100;

pub(super) async fn run(bench: &mut Bench) -> anyhow::Result<Vec<Row>> {
    let rounds = bench.rounds;
    let mut rows = vec![file_changes(bench.thousand().await?, rounds).await?];
    let small = measure(bench.thousand().await?, rounds).await?;
    let large = measure(bench.ten_thousand().await?, rounds).await?;
    let growth: Samples =
        large.cpu.values().zip(small.cpu.values()).map(|(large, small)| large / small).collect();
    rows.extend([
        Row::new("zfs sysevent to event line, p50", Unit::Time, &small.zfs).against(
            "its one command",
            small.command,
            1.5,
            None,
        ),
        Row::new("the same with 10,000 VMs", Unit::Time, &large.zfs).against(
            "its one command",
            large.command,
            1.5,
            None,
        ),
        Row::new("zone sysevent to event line, p50", Unit::Time, &small.zone)
            .of(small.zone.median() - FOLD, "its two commands", small.two_commands, 1.5, None)
            .note("zoneadm, then the kstats; the ratio is of what is beyond the fold of 10 ms"),
        Row::new("CPU per event, 10,000 to 1,000 VMs", Unit::Count, &growth)
            .against("times as much", 1.0, 1.5, None)
            .note(format!("{:.0} us with 1,000 VMs", small.cpu.median() * 1e6)),
    ]);
    rows.extend(storm(bench.thousand().await?, rounds).await?);
    Ok(rows)
}

/// From the rename of a file to the line at a listener's socket: of each round the p99.
async fn file_changes(cn: &mut Cn, rounds: usize) -> anyhow::Result<Row> {
    let served = Served::start(cn, json!({ "sweep": "1h" })).await?;
    let mut listener = Arrivals::open(served.address).await?;
    // Right after its start it looks at the files of every VM once more, now that they are watched.
    served.quiet().await?;
    let (mut told, mut read, mut woken) = <(Samples, Samples, Samples)>::default();
    let mut wake_ups = limits::WakeUps::start()?;
    let mut changes = cn.zones.iter().take(50).cycle().zip(1_u64..);
    for _ in 0..rounds {
        let (mut came, mut known, mut wake) = <(Samples, Samples, Samples)>::default();
        for (zone, n) in changes.by_ref().take(FILE_CHANGES) {
            let start = cn.set_tags(&zone.name, &json!({ "n": n }).to_string())?;
            let arrival = tokio::task::block_in_place(|| listener.line())?;
            came.push(arrival.at.duration_since(start)?);
            known.push(arrival.read.duration_since(start)?);
            // In turns and at the same pace: a machine that has just rested wakes up later.
            tokio::time::sleep(REST).await;
            wake.push(wake_ups.one()?);
        }
        told.push_value(came.quantile(0.99));
        read.push_value(known.quantile(0.99));
        woken.push_value(wake.quantile(0.99));
    }
    drop(listener);
    served.stop().await?;
    let p99 = told.median();
    Ok(Row::new("file change to event line, p99", Unit::Time, &told)
        .of(p99 - FOLD, "wake-up p99", woken.median(), 3.0, 1.5)
        .note(format!(
            "the ratio is of what is beyond the fold of 10 ms; a listener who has to wake up has read it after {:.2} ms",
            read.median() * 1e3
        )))
}

struct Measured {
    zfs: Samples,
    zone: Samples,
    command: f64,
    two_commands: f64,
    /// Seconds of CPU for each event, by rounds.
    cpu: Samples,
}

async fn measure(cn: &mut Cn, rounds: usize) -> anyhow::Result<Measured> {
    let zones = cn.with_dataset(50);
    for zone in &zones {
        cn.set_quota(zone, 1000)?;
    }
    let served = Served::start(cn, json!({ "sweep": "1h" })).await?;
    let listener = Listeners::open(served.address, 1).await?;
    served.quiet().await?;
    let (mut cpu, mut zfs, mut command) = <(Samples, Samples, Samples)>::default();
    let (mut before, each) = (served.cpu()?, (CHANGES / rounds).max(1));
    for n in 0..CHANGES {
        let zone = &zones[n % zones.len()];
        cn.set_quota(zone, 2000 + n as u64)?;
        let line = zfs_event(&format!("zones/{zone}"));
        let start = Instant::now();
        cn.post(Stream::Datasets, line.as_bytes()).await?;
        zfs.push(latest(&listener.lines(1).await?, start));
        // In turns: how long a command takes differs from one second to the next.
        if n % (CHANGES / COMMANDS) == 0 {
            let args = ["list", "-H", "-p", "-d", "1", &format!("zones/{zone}")];
            command.push(limits::command(&cn.tool("zfs"), &args).await?);
        }
        if (n + 1) % each == 0 {
            served.quiet().await?;
            let now = served.cpu()?;
            cpu.push_value((now - before).as_secs_f64() / each as f64);
            before = now;
        }
    }
    let (mut zone, mut two_commands) = (Samples::default(), Samples::default());
    let named: Vec<_> = cn.zones.iter().filter(|z| z.line.contains(":running:")).cloned().collect();
    for n in 0..ZONE_CHANGES {
        let one = &named[n % named.len().clamp(1, 20)];
        cn.set_state(one, if n / 20 % 2 == 0 { "installed" } else { "running" })?;
        let start = Instant::now();
        cn.post(Stream::Zones, zone_event(&one.name).as_bytes()).await?;
        zone.push(latest(&listener.lines(1).await?, start));
        if n % (ZONE_CHANGES / COMMANDS) == 0 {
            // As long as the daemon rested before it ran them.
            tokio::time::sleep(REST).await;
            let args = ["-z", &one.name, "list", "-p"];
            let zoneadm = limits::command(&cn.tool("zoneadm"), &args).await?;
            two_commands.push(zoneadm + limits::command(&cn.tool("kstat"), &[]).await?);
        }
    }
    for one in &named {
        cn.set_state(one, "running")?;
    }
    drop(listener);
    served.stop().await?;
    let (command, two_commands) = (command.median(), two_commands.median());
    Ok(Measured { zfs, zone, command, two_commands, cpu })
}

/// Very many events of few VMs, all at once, and what was run because of them.
async fn storm(cn: &mut Cn, rounds: usize) -> anyhow::Result<Vec<Row>> {
    let zones = cn.with_dataset(STORM_VMS);
    for zone in &zones {
        cn.set_quota(zone, 1000)?;
    }
    let served = Served::start(cn, json!({ "sweep": "1h" })).await?;
    let lines: String =
        (0..STORM).map(|n| zfs_event(&format!("zones/{}", zones[n % zones.len()]))).collect();
    let (mut lists, mut cpu) = (Samples::default(), Samples::default());
    for round in 0..rounds as u64 {
        for zone in &zones {
            cn.set_quota(zone, 3000 + round)?;
        }
        served.quiet().await?;
        cn.ran()?;
        let before = served.cpu()?;
        let listener = Listeners::open(served.address, 1).await?;
        cn.post(Stream::Datasets, lines.as_bytes()).await?;
        listener.lines(zones.len()).await?;
        served.quiet().await?;
        lists.push_value(cn.ran()?.iter().filter(|line| line.starts_with("zfs ")).count() as f64);
        cpu.push(served.cpu()? - before);
    }
    served.stop().await?;
    Ok(vec![
        Row::new("storm of 10,000 zfs events on 100 VMs: zfs list", Unit::Count, &lists).against(
            "distinct VMs",
            STORM_VMS as f64,
            1.0,
            0.01,
        ),
        Row::new("storm: CPU", Unit::Time, &cpu).against(
            "1 s",
            Duration::from_secs(1).as_secs_f64(),
            1.0,
            0.5,
        ),
    ])
}
