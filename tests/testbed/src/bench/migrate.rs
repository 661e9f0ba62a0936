// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A migration on real ZFS, in turns with `zfs send`, a pipe over TCP and `zfs receive` by hand on the same pools:
//! the whole stream, its CPU time, and the downtime of the switch. After each the VM is rolled back.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use migration_core::intent::End;
use nix::time::{ClockId, clock_gettime};
use sdc_clients::migrations::Options;
use serde_json::json;
use tokio::time::Instant;

use super::setting::Bench;
use super::table::{Row, Samples, Unit};
use crate::explore::data::handshake;
use crate::explore::disk::Disk;
use crate::explore::points::Points;
use crate::explore::world::{Shape, World};
use crate::moving::subject::VM;

const MB: u64 = 1_000_000;
/// The VM rewrites this part of its data before a switch.
const DELTA: u64 = 16;
/// Bytes that `nc` reads at once.
const PIPE: usize = 64 << 10;
/// Between two looks at a migration: each is several requests in the process whose CPU is measured.
const LOOK: Duration = Duration::from_millis(200);
/// What no migration here takes.
const PATIENCE: Duration = Duration::from_secs(900);
/// No limit, in Mbit/s.
const UNLIMITED: u32 = 1_000_000;
/// So many handshakes are measured.
const HANDSHAKES: usize = 20;

/// What one VM's migrations took.
#[derive(Default)]
struct Took {
    by_hand: Samples,
    agents: Samples,
    delta_by_hand: Samples,
    downtime: Samples,
    /// CPU time of this process for each GB: both agents, and all the others that are in it.
    cpu: Samples,
    /// Each step of the service, in the order of the first migration, with its phase.
    steps: Vec<(String, Samples)>,
}

pub(super) async fn run(bench: &mut Bench) -> anyhow::Result<Vec<Row>> {
    let mut rows = vec![handshakes().await?];
    for size in bench.megabytes.clone() {
        let name = format!("migration of {size} MB");
        match rig::why_not() {
            Some(why) => rows.push(Row::skipped(name, why)),
            None => rows.extend(of_size(&name, u64::from(size) * MB, bench.rounds).await?),
        }
    }
    Ok(rows)
}

/// Two agents that know each other by their certificates.
async fn handshakes() -> anyhow::Result<Row> {
    let mut took = Samples::default();
    for _ in 0..HANDSHAKES {
        took.push(handshake().await?);
    }
    let name = "handshake of two agents, of 20";
    Ok(Row::new(name, Unit::Time, &took).against("5 ms", 0.005, 1.0))
}

async fn of_size(name: &str, size: u64, rounds: usize) -> anyhow::Result<Vec<Row>> {
    // What is destroyed is free again only later.
    let disks = rig::start(2, 4 * size + (1 << 30))?;
    let disks = disks.into_iter().map(Disk::new).collect::<io::Result<Vec<_>>>()?;
    let disks: Vec<Arc<Disk>> = disks.into_iter().map(Arc::new).collect();
    let [source, target] = disks.as_slice() else { bail!("{} nodes", disks.len()) };
    let dir = crate::place::place()?;
    let on = [source, target].map(|disk| Some(Arc::clone(disk)));
    let world = World::on(dir.path(), &Points::default(), Shape::default(), on).await?;
    let limit = json!({ "zfs_send_mbps_limit": UNLIMITED });
    world.migrations()?.set(None, limit.as_object().context("an object")?).await?;
    write(source, "data/all", size)?;
    let mut took = Took::default();
    for round in 0..=rounds {
        let mut one = Took::default();
        migrated(&world, source, size, &mut one).await?;
        by_hand(source, target, size, &mut one)?;
        // The first one fills caches and carries the image.
        if round > 0 {
            took.add(one);
        }
    }
    world.end().await;
    ensure!(world.judge.faults().is_empty(), "{}", world.judge.faults().join("; "));
    Ok(took.rows(name, size))
}

