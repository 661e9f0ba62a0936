// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The daemon as one call: sources, loop and HTTP wired together, for `main` and for tests.
//!
//! The port opens only when the first load is done; until then connections are refused, which
//! SMF's start method and every client rely on.

pub mod place;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use daemon::http::{Server, bind_unix};
use daemon::{Shutdown, Tasks};
use sdc_clients::Jitter;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};

use crate::commands::Commands;
use crate::config::Config;
use crate::converge::alarm::Alarm;
use crate::converge::board::Board;
use crate::converge::{Asks, Engine, Seams};
use crate::http::ui::Ui;
use crate::http::{Api, compat};
use crate::load::Ctx;
use crate::root::Root;
use crate::sources::files;
use crate::sources::inbox::Inbox;
use crate::sources::sysevent::{Channel, Follower};
use crate::sources::watch::{Order, Watch, Zones};

/// How long the first load waits for the event sources; a source that is later makes everything
/// stale when it is ready, so nothing is lost by going on without it.
const SOURCES_LIMIT: Duration = Duration::from_secs(5);
/// The whole program has ended this long after it was told to.
const DRAIN_LIMIT: Duration = Duration::from_millis(4500);

/// Why the daemon cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The root cannot be read.
    #[error("root directory {}: {source}", path.display())]
    Root {
        /// As configured.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The port is taken, or may not be.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// As configured.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The address is not of this node alone.
    #[error("{0} is not a loopback address: set listen_beyond_loopback to serve there")]
    Beyond(SocketAddr),
    /// The unix socket cannot be served on.
    #[error("cannot listen on {}: {source}", path.display())]
    Socket {
        /// As configured.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// This is no place to run at.
    #[error(transparent)]
    Place(#[from] place::Misplaced),
    /// It was told to stop before it was ready.
    #[error("stopped before the first load was done")]
    Stopped,
}

/// A daemon that serves.
pub struct Running {
    /// Where.
    pub address: SocketAddr,
    /// The routes, for a client in the same process.
    pub api: Api,
    tasks: Tasks,
    shutdown: Shutdown,
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Running {
    /// Waits for the shutdown, then for all tasks; says whether they ended in time.
    pub async fn ended(self) -> bool {
        self.shutdown.wait().await;
        self.tasks.drain(DRAIN_LIMIT).await
    }
}

/// Starts everything and returns when requests are served.
pub async fn serve(
    config: Config,
    commands: Arc<dyn Commands>,
    shutdown: Shutdown,
) -> Result<Running, ServeError> {
    let watch = files::chosen(config.watch, &config.fswatcher);
    let (jitter, alarm) = (Jitter::from_entropy(), Alarm::start());
    serve_at(config, commands, watch, (jitter, alarm), shutdown).await
}

/// The same with every seam open; time may be simulated.
pub async fn serve_with(
    config: Config,
    commands: Arc<dyn Commands>,
    watch: Box<dyn Watch>,
    jitter: Jitter,
    shutdown: Shutdown,
) -> Result<Running, ServeError> {
    serve_at(config, commands, watch, (jitter, Alarm::none()), shutdown).await
}

async fn serve_at(
    config: Config,
    commands: Arc<dyn Commands>,
    watch: Box<dyn Watch>,
    (mut jitter, alarm): (Jitter, Alarm),
    shutdown: Shutdown,
) -> Result<Running, ServeError> {
    std::fs::read_dir(&config.root)
        .map_err(|source| ServeError::Root { path: config.root.clone(), source })?;
    place::check(&config.root, &*commands)
        .await
        .inspect_err(|error| tracing::error!(%error, "not here"))?;
    if !config.listen.ip().is_loopback() && !config.listen_beyond_loopback {
        return Err(ServeError::Beyond(config.listen));
    }
    // Better to fail now than after minutes of loading.
    drop(bind(config.listen).await?);

    // A sweep alone never says that it is in place.
    let watches = config.watch != files::Choice::Sweep;
    let tasks = Tasks::new(shutdown.clone());
    let board = Board::default();
    let inbox = Arc::new(Inbox::default());
    let root = Root::new(config.root.clone()).with_deadline(config.file_deadline);
    let ctx =
        Ctx { root: root.clone(), commands: Arc::clone(&commands), deadlines: config.deadlines };
    let restart_zones = Arc::new(Notify::new());

    let mut up = Vec::new();
    for (channel, task, restart) in [
        (Channel::Zones, "zone events", Arc::clone(&restart_zones)),
        (Channel::Datasets, "zfs events", Arc::new(Notify::new())),
    ] {
        let (sender, is_up) = watch::channel(false);
        up.push(is_up);
        let follower = Follower {
            channel,
            commands: Arc::clone(&commands),
            inbox: Arc::clone(&inbox),
            restart,
            jitter: jitter.fork(),
            health: Box::new(health(&board, channel.name(), sender)),
            shutdown: shutdown.clone(),
        };
        tasks.spawn_vital(task, follower.run());
    }
    let (zones, zones_seen) = watch::channel(Zones::default());
    let (sender, is_up) = watch::channel(false);
    let order = Order {
        root,
        zones: zones_seen,
        inbox: Arc::clone(&inbox),
        health: Arc::new(health(&board, "files", sender)),
    };
    tasks.spawn_vital("files", files::run(watch, order, shutdown.clone()));
    if watches {
        up.push(is_up);
    }
    wait_for(up, &shutdown).await;

    let (asks, requests) = Asks::new();
    let seams = Seams {
        ctx,
        inbox,
        asks: requests,
        zones,
        restart_zones,
        jitter,
        shutdown: shutdown.clone(),
    };
    let (listen, agents) = (config.listen, config.agents.clone());
    let (max_jobs, limits, socket) = (config.concurrency, config.http, config.socket.clone());
    let mut engine = Engine::new(config, seams, board.clone()).with_alarm(alarm);
    if !engine.first_load().await {
        tasks.drain(DRAIN_LIMIT).await;
        return Err(ServeError::Stopped);
    }
    let server = Server::new(limits, shutdown.clone()).with_first_line(compat::first_line);
    let api = Api::new(
        engine.published(),
        board,
        asks,
        server.counts(),
        max_jobs,
        shutdown.clone(),
        Ui::new(agents),
    );
    let listener = match bind(listen).await {
        Ok(listener) => listener,
        Err(error) => {
            shutdown.trigger();
            tasks.drain(DRAIN_LIMIT).await;
            return Err(error);
        }
    };
    let address =
        listener.local_addr().map_err(|source| ServeError::Listen { address: listen, source })?;
    if let Some(socket) = socket {
        let bound = match bind_unix(&socket.path, socket.mode) {
            Ok(bound) => bound,
            Err(source) => {
                shutdown.trigger();
                tasks.drain(DRAIN_LIMIT).await;
                return Err(ServeError::Socket { path: socket.path, source });
            }
        };
        tracing::info!(path = %socket.path.display(), "listening");
        tasks.spawn_vital("http on the socket", server.clone().serve(bound, api.router()));
    }
    tasks.spawn_vital("http", server.serve(listener, api.router()));
    tracing::info!(%address, "listening");
    // Only now: its first turns have much to do, and who starts is waited for.
    tasks.spawn_vital("converge", engine.run());
    Ok(Running { address, api, tasks, shutdown })
}

/// Notes a source's health on the board and for whoever waits for it.
fn health(
    board: &Board,
    name: &'static str,
    sender: watch::Sender<bool>,
) -> impl Fn(bool) + Send + Sync + 'static {
    let board = board.clone();
    board.edit(|view| view.sources.insert(name, false));
    move |up| {
        sender.send_replace(up);
        board.edit(|view| {
            view.sources.insert(name, up);
            if name == "files" {
                view.watch.running = up;
            }
        });
        if !up {
            board.restarted(name);
        }
    }
}

async fn wait_for(up: Vec<watch::Receiver<bool>>, shutdown: &Shutdown) {
    let all = async {
        for mut one in up {
            // A source whose task is gone will not come up: no reason to wait for it.
            let _gone: Result<_, _> = one.wait_for(|up| *up).await;
        }
    };
    // All arms are cancel-safe: they only observe.
    tokio::select! {
        () = all => {}
        () = tokio::time::sleep(SOURCES_LIMIT) => tracing::warn!("not all event sources are ready: loading without them"),
        () = shutdown.wait() => {}
    }
}

async fn bind(address: SocketAddr) -> Result<TcpListener, ServeError> {
    TcpListener::bind(address).await.map_err(|source| ServeError::Listen { address, source })
}
