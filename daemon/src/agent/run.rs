// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! An agent from the command line to its end.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use crate::cli::{late_config, valid_config};
use crate::http::ListenError;
use crate::lock::{Lock, LockError};
use crate::state_file::{State, StateFile};
use crate::tasks::{Shutdown, Tasks};
use crate::timing::Random;
use crate::{cli, descriptors, disk, exit, log};

use super::basics::{Config, FileArgs, Keys};
use super::claims::Claims;
use super::gate::Gate;
use super::routes::CONNECTIONS;

/// How long the tasks may take to end after the shutdown.
const DRAIN: Duration = Duration::from_secs(5);
/// The interval at which a full disk is tried again.
const ROOM_POLL: Duration = Duration::from_secs(1);

/// Why an agent does not run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Its directory cannot be made.
    #[error("cannot create state_dir {}: {source}", path.display())]
    StateDir {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another copy runs, or the lock cannot be taken.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// `status.listen` cannot be bound.
    #[error("status.listen: {0}")]
    Listen(#[from] ListenError),
    /// A client cannot be made.
    #[error(transparent)]
    Client(#[from] sdc_clients::Error),
    /// Something else that the agent needs.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
}

impl ServeError {
    /// Returns true if the disk has no room.
    fn is_full(&self) -> bool {
        let (Self::StateDir { source, .. } | Self::Lock(LockError::Io { source, .. })) = self
        else {
            return false;
        };
        matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }

    /// Something that the agent needs is not there.
    pub fn failed(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Other(error.into())
    }
}

/// Runs an agent: waits for its configuration, opens the log, takes the lock, and runs `work` until
/// SIGTERM or SIGINT.
pub fn serve<K: Keys, F>(files: &FileArgs, work: impl FnOnce(Config<K>, Shutdown) -> F) -> ExitCode
where
    F: Future<Output = Result<(), ServeError>>,
{
    let program = K::NAME;
    cli::run(program, async {
        let shutdown = Shutdown::new();
        if let Err(err) = shutdown.on_signals() {
            return exit::report(program, &err, exit::FAILED);
        }
        let files = files.clone();
        let config = match late_config(program, move || files.load::<K>(), &shutdown).await {
            Ok(Some(config)) => config,
            Ok(None) => return ExitCode::SUCCESS,
            Err(err) => return exit::report(program, &err, exit::config_code()),
        };
        let basics = &config.basics;
        log::init(program, &basics.log_level);
        for key in &basics.unknown {
            tracing::warn!(key, "ignored an unknown key in the configuration");
        }
        // One listener is a port, the other a socket.
        descriptors::raise(2 * CONNECTIONS);
        let dir = basics.places.state_dir.clone();
        let done = async {
            match only_one(&dir, &shutdown).await? {
                Some(_only_one) => work(config, shutdown).await,
                None => Ok(()),
            }
        };
        match done.await {
            Ok(()) => ExitCode::SUCCESS,
            Err(err @ ServeError::Lock(LockError::Held { .. })) => {
                exit::report(program, &err, exit::second_code())
            }
            Err(err) => exit::report(program, &err, exit::FAILED),
        }
    })
}

/// Makes the state directory and takes the lock in it. While the disk has no room for that it waits: SMF does not start
/// a program again that has ended a few times. Returns none on shutdown.
async fn only_one(dir: &Path, shutdown: &Shutdown) -> Result<Option<Lock>, ServeError> {
    let mut is_told = false;
    loop {
        match attempt(dir.to_owned()).await {
            Err(full) if full.is_full() => {
                if !std::mem::replace(&mut is_told, true) {
                    tracing::error!(reason = log::chain(&full), "waiting for room on the disk");
                }
            }
            done => return done.map(Some),
        }
        // Both arms are cancel-safe.
        tokio::select! {
            () = shutdown.wait() => return Ok(None),
            () = tokio::time::sleep(ROOM_POLL) => {}
        }
    }
}

async fn attempt(dir: PathBuf) -> Result<Lock, ServeError> {
    let path = dir.join("lock");
    let taken = disk::blocking(move || {
        let unmade = |source| ServeError::StateDir { path: dir.clone(), source };
        disk::own_dir(&dir).map_err(unmade)?;
        Ok(Lock::take(&dir.join("lock"))?)
    });
    let aborted = || io::Error::other("the attempt was aborted");
    taken.await.unwrap_or_else(|| Err(LockError::Io { path, source: aborted() }.into()))
}

/// Does the work of an agent that writes, until the shutdown: takes over what an operator decided in earlier runs, runs
/// the tasks that `begin` starts, and saves what `collect` returns whenever that changes, and once more at the end.
pub async fn work<K: State>(
    (gate, claims): (&Gate, &Claims),
    (state_file, random): (&Arc<StateFile>, &Random),
    shutdown: Shutdown,
    begin: impl FnOnce(&Tasks),
    collect: impl Fn() -> Option<K> + Clone + Send + 'static,
) {
    claims.restore(gate);
    let tasks = Tasks::new(shutdown.clone());
    begin(&tasks);
    let (file, random, now) = (Arc::clone(state_file), random.clone(), collect.clone());
    tasks.spawn_dropped("saver", async move { file.keep_saving(random.fork(), now).await });
    shutdown.wait().await;
    tasks.drain(DRAIN).await;
    if let Some(kept) = collect() {
        state_file.save(kept, &mut None).await;
    }
}

/// Checks the configuration (`--check-config`); needs no node.
pub fn check<K: Keys>(files: &FileArgs) -> ExitCode {
    match files.load::<K>() {
        Ok(config) => valid_config(K::NAME, &config.basics.unknown),
        Err(err) => exit::report(K::NAME, &err, exit::config_code()),
    }
}
