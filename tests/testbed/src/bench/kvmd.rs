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
use sdc_clients::http::Http;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::setting::Bench;
use super::table::{Row, Samples, Unit};
use crate::held::{Held, held};
use crate::lab::asking::OWN_AGENT;
use crate::lines::LineStream;
use crate::process::Child;

const INSTANCES: usize = 1000;
/// How often a single one is ended.
const SINGLES: usize = 200;
/// Rounds of [`INSTANCES`]; together ten thousand connections.
const ROUNDS: usize = 9;
/// kvmd is never silent for so long here.
const STREAM_LIMIT: Duration = Duration::from_secs(60);
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
        let line = child.said("listening").await?;
        let address = line["address"].as_str().context("no address")?;
        child.ignore();
        let told = listen(&format!("http://{address}")).await?;
        Ok(Self { child, control, told, _dir: dir })
    }

    fn held(&self) -> anyhow::Result<Held> {
        Ok(held(self.child.id().context("it ended")?)?)
    }

    /// The next `count` events of a type, by instance, each with its time.
    async fn events(
        &mut self,
        kind: &str,
        count: usize,
    ) -> anyhow::Result<HashMap<String, Instant>> {
        let mut found = HashMap::new();
        while found.len() < count {
            let next = tokio::time::timeout(STREAM_LIMIT, self.told.recv()).await;
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
    let mut stream = LineStream::events(&Http::new(url, OWN_AGENT)?).await?;
    let (sender, told) = mpsc::channel(2 * INSTANCES);
    tokio::spawn(async move {
        while let Ok(event) = stream.next(STREAM_LIMIT).await {
            if sender.send((Instant::now(), event)).await.is_err() {
                return;
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
    verdicts: Samples,
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
    let rss = kvmd.held()?.rss as f64;
    off.send_replace(true);
    let told = kvmd.events("verdict", INSTANCES).await?;
    let mut verdicts = Samples::default();
    for (name, ending) in all {
        let at = ending.await??;
        let told = told.get(&name).with_context(|| format!("no verdict on {name}"))?;
        verdicts.push(told.saturating_duration_since(at));
        let marker = kvmd.control.join(format!("{name}.shutdown"));
        std::fs::remove_file(&marker).with_context(|| marker.display().to_string())?;
    }
    Ok(Crowd { watched, rss, verdicts })
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
        singles.push(at.saturating_duration_since(ending.await??));
    }
    let before = kvmd.held()?;
    let first = crowd(&mut kvmd, 0).await?;
    let each = (first.rss - before.rss as f64) / INSTANCES as f64;
    let mut connects = SINGLES + INSTANCES;
    for round in 1..=ROUNDS {
        crowd(&mut kvmd, round).await?;
        connects += INSTANCES;
    }
    let after = kvmd.held()?;
    let left = after.fds.saturating_sub(before.fds);
    kvmd.child.stop(Duration::from_secs(10)).await?;

    let verdicts = &first.verdicts;
    let watched = first.watched.as_secs_f64();
    Ok(vec![
        Row::new("kvmd: one instance ends: time to its verdict", Unit::Time, &singles)
            .against("5 ms", 0.005, 1.0),
        Row::one(format!("kvmd: {INSTANCES} start at once: all watched"), Unit::Time, watched)
            .against("5 s", 5.0, 1.0),
        Row::new(format!("kvmd: {INSTANCES} end at once: time to verdict"), Unit::Time, verdicts)
            .against("5 s", 5.0, 1.0)
            .note(format!("99 % within {:.3} s", verdicts.quantile(0.99))),
        Row::one("kvmd: memory of a watched instance", Unit::Bytes, each)
            .against("16 KiB", 16384.0, 1.0)
            .note(format!(
                "RSS {} B, then {:.0} B; {} B after {connects} connections",
                before.rss, first.rss, after.rss
            )),
        Row::one(
            format!("kvmd: descriptors left after {connects} connections, and one"),
            Unit::Count,
            left as f64 + 1.0,
        )
        .against("none", 1.0, 1.0),
    ])
}
