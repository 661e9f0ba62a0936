// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! From the start of the process until it serves.

use serde_json::json;
use vminfod::node::root::Root;

use super::cn::Cn;
use super::limits;
use super::served::Served;
use super::setting::Bench;
use super::table::{Row, Samples, Unit};

/// Median start of a node and its median limit.
struct Start {
    value: Samples,
    limit: f64,
    slowest_command: f64,
}

/// A start of few zones is shorter than many a bad moment of the machine: so many times the rounds.
const SHORT: usize = 3;

pub(super) async fn run(bench: &mut Bench) -> anyhow::Result<Vec<Row>> {
    let rounds = bench.rounds;
    let small = measure(bench.thousand().await?, rounds * SHORT).await?;
    let large = measure(bench.ten_thousand().await?, rounds).await?;
    let growth = Samples::of([large.value.median() / small.value.median()]);
    Ok(vec![
        Row::new("start, 1,000 zones", Unit::Time, &small.value)
            .of(small.value.median() - small.slowest_command, "read+parse", small.limit, 1.3, None)
            .note(format!(
                "the ratio is of what is beyond the slowest command, {:.1} ms",
                small.slowest_command * 1e3
            )),
        Row::new("start, 10,000 zones", Unit::Time, &large.value).against(
            "read+parse",
            large.limit,
            1.5,
            1.0,
        ),
        Row::new("start, 10,000 to 1,000", Unit::Count, &growth).against(
            "times as long",
            1.0,
            11.0,
            None,
        ),
    ])
}

async fn measure(cn: &mut Cn, rounds: usize) -> anyhow::Result<Start> {
    let (root, rows) = (Root::new(cn.root()), cn.rows());
    let (mut value, mut limit) = (Samples::default(), Samples::default());
    // The first round fills the page cache.
    for round in 0..=rounds {
        let served = Served::start(cn, json!({ "log_level": "info" })).await?;
        let ready_after = served.ready_after;
        served.stop().await?;
        let least = limits::read_and_parse(&root, &rows)?;
        if round > 0 {
            value.push(ready_after);
            limit.push(least);
        }
    }
    let mut slowest_command: f64 = 0.0;
    for (tool, last) in [("zoneadm", "-c"), ("zfs", "2"), ("kstat", "")] {
        let mut took = Samples::default();
        for _ in 0..rounds {
            took.push(limits::command(&cn.tool(tool), &["list", last]).await?);
        }
        slowest_command = slowest_command.max(took.median());
    }
    Ok(Start { value, limit: limit.median(), slowest_command })
}
