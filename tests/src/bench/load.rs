// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Loading a node of very many zones. Commands answer from memory after their first run, on both
//! sides the files are in the page cache, and the rounds of both sides alternate.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use futures_util::future::BoxFuture;
use tokio::time::Instant;
use vminfod::commands::{CommandError, CommandPaths, Commands, Follow, Output, RealCommands, Tool};
use vminfod::load::{self, Ctx, ZoneRow};
use vminfod::root::Root;

use crate::conform::vmload::recorded::Recorded;
use crate::node::{CreateOptions, Node};

/// How many times the least time a load may take.
const TARGET: f64 = 1.5;

/// Measures and prints; whether the target was met.
pub(super) fn run(vms: u32, rounds: u32, node: Option<&Path>) -> anyhow::Result<bool> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match node {
        Some(dir) => {
            let recorded = Recorded::copy(dir)?;
            runtime.block_on(measure(recorded.ctx(), rounds))
        }
        None => {
            let dir = tempfile::tempdir().context("no temporary directory")?;
            let options = CreateOptions { vms, ..CreateOptions::new(dir.path().join("cn")) };
            let node = Node::create(&options)?;
            let real = RealCommands::new(CommandPaths {
                zoneadm: node.tool("zoneadm"),
                zfs: node.tool("zfs"),
                kstat: node.tool("kstat"),
                sysevent: node.tool("sysevent"),
            });
            let commands = Arc::new(Remembered { real, known: Mutex::default() });
            runtime.block_on(measure(Ctx::new(Root::new(node.root()), commands), rounds))
        }
    }
}

async fn measure(ctx: Ctx, rounds: u32) -> anyhow::Result<bool> {
    // The first load fills the page cache and the memory of the commands; nobody measures it.
    let first = load::node(&ctx).await?;
    if let Some(broken) = first.broken.first() {
        bail!("{}: {}", broken.zonename, broken.error);
    }
    let rows = first.rows.clone();
    drop(first);
    let (mut loads, mut limits) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let start = Instant::now();
        let node = load::node(&ctx).await?;
        loads.push(start.elapsed());
        if node.vms.len() != rows.len() {
            bail!("expected: {} objects, got: {}", rows.len(), node.vms.len());
        }
        drop(node);
        let (root, rows) = (ctx.root.clone(), rows.clone());
        let limit = move || -> anyhow::Result<Duration> {
            let start = Instant::now();
            for row in &rows {
                read_and_parse(&root, row)?;
            }
            Ok(start.elapsed())
        };
        limits.push(tokio::task::spawn_blocking(limit).await??);
    }
    let (load, limit) = (median(loads), median(limits));
    let ratio = load.as_secs_f64() / limit.as_secs_f64().max(f64::MIN_POSITIVE);
    let met = ratio < TARGET;
    println!("{} zones, medians of {rounds}", rows.len());
    println!(
        "{:<12} {:>10} {:>10} {:>7} {:>7}  result",
        "metric", "value", "limit", "ratio", "target"
    );
    println!(
        "{:<12} {:>7} ms {:>7} ms {ratio:>7.2} {TARGET:>7.2}  {}",
        "load",
        load.as_millis(),
        limit.as_millis(),
        if met { "pass" } else { "fail" }
    );
    Ok(met)
}

/// The least that has to be done for one zone, with the loader's own parsers.
fn read_and_parse(root: &Root, row: &ZoneRow) -> anyhow::Result<()> {
    let xml = root.zone_xml(&row.zonename);
    let bytes = std::fs::read(&xml).with_context(|| xml.display().to_string())?;
    std::hint::black_box(load::zone_xml::parse(&bytes)?);
    for name in ["metadata", "routes", "tags"] {
        let path = root.config_file(&row.zonepath, name);
        match std::fs::read(&path) {
            Ok(bytes) => drop(std::hint::black_box(vminfod::json::parse(&bytes))),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => (),
            Err(e) => return Err(e).with_context(|| path.display().to_string()),
        }
    }
    Ok(())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
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