/// Writes so many bytes that are not alike.
fn write(disk: &Disk, path: &str, size: u64) -> anyhow::Result<()> {
    let mut block = vec![0; MB as usize];
    File::open("/dev/urandom")?.read_exact(&mut block)?;
    let mut file =
        File::options().write(true).create(true).truncate(false).open(disk.path(path))?;
    for at in 0..size / MB {
        block.splice(..8, at.to_be_bytes());
        file.write_all(&block)?;
    }
    Ok(file.sync_all()?)
}

/// The whole VM and then a delta, with nothing but `zfs`.
fn by_hand(source: &Disk, target: &Disk, size: u64, took: &mut Took) -> anyhow::Result<()> {
    let root = format!("zones/{VM}");
    let receive = "receive -u -F zones/by-hand";
    let began = Instant::now();
    source.zfs(&format!("snapshot -r {root}@hand-1"))?;
    piped(source, &format!("send -R {root}@hand-1"), target, receive)?;
    took.by_hand.push(began.elapsed());
    write(source, "data/all", size / DELTA)?;
    let began = Instant::now();
    source.zfs(&format!("snapshot -r {root}@hand-2"))?;
    piped(source, &format!("send -R -I {root}@hand-1 {root}@hand-2"), target, receive)?;
    took.delta_by_hand.push(began.elapsed());
    target.destroy("zones/by-hand")?;
    source.zfs(&format!("destroy -r {root}@hand-1"))?;
    source.zfs(&format!("destroy -r {root}@hand-2")).map(drop)
}

/// `zfs send | nc` on one node, and `nc | zfs receive` on the other.
fn piped(source: &Disk, send: &str, target: &Disk, receive: &str) -> anyhow::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let (far, _) = listener.accept()?;
    let mut sending = source.zfs_command(send).stdout(Stdio::piped()).spawn()?;
    let mut receiving = target.zfs_command(receive).stdin(Stdio::piped()).spawn()?;
    let stdout = sending.stdout.take().context("no stdout")?;
    let stdin = receiving.stdin.take().context("no stdin")?;
    let [there, on] = [
        std::thread::spawn(move || pump(stdout, near)),
        std::thread::spawn(move || pump(far, stdin)),
    ];
    for end in [there, on] {
        end.join().map_err(|_| anyhow::anyhow!("a pipe broke"))??;
    }
    ensure!(sending.wait()?.success() && receiving.wait()?.success(), "{send} or {receive} failed");
    Ok(())
}

/// Carries bytes to their end, as `nc` does.
fn pump(mut from: impl Read, mut to: impl Write) -> io::Result<()> {
    let mut bytes = vec![0; PIPE];
    loop {
        match from.read(&mut bytes)? {
            0 => return Ok(()),
            len => to.write_all(bytes.get(..len).unwrap_or_default())?,
        }
    }
}

fn cpu() -> anyhow::Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID)?.into())
}

/// Migrates the VM, and rolls it back.
async fn migrated(world: &World, source: &Disk, size: u64, took: &mut Took) -> anyhow::Result<()> {
    for action in ["begin", "sync", "switch", "rollback"] {
        if action == "switch" {
            write(source, "data/all", size / DELTA)?;
        }
        let (at, before) = (world.net.points.count(), cpu()?);
        let to = Some(world.cn(End::Target).uuid.to_string());
        let options = Options { override_server_uuid: to, ..Options::default() };
        world.migrations()?.act(VM, action, &options).await?;
        let rested = tokio::time::timeout(PATIENCE, world.rested(LOOK)).await??;
        let failed = rested.filter(|record| record.state == "failed");
        ensure!(failed.is_none(), "{action}: {failed:?}");
        let used = cpu()?.saturating_sub(before);
        let done = world.net.points.done_since(at);
        if action == "sync" {
            let (began, ended) = span(&done, "agent-source/orders send")?;
            took.agents.push(ended - began);
            took.cpu.push_value(used.as_secs_f64() * 1e9 / size as f64);
        }
        if action == "switch" {
            let (_, stopped) = span(&done, "source agent: vmadm stop")?;
            let (started, _) = span(&done, "target agent: vmadm start")?;
            took.downtime.push(started - stopped);
        }
        took.add_steps(action, &done);
    }
    Ok(())
}

