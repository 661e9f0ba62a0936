// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The requests that a vm-agent process sends to VMAPI to find that nothing differs, and the time from a
//! change's line to its PUT.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Method, Request};
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::client::Client;
use super::served::Served;
use super::setting::Bench;
use super::streams::Listeners;
use super::table::{Row, Samples, Unit};
use crate::client::tools::fetch;
use crate::process::Child;
use mocks::faults::{self, Listening, Mock, Reply, Seen};
use mocks::vmapi::Store;

const PAGE: usize = 1000;
const CHANGES: u64 = 40;
/// Between two changes: the agent's budget is five turns a second.
const BETWEEN: Duration = Duration::from_millis(500);
/// What the agent may take beyond the reading.
const BEYOND: f64 = 0.020;
/// No request for so long: the agent is content.
const CALM: Duration = Duration::from_secs(2);
const LIMIT: Duration = Duration::from_secs(60);

/// The mock VMAPI, which tells when a PUT arrives.
struct Telling {
    store: Store,
    put: mpsc::Sender<Instant>,
}

impl Mock for Telling {
    fn handle(&self, request: Request<Bytes>) -> BoxFuture<'_, Reply> {
        if request.method() == Method::PUT {
            let _nobody_waits_any_more = self.put.try_send(Instant::now());
        }
        Box::pin(async move { self.store.handle(request).await })
    }
}

/// A vm-agent process beside a VMAPI that knows each VM as it is.
pub(super) struct VmAgent {
    child: Child,
    store: Store,
    /// The VMs that VMAPI knew at the start.
    pub vms: usize,
    put: mpsc::Receiver<Instant>,
    _vmapi: Listening,
    _dir: TempDir,
}

impl VmAgent {
    /// Starts it beside the vminfod at `address` and waits until it has compared all VMs.
    pub(super) async fn start(address: SocketAddr, cn_uuid: &str) -> anyhow::Result<VmAgent> {
        let hub = format!("http://{address}");
        let vms: Vec<Map<String, Value>> = serde_json::from_value(fetch(&hub, "/vms").await?)?;
        let store = Store::default();
        store.seed_from_vms(&vms, cn_uuid);
        let (tell, put) = mpsc::channel(1024);
        let telling = Arc::new(Telling { store: store.clone(), put: tell });
        let vmapi = faults::listen("127.0.0.1:0".parse()?, telling as Arc<dyn Mock>).await?;
        let dir = tempfile::tempdir()?;
        let config = json!({
            "vmapi_url": format!("http://{}", vmapi.addr()),
            "server_uuid": cn_uuid,
            "vminfod": { "url": hub, "trust_tcp": true },
            "status": { "listen": "127.0.0.1:0" },
            "state_dir": dir.path().join("state"),
            "startup_delay": { "min": "0s", "max": "0s" },
        });
        let file = dir.path().join("vm-agent.json");
        std::fs::write(&file, config.to_string())?;
        let args = ["@vm-agent", "serve", "--config", &file.to_string_lossy()].map(str::to_owned);
        let mut child = Child::spawn("vm-agent", &std::env::current_exe()?, &args)?;
        child.ignore();
        let agent = VmAgent { child, store, vms: vms.len(), put, _vmapi: vmapi, _dir: dir };
        agent.calm().await?;
        Ok(agent)
    }

    pub(super) async fn stop(self) -> anyhow::Result<()> {
        self.child.stop(Duration::from_secs(10)).await?;
        Ok(())
    }

    /// What it asked VMAPI: lists, and everything else.
    pub(super) fn asked(&self) -> (Vec<Seen>, Vec<Seen>) {
        let is_list = |seen: &Seen| seen.method == "GET" && seen.path == "/vms";
        self.store.log().all().into_iter().partition(is_list)
    }

    /// Waits until it has listed something and asks no more.
    pub(super) async fn calm(&self) -> anyhow::Result<()> {
        let (mut seen, mut since, began) = (0, Instant::now(), Instant::now());
        while seen == 0 || since.elapsed() < CALM {
            if began.elapsed() > LIMIT {
                bail!("vm-agent does not come to rest after {seen} requests");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
            let now = self.store.log().all().len();
            if now != seen {
                (seen, since) = (now, Instant::now());
            }
        }
        Ok(())
    }

    /// Waits for the next PUT. Returns when it arrived.
    async fn put(&mut self) -> anyhow::Result<Instant> {
        let put = tokio::time::timeout(LIMIT, self.put.recv()).await.context("no PUT comes")?;
        put.context("the mock VMAPI has ended")
    }
}

pub(super) async fn run(bench: &mut Bench) -> anyhow::Result<Vec<Row>> {
    let cn = bench.node(1000).await?;
    let zones = cn.busy(usize::try_from(CHANGES)?);
    zones.iter().try_for_each(|zone| cn.show(&zone.name))?;
    let cn_uuid = cn.uuid().to_owned();
    let served = Served::start(cn, json!({ "sweep": "1h" })).await?;
    let mut agent = VmAgent::start(served.address, &cn_uuid).await?;
    let (lists, others) = agent.asked();
    let (mut taken, mut readings) = (Samples::default(), Samples::default());
    let mut listener = Listeners::open(served.address, 1).await?;
    for (n, zone) in (1..).zip(&zones) {
        cn.set_tags(&zone.name, n)?;
        let told = listener.lines(1).await?;
        let put = agent.put().await.with_context(|| format!("change {n}, of {}", zone.name))?;
        taken.push(put.saturating_duration_since(told[0]));
        readings.push(reading(served.address, &zone.name).await?);
        tokio::time::sleep(BETWEEN).await;
        while listener.have_more() {}
    }
    agent.calm().await?;
    let puts = agent.asked().1.iter().filter(|seen| seen.method == "PUT").count();
    let vms = agent.vms;
    agent.stop().await?;
    served.stop().await?;
    let lasts = |what: &str, share: f64| {
        Row::one(format!("a change's line, to its PUT, {what}"), Unit::Time, taken.quantile(share))
            .against("its reading and 20 ms", readings.median() + BEYOND, 1.0)
            .note(format!("a reading takes {:.1} ms", readings.median() * 1e3))
    };
    Ok(vec![
        Row::one(format!("start among {vms} VMs in sync: lists"), Unit::Count, lists.len() as f64)
            .against("full pages", vms.div_ceil(PAGE) as f64, 1.0),
        Row::one("… other requests, and one", Unit::Count, others.len() as f64 + 1.0)
            .against("none", 1.0, 1.0),
        Row::one(format!("{} changes: PUTs", zones.len()), Unit::Count, puts as f64).against(
            "one each",
            zones.len() as f64,
            1.0,
        ),
        lasts("p50", 0.5),
        lasts("p99", 0.99),
    ])
}

/// Returns how long vminfod takes to read this VM now.
async fn reading(address: SocketAddr, vm: &str) -> anyhow::Result<Duration> {
    let path = format!("/vms/{vm}?sync=true");
    tokio::task::spawn_blocking(move || {
        let mut client = Client::connect(address)?;
        let began = Instant::now();
        client.get(&path)?;
        Ok(began.elapsed())
    })
    .await?
}
