// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! volapi over a file with many volumes: a client's list of an owner's volumes against the store's own reading of
//! the same rows, and what one VM's event writes.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use daemon::http::{Limits, Server};
use daemon::{Shutdown, Tasks};
use http::StatusCode;
use sdc_clients::http::{Call as Request, Http};
use serde_json::{Value, json};
use store::{Batch, Call, Etag, Expect, Fault, Faults, Query, Store};
use tempfile::TempDir;
use tokio::time::Instant;
use volapi::service::Service;
use volumes_core::volume::{NewVolume, State, Volume};

use super::setting::Bench;
use super::table::{Row, Samples, Unit};
use crate::lab::asking::OWN_AGENT;
use crate::volapi::fuse::Fuse;
use crate::volapi::peers::DataCentre;
use crate::volapi::running::start;

const OWNERS: usize = 100;
/// Of each owner.
const VOLUMES: usize = 100;
/// VMs of each owner; each uses so many of its volumes, one after another.
const VMS: usize = 50;
const USED: usize = 10;
/// Lists in a round.
const LISTS: usize = 200;
/// Records that one batch of the store takes.
const BATCH: usize = 500;

/// Counts the calls of the store.
#[derive(Debug, Default)]
pub(super) struct Calls {
    reads: AtomicUsize,
    commits: AtomicUsize,
}

impl Faults for Calls {
    fn next(&self, call: Call) -> Fault {
        match call {
            Call::Read => drop(self.reads.fetch_add(1, Ordering::Relaxed)),
            Call::Commit => drop(self.commits.fetch_add(1, Ordering::Relaxed)),
            _ => {}
        }
        Fault::None
    }
}

impl Calls {
    /// Returns the reads and the commits since the last time.
    pub(super) fn take(&self) -> (usize, usize) {
        (self.reads.swap(0, Ordering::Relaxed), self.commits.swap(0, Ordering::Relaxed))
    }
}

/// A service on a socket, over a file with all volumes.
pub(super) struct Volumes {
    pub(super) service: Arc<Service>,
    pub(super) calls: Arc<Calls>,
    data_centre: DataCentre,
    http: Http,
    shutdown: Shutdown,
    tasks: Tasks,
    _dir: TempDir,
}

impl Volumes {
    /// Starts one with the volumes of so many owners, which 5 VMs use each.
    pub(super) async fn start(owners: usize) -> anyhow::Result<Volumes> {
        let dir = tempfile::tempdir()?;
        let store = Store::embedded(&dir.path().join("volapi.redb")).await?;
        let calls = Arc::new(Calls::default());
        let store = store.with_faults(Arc::clone(&calls) as Arc<dyn Faults>);
        let data_centre = DataCentre::new(&json!({}))?;
        let service = start(&store, &data_centre, &Fuse::none()).await?;
        let all: Vec<Volume> = (0..owners * VOLUMES).map(volume).collect();
        for some in all.chunks(BATCH) {
            let mut batch = Batch::new();
            for volume in some {
                let volumes = &service.shared.records.volumes;
                volumes.put_in(&mut batch, volume.uuid(), Expect::Absent, volume)?;
            }
            store.commit(batch).await?;
        }
        let (listener, addr): (_, SocketAddr) =
            daemon::http::listen((Ipv4Addr::LOCALHOST, 0).into()).await?;
        let shutdown = Shutdown::new();
        let tasks = Tasks::new(shutdown.clone());
        let routes = volapi::http::router(Arc::clone(&service), tasks.clone(), "bench");
        let limits = Limits { requests_per_second: 0, ..Limits::default() };
        tasks.spawn("http", Server::new(limits, shutdown.clone()).serve(listener, routes));
        let http = Http::new(&format!("http://{addr}"), OWN_AGENT)?.without_retries();
        calls.take();
        Ok(Volumes { service, calls, data_centre, http, shutdown, tasks, _dir: dir })
    }

    pub(super) async fn stop(self) {
        self.shutdown.trigger();
        self.tasks.drain(Duration::from_secs(5)).await;
    }

    /// A client's list of an owner's volumes, which has them all; returns how long the answer took to arrive.
    pub(super) async fn list(&self, owner: usize) -> anyhow::Result<Duration> {
        let call = Request::get(&["volumes"]).query("owner_uuid", uuid(OWNER, owner));
        let start = Instant::now();
        let reply = self.http.execute(call).await?;
        let took = start.elapsed();
        reply.require(StatusCode::OK)?;
        let listed = reply.json::<Vec<Value>>("an array of volumes")?.len();
        anyhow::ensure!(listed == VOLUMES, "a list is not whole");
        Ok(took)
    }