type Done = (String, Instant, Instant);

/// From the first beginning to the last end of what has this in its name.
fn span(done: &[Done], name: &str) -> anyhow::Result<(Instant, Instant)> {
    let mut all = done.iter().filter(|(label, ..)| label.contains(name));
    let (_, began, ended) = all.next().with_context(|| format!("no {name}"))?;
    Ok((*began, all.next_back().map_or(*ended, |(_, _, ended)| *ended)))
}

/// The name of a step of the service: an order to an agent, or a change at another service.
fn step(label: &str) -> Option<String> {
    let request = label.strip_prefix("service 1: ").or(label.strip_prefix("service 2: "))?;
    let (_, order) = request.split_once("agent-").unwrap_or_default();
    if let Some((end, order)) = order.split_once("/orders ") {
        return Some(format!("{end} {order}"));
    }
    let (method, url) = request.split_once(' ')?;
    let (host, _) = url.split_once(".sim/")?;
    (method != "GET").then(|| format!("{host} {method}"))
}

impl Took {
    fn add_steps(&mut self, action: &str, done: &[Done]) {
        let mut sums: Vec<(String, f64)> = Vec::new();
        for (label, began, ended) in done {
            let Some(name) = step(label) else { continue };
            let (name, ms) = (format!("{action}: {name}"), (*ended - *began).as_secs_f64() * 1e3);
            match sums.iter_mut().find(|(known, _)| *known == name) {
                Some((_, sum)) => *sum += ms,
                None => sums.push((name, ms)),
            }
        }
        self.steps.extend(sums.into_iter().map(|(name, ms)| (name, Samples::of([ms]))));
    }

    fn add(&mut self, one: Took) {
        let both = [
            (&mut self.by_hand, &one.by_hand),
            (&mut self.agents, &one.agents),
            (&mut self.delta_by_hand, &one.delta_by_hand),
            (&mut self.downtime, &one.downtime),
            (&mut self.cpu, &one.cpu),
        ];
        for (all, one) in both {
            all.push_value(one.median());
        }
        for (name, ms) in one.steps {
            match self.steps.iter_mut().find(|(known, _)| *known == name) {
                Some((_, all)) => all.push_value(ms.median()),
                None => self.steps.push((name, ms)),
            }
        }
    }

    fn rows(self, name: &str, size: u64) -> Vec<Row> {
        let rate = |took: &Samples| size as f64 / MB as f64 / took.median();
        let rates =
            format!("{:.0} MB/s, by hand {:.0} MB/s", rate(&self.agents), rate(&self.by_hand));
        let mut by_action: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (name, ms) in &self.steps {
            let (action, step) = name.split_once(": ").unwrap_or_default();
            by_action.entry(action).or_default().push(format!("{step} {:.0}", ms.median()));
        }
        let steps = ["begin", "sync", "switch", "rollback"].map(|action| {
            format!("{action}: {}", by_action.remove(action).unwrap_or_default().join(", "))
        });
        let allowed = 2.0 * self.delta_by_hand.median() + 2.0;
        vec![
            Row::new(format!("{name}: the whole stream"), Unit::Time, &self.agents)
                .against("`zfs send | nc | zfs receive`", self.by_hand.median(), 1.30)
                .note(rates),
            Row::new(format!("{name}: CPU of both agents, for each GB"), Unit::Time, &self.cpu)
                .against("1.5 s", 1.5, 1.0)
                .note("with the service and the simulated nodes, which are in the same process"),
            Row::new(format!("{name}: downtime"), Unit::Time, &self.downtime)
                .against("twice the same delta by hand, and 2 s", allowed, 1.0)
                .note(format!("ms of each step: {}", steps.join("; "))),
        ]
    }
}
