// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A full refresh of a node without changes.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use vminfod::node::root::Root;

use super::cn::{Cn, LIST_DATASETS, LIST_SNAPSHOTS};
use super::limits;
use super::served::Served;
use super::setting::Bench;
use super::table::{Row, Samples, Unit};
use crate::process;

pub(super) async fn run(bench: &mut Bench) -> anyhow::Result<Vec<Row>> {
    let rounds = bench.rounds;
    let cn = bench.node(5000).await?;
    let (root, rows) = (Root::new(cn.root()), cn.rows());
    let served = Served::start(cn, json!({ "sweep": "1h" })).await?;
    // Files that are younger than two seconds when they are read are read again.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let mut client = served.connect()?;
    let (mut value, mut limit) = (Samples::default(), Samples::default());
    for round in 0..=rounds {
        served.quiet().await?;
        let start = Instant::now();
        client.send("/vms?sync=true")?;
        client.first_bytes()?;
        let took = start.elapsed();
        client.read_to_end()?;
        let least = limits::stat_all(&root, &rows) + commands(cn).await?;
        // The first one reads what was too young before.
        if round > 0 {
            value.push(took);
            limit.push(least);
        }
    }
    served.stop().await?;
    let row = Row::new("full refresh, nothing changed, 5,000 VMs", Unit::Time, &value);
    Ok(vec![row.against("stat all + commands", limit.median(), 3.0)])
}

/// The time of the node's commands, one after the other.
async fn commands(cn: &Cn) -> anyhow::Result<Duration> {
    let start = Instant::now();
    for (tool, args) in [
        ("zoneadm", &["list", "-p", "-c"][..]),
        ("zfs", &LIST_DATASETS),
        ("zfs", &LIST_SNAPSHOTS),
        ("kstat", &[]),
    ] {
        process::run(&cn.tool(tool), args, Duration::from_secs(60)).await?;
    }
    Ok(start.elapsed())
}
