// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A large data centre for a browser to look at: nodes and VMs on a feed of its own, and the page that shows them. It
//! is told on stdin what happens: `change` publishes a change of one VM and prints when that was acknowledged, `silence
//! N` ends the heartbeats of a node.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Parser;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use rig::nats::Nats;
use rig::port::Port;
use sdc_clients::Jitter;
use sdc_clients::fleet::{
    Access, Claim, Fleet, Kind, Labels, Node, Position, Shape, Wire, make, subject,
};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, interval, sleep};

use super::centre::cn;
use crate::process::Child;

/// Between two heartbeats of a node, in seconds.
const EVERY_S: u64 = 5;
/// Messages on their way at once.
const AT_ONCE: usize = 64;
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Parser)]
struct Args {
    #[arg(long, default_value_t = 500)]
    nodes: usize,
    /// VMs of each node.
    #[arg(long, default_value_t = 20)]
    vms: usize,
}

struct Centre {
    args: Args,
    wire: Wire,
    /// The last message of the VM that changes, and how often it did.
    last: u64,
    turn: u64,
    revisions: Vec<u64>,
    silent: BTreeSet<usize>,
}

/// The command `@fleet-page`.
pub fn page(args: &[OsString]) -> ExitCode {
    crate::arguments::command("testbed @fleet-page", args, async |args: Args| {
        serve(args).await?;
        Ok(true)
    })
}

async fn serve(args: Args) -> anyhow::Result<()> {
    let nats = Nats::start(1, None).context("nats-server")?;
    let access = Access { servers: nats.servers(), ..Access::default() };
    let client = access.connect("page", Jitter::from_seed(1)).await?;
    let fleet = Fleet::with_client(client.clone(), &access);
    let shape = Shape { replicas: 1, bytes: 1 << 30, ..Shape::default() };
    let until = Instant::now() + PATIENCE;
    while let Err(error) = make(fleet.jetstream(), &shape).await {
        ensure!(Instant::now() < until, "the streams: {error}");
        sleep(Duration::from_millis(200)).await;
    }
    let (wire, revisions) = (Wire::new(client, &access), vec![0; args.nodes]);
    let mut centre = Centre { args, wire, last: 0, turn: 1, revisions, silent: BTreeSet::new() };
    centre.fill().await?;
    centre.beat().await?;
    let dir = crate::place::place()?;
    let port = Port::local()?;
    let config = dir.path().join("console.json");
    let listen = port.address().to_string();
    let text = json!({"listen": listen, "nats": {"servers": nats.servers()}, "node_page": "http://{name}:5310/"});
    std::fs::write(&config, text.to_string())?;
    let program = std::env::current_exe()?;
    let args = ["@console", "serve", "--fleet", "--config", &config.to_string_lossy()];
    let mut console = Child::spawn("console", &program, &args)?;
    console.said("console is listening").await?;
    console.ignore();
    println!("  http://{listen}/");
    centre.obey().await
}

impl Centre {
    /// A VM of a node in its state number `turn`.
    fn vm(nth: usize, of: usize, turn: u64) -> Value {
        let (is_on, uuid) = ((nth + of).is_multiple_of(7) != (turn % 2 == 1), uuid(nth, of));
        json!({
            "uuid": uuid, "zonename": uuid, "alias": format!("vm-{nth}-{of}"), "brand": "joyent",
            "state": if is_on { "running" } else { "stopped" }, "max_physical_memory": 1024, "quota": 25,
            "owner_uuid": format!("930896af-bf8c-48d4-885c-6573a94b1{:03x}", nth % 100),
            "create_timestamp": "2026-01-01T00:00:00.000Z", "last_modified": "2026-02-01T00:00:00.000Z",
            "nics": [{"mac": format!("90:b8:d0:{:02x}:{:02x}:{of:02x}", nth >> 8, nth & 255),
                "ip": format!("10.{}.{}.{of}", nth >> 8, nth & 255), "primary": true}],
        })
    }

