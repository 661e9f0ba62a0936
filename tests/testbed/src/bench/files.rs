// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Changes of files: the time until their line, beyond that of a bare reader of the same helper.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use super::arrival::Arrivals;
use super::bare::BareReader;
use super::cn::{Change, Cn, Zone};
use super::served::Served;
use super::setting::Bench;
use super::table::{Row, Samples, Unit};

/// Changes in each round.
const CHANGES: u64 = 200;
/// The zones that change, one after the other.
const ZONES: usize = 50;
/// Between two changes: longer than vminfod's least time between two readings.
const REST: Duration = Duration::from_millis(20);
/// What vminfod may take beyond the bare reader.
const P50: f64 = 0.001;
const P99: f64 = 0.005;

pub(super) async fn run(bench: &mut Bench) -> anyhow::Result<Vec<Row>> {
    let (mut rows, rounds) = (Vec::new(), bench.rounds);
    for (vms, size) in [(1000, "1,000 VMs"), (5000, "5,000 VMs")] {
        let cn = bench.node(vms).await?;
        for (change, what) in [(Change::Tags, "config edit"), (Change::Xml, "XML edit")] {
            rows.extend(measure(cn, change, &format!("{what}, {size}"), rounds).await?);
        }
    }
    Ok(rows)
}

async fn measure(
    cn: &mut Cn,
    change: Change,
    what: &str,
    rounds: usize,
) -> anyhow::Result<[Row; 2]> {
    let zones = cn.busy(ZONES);
    let (mut told, mut bare) = ([const { Vec::new() }; 2], [const { Vec::new() }; 2]);
    let mut numbers = 1_u64..;
    for _ in 0..rounds {
        // In turns: a second helper would make each change slower.
        let lines = to_line(cn, change, &zones, &mut numbers).await?;
        let reads = to_reader(cn, change, &zones, &mut numbers).await?;
        for (at, quantile) in [0.5, 0.99].into_iter().enumerate() {
            told[at].push(lines.quantile(quantile));
            bare[at].push(reads.quantile(quantile));
        }
    }
    let row = |name: &str, at: usize, limit: f64, is: &'static str| {
        let (told, bare) = (Samples::of(told[at].clone()), Samples::of(bare[at].clone()).median());
        Row::new(format!("{what}, {name}"), Unit::Time, &told)
            .of(told.median() - bare, is, limit, 1.0)
            .note(format!("the bare reader: {:.2} ms", bare * 1e3))
    };
    Ok([
        row("p50", 0, P50, "1 ms beyond a bare reader"),
        row("p99", 1, P99, "5 ms beyond a bare reader"),
    ])
}

/// From each change to its line at a listener's socket.
async fn to_line(
    cn: &mut Cn,
    change: Change,
    zones: &[Zone],
    numbers: &mut impl Iterator<Item = u64>,
) -> anyhow::Result<Samples> {
    let served = Served::start(cn, json!({ "sweep": "1h" })).await?;
    let mut listener = Arrivals::open(served.address).await?;
    served.quiet().await?;
    let mut took = Samples::default();
    for (zone, n) in zones.iter().cycle().zip(numbers.take(CHANGES as usize)) {
        let start = cn.change(change, zone, n).await?;
        let arrival = tokio::task::block_in_place(|| listener.line())?;
        took.push(arrival.duration_since(start)?);
        sleep(REST).await;
    }
    drop(listener);
    served.stop().await?;
    Ok(took)
}

/// From each change to the moment at which the bare reader has read of it.
async fn to_reader(
    cn: &mut Cn,
    change: Change,
    zones: &[Zone],
    numbers: &mut impl Iterator<Item = u64>,
) -> anyhow::Result<Samples> {
    let mut reader = BareReader::start(cn).await?;
    let mut took = Samples::default();
    for (zone, n) in zones.iter().cycle().zip(numbers.take(CHANGES as usize)) {
        let start = cn.change(change, zone, n).await?;
        took.push(reader.change().await?.duration_since(start)?);
        reader.settled().await?;
        sleep(REST).await;
    }
    Ok(took)
}
