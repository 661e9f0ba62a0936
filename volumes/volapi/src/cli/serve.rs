// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `serve`: opens the store and the listeners, and runs the service.

use std::sync::Arc;
use std::time::Duration;

use daemon::agent::ServeError;
use daemon::http::{Limits, Server, listen};
use daemon::timing::{Clock, Random};
use daemon::{Shutdown, Tasks, metrics};
use sdc_clients::Http;
use sdc_clients::agents::{Known, NodeAgents};
use sdc_clients::cnapi::Cnapi;
use sdc_clients::http::{HttpTransport, Transport, user_agent};
use sdc_clients::identity::Identity;
use sdc_clients::snapshots::Snapshots;
use store::Store;
use tokio::sync::Notify;
use trust::{Admits, Holder, Keeper};

use crate::config::{Agents, Config, RECORDS};
use crate::http::router;
use crate::nfs;
use crate::pages::Pages;
use crate::peers::Peers;
use crate::probes::{self, Prober};
use crate::records::Records;
use crate::service::Service;
use crate::updater::{State, Updater};

/// Between tries to reach the storage at the start.
const AGAIN: Duration = Duration::from_secs(5);
/// Nobody tells volapi that a node's key was revoked: it asks so often.
const ASKS: Duration = Duration::from_secs(1);
/// Requests under way have this long to end at the shutdown.
const DRAIN: Duration = Duration::from_secs(4);

pub(super) async fn serve(config: Config, shutdown: Shutdown) -> Result<(), ServeError> {
    config.kept.check().map_err(ServeError::failed)?;
    // Both arms are cancel-safe: nothing is served before.
    let records = tokio::select! {
        () = shutdown.wait() => return Ok(()),
        records = open(&config) => records?,
    };
    let (peers, keeper) = peers(&config).await?;
    let service = Arc::new(Service::new(records, peers, config.settings.clone()));
    let (listener, address) = listen(config.listen).await?;
    let places = &config.basics.places;
    let (status, _) = listen(places.status_listen).await?;
    tracing::info!(%address, version = env!("CARGO_PKG_VERSION"), "listening");
    let tasks = Tasks::new(shutdown.clone());
    if let Some(keeper) = keeper {
        tasks.spawn_dropped("trust", async move { keeper.run(&Notify::new()).await });
    }
    let updater = Arc::new(State::default());
    let clock = Clock::start();
    let probes = Arc::new(probes::State::default());
    let (of_service, of_updater) = (Arc::clone(&service), Arc::clone(&updater));
    let of_probes = Arc::clone(&probes);
    let kept = config.kept.clone();
    let pages = Pages { service: of_service, updater: of_updater, probes: of_probes, clock, kept };
    let pages = Arc::new(pages);
    let (shared, pages) = (pages.shared(), pages.routes());
    metrics::serve(places.metrics_listen, pages.clone(), &tasks, &shutdown);
    let limits = Limits { requests_per_second: 0, ..Limits::default() };
    tasks.spawn("status", Server::new(limits, shutdown.clone()).serve(status, pages));
    let requests = Tasks::new(shutdown.clone());
    let routes = router(Arc::clone(&service), requests.clone(), &config.settings.instance);
    let routes = shared.merge(routes);
    let server = Server::new(limits, shutdown.clone()).under_any_name();
    tasks.spawn_vital("http", server.serve(listener, routes));
    let prober = Prober {
        service: Arc::clone(&service),
        updater: Arc::clone(&updater),
        state: probes,
        ask: probes::over_tcp(nfs::PORT),
        every: config.probe_every,
    };
    tasks.spawn_dropped("probes", prober.run());
    let random = Random::new(config.basics.seed);
    let asked = service.shared.peers.clone();
    let runs = Updater {
        service,
        state: updater,
        listen: Box::new(move || Box::new(asked.feed(random.fork()))),
    };
    // A write that is cut off happens whole or not at all, and work that is cut off is written down.
    tasks.spawn_dropped("updater", runs.run());
    shutdown.wait().await;
    requests.drain(DRAIN).await;
    tasks.drain(DRAIN).await;
    tracing::info!("stopped");
    Ok(())
}

/// Opens the store; waits for a PostgreSQL server that cannot be reached yet.
pub(super) async fn open(config: &Config) -> Result<Records, ServeError> {
    let path = config.basics.places.state_dir.join(RECORDS);
    let unusable = |error: store::Error| ServeError::StateDir {
        path: path.clone(),
        source: std::io::Error::other(error),
    };
    let store = match &config.postgres {
        Some(address) => Store::postgres(address).map_err(unusable)?,
        None => Store::embedded(&path).await.map_err(unusable)?,
    };
    loop {
        match Records::open(store.clone()).await {
            Ok(records) => return Ok(Records { history_keep: config.history_keep, ..records }),
            Err(error) if error.is_away() && config.postgres.is_some() => {
                tracing::warn!(%error, "no answer from the store; waiting");
                tokio::time::sleep(AGAIN).await;
            }
            Err(error) => return Err(unusable(error)),
        }
    }
}

async fn peers(config: &Config) -> Result<(Peers, Option<Keeper>), ServeError> {
    let transport: Arc<dyn Transport> = Arc::new(HttpTransport::new()?);
    let agent = user_agent("volapi", env!("CARGO_PKG_VERSION"), None);
    let http = |url: &str| {
        let http = Http::with_transport(url, &agent, Arc::clone(&transport))?;
        Ok::<_, sdc_clients::Error>(http.without_retries())
    };
    let addresses = &config.services;
    let cnapi = http(&addresses.cnapi)?;
    let (snapshots, keeper) = match (config.settings.rfd26, config.agents.clone()) {
        (true, Agents { port, urls, trust_url, trust_dir }) => {
            let none = || std::io::Error::other("rfd26 needs trust.url, where volapi is let in");
            let service = trust_url.ok_or_else(|| ServeError::failed(none()))?;
            let holder = Holder::new(Admits::Known);
            let keeper = Keeper::new(&holder, &service, (Identity::Volapi, &agent), &trust_dir);
            let keeper = keeper.every(ASKS);
            keeper.load().await.map_err(ServeError::failed)?;
            let (known, cnapi) = (Known { port, urls }, Cnapi::new(cnapi.clone()));
            let proving = Arc::new(trust::Client::new(&holder));
            let agents = NodeAgents::new(known, cnapi, proving, &agent);
            (Some(Snapshots::new(agents)), Some(keeper))
        }
        (false, _) => (None, None),
    };
    let peers = Peers {
        vmapi: http(&addresses.vmapi)?,
        papi: http(&addresses.papi)?,
        napi: http(&addresses.napi)?,
        imgapi: http(&addresses.imgapi)?,
        workflow: http(&addresses.workflow)?,
        cnapi,
        snapshots,
    };
    Ok((peers, keeper))
}
