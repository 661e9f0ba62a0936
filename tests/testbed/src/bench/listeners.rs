// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Very many listeners: the time until the last one has an event, the cost of a stalled one to the
//! others, and the cost of an idle one.

use anyhow::bail;
use serde_json::json;
use tokio::time::Instant;

use super::cn::Cn;
use super::limits;
use super::served::Served;
use super::setting::Bench;
use super::streams::{Listeners, latest, listen, since, skip_ready};
use super::table::{Row, Samples, Unit};

const MANY: usize = 1000;
const EVENTS: usize = 30;
const IDLE: usize = 10_000;

pub(super) async fn run(bench: &mut Bench) -> anyhow::Result<Vec<Row>> {
    let (descriptors, rounds) = (bench.descriptors, bench.rounds);
    let mut rows = fan_out(bench.node(1000).await?, 3 * rounds).await?;
    rows.push(idle(bench.node(12).await?, descriptors, rounds).await?);
    Ok(rows)
}

/// One event at a time; when it reached each listener, and how long the last one took.
async fn events(
    cn: &Cn,
    listeners: &mut Listeners,
    names: &mut impl Iterator<Item = u64>,
    each: &mut Samples,
) -> anyhow::Result<Samples> {
    let mut last = Samples::default();
    for (zone, n) in cn.zones.iter().zip(names).take(EVENTS) {
        let start = Instant::now();
        cn.set_tags(&zone.name, n)?;
        let times = listeners.lines(1).await?;
        last.push(latest(&times, start));
        since(&times, start, each);
    }
    Ok(last)
}

async fn fan_out(cn: &mut Cn, rounds: usize) -> anyhow::Result<Vec<Row>> {
    let served = Served::start(cn, json!({ "sweep": "1h" })).await?;
    let (mut names, mut unused) = (1_u64.., Samples::default());
    let one = {
        let mut listener = Listeners::open(served.address, 1).await?;
        events(cn, &mut listener, &mut names, &mut unused).await?.median()
    };
    let mut listeners = Listeners::open(served.address, MANY).await?;
    let line = vec![b'x'; 4096];
    let (mut last, mut writes) = (Vec::new(), Vec::new());
    let (mut free, mut beside) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let line = line.clone();
        let raw = move || limits::raw_writes(MANY, &line, 10);
        writes.push(tokio::task::spawn_blocking(raw).await??.quantile(0.99));
        // Each comes first in every other round: what was done before is felt.
        for is_beside in [round % 2 == 1, round % 2 == 0] {
            // One that takes nothing after its ready line, and never will.
            let stalled = if is_beside { Some(listen(served.address).await?) } else { None };
            let mut each = Samples::default();
            let took = events(cn, &mut listeners, &mut names, &mut each).await?;
            if stalled.is_some() {
                beside.push(each.quantile(0.99));
            } else {
                free.push(each.quantile(0.99));
                last.push(took.quantile(0.99) - one);
            }
        }
    }
    if listeners.have_more() {
        bail!("lines that nobody expected");
    }
    drop(listeners);
    served.stop().await?;
    Ok(vec![
        Row::new("fan-out to 1,000: last one's p99", Unit::Time, &Samples::of(last))
            .against("1,000 raw writes", Samples::of(writes).median(), 5.0)
            .note("beyond what a single listener waits"),
        Row::new("one stalled among 1,000: the others' p99", Unit::Time, &Samples::of(beside))
            .against("without it", Samples::of(free).median(), 1.10),
    ])
}

async fn idle(cn: &mut Cn, descriptors: u64, rounds: usize) -> anyhow::Result<Row> {
    let metric = "10,000 idle listeners, memory each";
    if descriptors < 11_000 {
        return Ok(Row::skipped(metric, format!("fd limit ({descriptors} descriptors)")));
    }
    let mut each = Samples::default();
    for _ in 0..rounds {
        each.push_value(memory_each(cn).await?);
    }
    Ok(Row::new(metric, Unit::Bytes, &each).against("32 kB", 32_000.0, 1.0))
}

/// What each of very many listeners that wait adds to a daemon that just started.
async fn memory_each(cn: &mut Cn) -> anyhow::Result<f64> {
    let served = Served::start(cn, json!({ "sweep": "1h" })).await?;
    served.json("/vms").await?;
    let before = served.memory("VmRSS")?;
    let mut streams = Vec::with_capacity(IDLE);
    for _ in 0..IDLE {
        let mut stream = listen(served.address).await?;
        skip_ready(&mut stream).await?;
        streams.push(stream);
    }
    served.quiet().await?;
    let each = (served.memory("VmRSS")? - before) / IDLE as f64;
    drop(streams);
    served.stop().await?;
    Ok(each)
}
