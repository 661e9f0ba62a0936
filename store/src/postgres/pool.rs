// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A few connections, and calls that are tried again.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, RecyclingMethod, Runtime};
use sdc_clients::Jitter;
use sdc_clients::retry::{Backoff, Policy};
use tokio::sync::OnceCell;
use tokio_postgres::NoTls;
use tokio_postgres::config::TargetSessionAttrs;

use super::connection::{Connection, Failure, with_sources};
use super::tables;
use crate::error::{Error, Invalid};

const CONNECTIONS: usize = 4;
/// How long a connection to one host may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How long one call may take on the server, and how long we wait for it.
pub(super) const CALL: Duration = Duration::from_secs(10);
/// What each connection asks of the server. A write is acknowledged after it is on the disk, whatever
/// the server's configuration says.
const OPTIONS: &str = "-c statement_timeout=10s -c lock_timeout=10s \
     -c idle_in_transaction_session_timeout=10s -c synchronous_commit=on -c client_min_messages=warning";

/// A few connections, made when they are needed.
#[derive(Debug)]
pub(super) struct Pool {
    connections: deadpool_postgres::Pool,
    tables: OnceCell<()>,
    jitter: Mutex<Jitter>,
}

impl Pool {
    /// Connections to the server at this address, or to whichever of several takes writes; none is made yet.
    pub(super) fn new(address: &str) -> Result<Pool, Error> {
        let mut config: tokio_postgres::Config =
            address.parse().map_err(|error| Invalid::Address(with_sources(&error)))?;
        config.connect_timeout(CONNECT).keepalives_idle(Duration::from_secs(30));
        config.options(OPTIONS);
        // Of several hosts the one that takes writes; a standby answers too, and refuses them.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        // A host that is dead costs its whole time before the next one is tried.
        let connect = CONNECT * u32::try_from(config.get_hosts().len()).unwrap_or(1).max(1);
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let connections =
            deadpool_postgres::Pool::builder(Manager::from_config(config, NoTls, recycling))
                .max_size(CONNECTIONS)
                .create_timeout(Some(connect))
                .wait_timeout(Some(CALL))
                .recycle_timeout(Some(CONNECT))
                .runtime(Runtime::Tokio1)
                .build()
                .map_err(|error| Invalid::Address(with_sources(&error)))?;
        let jitter = Mutex::new(Jitter::from_entropy());
        Ok(Pool { connections, tables: OnceCell::new(), jitter })
    }

    /// The waits between the tries of one call.
    pub(super) fn backoff(&self) -> Backoff {
        let policy = Policy {
            initial: Duration::from_millis(50),
            max: Duration::from_secs(2),
            multiplier: 2.0,
            max_attempts: None,
            max_elapsed: Some(Duration::from_secs(15)),
        };
        let mut jitter = self.jitter.lock().unwrap_or_else(PoisonError::into_inner);
        Backoff::new(&policy, jitter.fork())
    }

    /// A connection to a server that has our tables.
    pub(super) async fn connection(&self) -> Result<Connection, Failure> {
        let passing = |error| Failure::Passing(with_sources(&error));
        let connect = async || Ok(Connection::new(self.connections.get().await.map_err(passing)?));
        let tables = || async { within(CALL, tables::prepare(connect().await?)).await };
        self.tables.get_or_try_init(tables).await?;
        connect().await
    }

    /// Calls until an answer came that stays, or the waits are over. `work` may be repeated; each time it
    /// has `limit` to end.
    pub(super) async fn retried<R, F: Future<Output = Result<R, Failure>>>(
        &self,
        limit: Duration,
        work: impl Fn(Connection) -> F,
    ) -> Result<R, Error> {
        let mut backoff = self.backoff();
        loop {
            let once = async { within(limit, work(self.connection().await?)).await };
            let why = match once.await {
                Ok(answer) => return Ok(answer),
                Err(Failure::Refused(error)) => return Err(error),
                Err(Failure::Passing(why)) => why,
            };
            pause(&mut backoff, why).await?;
        }
    }
}

/// Waits before the next try; fails when there is to be none.
pub(super) async fn pause(backoff: &mut Backoff, why: String) -> Result<(), Error> {
    let Some(wait) = backoff.next_delay() else { return Err(Error::Unavailable { why }) };
    tracing::debug!(%why, wait_ms = wait.as_millis() as u64, "PostgreSQL failed; asking again");
    tokio::time::sleep(wait).await;
    Ok(())
}

/// Waits for the server no longer than `limit`.
pub(super) async fn within<R, E: Into<Failure>>(
    limit: Duration,
    work: impl Future<Output = Result<R, E>>,
) -> Result<R, Failure> {
    match tokio::time::timeout(limit, work).await {
        Ok(done) => done.map_err(Into::into),
        Err(_) => Err(Failure::Passing(format!("no answer within {} s", limit.as_secs()))),
    }
}
