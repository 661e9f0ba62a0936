// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The cost of a kvmd process for a thousand instances, the time until it knows that one ended, and
//! what is left after ten thousand. The QEMUs are sockets of this process.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use futures_util::StreamExt;
use sdc_clients::http::{Call, Http};
use sdc_clients::vminfod::Lines;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::setting::Bench;
use super::table::{Row, Samples, Unit};
use crate::process::Child;

const INSTANCES: usize = 1000;
/// How often a single one is ended.
const SINGLES: usize = 200;
/// Rounds of [`INSTANCES`]; together ten thousand connections.
const ROUNDS: usize = 9;
const GREETING: &[u8] = b"{\"QMP\": {\"version\": {\"qemu\": {\"micro\": 22, \"minor\": 2, \"major\": 7}, \"package\": \"\"}, \"capabilities\": [\"oob\"]}}\r\n";
const RETURN: &[u8] = b"{\"return\": {}}\r\n";
const OFF: &[u8] = b"{\"timestamp\": {\"seconds\": 1795227749, \"microseconds\": 103582}, \"event\": \"SHUTDOWN\", \"data\": {\"guest\": true, \"reason\": \"guest-shutdown\"}}\r\n";

/// The process and what it tells.
struct Kvmd {
    child: Child,
    control: PathBuf,
    told: mpsc::Receiver<(Instant, Value)>,
    _dir: tempfile::TempDir,
}

impl Kvmd {
    async fn start() -> anyhow::Result<Self> {
        let dir = tempfile::tempdir()?;
        let control = dir.path().join("ctrl");
        std::fs::create_dir(&control)?;
        let config = json!({
            "enabled": true,
            "listen": "127.0.0.1:0",
            "run_dir": dir.path().join("run"),
            "control": {"enabled": true, "dir": control},
            "vminfod": {"enabled": false},
        });
        let file = dir.path().join("kvmd.json");
        std::fs::write(&file, config.to_string())?;
        let args = ["@kvmd", "serve", "--config", &file.to_string_lossy()].map(str::to_owned);
        let mut child = Child::spawn("kvmd", &std::env::current_exe()?, &args)?;
        let mut lines = child.take_lines();
        let address = loop {
            let line = lines.recv().await.context("kvmd ended at its start")?;
            let line: Value = serde_json::from_str(&line).with_context(|| line.clone())?;
            if let Some(address) = line["address"].as_str() {
                break address.to_owned();
            }
        };
        // Its log must not stop it.
        tokio::spawn(async move { while lines.recv().await.is_some() {} });
        let told = listen(&format!("http://{address}")).await?;
        Ok(Self { child, control, told, _dir: dir })
    }

    fn proc(&self, file: &str) -> anyhow::Result<PathBuf> {
        Ok(PathBuf::from(format!("/proc/{}/{file}", self.child.id().context("it ended")?)))
    }

    fn rss(&self) -> anyhow::Result<f64> {
        let text = std::fs::read_to_string(self.proc("status")?)?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        let kib = line.split_whitespace().next().context("no number")?;
        Ok(kib.parse::<f64>()? * 1024.0)
    }

    fn descriptors(&self) -> anyhow::Result<usize> {
        Ok(std::fs::read_dir(self.proc("fd")?)?.count())
    }

    /// The next `count` events of a type, by instance, each with its time.
    async fn events(
        &mut self,
        kind: &str,
        count: usize,
    ) -> anyhow::Result<HashMap<String, Instant>> {
        let mut found = HashMap::new();
        while found.len() < count {
            let next = tokio::time::timeout(Duration::from_secs(60), self.told.recv()).await;
            let Some((at, event)) =
                next.with_context(|| format!("{kind}: silence after {}", found.len()))?
            else {
                bail!("the event stream ended");
            };
            if event["type"] == kind {
                found.insert(event["name"].as_str().unwrap_or_default().to_owned(), at);
            }
        }
        Ok(found)
    }
}

async fn listen(url: &str) -> anyhow::Result<mpsc::Receiver<(Instant, Value)>> {
    let http = Http::new(url, "testbed")?;
    let mut body = http.open(Call::get(&["events"])).await?.body;
    let (sender, told) = mpsc::channel(2 * INSTANCES);
    tokio::spawn(async move {
        let mut lines = Lines::new(64 << 20);
        while let Some(Ok(piece)) = body.next().await {
            let at = Instant::now();
            lines.push(&piece);
            while let Ok(Some(line)) = lines.next_line() {
                let Ok(event) = serde_json::from_slice(&line) else { return };
                if sender.send((at, event)).await.is_err() {
                    return;
                }
            }
        }
    });
    Ok(told)
}

