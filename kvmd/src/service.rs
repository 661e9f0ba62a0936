// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The daemon as one call: directory, zones and HTTP, for `main` and for tests.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use daemon::disk;
use daemon::http::{Limits as HttpLimits, ListenError, Server, listen};
use daemon::lock::LockError;
use daemon::timing::Seldom;
use daemon::{Lock, Shutdown, Tasks};
use sdc_clients::vminfod::Vminfod;
use sdc_clients::{Http, Jitter};

use crate::clock::Clock;
use crate::config::Config;
use crate::control::Directory;
use crate::http;
use crate::ledger::Ledger;
use crate::marker::Clears;
use crate::memory::Memory;
use crate::monitor::Shared;
use crate::zones::Follower;

/// Why it does not run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// It is not wanted here (K2): a success.
    #[error("not needed: {0}")]
    NotNeeded(&'static str),
    /// It runs already (R9): a success for `start`.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// Its own directory cannot be made.
    #[error("cannot create the run directory {}: {source}", path.display())]
    RunDir {
        /// As configured.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The port is taken, or may not be.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// vminfod's address is unusable.
    #[error("cannot use vminfod.url: {0}")]
    Vminfod(#[from] sdc_clients::Error),
}

/// A daemon that serves.
#[derive(Debug)]
pub struct Running {
    /// Where.
    pub address: SocketAddr,
    /// What it knows.
    pub ledger: Ledger,
    tasks: Tasks,
    _lock: Lock,
}

impl Running {
    /// Waits for the shutdown, then for all tasks; says whether they ended in time.
    pub async fn ended(self) -> bool {
        self.tasks.ended().await
    }
}

/// Where the lock is.
pub fn lock_path(run_dir: &Path) -> PathBuf {
    run_dir.join("lock")
}

/// Starts everything; `root` is where zones' paths begin.
pub async fn serve(
    config: Config,
    root: PathBuf,
    shutdown: Shutdown,
) -> Result<Running, ServeError> {
    if let Some(reason) = config.need.missing() {
        return Err(ServeError::NotNeeded(reason));
    }
    let run_dir = config.run_dir.clone();
    let io = |source| ServeError::RunDir { path: run_dir.clone(), source };
    let clears = Clears::below(&run_dir);
    disk::own_dir(&run_dir).map_err(io)?;
    std::fs::create_dir_all(clears.dir()).map_err(io)?;
    let lock = Lock::take(&lock_path(&run_dir))?;
    let memory = Memory::below(&run_dir).map_err(io)?;
    let (listener, address) = listen(config.listen).await?;

    let ledger = Ledger::default();
    let tasks = Tasks::new(shutdown.clone());
    let shared = Arc::new(Shared {
        clock: Clock::start(),
        limits: config.limits,
        rule: config.rule,
        clears,
        memory,
        ledger: ledger.clone(),
        tasks: tasks.clone(),
        jitter: Mutex::new(Jitter::from_entropy()),
        mute: Seldom::default(),
        shutdown: shutdown.clone(),
    });
    if let Some(control) = config.control {
        tracing::info!(dir = %control.dir.display(), extension = control.extension, "watching");
        let directory = Directory::new(Arc::clone(&shared), control, config.need.clone());
        tasks.spawn_vital("directory", directory.run());
    }
    if let Some(zones) = config.zones {
        let agent = concat!("kvmd/", env!("CARGO_PKG_VERSION"));
        let client = Vminfod::with_http(Http::new(&zones.url, agent)?.without_retries());
        let follower = Follower::new(Arc::clone(&shared), zones, root, config.need);
        tasks.spawn_vital("zones", follower.run(client));
    }
    let server = Server::new(HttpLimits::default(), shutdown.clone());
    let routes = http::router(ledger.clone(), config.rule, server.counts(), shutdown.clone());
    daemon::metrics::serve(config.metrics, routes.clone(), &tasks, &shutdown);
    tasks.spawn_vital("http", server.serve(listener, routes));
    tracing::info!(%address, "listening");
    Ok(Running { address, ledger, tasks, _lock: lock })
}
