// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `serve`: opens the listeners, runs the agent. `boot`: before the zones boot.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use daemon::agent::{ServeError, Verbs as _};
use daemon::command::Spawned;
use daemon::http::{Limits, Server, listen};
use daemon::timing::Retry;
use daemon::{Lock, Shutdown, Tasks, Window, disk};
use rand::TryRng as _;
use rand::rngs::SysRng;
use sdc_clients::Jitter;
use sdc_clients::http::{HttpTransport, Transport, user_agent};
use sdc_clients::signed::Secret;
use sdc_clients::vminfod::Vminfod;
use serde_json::Value;

use super::args::Verb;
use crate::config::Config;
use crate::pages;
use crate::run::{self, Agent, Setup};
use crate::wire::Tcp;

/// The waits while vminfod does not say what the admin address is.
const RETRY: Window = Window { min: Duration::from_secs(1), max: Duration::from_secs(10) };
/// Connections with requests at once, and requests per second.
const CONNECTIONS: usize = 64;
const REQUESTS: u32 = 200;

pub(super) async fn serve(config: Config, shutdown: Shutdown) -> Result<(), ServeError> {
    if !config.basics.no_rabbit {
        tracing::warn!("no_rabbit is false: this agent does nothing");
        shutdown.wait().await;
        return Ok(());
    }
    let transport: Arc<dyn Transport> = Arc::new(HttpTransport::new()?);
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
    let wire = Tcp::bind(data).await.map_err(ServeError::failed)?;
    let mut seed = [0; 32];
    SysRng.try_fill_bytes(&mut seed).map_err(ServeError::failed)?;
    let setup = Setup {
        cn: config.cn,
        pool: config.pool.clone(),
        state_dir: places.state_dir.clone(),
        secret: secret(&config).await?,
        seed,
        mbps: config.mbps,
        commands: Arc::new(Spawned::new(config.commands.clone())),
        vminfod,
        wire: Arc::new(wire),
        transport,
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
    tasks.spawn_vital(
        "control",
        Server::new(limits, shutdown.clone()).serve(control, agent.control()),
    );
    pages::listen(&agent, places, status, &tasks, &shutdown);
    agent.start();
    agent.ask_replaced(config.service.clone(), config.ask_after);
    shutdown.wait().await;
    agent.drain(Duration::from_secs(3)).await;
    tasks.drain(Duration::from_secs(4)).await;
    tracing::info!("stopped");
    Ok(())
}

async fn secret(config: &Config) -> Result<Secret, ServeError> {
    let path = config.secret.clone();
    let read = disk::blocking(move || Secret::read(&path)).await;
    let aborted = || ServeError::failed(std::io::Error::other("the attempt was aborted"));
    read.ok_or_else(aborted)?.map_err(ServeError::failed)
}

/// Waits until vminfod says what the admin address is.
async fn admin_address(vminfod: &Vminfod) -> IpAddr {
    let mut retry = Retry::new(RETRY, RETRY.max, Jitter::from_entropy());
    loop {
        let why = match vminfod.sysinfo().await {
            Ok(answer) => {
                let sysinfo = answer.get("sysinfo").unwrap_or(&answer);
                let text = sysinfo.get("Admin IP").and_then(Value::as_str).unwrap_or_default();
                match text.parse() {
                    Ok(address) => return address,
                    Err(_) => format!("sysinfo has no Admin IP: {text:?}"),
                }
            }
            Err(error) => daemon::log::chain(&error),
        };
        tracing::warn!(
            reason = why,
            "cannot read the admin address from sysinfo; it is read again"
        );
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
    let transport: Arc<dyn Transport> = Arc::new(HttpTransport::new()?);
    let about = (config.service.as_str(), config.cn);
    run::boot(&dir, &commands, (transport, secret(config).await?), about).await
}
