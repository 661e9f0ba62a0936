// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Starts the daemon: connects sources, reconciler and HTTP, for `main` and for tests.
//!
//! The port opens only when the first load is done; until then connections are refused, which
//! SMF's start method and every client rely on.

pub mod place;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use daemon::command::Commands;
use daemon::http::{ListenError, Server, bind_unix, listen, private_dir};
use daemon::{Shutdown, Tasks};
use sdc_clients::Jitter;
use tokio::sync::{Notify, watch};

use crate::config::{Config, Socket, Watch};
use crate::http::{Api, compat};
use crate::reconcile::asks::Asks;
use crate::reconcile::status::Status;
use crate::reconcile::{Reconciler, Seams};
use crate::sources::fswatcher::{self, Watcher};
use crate::sources::helper::Health;
use crate::sources::inbox::Inbox;
use crate::sources::sysevent::{Channel, Follower};
use crate::sources::watched::Zones;

/// How long the first load waits for the event sources. A source that is ready later asks for a refresh
/// then, so no change is lost.
const SOURCES_LIMIT: Duration = Duration::from_secs(5);

/// Why the daemon cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The root cannot be read.
    #[error("root directory {}: {source}", path.display())]
    Root {
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The port cannot be bound.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Other nodes could reach the address.
    #[error("{0} is not a loopback address: set listen_beyond_loopback to serve there")]
    Beyond(SocketAddr),
    /// The unix socket cannot be served on.
    #[error("cannot listen on {}: {source}", path.display())]
    Socket {
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It may not run here.
    #[error(transparent)]
    Place(#[from] place::Misplaced),
    /// The shutdown came before it was ready.
    #[error("stopped before the first load was done")]
    Stopped,
}

/// A daemon that serves.
pub struct Running {
    pub address: SocketAddr,
    /// The routes, for a client in the same process.
    pub api: Api,
    tasks: Tasks,
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Running {
    /// Waits for the shutdown, then for all tasks; returns true if they ended in time.
    pub async fn ended(self) -> bool {
        self.tasks.ended().await
    }
}

/// Starts everything and returns when requests are served.
/// Errors: it cannot be served here.
pub async fn serve(
    config: Config,
    commands: Arc<dyn Commands>,
    shutdown: Shutdown,
) -> Result<Running, ServeError> {
    serve_with(config, commands, Jitter::from_entropy(), shutdown).await
}

/// The same with every seam open; time may be simulated.
/// Errors: it cannot be served here.
pub async fn serve_with(
    config: Config,
    commands: Arc<dyn Commands>,
    mut jitter: Jitter,
    shutdown: Shutdown,
) -> Result<Running, ServeError> {
    check_root(&config.root)?;
    let user = rustix::process::geteuid().as_raw();
    place::check_on(std::env::consts::OS, &config.root, user, &*commands)
        .await
        .inspect_err(|error| tracing::error!(%error, "refusing to start"))?;
    if !config.listen.ip().is_loopback() && !config.listen_beyond_loopback {
        return Err(ServeError::Beyond(config.listen));
    }
    // Fails now rather than after minutes of loading.
    drop(listen(config.listen).await?);

    let tasks = Tasks::new(shutdown.clone());
    let status = Status::default();
    let inbox = Arc::new(Inbox::default());
    let ctx = config.ctx(Arc::clone(&commands));
    let restart_zones = Arc::new(Notify::new());

    let mut up = Vec::new();
    let mut health = |name| {
        let (sender, is_up) = watch::channel(false);
        up.push(is_up);
        health(&status, name, sender)
    };
    for (channel, task, restart) in [
        (Channel::Zones, "zone events", Arc::clone(&restart_zones)),
        (Channel::Datasets, "zfs events", Arc::new(Notify::new())),
    ] {
        let follower = Follower {
            channel,
            commands: Arc::clone(&commands),
            inbox: Arc::clone(&inbox),
            restart,
            health: health(channel.name()),
            shutdown: shutdown.clone(),
        };
        tasks.spawn_vital(task, follower.run(jitter.fork()));
    }
    let (zones, zones_seen) = watch::channel(Zones::default());
    let restart_files = Arc::new(Notify::new());
    if config.watch == Watch::Fswatcher {
        let watcher = Watcher {
            root: ctx.root.clone(),
            commands: Arc::clone(&commands),
            zones: zones_seen,
            inbox: Arc::clone(&inbox),
            restart: Arc::clone(&restart_files),
            health: health(fswatcher::NAME),
            watching: status.watching.clone(),
            shutdown: shutdown.clone(),
        };
        tasks.spawn_vital(fswatcher::NAME, watcher.run(jitter.fork()));
    }
    wait_for(up, &shutdown).await;

    let (asks, requests) = Asks::new();
    let seams = Seams {
        ctx,
        inbox,
        asks: requests,
        zones,
        restart_zones,
        restart_files,
        jitter,
        shutdown: shutdown.clone(),
    };
    let (port, max_jobs) = (config.listen, config.concurrency);
    let below = |socket: Socket| Socket { path: config.root.join(&socket.path), ..socket };
    let socket = config.socket.clone().map(below);
    let metrics = config.metrics;
    let server = Server::new(config.http, shutdown.clone())
        .with_first_line(compat::first_line)
        .with_names(&config.host_names);
    let mut reconciler = Reconciler::new(config, seams, status.clone());
    let bound = async {
        if !reconciler.first_load().await {
            return Err(ServeError::Stopped);
        }
        let port = listen(port).await?;
        let bind = |path: &Path, mode| {
            path.parent().map_or(Ok(()), private_dir)?;
            bind_unix(path, mode)
        };
        let socket = socket.map(|Socket { path, mode }| match bind(&path, mode) {
            Ok(bound) => Ok((path, bound)),
            Err(source) => Err(ServeError::Socket { path, source }),
        });
        Ok((port, socket.transpose()?))
    };
    let ((listener, address), socket) = match bound.await {
        Ok(bound) => bound,
        Err(error) => {
            tasks.stop().await;
            return Err(error);
        }
    };
    let counts = server.counts();
    let api = Api::new(reconciler.published(), status, asks, counts, max_jobs, shutdown.clone());
    if let Some((path, bound)) = socket {
        tracing::info!(path = %path.display(), "serving on the socket");
        tasks.spawn_vital("http on the socket", server.clone().serve(bound, api.router()));
    }
    daemon::metrics::serve(metrics, api.router(), &tasks, &shutdown);
    tasks.spawn_vital("http", server.serve(listener, api.router()));
    tracing::info!(%address, "listening");
    tasks.spawn_vital("reconcile", reconciler.run());
    Ok(Running { address, api, tasks })
}

/// Checks that the root is a directory that can be read.
pub(crate) fn check_root(root: &Path) -> Result<(), ServeError> {
    let unreadable = |source| ServeError::Root { path: root.to_owned(), source };
    std::fs::read_dir(root).map(drop).map_err(unreadable)
}

/// Returns a callback that shows a source's health in `/status` and reports it to the first load.
fn health(status: &Status, name: &'static str, sender: watch::Sender<bool>) -> Health {
    let status = status.clone();
    status.edit(|view| view.sources.insert(name, false));
    Box::new(move |is_up| {
        sender.send_replace(is_up);
        status.edit(|view| view.sources.insert(name, is_up));
        if !is_up {
            status.restarted(name);
        }
    })
}

async fn wait_for(up: Vec<watch::Receiver<bool>>, shutdown: &Shutdown) {
    let all = async {
        for mut one in up {
            // The task of a source may have ended: it is not waited for.
            let _gone: Result<_, _> = one.wait_for(|up| *up).await;
        }
    };
    // All arms are cancel-safe: they only observe.
    tokio::select! {
        () = all => {}
        () = tokio::time::sleep(SOURCES_LIMIT) => tracing::warn!("loading without event sources that are not ready"),
        () = shutdown.wait() => {}
    }
}
