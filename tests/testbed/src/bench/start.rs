// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A start: the time until the port opens, and the CPU time until the node is at rest.

use serde_json::json;
use vminfod::node::root::Root;

use super::cn::Cn;
use super::limits;
use super::served::Served;
use super::setting::Bench;
use super::table::{Row, Samples, Unit};

pub(super) async fn run(bench: &mut Bench) -> anyhow::Result<Vec<Row>> {
    // A start of few zones is shorter than many a slow moment of the machine.
    let rounds = bench.rounds;
    let mut rows = measure(bench.node(1000).await?, "1,000 VMs", 3 * rounds).await?.to_vec();
    rows.extend(measure(bench.node(5000).await?, "5,000 VMs", rounds).await?);
    Ok(rows)
}

async fn measure(cn: &mut Cn, size: &str, rounds: usize) -> anyhow::Result<[Row; 2]> {
    let (root, zones) = (Root::new(cn.root()), cn.rows());
    let [mut took, mut least, mut cpu, mut cpu_at_rest]: [Samples; 4] = Default::default();
    // The first round fills the page cache.
    for round in 0..=rounds {
        let served = Served::start(cn, json!({ "sweep": "1h" })).await?;
        let cpu_when_ready = served.cpu()?;
        served.quiet().await?;
        let (ready_after, at_rest) = (served.ready_after, served.cpu()?);
        served.stop().await?;
        let limit = limits::read_and_parse(&root, &zones)?;
        if round > 0 {
            took.push(ready_after);
            least.push(limit);
            cpu.push(cpu_when_ready);
            cpu_at_rest.push(at_rest);
        }
    }
    Ok([
        Row::new(format!("start, {size}"), Unit::Time, &took).against(
            "read+parse",
            least.median(),
            2.0,
        ),
        Row::new(format!("CPU of a start until rest, {size}"), Unit::Time, &cpu_at_rest).against(
            "until the port opens",
            cpu.median(),
            1.5,
        ),
    ])
}
