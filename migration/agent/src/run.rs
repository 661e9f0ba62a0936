// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! One agent: makes its parts and runs its tasks.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use daemon::command::Commands;
use daemon::http::{Openings, Router};
use daemon::state_file::Damage;
use daemon::{Shutdown, Tasks};
use prometheus_client::registry::Registry;
use sdc_clients::agents::NodeAgents;
use sdc_clients::http::Transport;
use sdc_clients::vminfod::Vminfod;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use trust::Keeper;
use uuid::Uuid;

use super::listings::Listings;
use super::looks::Looks;
use super::memory::Memory;
use super::node::Node;
use super::parts::{Parts, Streams};
use super::peer::Peers;
use super::running::Watched;
use super::status::{Count, State, Status, Task};
use super::vm_agents::VmAgents;
use super::wire::Wire;
use super::zfs::Zfs;
use super::{boot, metrics, receive, report, routes};
use migration_core::stream::{Meter, Rate, Refusals, Tokens};

/// Between renewals of holds, and after one that failed.
const RENEWS: Duration = Duration::from_secs(30 * 60);
const RETRIES: Duration = Duration::from_secs(60);
/// Streams that are received at once; more wait.
const STREAMS: usize = 64;

/// What an agent is made of.
pub struct Setup {
    pub cn: Uuid,
    /// Where the node's directories begin.
    pub top: PathBuf,
    pub pool: String,
    /// Where the state file is.
    pub state_dir: PathBuf,
    /// Drawn for each process.
    pub seed: [u8; 8],
    /// The limit of the streams, in Mbit/s.
    pub mbps: Option<u32>,
    /// The node's programs.
    pub commands: Arc<dyn Commands>,
    /// The node's vminfod.
    pub vminfod: Vminfod,
    /// The socket that our vm-agent has.
    pub vm_agent: PathBuf,
    /// The connections for data.
    pub wire: Arc<dyn Wire>,
    /// The agents of other nodes.
    pub agents: NodeAgents,
    /// Requests to the service.
    pub transport: Arc<dyn Transport>,
}

pub struct Agent {
    parts: Arc<Parts>,
    /// Who keeps its certificate.
    keeper: OnceLock<Arc<Keeper>>,
}

impl Agent {
    /// Makes an agent, with what it remembers. It runs until the shutdown.
    pub async fn new(setup: Setup, shutdown: &Shutdown) -> Result<Agent, Damage> {
        let Setup { cn, top, pool, state_dir, seed, mbps, .. } = setup;
        let memory = Memory::read(&state_dir, cn).await?;
        let (commands, running) = Watched::beside(setup.commands);
        let parts = Parts {
            cn,
            top,
            node: Node::new(Arc::clone(&commands), setup.vminfod),
            zfs: Zfs::new(Arc::clone(&commands), &pool),
            vm_agents: VmAgents::new(setup.vm_agent),
            commands,
            running,
            peers: Peers::new(setup.transport, setup.agents, cn),
            memory,
            streams: Streams {
                wire: setup.wire,
                tokens: Tokens::new(seed),
                rate: Arc::new(Rate::new(mbps)),
                bytes_in: Meter::default(),
                bytes_out: std::sync::atomic::AtomicU64::new(0),
                refusals: Refusals::default(),
            },
            looks: Looks::default(),
            listings: Listings::default(),
            works: super::work::Works::default(),
            snapshots: tokio::sync::Mutex::default(),
            counts: super::counts::Counts::default(),
            status: Status::new(Vec::new()),
            tasks: Tasks::new(shutdown.clone()),
            trust_news: tokio::sync::Notify::new(),
            shutdown: shutdown.clone(),
        };
        Ok(Agent { parts: Arc::new(parts), keeper: OnceLock::new() })
    }

    /// Starts its tasks, which end with the shutdown.
    pub fn start(&self) {
        let parts = || Arc::clone(&self.parts);
        self.parts.tasks.spawn_dropped("data", listen(parts()));
        self.parts.tasks.spawn_dropped("holds", renew(parts()));
    }

