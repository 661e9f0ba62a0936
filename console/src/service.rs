// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Binds the port and starts the server: the program's own, or beside a vminfod in its process.

use std::net::SocketAddr;

use daemon::http::{Limits, ListenError, Router, Server, listen};
use daemon::{Shutdown, Tasks};

use crate::config::Config;
use crate::http;
use crate::relay::Relay;

/// Connections at once: a page has at most six.
const CONNECTIONS: usize = 512;

/// Why cannot serve the page.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The port cannot be bound.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The address can be reached from other nodes.
    #[error("{0} is not a loopback address")]
    Beyond(SocketAddr),
    /// No HTTP client could be made.
    #[error(transparent)]
    Client(#[from] sdc_clients::Error),
}

/// Starts the server; returns its address and its tasks.
pub async fn serve(config: Config, shutdown: Shutdown) -> Result<(SocketAddr, Tasks), ServeError> {
    let relay = Relay::new(&config.programs(), config.commands.clone(), shutdown.clone())?;
    let (address, metrics) = (config.listen, config.metrics);
    let tasks = Tasks::new(shutdown.clone());
    let routes = http::router(config, relay);
    let address = open(address, metrics, routes, &tasks, shutdown).await?;
    Ok((address, tasks))
}

/// Serves these routes.
pub(crate) async fn open(
    address: SocketAddr,
    metrics: Option<SocketAddr>,
    routes: Router,
    tasks: &Tasks,
    shutdown: Shutdown,
) -> Result<SocketAddr, ServeError> {
    if !address.ip().is_loopback() {
        return Err(ServeError::Beyond(address));
    }
    let (listener, address) = listen(address).await?;
    let limits = Limits { connections: CONNECTIONS, ..Limits::default() };
    let server = Server::new(limits, shutdown.clone());
    daemon::metrics::serve(metrics, routes.clone(), tasks, &shutdown);
    tasks.spawn_vital("http", server.serve(listener, routes));
    tracing::info!(%address, page = %format_args!("http://{address}/"), "console is listening");
    Ok(address)
}

/// Serves the page with its defaults beside the vminfod at `hub`, until the shutdown. `listen` is
/// the address of the page if it is not the default.
pub async fn beside(
    hub: SocketAddr,
    listen: Option<SocketAddr>,
    shutdown: Shutdown,
) -> Result<(), ServeError> {
    let mut config = Config::beside(hub);
    config.listen = listen.unwrap_or(config.listen);
    let (_, tasks) = serve(config, shutdown).await?;
    if !tasks.ended().await {
        tracing::warn!("some tasks of the console did not end in time");
    }
    Ok(())
}
