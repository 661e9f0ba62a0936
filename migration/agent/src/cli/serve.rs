// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `serve`: opens the listeners, runs the agent. `boot`: before the zones boot.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use daemon::agent::{ServeError, Verbs as _};
use daemon::command::Spawned;
use daemon::http::{Acceptor, Limits, Server, listen};
use daemon::timing::Retry;
use daemon::{Lock, Shutdown, Tasks, Window};
use rand::TryRng as _;
use rand::rngs::SysRng;
use sdc_clients::agents::{Known, NodeAgents};
use sdc_clients::cnapi::{Cnapi, admin_ip};
use sdc_clients::http::{Transport, user_agent};
use sdc_clients::identity::Identity;
use sdc_clients::vminfod::Vminfod;
use sdc_clients::{Http, Jitter};
use trust::{Admits, Doors, Holder, Keeper};

use super::args::Verb;
use crate::config::Config;
use crate::pages;
use crate::run::{self, Agent, Setup};
use crate::wire::Tls;

/// The waits while vminfod does not report the admin address.
const RETRY: Window = Window { min: Duration::from_secs(1), max: Duration::from_secs(10) };
/// Connections with requests at once, far more than may be in their handshakes, and requests per second.
const CONNECTIONS: usize = 256;
const REQUESTS: u32 = 200;

pub(super) async fn serve(config: Config, shutdown: Shutdown) -> Result<(), ServeError> {
    if !config.basics.no_rabbit {
        tracing::warn!("no_rabbit is false: this agent does nothing");
        shutdown.wait().await;
        return Ok(());
    }
    let cn = config.cn.to_string();
    let name = user_agent(Verb::NAME, env!("CARGO_PKG_VERSION"), Some(&cn));
    let vminfod = Vminfod::new(&config.vminfod, &name)?;
    let address = match config.listen.address {
        Some(address) => address,
        // Both arms are cancel-safe.
        None => tokio::select! {
            () = shutdown.wait() => return Ok(()),
            address = admin_address(&vminfod) => address,
        },
    };
    let places = &config.basics.places;
    let [requests, data] = config.listen.at(address);
    let (status, status_at) = listen(places.status_listen).await?;
    let (control, control_at) = listen(requests).await?;
    let (holder, keeper, peers) = trusted(&config, &name)?;
    keeper.load().await.map_err(ServeError::failed)?;
    let wire = Tls::bind(data, &holder).await.map_err(ServeError::failed)?;
    let mut seed = [0; 8];
    SysRng.try_fill_bytes(&mut seed).map_err(ServeError::failed)?;
    let setup = Setup {
        top: PathBuf::from("/"),
        cn: config.cn,
        pool: config.pool.clone(),
        state_dir: places.state_dir.clone(),
        seed,
        mbps: config.mbps,
        commands: Arc::new(Spawned::new(config.commands.clone())),
        vminfod,
        vm_agent: config.vm_agent.clone(),
        wire: Arc::new(wire),
        agents: peers.agents,
        transport: peers.transport,
    };
    let agent = Arc::new(Agent::new(setup, &shutdown).await.map_err(ServeError::failed)?);
    tracing::info!(
        control = %control_at,
        status = %status_at,
        version = env!("CARGO_PKG_VERSION"),
        cn_uuid = cn,
        service = config.service,
        "listening"
    );
    let tasks = Tasks::new(shutdown.clone());
    let limits =
        Limits { connections: CONNECTIONS, requests_per_second: REQUESTS, ..Limits::default() };
    let doors = Acceptor::Secure(control, Arc::new(Doors::new(&holder)));
    let server = Server::new(limits, shutdown.clone()).under_any_name();
    tasks.spawn_vital("control", server.serve(doors, agent.control()));
    let (kept, told) = (Arc::clone(&keeper), Arc::clone(&agent));
    tasks.spawn_dropped("trust", async move { kept.run(told.trust_news()).await });
    agent.keeps(keeper);
    pages::listen(&agent, places, status, &tasks, &shutdown);
    agent.start();
    agent.ask_replaced(config.service.clone(), config.ask_after);
    shutdown.wait().await;
    agent.drain(Duration::from_secs(3)).await;
    tasks.drain(Duration::from_secs(4)).await;
    tracing::info!("stopped");
    Ok(())
}

/// How the agent speaks to others.
struct Ways {
    agents: NodeAgents,
    transport: Arc<dyn Transport>,
}

/// Returns the agent's identity, what renews it, and the transport to authenticated peers.
fn trusted(
    config: &Config,
    name: &str,
) -> Result<(Arc<Holder>, Arc<Keeper>, Ways), sdc_clients::Error> {
    let holder = Holder::new(Admits::Known);
    let who = (Identity::Agent(config.cn), name);
    let keeper = Keeper::new(&holder, &config.service, who, &config.trust_dir);
    let keeper = Arc::new(keeper.every(config.trust_every));
    let transport: Arc<dyn Transport> = Arc::new(trust::Client::new(&holder));
    let cnapi = Cnapi::new(Http::new(&config.cnapi, name)?.without_retries());
    let known = Known { port: config.listen.port, urls: config.agents_urls.clone() };
    let agents = NodeAgents::new(known, cnapi, Arc::clone(&transport), name);
    Ok((holder, keeper, Ways { agents, transport }))
}

/// Waits until vminfod reports the admin address.
async fn admin_address(vminfod: &Vminfod) -> IpAddr {
    let mut retry = Retry::new(RETRY, RETRY.max, Jitter::from_entropy());
    loop {
        let why = match vminfod.sysinfo().await {
            Ok(answer) => {
                let sysinfo = answer.get("sysinfo").unwrap_or(&answer).as_object();
                match sysinfo.and_then(admin_ip) {
                    Some(address) => return address,
                    None => {
                        "sysinfo has no Admin IP, and no NIC of the admin network has an address"
                            .to_owned()
                    }
                }
            }
            Err(error) => daemon::log::chain(&error),
        };
        tracing::warn!(reason = why, "cannot read the admin address from sysinfo; trying again");
        tokio::time::sleep(retry.next_delay()).await;
    }
}

/// Before the zones boot.
pub(super) async fn boot(config: &Config) -> anyhow::Result<String> {
    if !config.basics.no_rabbit {
        return Ok(String::new());
    }
    let dir = config.basics.places.state_dir.clone();
    std::fs::create_dir_all(&dir)?;
    let _only_one = Lock::take(&dir.join("lock"))?;
    let commands = Spawned::new(config.commands.clone());
    let cn = config.cn.to_string();
    let name = user_agent(Verb::NAME, env!("CARGO_PKG_VERSION"), Some(&cn));
    let (_, keeper, ways) = trusted(config, &name)?;
    if let Err(error) = keeper.load().await {
        // The service cannot be asked then, and a copy without an answer waits.
        tracing::error!(%error, "cannot use this agent's certificate; copies that wait for migration-service stay down");
    }
    let about = (config.service.as_str(), config.cn);
    run::boot(&dir, &commands, (ways.transport, ways.agents), about).await
}
