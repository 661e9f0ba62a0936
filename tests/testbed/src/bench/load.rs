// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Reads a whole node without a daemon. Commands answer from memory, the files are in the page cache,
//! and the rounds of both sides alternate.

use std::sync::Arc;

use anyhow::bail;
use daemon::command::Spawned;
use simnode::decorators::Recorded;
use tokio::time::Instant;
use vm_model::parse::zoneadm::ZoneRow;
use vminfod::node::read::zoneadm;
use vminfod::node::root::Root;
use vminfod::node::{Ctx, load};

use super::limits::read_and_parse;
use super::setting::Bench;
use super::table::{Row, Samples, Unit};
use crate::conform::vmload::recorded;

/// How many times the least time a load may take.
const TARGET: f64 = 1.5;

/// Loads the node that was asked for.
pub(super) async fn run(bench: &mut Bench) -> anyhow::Result<Vec<Row>> {
    let rounds = bench.rounds;
    if let Some(dir) = &bench.recorded {
        let recorded = recorded::Recorded::copy(dir)?;
        return Ok(vec![measure(recorded.ctx(), rounds).await?]);
    }
    let vms = bench.vms;
    let cn = bench.node(vms).await?;
    let real = Spawned::new(cn.commands());
    let commands = Arc::new(Recorded::new(Arc::new(real)));
    Ok(vec![measure(Ctx::new(Root::new(cn.root()), commands), rounds).await?])
}

async fn measure(ctx: Ctx, rounds: usize) -> anyhow::Result<Row> {
    // The first load fills the page cache and the memory of the commands; nobody measures it.
    let first = load::objects(&ctx).await?;
    if let Some((name, _, error)) = first.broken.first() {
        bail!("{name}: {error}");
    }
    let rows: Vec<ZoneRow> =
        zoneadm::list(&ctx).await?.rows.iter().map(|row| (**row).clone()).collect();
    drop(first);
    let (mut loads, mut limit) = (Samples::default(), Samples::default());
    for _ in 0..rounds {
        let start = Instant::now();
        let node = load::objects(&ctx).await?;
        loads.push(start.elapsed());
        if node.vms.len() != rows.len() {
            bail!("expected: {} objects, got: {}", rows.len(), node.vms.len());
        }
        drop(node);
        let (root, rows) = (ctx.root.clone(), rows.clone());
        let least = tokio::task::spawn_blocking(move || read_and_parse(&root, &rows));
        limit.push(least.await??);
    }
    Ok(Row::new(format!("load, {} zones", rows.len()), Unit::Time, &loads).against(
        "read+parse",
        limit.median(),
        TARGET,
    ))
}
