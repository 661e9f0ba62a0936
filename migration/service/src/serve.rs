// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! From the configuration to a running service.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use daemon::http::{
    Acceptor, Limits, ListenError, Server, UnixSocket, bind_unix, listen, private_dir, url_of,
};
use daemon::kept::Gone;
use daemon::{Shutdown, Tasks, metrics};
use sdc_clients::cnapi::Cnapi;
use sdc_clients::http::{HttpTransport, Transport};
use store::Store;
use trust::{Admits, Doors, Holder};

use super::agents::{Agents, Known};
use super::clock::Clock;
use super::config::{Config, Storage};
use super::enrol::{self, Enrolment, Place};
use super::front::{Upstream, agent_routes, first_line, router};
use super::operators;
use super::pages;
use super::peers::Peers;
use super::runner::lead;
use super::state::Service;

/// Connections at once: those of all clients of VMAPI, and of those who watch.
const CONNECTIONS: usize = 4096;

/// Why it does not run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A port cannot be bound.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The operators' socket cannot be bound.
    #[error("control_socket: {}: {source}", path.display())]
    Socket {
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The folder of the store cannot be made.
    #[error("store.file: cannot make {}: {source}", path.display())]
    Folder {
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The records were in use and are not there.
    #[error(transparent)]
    Gone(#[from] Gone),
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

/// Opens what lets programs in; the authorities are beside the store.
async fn enrolment(
    config: &Config,
    store: &Store,
    cnapi: Cnapi,
    holder: &Arc<Holder>,
) -> Result<Enrolment, ServeError> {
    let place = match &config.storage {
        Storage::File(_) => Place::File(config.authority_file.clone()),
        Storage::Postgres(_) => Place::row(store).await?,
    };
    let enrolment = Enrolment::open(store, place, cnapi, Arc::clone(holder)).await?;
    if let Err(refused) = enrolment.refresh().await {
        tracing::error!(
            reason = refused.message(),
            "cannot read the certificate authorities; no program can connect until they are read"
        );
    }
    Ok(enrolment)
}

/// Binds the socket, which only this user may connect to.
fn operators_socket(path: &Path) -> Result<UnixSocket, ServeError> {
    let bound = private_dir(path.parent().unwrap_or(path)).and_then(|()| bind_unix(path, 0o600));
    bound.map_err(|source| ServeError::Socket { path: path.to_owned(), source })
}

/// Runs until the shutdown.
pub async fn serve(config: Config, shutdown: Shutdown) -> Result<Tasks, ServeError> {
    config.kept.check()?;
    let store = open(&config.storage).await?;
    let transport: Arc<dyn Transport> = Arc::new(HttpTransport::new()?);
    let peers = Peers::new(&config.addresses, &transport)?;
    let known = Known { port: config.agents_port, urls: config.agents_urls.clone() };
    let holder = Holder::new(Admits::New);
    let proving = Arc::new(trust::Client::new(&holder));
    let agents = Agents::new(known, peers.cnapi.clone(), proving);
    let enrolment = enrolment(&config, &store, peers.cnapi.clone(), &holder).await?;
    let (listener, address) = listen(config.listen).await?;
    let url = config.url.clone().unwrap_or_else(|| url_of(address));
    let service = Service::open(&store, peers, agents, Clock::System, &url).await?;
    let (operators, enrolled) = (config.operators, enrolment.clone());
    let (history_keep, kept) = (config.history_keep, config.kept.clone());
    let service = Service { operators, enrolment: Some(enrolled), history_keep, kept, ..service };
    let upstream = Upstream::new(&config.addresses.vmapi, transport)?;
    let routes = router(service.clone(), upstream);
    let of_agents = agent_routes(service.clone()).merge(enrol::agents(enrolment.clone()));
    let of_agents = of_agents.merge(operators::proved(service.clone(), enrolment.clone()));
    let at_socket = operators::at_socket(service.clone(), enrolment.clone());
    let limits = Limits { connections: CONNECTIONS, ..Limits::default() };
    let server = Server::new(limits, shutdown.clone()).with_first_line(first_line);
    let server = match config.takes_any_name() {
        true => server.under_any_name(),
        false => server.with_names(&config.names),
    };
    let (status, _) = listen(config.status_listen).await?;
    let pages = Server::new(Limits::default(), shutdown.clone());
    let socket = operators_socket(&config.control_socket)?;
    let (trusted, trusted_at) = listen(config.trust_listen).await?;
    let doors = Acceptor::Secure(trusted, Arc::new(Doors::new(&holder)));
    let of_agents_server = Server::new(limits, shutdown.clone()).under_any_name();
    let of_operators = Server::new(Limits::default(), shutdown.clone());
    let stop = shutdown.clone();
    let tasks = Tasks::new(shutdown);
    tasks.spawn_vital("http", server.serve(listener, routes));
    tasks.spawn_vital("agents", of_agents_server.serve(doors, of_agents));
    tasks.spawn("operators", of_operators.serve(socket, at_socket));
    let (told, agents) = (enrolment.clone(), service.agents.clone());
    tasks.spawn_dropped("revocations", async move { operators::tell(&told, &agents).await });
    tasks.spawn_dropped("enrolment", async move { enrolment.run().await });
    tasks.spawn("status", pages.serve(status, pages::router(service.clone())));
    metrics::serve(config.metrics_listen, pages::router(service.clone()), &tasks, &stop);
    tasks.spawn_dropped("rounds", lead(service, store, config.lease));
    tracing::info!(%address, agents = %trusted_at, upstream = config.addresses.vmapi, "migration-service is listening");
    Ok(tasks)
}