    /// The store's reading of the same rows.
    async fn read(&self, owner: usize) -> anyhow::Result<usize> {
        let query = Query::all().with("owner_uuid", uuid(OWNER, owner));
        Ok(self.service.shared.records.volumes.find(query).await?.records.len())
    }

    /// VMAPI says this of a VM, and the service hears that it does.
    pub(super) async fn hear(&self, vm: usize, state: &str) -> anyhow::Result<()> {
        let vm_uuid = uuid(VM, vm);
        let record = json!({"uuid": vm_uuid, "owner_uuid": uuid(OWNER, vm / VMS), "brand": "lx", "state": state});
        self.data_centre.vms.put(record.as_object().cloned().unwrap_or_default());
        Ok(self.service.follower.follow(&vm_uuid, None).await?)
    }

    /// The version of each record.
    pub(super) async fn versions(&self) -> anyhow::Result<BTreeMap<String, Etag>> {
        let all = self.service.shared.records.volumes_with(&[]).await;
        let all = all.map_err(|refused| anyhow::anyhow!("{refused}"))?;
        Ok(all.into_iter().map(|volume| (volume.key, volume.etag)).collect())
    }
}

const OWNER: usize = 1;
const VM: usize = 2;
const STORAGE_VM: usize = 3;
const VOLUME: usize = 4;

fn uuid(kind: usize, n: usize) -> String {
    format!("{n:08x}-0000-4000-8000-00000000000{kind}")
}

fn volume(n: usize) -> Volume {
    let (owner, nth) = (n / VOLUMES, n % VOLUMES);
    let uses = |vm: &usize| (0..USED).any(|at| (vm * 2 + at) % VOLUMES == nth);
    let mut volume = Volume::new(NewVolume {
        uuid: uuid(VOLUME, n),
        labels: Some(json!({"purpose": "bench"})),
        name: format!("volume-{nth}"),
        owner_uuid: uuid(OWNER, owner),
        size: 10_240.0,
        create_timestamp: 1_794_000_000_000,
        refs: (0..VMS).filter(uses).map(|vm| uuid(VM, owner * VMS + vm)).collect(),
        networks: vec![uuid(0, owner)],
        vm_uuid: uuid(STORAGE_VM, n),
    });
    volume.set_state(State::Ready);
    volume.set_filesystem_path("192.168.128.7:/exports/data");
    volume
}

pub(super) async fn run(bench: &mut Bench) -> anyhow::Result<Vec<Row>> {
    let volumes = Volumes::start(OWNERS).await?;
    let (mut listed, mut read) = (Samples::default(), Samples::default());
    for round in 0..bench.rounds {
        for n in 0..LISTS {
            let owner = (n * 7 + round) % OWNERS;
            listed.push(volumes.list(owner).await?);
            let start = Instant::now();
            anyhow::ensure!(volumes.read(owner).await? == VOLUMES, "the store does not have all");
            read.push(start.elapsed());
        }
    }
    let before = volumes.versions().await?;
    volumes.calls.take();
    let mut took = Samples::default();
    for n in 0..bench.rounds {
        let start = Instant::now();
        volumes.hear(n * VMS, "destroyed").await?;
        took.push(start.elapsed());
    }
    let (_, commits) = volumes.calls.take();
    let after = volumes.versions().await?;
    let written = before.iter().filter(|(key, etag)| after.get(*key) != Some(*etag)).count();
    volumes.stop().await;
    let each = |count: usize| count as f64 / bench.rounds as f64;
    Ok(vec![
        Row::one(
            format!("volapi: a list of {VOLUMES} of {} volumes, p50", OWNERS * VOLUMES),
            Unit::Time,
            listed.median(),
        )
        .against("the store's own reading", read.median(), 2.0),
        Row::one("volapi: a VM ends: records written", Unit::Count, each(written))
            .against("its volumes", USED as f64, 1.0)
            .note(format!("{:.1} ms", took.median() * 1e3)),
        Row::one("… batches", Unit::Count, each(commits)).against("one", 1.0, 1.0),
    ])
}
