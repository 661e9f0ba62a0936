// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Loading a node of very many zones. Commands answer from memory after their first run, on both
//! sides the files are in the page cache, and the rounds of both sides alternate.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::bail;
use futures_util::future::BoxFuture;
use tokio::time::Instant;
use vminfod::commands::{CommandError, CommandPaths, Commands, Follow, Output, RealCommands, Tool};
use vminfod::load::{self, Ctx, ZoneRow};
use vminfod::root::Root;

use super::Bench;
use super::limits::read_and_parse;
use super::table::{Row, Samples, Unit};
use crate::conform::vmload::recorded::Recorded;

/// How many times the least time a load may take.
const TARGET: f64 = 1.5;

/// Loads the node that was asked for.
pub(super) async fn run(bench: &mut Bench) -> anyhow::Result<Vec<Row>> {
    let rounds = bench.rounds;
    if let Some(dir) = &bench.recorded {
        let recorded = Recorded::copy(dir)?;
        return Ok(vec![measure(recorded.ctx(), rounds).await?]);
    }
    let vms = bench.vms;
    let cn = bench.node(vms).await?;
    let real = RealCommands::new(CommandPaths {
        zoneadm: cn.tool("zoneadm"),
        zfs: cn.tool("zfs"),
        kstat: cn.tool("kstat"),
        sysevent: cn.tool("sysevent"),
    });
    let commands = Arc::new(Remembered { real, known: Mutex::default() });
    Ok(vec![measure(Ctx::new(Root::new(cn.root()), commands), rounds).await?])
}

async fn measure(ctx: Ctx, rounds: usize) -> anyhow::Result<Row> {
    // The first load fills the page cache and the memory of the commands; nobody measures it.
    let first = load::node(&ctx).await?;
    if let Some(broken) = first.broken.first() {
        bail!("{}: {}", broken.zonename, broken.error);
    }
    let rows: Vec<ZoneRow> = first.rows.iter().map(|row| (**row).clone()).collect();
    drop(first);
    let (mut loads, mut limit) = (Samples::default(), Samples::default());
    for _ in 0..rounds {
        let start = Instant::now();
        let node = load::node(&ctx).await?;
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
        1.0,
    ))
}

/// The node's commands, each run once.
struct Remembered {
    real: RealCommands,
    known: Mutex<HashMap<(Tool, Vec<String>), Output>>,
}

impl Commands for Remembered {
    fn run<'a>(
        &'a self,
        tool: Tool,
        args: Vec<String>,
        deadline: Duration,
    ) -> BoxFuture<'a, Result<Output, CommandError>> {
        Box::pin(async move {
            let key = (tool, args);
            let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
            let found = known().get(&key).cloned();
            if let Some(output) = found {
                return Ok(output);
            }
            let output = self.real.run(tool, key.1.clone(), deadline).await?;
            known().insert(key, output.clone());
            Ok(output)
        })
    }

    fn follow(&self, tool: Tool, args: Vec<String>) -> Result<Follow, CommandError> {
        self.real.follow(tool, args)
    }
}
