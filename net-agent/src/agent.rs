// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The agent: who runs, and in which order. Warm-up (who are we?), then five loops that share
//! nothing but [`Shared`] and the lanes:
//!
//! ```text
//! follow   vminfod's stream → inventory → wakes       compare  every 300 s: fresh view ↔ memory
//! work     lanes → apply                              own      the node's own NICs, once
//! passes   delay → list → view → backfill → two looks → reap
//! ```
//!
//! It never acts while vminfod is silent, never before it knows who it is.

use std::sync::Arc;
use std::time::Duration;

use daemon::{Shutdown, Tasks};
use futures_util::StreamExt as _;
use sdc_clients::http::{HttpTransport, Transport, user_agent};
use sdc_clients::napi::Napi;
use sdc_clients::retry::Policy;
use sdc_clients::vmapi::Vmapi;
use sdc_clients::vminfod::Vminfod;
use sdc_clients::{Error, Http, Jitter, MacAddr};

use crate::apply::{Apply, Clients, Outcome};
use crate::config::{Config, VmapiChoice, Window};
use crate::inventory::Identity;
use crate::lanes::Lanes;
use crate::memory::MemoryFile;
use crate::pace::{Pace, Paced};
use crate::shared::Shared;
use crate::status::history;

/// Failures in a row after which the waits become the comparison's.
const PATIENCE: u32 = 30;

/// One agent.
pub struct Agent {
    /// What its tasks share.
    pub shared: Arc<Shared>,
    /// Its clients.
    pub clients: Clients,
    /// The writer.
    pub apply: Apply,
    /// Work per VM.
    pub lanes: Lanes,
    /// Has vminfod told all its VMs once?
    pub(crate) told_once: std::sync::atomic::AtomicBool,
}

/// Makes the clients over the transports given (one for NAPI and VMAPI, one for vminfod).
///
/// # Errors
/// When a URL cannot be used.
pub fn clients(
    config: &Config,
    outside: Arc<dyn Transport>,
    node: Arc<dyn Transport>,
) -> Result<Clients, Error> {
    let agent = user_agent("net-agent", env!("CARGO_PKG_VERSION"), Some(&config.cn_uuid));
    let mut jitter = config.seed.map_or_else(Jitter::from_entropy, Jitter::from_seed);
    let pace = Arc::new(Pace::new(config.per_second, config.in_flight));
    let mut paced = || -> Arc<dyn Transport> {
        Arc::new(Paced::new(Arc::clone(&outside), Arc::clone(&pace), jitter.fork()))
    };
    let (to_napi, to_vmapi) = (paced(), paced());
    let vmapi = match &config.vmapi {
        VmapiChoice::None => None,
        VmapiChoice::Url(url) => {
            let http = Http::with_transport(url, &agent, to_vmapi)?;
            Some(Vmapi::new(http.retrying(Policy::napi(), jitter.fork())))
        }
    };
    Ok(Clients {
        napi: Napi::new(
            Http::with_transport(&config.napi_url, &agent, to_napi)?
                .retrying(Policy::napi(), jitter.fork()),
        ),
        napi_writes: Napi::new(
            Http::with_transport(&config.napi_url, &agent, outside)?.without_retries(),
        ),
        vmapi,
        vminfod: Vminfod::with_http(
            Http::with_transport(&config.vminfod_url, &agent, node)?.without_retries(),
        ),
        pace,
    })
}

impl Agent {
    /// An agent over real sockets.
    ///
    /// # Errors
    /// When the clients cannot be made.
    pub fn new(config: Config) -> Result<Arc<Self>, Error> {
        let transport: Arc<dyn Transport> = Arc::new(HttpTransport::new()?);
        let made = clients(&config, Arc::clone(&transport), transport)?;
        Ok(Self::with_clients(config, made))
    }

    /// An agent over these clients.
    pub fn with_clients(config: Config, clients: Clients) -> Arc<Self> {
        Self::with_shared(Shared::new(config), clients)
    }

    /// An agent over these clients that keeps nothing on the disk: for simulations of thousands
    /// that never restart.
    pub fn forgetful(config: Config, clients: Clients) -> Arc<Self> {
        Self::with_shared(Shared::with_memory(config, MemoryFile::nowhere()), clients)
    }

    fn with_shared(shared: Arc<Shared>, clients: Clients) -> Arc<Self> {
        let apply = Apply::new(Arc::clone(&shared), clients.clone());
        let told_once = std::sync::atomic::AtomicBool::new(false);
        Arc::new(Self { shared, clients, apply, lanes: Lanes::default(), told_once })
    }

