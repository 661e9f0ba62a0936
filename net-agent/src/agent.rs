// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! One agent: makes its clients and parts, and runs its tasks (the table is in `lib.rs`).

use std::sync::Arc;

use daemon::agent::{Census, State, identify, work};
use daemon::health::{Health, Observed};
use daemon::pace::{Pace, Paced};
use daemon::{Shutdown, Tasks};
use sdc_clients::http::{HttpTransport, Transport, user_agent};
use sdc_clients::napi::Napi;
use sdc_clients::retry;
use sdc_clients::vmapi::Vmapi;
use sdc_clients::vminfod::Vminfod;
use sdc_clients::{Error, Http, Jitter};

use crate::config::{Config, VmapiChoice};
use crate::parts::{Clients, Parts};
use crate::permit::Writer;
use crate::status::{Task, history};
use crate::{comparison, events, own_nics, pass, saver, worker};

pub struct Agent {
    pub parts: Arc<Parts>,
}

/// Makes the clients over these transports: one for NAPI and VMAPI, one for vminfod.
/// Fails if a URL cannot be used.
pub fn clients(
    config: &Config,
    outside: Arc<dyn Transport>,
    node: Arc<dyn Transport>,
) -> Result<Clients, Error> {
    let (services, cn_uuid) = (&config.services, &config.policy.cn_uuid);
    let agent = user_agent("net-agent", env!("CARGO_PKG_VERSION"), Some(cn_uuid));
    let mut jitter = config.basics.seed.map_or_else(Jitter::from_entropy, Jitter::from_seed);
    let pace = Arc::new(Pace::new(services.per_second, services.in_flight));
    let (napi_health, vmapi_health) = (Health::new("NAPI"), Health::new("VMAPI"));
    let observed = |health: &Arc<Health>| -> Arc<dyn Transport> {
        Arc::new(Observed::new(Arc::clone(&outside), Arc::clone(health)))
    };
    let mut paced = |health: &Arc<Health>| -> Arc<dyn Transport> {
        Arc::new(Paced::new(observed(health), Arc::clone(&pace), jitter.fork()))
    };
    let (to_napi, to_vmapi) = (paced(&napi_health), paced(&vmapi_health));
    let census = services.cnapi.as_ref().map(|cnapi| {
        // Whether CNAPI answers is nobody's alarm here.
        Census::over(&paced(&Health::new("CNAPI")), &agent, (cnapi.as_str(), &services.napi))
    });
    let mut retrying = |http: Http| http.retrying(retry::Policy::napi(), jitter.fork());
    let vmapi = match &services.vmapi {
        VmapiChoice::None => None,
        VmapiChoice::Url(url) => {
            Some(Vmapi::new(retrying(Http::with_transport(url, &agent, to_vmapi)?)))
        }
    };
    let writes = Http::with_transport(&services.napi, &agent, observed(&napi_health))?;
    let vminfod = Http::with_transport(&services.vminfod, &agent, node)?.without_retries();
    Ok(Clients {
        napi: Napi::new(retrying(Http::with_transport(&services.napi, &agent, to_napi)?)),
        writer: Writer::new(Napi::new(writes.without_retries())),
        vmapi,
        vminfod: Vminfod::with_http(vminfod),
        census: census.transpose()?,
        pace,
        napi_health,
        vmapi_health,
    })
}

impl Agent {
    /// An agent over real sockets.
    /// Fails if the clients cannot be made.
    pub fn new(config: Config) -> Result<Arc<Self>, Error> {
        let node = HttpTransport::to(&config.services.vminfod)?;
        let made = clients(&config, Arc::new(HttpTransport::new()?), Arc::new(node))?;
        Ok(Self::with_clients(config, made))
    }

    /// An agent over these clients.
    pub fn with_clients(config: Config, clients: Clients) -> Arc<Self> {
        Arc::new(Self { parts: Parts::new(config, clients) })
    }

    /// Reads the state file. Only for an agent that does not run, before it answers.
    pub(crate) async fn restore(&self) {
        saver::restore(&self.parts).await;
    }

    /// Runs until the shutdown signal.
    pub async fn run(self: Arc<Self>, shutdown: Shutdown) {
        let Parts { status, gate, claims, state_file, random, config, .. } = &*self.parts;
        status.step(history::SERVER);
        if !config.basics.no_rabbit {
            return status.off(Task::Pass, "NAPI", &shutdown).await;
        }
        status.is(Task::Events, State::Connecting);
        self.restore().await;
        let parts = || Arc::clone(&self.parts);
        // Dropping the work at any await is safe: a request may be cut off, and its outcome is read at the
        // next start.
        let begin = |tasks: &Tasks| {
            tasks.spawn_dropped("events", events::follow(parts()));
            tasks.spawn_dropped("worker", worker::work(parts()));
            tasks.spawn_dropped("identity", identified(parts()));
            tasks.spawn_dropped("comparison", comparison::compare(parts()));
            tasks.spawn_dropped("own-nics", own_nics::keep_own(parts()));
            tasks.spawn_dropped("pass", pass::run(parts()));
        };
        let saved = parts();
        let collect = move || Some(saver::collect(&saved));
        work((gate, claims), (state_file, random), shutdown, begin, collect).await;
    }
}

async fn identified(parts: Arc<Parts>) {
    let is = |state| parts.status.is(Task::Identity, state);
    let (vminfod, resync) = (&parts.clients.vminfod, parts.config.times.resync);
    let census = parts.clients.census.as_ref();
    identify((&parts.gate, &parts.claims), vminfod, resync, parts.random.fork(), census, is).await;
}
