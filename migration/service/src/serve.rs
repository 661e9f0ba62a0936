// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! From the configuration to a running service.

use std::path::PathBuf;
use std::sync::Arc;

use daemon::http::{Limits, ListenError, Server, listen, url_of};
use daemon::{Shutdown, Tasks, disk, metrics};
use sdc_clients::http::{HttpTransport, Transport};
use sdc_clients::signed::{NoSecret, Secret, Verifier};
use store::Store;

use super::agents::{Agents, Known};
use super::clock::Clock;
use super::config::{Config, Storage};
use super::front::{AUDIENCE, Upstream, first_line, router, signed_routes};
use super::pages;
use super::peers::Peers;
use super::runner::lead;
use super::state::{Service, Steps};

/// Connections at once: those of all clients of VMAPI, and of those who watch.
const CONNECTIONS: usize = 4096;

/// Why it does not run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A port cannot be bound.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The secret cannot be read.
    #[error("secret_file: {0}")]
    Secret(#[from] NoSecret),
    /// Reading it was aborted.
    #[error("secret_file: the reading was aborted")]
    Aborted,
    /// The folder of the store cannot be made.
    #[error("store.file: cannot make {}: {source}", path.display())]
    Folder {
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The store cannot be opened.
    #[error("store: {0}")]
    Store(#[from] store::Error),
    /// A client cannot be made.
    #[error(transparent)]
    Client(#[from] sdc_clients::Error),
    /// `upstream_vmapi` is no address.
    #[error("upstream_vmapi: {0}")]
    Upstream(#[from] url::ParseError),
}

/// Opens the store; the folder of its file is made where there is none.
pub async fn open(storage: &Storage) -> Result<Store, ServeError> {
    let path = match storage {
        Storage::Postgres(address) => return Ok(Store::postgres(address)?),
        Storage::File(path) => path,
    };
    if let Some(folder) = path.parent() {
        let made = tokio::fs::create_dir_all(folder).await;
        made.map_err(|source| ServeError::Folder { path: folder.to_owned(), source })?;
    }
    Ok(Store::embedded(path).await?)
}

/// Runs until the shutdown.
pub async fn serve(config: Config, shutdown: Shutdown) -> Result<Tasks, ServeError> {
    let path = config.secret_file.clone();
    let secret = disk::blocking(move || Secret::read(&path)).await.ok_or(ServeError::Aborted)??;
    let store = open(&config.storage).await?;
    let transport: Arc<dyn Transport> = Arc::new(HttpTransport::new()?);
    let peers = Peers::new(&config.addresses, &transport)?;
    let known = Known {
        secret: secret.clone(),
        port: config.agents_port,
        urls: config.agents_urls.clone(),
    };
    let agents = Agents::new(known, peers.cnapi.clone(), Arc::clone(&transport));
    let (listener, address) = listen(config.listen).await?;
    let url = config.url.clone().unwrap_or_else(|| url_of(address));
    let service = Service::open(&store, peers, agents, config.steps, Clock::System, &url).await?;
    let service = Service { operators: config.operators, ..service };
    let mut seed = [0; 32];
    rand::fill(&mut seed);
    let verifier = Arc::new(Verifier::new(secret, AUDIENCE, seed));
    let upstream = Upstream::new(&config.addresses.vmapi, transport)?;
    let routes = router(service.clone(), upstream).merge(signed_routes(service.clone(), verifier));
    let limits = Limits { connections: CONNECTIONS, ..Limits::default() };
    let server = Server::new(limits, shutdown.clone()).with_first_line(first_line);
    let server = match config.takes_any_name() {
        true => server.under_any_name(),
        false => server.with_names(&config.names),
    };
    let (status, _) = listen(config.status_listen).await?;
    let pages = Server::new(Limits::default(), shutdown.clone());
    let stop = shutdown.clone();
    let tasks = Tasks::new(shutdown);
    tasks.spawn_vital("http", server.serve(listener, routes));
    tasks.spawn("status", pages.serve(status, pages::router(service.clone())));
    metrics::serve(config.metrics_listen, pages::router(service.clone()), &tasks, &stop);
    if config.steps == Steps::Own {
        tasks.spawn_dropped("rounds", lead(service, store, config.lease));
    }
    tracing::info!(%address, upstream = config.addresses.vmapi, "migration-service is listening");
    Ok(tasks)
}