/// A monitor that greets one client and, when told to, powers off; gives when it did.
async fn qemu(
    path: PathBuf,
    listener: UnixListener,
    mut off: watch::Receiver<bool>,
) -> anyhow::Result<Instant> {
    let (mut client, _) = listener.accept().await?;
    client.write_all(GREETING).await?;
    let mut heard = [0; 64];
    anyhow::ensure!(client.read(&mut heard).await? > 0, "it hung up before it negotiated");
    client.write_all(RETURN).await?;
    off.wait_for(|off| *off).await?;
    let at = Instant::now();
    client.write_all(OFF).await?;
    drop(client);
    drop(listener);
    std::fs::remove_file(path)?;
    Ok(at)
}

fn start(
    control: &Path,
    name: &str,
    off: &watch::Sender<bool>,
) -> anyhow::Result<tokio::task::JoinHandle<anyhow::Result<Instant>>> {
    let path = control.join(format!("{name}.kvmd"));
    let listener = UnixListener::bind(&path)?;
    Ok(tokio::spawn(qemu(path, listener, off.subscribe())))
}

/// Starts many, waits until all are watched, and ends all at once.
struct Crowd {
    watched: Duration,
    rss: f64,
    verdicts: Vec<Duration>,
    last: Duration,
}

async fn crowd(kvmd: &mut Kvmd, round: usize) -> anyhow::Result<Crowd> {
    let off = Arc::new(watch::Sender::new(false));
    let began = Instant::now();
    let mut all = Vec::new();
    for n in 0..INSTANCES {
        let name = format!("r{round}-vm{n}");
        all.push((name.clone(), start(&kvmd.control, &name, &off)?));
    }
    kvmd.events("watching", INSTANCES).await?;
    let watched = began.elapsed();
    let rss = kvmd.rss()?;
    let ended = Instant::now();
    off.send_replace(true);
    let told = kvmd.events("verdict", INSTANCES).await?;
    let mut verdicts = Vec::new();
    for (name, ending) in all {
        let at = ending.await??;
        let told = told.get(&name).with_context(|| format!("no verdict on {name}"))?;
        verdicts.push(told.saturating_duration_since(at));
        let marker = kvmd.control.join(format!("{name}.shutdown"));
        std::fs::remove_file(&marker).with_context(|| marker.display().to_string())?;
    }
    let last = told.values().max().map_or(Duration::ZERO, |at| at.saturating_duration_since(ended));
    Ok(Crowd { watched, rss, verdicts, last })
}

pub(super) async fn run(_bench: &mut Bench) -> anyhow::Result<Vec<Row>> {
    let mut kvmd = Kvmd::start().await?;
    // Allocator and runtime take what they take once.
    let mut singles = Samples::default();
    for n in 0..SINGLES {
        let off = watch::Sender::new(false);
        let name = format!("single{n}");
        let ending = start(&kvmd.control, &name, &off)?;
        kvmd.events("watching", 1).await?;
        off.send_replace(true);
        let told = kvmd.events("verdict", 1).await?;
        let at = told.values().next().copied().context("no verdict")?;
        singles.push_value(at.saturating_duration_since(ending.await??).as_secs_f64());
    }
    let (descriptors, before) = (kvmd.descriptors()?, kvmd.rss()?);
    let first = crowd(&mut kvmd, 0).await?;
    let each = (first.rss - before) / INSTANCES as f64;
    let mut connects = SINGLES + INSTANCES;
    for round in 1..=ROUNDS {
        crowd(&mut kvmd, round).await?;
        connects += INSTANCES;
    }
    let left = kvmd.descriptors()?.saturating_sub(descriptors);
    let after = kvmd.rss()?;
    let Kvmd { child, .. } = kvmd;
    child.stop(Duration::from_secs(10)).await?;

    let mut sorted = first.verdicts.clone();
    sorted.sort();
    let at = |share: usize| sorted.get(sorted.len() * share / 100).copied().unwrap_or_default();
    let one = |value: f64| Samples::of([value]);
    Ok(vec![
        Row::new("kvmd: one instance ends: time to its verdict", Unit::Time, &singles)
            .against("5 ms", 0.005, 1.0),
        Row::new(
            format!("kvmd: {INSTANCES} start at once: all watched"),
            Unit::Time,
            &one(first.watched.as_secs_f64()),
        )
        .against("5 s", 5.0, 1.0),
        Row::new(
            format!("kvmd: {INSTANCES} end at once: time to verdict"),
            Unit::Time,
            &one(at(50).as_secs_f64()),
        )
        .against("5 s", 5.0, 1.0)
        .note(format!("99 % within {:?}, the last after {:?}", at(99), first.last)),
        Row::new("kvmd: memory of a watched instance", Unit::Bytes, &one(each))
            .against("16 KiB", 16384.0, 1.0)
            .note(format!(
                "RSS {before:.0} B, then {:.0} B; {after:.0} B after {connects} connections",
                first.rss
            )),
        Row::new(
            format!("kvmd: descriptors left after {connects} connections, and one"),
            Unit::Count,
            &one(left as f64 + 1.0),
        )
        .against("none", 1.0, 1.0),
    ])
}