    async fn publish(&self, nth: usize, of: usize, turn: u64, last: u64) -> anyhow::Result<u64> {
        let kind = if turn == 1 { Kind::Create } else { Kind::Modify };
        let seq = self.args.vms as u64 * turn + of as u64;
        let at = Position { epoch: format!("{nth:016x}"), seq };
        let labels = Labels::of(kind, at);
        let body = json!({"type": kind.name(), "vm": Self::vm(nth, of, turn)}).to_string();
        let subject = subject(&cn(nth), Some(&uuid(nth, of)));
        Ok(self.wire.publish(&subject, &labels, body.into(), last).await?)
    }

    async fn fill(&mut self) -> anyhow::Result<()> {
        let all = (0..self.args.nodes).flat_map(|nth| (0..self.args.vms).map(move |of| (nth, of)));
        let publish = async |(nth, of)| self.publish(nth, of, 1, 0).await;
        let published = stream::iter(all).map(publish).buffered(AT_ONCE);
        let first: Vec<u64> = published.try_collect().await?;
        self.last = *first.first().context("no VM")?;
        Ok(())
    }

    /// A heartbeat of each node that is not silent.
    async fn beat(&mut self) -> anyhow::Result<()> {
        let this = &*self;
        let beat = async |nth: usize| {
            let revision = this.revisions[nth];
            if this.silent.contains(&nth) {
                return anyhow::Ok(revision);
            }
            let body = serde_json::to_vec(&this.node(nth))?;
            Ok(this.wire.beat(&cn(nth), body.into(), revision).await?)
        };
        let all = stream::iter(0..this.args.nodes).map(beat).buffered(AT_ONCE);
        let revisions = all.try_collect().await?;
        self.revisions = revisions;
        Ok(())
    }

    fn node(&self, nth: usize) -> Node {
        let claim = Claim {
            instance: format!("{nth:016x}"),
            machine: format!("{nth:016x}"),
            hostname: Some(format!("cn-{nth}")),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        Node {
            cn_uuid: cn(nth),
            claim,
            rival: None,
            every_s: EVERY_S,
            position: Some(Position { epoch: format!("{nth:016x}"), seq: self.args.vms as u64 }),
            vms: self.args.vms as u64,
            waits: None,
            programs: Vec::new(),
            needs: Vec::new(),
            left_out: 0,
        }
    }

    /// Does what stdin says, and keeps the nodes alive.
    async fn obey(&mut self) -> anyhow::Result<()> {
        let (tell, mut lines) = mpsc::channel(1);
        // It ends with stdin, or when nobody listens any more.
        std::thread::spawn(move || {
            for line in std::io::stdin().lines().map_while(Result::ok) {
                if tell.blocking_send(line).is_err() {
                    return;
                }
            }
        });
        let mut beats = interval(Duration::from_secs(EVERY_S));
        loop {
            // Both arms are cancel-safe.
            let line = tokio::select! {
                line = lines.recv() => line,
                _ = beats.tick() => {
                    self.beat().await?;
                    continue;
                }
            };
            match line.as_deref().map(|line| line.split_once(' ').unwrap_or((line, ""))) {
                None => return Ok(()),
                Some(("change", _)) => {
                    self.turn += 1;
                    self.last = self.publish(0, 0, self.turn, self.last).await?;
                    let state = Self::vm(0, 0, self.turn)["state"].clone();
                    let at = daemon::wall::now().as_millisecond();
                    println!("{}", json!({"at": at, "uuid": uuid(0, 0), "state": state}));
                }
                Some(("silence", nth)) => {
                    self.silent.insert(nth.parse()?);
                }
                Some((other, _)) => anyhow::bail!("unknown: {other}"),
            }
        }
    }
}

fn uuid(nth: usize, of: usize) -> String {
    format!("40000000-0000-4000-8000-{:012x}", nth * 1000 + of)
}
