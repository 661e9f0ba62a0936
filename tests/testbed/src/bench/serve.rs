// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Reads of the cache: all VMs, one VM, and one VM while everything is read again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use super::client::Client;
use super::limits;
use super::served::Served;
use super::setting::Bench;
use super::table::{Row, Samples, Unit};

/// Exchanges of the whole list.
const LISTS: usize = 15;
/// Exchanges of one VM.
const SINGLES: usize = 2000;

pub(super) async fn run(bench: &mut Bench) -> anyhow::Result<Vec<Row>> {
    let rounds = bench.rounds;
    let cn = bench.node(5000).await?;
    let name = cn.zones.first().map(|zone| zone.name.clone()).unwrap_or_default();
    let without_a_cap = json!({ "sweep": "1h", "http": { "requests_per_second": 0 } });
    let served = Served::start(cn, without_a_cap).await?;
    let mut client = served.connect()?;

    let all = serde_json::to_vec(&served.json("/vms").await?)?;
    let raw = limits::Plain::answering(&all)?;
    // In turns, so that whatever else the machine does concerns both.
    let (mut lists, mut copies) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        copies.push(raw.exchanges(LISTS)?.median());
        lists.push(limits::exchanges(&mut client, "/vms", LISTS)?.median());
    }
    let lists = Samples::of(lists);
    let list = Row::new("GET /vms, 5,000 VMs, p50", Unit::Time, &lists)
        .against("raw socket copy", Samples::of(copies).median(), 1.5)
        .note(format!("{} bytes", all.len()));

    let one = format!("/vms/{name}");
    let body = serde_json::to_vec(&served.json(&one).await?)?;
    let echo = limits::Plain::answering(&body)?;
    let (mut singles, mut echoes, mut idle) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        echoes.push(echo.exchanges(SINGLES)?.median());
        let round = limits::exchanges(&mut client, &one, SINGLES)?;
        singles.push(round.median());
        idle.push(round.quantile(0.99));
    }
    let single = Row::new("GET /vms/:uuid, p50", Unit::Time, &Samples::of(singles)).against(
        "echo round trip",
        Samples::of(echoes).median(),
        3.0,
    );

    let mut busy = Vec::new();
    for _ in 0..rounds {
        busy.push(while_refreshing(&served, &one).await?.quantile(0.99));
    }
    let refreshing = Row::new("GET /vms/:uuid, p99 in a refresh", Unit::Time, &Samples::of(busy))
        .against("p99 when idle", Samples::of(idle).median(), 3.0);
    served.stop().await?;
    Ok(vec![list, single, refreshing])
}

/// Reads one VM again and again for as long as a refresh takes.
async fn while_refreshing(served: &Served, path: &str) -> anyhow::Result<Samples> {
    let done = Arc::new(AtomicBool::new(false));
    let mut asking = Client::connect(served.address)?;
    let ended = Arc::clone(&done);
    let refresh = tokio::task::spawn_blocking(move || {
        asking.send("/vms?sync=true")?;
        asking.first_bytes()?;
        ended.store(true, Ordering::Relaxed);
        asking.read_to_end()
    });
    let mut client = Client::connect(served.address)?;
    let path = path.to_owned();
    let reading = tokio::task::spawn_blocking(move || {
        let mut samples = Samples::default();
        client.get(&path)?;
        while !done.load(Ordering::Relaxed) {
            let start = tokio::time::Instant::now();
            client.get(&path)?;
            samples.push(start.elapsed());
        }
        anyhow::Ok(samples)
    });
    refresh.await??;
    reading.await?
}