    /// Runs until the shutdown signal.
    pub async fn run(self: Arc<Self>, shutdown: Shutdown) {
        let status = &self.shared.status;
        status.step(history::SERVER);
        if !self.shared.config.no_rabbit {
            let why = "no_rabbit is false: the feature is off, NAPI is left alone";
            tracing::warn!("{why}");
            status.waiting("feature", Some(why.to_owned()));
            shutdown.wait().await;
            return;
        }
        status.waiting("follow", Some("waiting for vminfod".to_owned()));
        let tasks = Tasks::new(shutdown.clone());
        macro_rules! start {
            ($name:literal, $agent:ident => $work:expr) => {{
                let ($agent, stop) = (Arc::clone(&self), shutdown.clone());
                tasks.spawn_vital($name, async move {
                    // Dropping the work at any await is safe: a request may be cut off, and its
                    // outcome is read at the next start.
                    tokio::select! {
                        () = stop.wait() => {}
                        () = $work => {}
                    }
                });
            }};
        }
        start!("follow", agent => agent.follow());
        start!("work", agent => Arc::clone(&agent).work());
        start!("identity", agent => agent.identify());
        start!("compare", agent => agent.compare());
        start!("own-nics", agent => agent.own_nics_once());
        start!("passes", agent => agent.passes());
        start!("memory", agent => Arc::clone(&agent.shared).keep());
        shutdown.wait().await;
        tasks.drain(Duration::from_secs(5)).await;
        self.shared.keep_once(&mut None).await;
    }

    /// Reads sysinfo until it says who we are; then now and again, in case it says otherwise.
    async fn identify(&self) {
        let shared = &self.shared;
        let mut wait = Duration::from_secs(1);
        loop {
            let read = match self.clients.vminfod.sysinfo().await {
                Ok(answer) => Identity::read(&answer),
                Err(err) => Err(format!("vminfod's /sysinfo: {}", daemon::log::chain(&err))),
            };
            match read {
                Ok(identity) => {
                    let ours = identity.uuid == shared.policy.cn_uuid;
                    shared.identify(Some(identity));
                    let why = if ours { None } else { shared.mute() };
                    if let Some(why) = &why {
                        tracing::error!("{why}");
                    }
                    shared.status.waiting("identity", why);
                    wait = if ours { shared.config.resync } else { shared.config.config_poll };
                }
                Err(why) => {
                    if shared.identity().is_none() {
                        tracing::warn!(reason = why, "waiting for vminfod");
                        shared
                            .status
                            .waiting("identity", Some(format!("waiting for vminfod: {why}")));
                        wait = wait.saturating_mul(2).min(shared.config.config_poll);
                    }
                }
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// Waits until something may be written, or until report mode is all that forbids it; the
    /// board says meanwhile what `task` waits for.
    pub(crate) async fn ready(&self, task: &'static str) {
        self.writable(|why| self.shared.status.waiting(task, Some(why))).await;
        self.shared.status.waiting(task, None);
    }

    /// The same; `waiting` hears why not, each time something was told that might have changed it.
    pub(crate) async fn writable(&self, waiting: impl Fn(String)) {
        loop {
            let mut told = std::pin::pin!(self.shared.told.notified());
            // Before the look, or what is told right after it would be missed.
            told.as_mut().enable();
            match self.shared.mute() {
                Some(why) if why != "report mode" => waiting(why),
                _ => return,
            }
            told.await;
        }
    }

    async fn own_nics_once(&self) {
        self.ready("own-nics").await;
        let Window { min, max } = self.shared.config.server_nic_delay;
        tokio::time::sleep(self.shared.draw(|jitter| jitter.uniform(min, max))).await;
        self.own_nics().await;
        std::future::pending().await
    }

    /// The node's own NICs, tried until each is decided.
    async fn own_nics(&self) {
        let mut open: Vec<MacAddr> =
            self.shared.identity().map(|i| i.macs.into_iter().collect()).unwrap_or_default();
        let mut failures = 0;
        while !open.is_empty() {
            self.ready("own-nics").await;
            open = self.own_nics_of(open).await;
            if !open.is_empty() {
                tokio::time::sleep(self.backoff(&mut failures)).await;
            }
        }
    }

    /// Each read by its address, claimed and set running where due; gives those not decided.
    pub(crate) async fn own_nics_of(&self, macs: Vec<MacAddr>) -> Vec<MacAddr> {
        let outcomes: Vec<(MacAddr, Outcome)> = futures_util::stream::iter(macs)
            .map(|mac| async move { (mac, self.apply.keep_up_own(mac).await) })
            .buffer_unordered(4)
            .collect()
            .await;
        let open = outcomes.into_iter().filter(|(_, outcome)| outcome.is_open());
        open.map(|(mac, _)| mac).collect()
    }

    /// The wait after the n-th failure in a row: doubled each time, full jitter above half a
    /// first wait, never longer than the window's end. What has failed for many minutes is tried
    /// as often as the node is compared: a record that NAPI cannot serve is no reason for traffic.
    pub(crate) fn backoff(&self, failures: &mut u32) -> Duration {
        let Window { min, max } = self.shared.config.retry;
        let ceiling = min.saturating_mul(1 << (*failures).min(16)).min(max);
        *failures = failures.saturating_add(1);
        if *failures > PATIENCE {
            let resync = self.shared.config.resync;
            return self.shared.draw(|jitter| jitter.around(resync.max(max), 0.25));
        }
        self.shared.draw(|jitter| jitter.uniform(min.min(ceiling) / 2, ceiling))
    }
}