    /// Asks the service at this address which copies were replaced, and acts on its answer; also when no request
    /// about an open migration came for so long.
    pub fn ask_replaced(&self, service: String, quiet: Duration) {
        let (parts, stop) = (Arc::clone(&self.parts), self.parts.shutdown.clone());
        self.parts.tasks.spawn("replaced", async move {
            // Dropping it at any await is safe: what waits still waits, and what was replaced is asked for again.
            tokio::select! {
                () = stop.wait() => {}
                () = boot::ask(parts, service, quiet) => {}
            }
        });
    }

    /// Boots a VM that waits, as an operator confirmed. Returns false if it does not wait.
    pub async fn release(&self, vm: Uuid) -> Result<bool, String> {
        boot::release(&self.parts, vm).await.map_err(|failed| failed.to_string())
    }

    /// Returns the routes of the control listener.
    pub fn control(&self) -> Router {
        routes::control(&self.parts)
    }

    /// Returns what tells that the service has revoked something.
    pub fn trust_news(&self) -> &tokio::sync::Notify {
        &self.parts.trust_news
    }

    /// Returns `/status`.
    pub fn status(&self) -> Value {
        report::status(&self.parts, self.keeper.get().map(|keeper| &**keeper))
    }

    /// Returns a registry with a reading of now.
    pub fn metrics(&self) -> Registry {
        metrics::registry(&self.parts, self.keeper.get().map(|keeper| &**keeper))
    }

    /// Shows from now on the state of the certificate that this keeps.
    pub fn keeps(&self, keeper: Arc<Keeper>) {
        let _only_once = self.keeper.set(keeper);
    }

    /// Waits until all tasks have ended, at most `deadline`.
    pub async fn drain(&self, deadline: Duration) -> bool {
        self.parts.tasks.drain(deadline).await
    }
}

/// Does what the state file in `dir` says of this node's zones, before they boot. Returns what was done.
pub async fn boot(
    dir: &Path,
    commands: &dyn Commands,
    (transport, agents): (Arc<dyn Transport>, NodeAgents),
    (service, cn): (&str, Uuid),
) -> anyhow::Result<String> {
    let memory = Memory::read(dir, cn).await?;
    let peers = Peers::new(transport, agents, cn);
    Ok(boot::before_zones(&memory, commands, &peers, (service, cn)).await?)
}

/// Accepts connections for data. A place is taken when a stream is opened: idle connections block no other.
async fn listen(parts: Arc<Parts>) {
    let places = Arc::new(Semaphore::new(STREAMS));
    let openings = Arc::new(Mutex::new(Openings::default()));
    loop {
        match parts.streams.wire.accept().await {
            Ok((incoming, from)) => {
                parts.status.is(Task::Data, State::Resting);
                let (of, places) = (Arc::clone(&parts), Arc::clone(&places));
                let openings = Arc::clone(&openings);
                let entered = openings.lock().unwrap_or_else(PoisonError::into_inner).enter(from);
                parts.tasks.spawn("stream", async move {
                    let (number, room) = entered;
                    let opened = tokio::select! {
                        opened = receive::opened(&of, incoming) => opened,
                        // It is dropped where it is: it has opened nothing.
                        _ = room => None,
                    };
                    openings.lock().unwrap_or_else(PoisonError::into_inner).leave(number);
                    if let (Some(opened), Ok(_place)) = (opened, places.acquire().await) {
                        receive::stream(of, opened).await;
                    }
                });
            }
            Err(error) => {
                // Probably out of descriptors: the loop must neither end nor spin.
                tracing::warn!(%error, "cannot accept a data connection; trying again");
                let why = parts.status.failed(Count::Errors, &error);
                parts.status.is(Task::Data, State::Retrying(why));
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Renews the holds that the state file has.
async fn renew(parts: Arc<Parts>) {
    loop {
        let (mut wait, began, mut state) = (RENEWS, Instant::now(), State::Resting);
        for (migration, entry) in parts.memory.open() {
            if !entry.hold {
                continue;
            }
            match parts.node.hold(entry.vm, migration).await {
                Ok(()) => parts.status.count(Count::Renewed),
                Err(error) => {
                    tracing::error!(vm = %entry.vm, %error, "cannot renew net-agent's hold; it ends when it expires");
                    state = State::Retrying(parts.status.failed(Count::Errors, &error));
                    wait = RETRIES;
                }
            }
        }
        if state == State::Resting {
            parts.status.recovered(..began);
        }
        parts.status.is(Task::Holds, state);
        tokio::time::sleep(wait).await;
    }
}
