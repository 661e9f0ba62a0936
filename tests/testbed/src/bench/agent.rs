// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The requests that a net-agent process sends to NAPI to find that nothing is wrong.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::Request;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::served::Served;
use super::setting::Bench;
use super::table::{Row, Unit};
use crate::process::Child;
use mocks::faults::{self, Mock, Reply};
use mocks::napi::{Era, Options, Store};

/// What was asked for how often, by path.
fn kinds(asked: &[String]) -> String {
    let mut kinds = std::collections::BTreeMap::<&str, usize>::new();
    for one in asked {
        *kinds.entry(one.split('?').next().unwrap_or_default()).or_default() += 1;
    }
    kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect::<Vec<_>>().join(", ")
}

const PAGE: usize = 1000;
/// NICs of the simulated node itself, each read by its address.
const SERVER_NICS: usize = 1;
/// No request for so long: the agent is content.
const CALM: Duration = Duration::from_secs(3);

/// The mock NAPI, and how much it has answered.
struct Counting {
    store: Store,
    bytes: AtomicUsize,
}

impl Mock for Counting {
    fn handle(&self, request: Request<Bytes>) -> BoxFuture<'_, Reply> {
        Box::pin(async move {
            let reply = self.store.handle(request).await;
            if let Reply::Full(answer) = &reply {
                let head: usize =
                    answer.headers().iter().map(|(k, v)| k.as_str().len() + v.len() + 4).sum();
                self.bytes.fetch_add(head + answer.body().len(), Ordering::Relaxed);
            }
            reply
        })
    }
}

pub(super) async fn run(bench: &mut Bench) -> anyhow::Result<Vec<Row>> {
    let cn = bench.node(5000).await?;
    let cn_uuid = cn.uuid().to_owned();
    let served = Served::start(cn, json!({ "sweep": "1h" })).await?;
    let vms: Vec<Map<String, Value>> = serde_json::from_value(served.json("/vms").await?)?;

    // A NAPI with RFD 58's route: one without it costs two requests more, to learn that.
    let store = Store::new(Options { era: Era::Rfd58, ..Options::default() });
    let nics = store.seed_from_vms(&vms, &cn_uuid).map_err(anyhow::Error::msg)?.len();
    let json_bytes: usize = store.nics().iter().map(|nic| nic.to_string().len() + 1).sum();
    let napi = Arc::new(Counting { store: store.clone(), bytes: AtomicUsize::new(0) });
    let local: SocketAddr = "127.0.0.1:0".parse()?;
    let listening = faults::listen(local, Arc::clone(&napi) as Arc<dyn Mock>).await?;

    let dir = tempfile::tempdir()?;
    let config = json!({
        "napi": { "url": format!("http://{}", listening.addr()) },
        "vmapi": "none",
        "vminfod": { "url": format!("http://{}", served.address), "trust_tcp": true },
        "cn_uuid": cn_uuid,
        "admin_uuid": store.options().admin_uuid,
        "status": { "listen": "127.0.0.1:0" },
        "state_dir": dir.path().join("state").to_string_lossy(),
        "startup_delay": { "min": "0s", "max": "0s" },
        "server_nic_delay": { "min": "0s", "max": "0s" },
    });
    let file = dir.path().join("net-agent.json");
    std::fs::create_dir_all(dir.path().join("state"))?;
    std::fs::write(&file, config.to_string())?;
    let args = ["@net-agent", "serve", "--config", &file.to_string_lossy()].map(str::to_owned);
    let mut agent = Child::spawn("net-agent", &std::env::current_exe()?, &args)?;
    let mut said = agent.take_lines();
    let (mut seen, mut since, began) = (0, Instant::now(), Instant::now());
    let mut last_words = String::new();
    // It may ask for single NICs first; what counts is that it has listed all of them.
    let listed = || {
        let lists = |seen: &&mocks::faults::Seen| seen.query.contains("cn_uuid=");
        store.log().all().iter().filter(lists).count() >= nics.div_ceil(PAGE)
    };
    while !listed() || since.elapsed() < CALM {
        if began.elapsed() > Duration::from_secs(60) {
            bail!("net-agent does not come to rest: {last_words}");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        while let Ok(line) = said.try_recv() {
            last_words = line;
        }
        let now = store.log().all().len();
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
    }
    agent.stop(Duration::from_secs(10)).await?;
    served.stop().await?;

    let requests = store.log().all();
    let writes = requests.iter().filter(|seen| !matches!(seen.method.as_str(), "GET" | "HEAD"));
    let writes = writes.count() as f64;
    let bytes = napi.bytes.load(Ordering::Relaxed) as f64;
    let asked: Vec<String> = requests
        .iter()
        .map(|seen| format!("{} {}?{}", seen.method, seen.path, seen.query))
        .collect();
    let first = asked.first().context("no request at all")?;
    // A list ends with the first page that is not full; that of the node's own NICs is one of its own.
    let least = nics / PAGE + 1 + 1 + SERVER_NICS;
    Ok(vec![
        Row::one(format!("reconcile {nics} clean NICs: requests"), Unit::Count, seen as f64)
            .against("full pages, a last one, the node's own twice", least as f64, 1.0)
            .note(format!(
                "the first: {first}; the last: {}; {}",
                asked[asked.len() - 1],
                kinds(&asked)
            )),
        Row::one("… writes, and one", Unit::Count, writes + 1.0).against("none", 1.0, 1.0),
        Row::one("… bytes", Unit::Bytes, bytes).against("the NICs' JSON", json_bytes as f64, 1.05),
    ])
}
