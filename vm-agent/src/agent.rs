// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! One agent: makes its clients and parts, and runs its tasks (the table is in `lib.rs`).

use std::sync::Arc;
use std::time::Duration;

use daemon::health::{Health, Observed};
use daemon::pace::{Admitted, Pace, Paced};
use daemon::{Shutdown, Tasks};
use sdc_clients::http::{Transport, user_agent};
use sdc_clients::vmapi::Vmapi;
use sdc_clients::vminfod::Vminfod;
use sdc_clients::{Error, Http, Jitter};

use crate::config::Config;
use crate::parts::{Clients, Parts};
use crate::status::{State, Task};
use crate::{events, identity, saver, start, worker};

/// One agent.
pub struct Agent {
    /// Its parts.
    pub parts: Arc<Parts>,
}

/// Makes the clients over these transports: one for VMAPI, one for vminfod.
///
/// # Errors
/// If a URL cannot be used.
pub fn clients(
    config: &Config,
    cn_uuid: &str,
    outside: Arc<dyn Transport>,
    node: Arc<dyn Transport>,
) -> Result<Clients, Error> {
    let services = &config.services;
    let agent = user_agent("vm-agent", env!("CARGO_PKG_VERSION"), Some(cn_uuid));
    let jitter = config.basics.seed.map_or_else(Jitter::from_entropy, Jitter::from_seed);
    let pace = Arc::new(Pace::new(services.per_second, services.in_flight));
    let health = Health::new("VMAPI");
    let observed: Arc<dyn Transport> = Arc::new(Observed::new(outside, Arc::clone(&health)));
    let paced = Paced::new(observed, Arc::clone(&pace), jitter);
    let entry = Arc::new(paced.refused_within(config.times.retry));
    let to = |transport: Arc<dyn Transport>| {
        let http = Http::with_transport(&services.vmapi, &agent, transport)?;
        Ok::<_, Error>(Vmapi::new(http.without_retries()))
    };
    let vminfod = Http::with_transport(&services.vminfod, &agent, node)?.without_retries();
    Ok(Clients {
        lists: to(Arc::clone(&entry) as Arc<dyn Transport>)?,
        vmapi: to(Arc::new(Admitted(Arc::clone(&entry))))?,
        entry,
        vminfod: Vminfod::with_http(vminfod),
        pace,
        health,
    })
}

impl Agent {
    /// An agent over these clients.
    pub fn with_clients(config: Config, cn_uuid: String, clients: Clients) -> Arc<Self> {
        Arc::new(Self { parts: Parts::new(config, cn_uuid, clients) })
    }

    /// Runs until the shutdown signal.
    pub async fn run(self: Arc<Self>, shutdown: Shutdown) {
        let status = &self.parts.status;
        if !self.parts.config.basics.no_rabbit {
            tracing::warn!("{}", State::Off);
            status.is(Task::Start, State::Off);
            shutdown.wait().await;
            return;
        }
        status.is(Task::Events, State::Connecting);
        saver::restore(&self.parts).await;
        let tasks = Tasks::new(shutdown.clone());
        let parts = || Arc::clone(&self.parts);
        // Dropping the work at any await is safe: a request may be cut off, and its outcome is read at the
        // next start.
        tasks.spawn_dropped("events", events::follow(parts()));
        tasks.spawn_dropped("worker", worker::work(parts()));
        tasks.spawn_dropped("start", start::run(parts()));
        tasks.spawn_dropped("identity", identity::watch(parts()));
        tasks.spawn_dropped("saver", saver::keep_saving(parts()));
        shutdown.wait().await;
        tasks.drain(Duration::from_secs(5)).await;
        saver::save(&self.parts).await;
    }
}
