// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! One agent: makes its clients and parts, and runs its tasks (the table is in `lib.rs`).

use std::sync::Arc;

use daemon::agent::{Census, State, identify, work};
use daemon::health::{Health, Observed};
use daemon::pace::{Admitted, Pace, Paced};
use daemon::{Shutdown, Tasks};
use sdc_clients::http::{Transport, user_agent};
use sdc_clients::vmapi::Vmapi;
use sdc_clients::vminfod::Vminfod;
use sdc_clients::{Error, Http, Jitter};

use crate::config::Config;
use crate::parts::{Clients, Parts};
use crate::status::Task;
use crate::writer::Writer;
use crate::{events, saver, start, worker};

pub struct Agent {
    pub parts: Arc<Parts>,
}

/// Makes the clients over these transports: one for VMAPI, one for vminfod.
/// Fails if a URL cannot be used.
pub fn clients(
    config: &Config,
    cn_uuid: &str,
    outside: Arc<dyn Transport>,
    node: Arc<dyn Transport>,
) -> Result<Clients, Error> {
    let services = &config.services;
    let agent = user_agent("vm-agent", env!("CARGO_PKG_VERSION"), Some(cn_uuid));
    let mut jitter = config.basics.seed.map_or_else(Jitter::from_entropy, Jitter::from_seed);
    let pace = Arc::new(Pace::new(services.per_second, services.in_flight));
    let health = Health::new("VMAPI");
    let elsewhere = Arc::new(Paced::new(Arc::clone(&outside), Arc::clone(&pace), jitter.fork()));
    let observed: Arc<dyn Transport> = Arc::new(Observed::new(outside, Arc::clone(&health)));
    let paced = Paced::new(observed, Arc::clone(&pace), jitter.fork());
    let entry = Arc::new(paced.refused_within(config.times.retry));
    let to = |transport: Arc<dyn Transport>| {
        let http = Http::with_transport(&services.vmapi, &agent, transport)?;
        Ok::<_, Error>(Vmapi::new(http.without_retries()))
    };
    let vminfod = Http::with_transport(&services.vminfod, &agent, node)?.without_retries();
    let vmapi = to(Arc::new(Admitted(Arc::clone(&entry))))?;
    let census = |transport: Arc<dyn Transport>| {
        let (cnapi, napi) = services.census.as_ref()?;
        Some(Census::over(&transport, &agent, (cnapi.as_str(), napi.as_str())))
    };
    let admitted = Arc::new(Admitted(Arc::clone(&elsewhere)));
    Ok(Clients {
        census: census(elsewhere).transpose()?,
        admitted: census(admitted).transpose()?,
        lists: to(Arc::clone(&entry) as Arc<dyn Transport>)?,
        writer: Writer::new(vmapi.clone()),
        vmapi,
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
        let Parts { status, gate, claims, state_file, random, config, .. } = &*self.parts;
        if !config.basics.no_rabbit {
            return status.off(Task::Start, "VMAPI", &shutdown).await;
        }
        status.is(Task::Events, State::Connecting);
        saver::restore(&self.parts).await;
        let parts = || Arc::clone(&self.parts);
        // Dropping the work at any await is safe: a request may be cut off, and its outcome is read at the
        // next start.
        let begin = |tasks: &Tasks| {
            tasks.spawn_dropped("events", events::follow(parts()));
            tasks.spawn_dropped("worker", worker::work(parts()));
            tasks.spawn_dropped("start", start::run(parts()));
            tasks.spawn_dropped("identity", identified(parts()));
        };
        let saved = parts();
        let collect = move || saver::collect(&saved);
        work((gate, claims), (state_file, random), shutdown, begin, collect).await;
    }
}

async fn identified(parts: Arc<Parts>) {
    let is = |state| parts.status.is(Task::Identity, state);
    let (vminfod, resync) = (&parts.clients.vminfod, parts.config.times.resync);
    let census = parts.clients.census.as_ref();
    identify((&parts.gate, &parts.claims), vminfod, resync, parts.random.fork(), census, is).await;
}
