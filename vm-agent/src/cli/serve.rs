// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `serve`: waits for the configuration, takes the lock, finds out who the node is, opens the listeners,
//! runs the agent.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use daemon::cli::late_config;
use daemon::timing::Retry;
use daemon::{Lock, Shutdown, Window, disk, exit};
use sdc_clients::Jitter;
use sdc_clients::http::{HttpTransport, Transport, user_agent};
use sdc_clients::vminfod::Vminfod;

use super::args::{Files, NAME};
use crate::agent::{Agent, clients};
use crate::config::Config;
use crate::identity;
use crate::serve::CONNECTIONS;

/// The waits while vminfod does not say who the node is.
const RETRY: Window = Window { min: Duration::from_secs(1), max: Duration::from_secs(10) };

pub(super) fn serve(files: &Files) -> ExitCode {
    let (file, policy) = (files.config.clone(), files.policy.clone());
    let load = move || Config::load(&file, policy.as_deref());
    daemon::cli::run(NAME, async {
        let shutdown = Shutdown::new();
        if let Err(err) = shutdown.on_signals() {
            return exit::report(NAME, &err, exit::FAILED);
        }
        let config = match late_config(NAME, load, &shutdown).await {
            Ok(Some(config)) => config,
            Ok(None) => return ExitCode::SUCCESS,
            Err(err) => return exit::report(NAME, &err, exit::config_code()),
        };
        match serve_with(config, shutdown).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(err) => {
                let again = err.downcast_ref::<daemon::lock::LockError>();
                let held = matches!(again, Some(daemon::lock::LockError::Held { .. }));
                exit::report(NAME, &*err, if held { exit::second_code() } else { exit::FAILED })
            }
        }
    })
}

async fn serve_with(config: Config, shutdown: Shutdown) -> anyhow::Result<()> {
    daemon::log::init(NAME, &config.log_level);
    for key in &config.unknown {
        tracing::warn!(key, "unknown key in the configuration");
    }
    // One listener is a port, the other a socket.
    daemon::descriptors::raise(2 * CONNECTIONS);
    let dir = config.places.state_dir.clone();
    let locked = disk::blocking(move || {
        std::fs::create_dir_all(&dir).with_context(|| format!("state_dir {}", dir.display()))?;
        anyhow::Ok(Lock::take(&dir.join("lock"))?)
    });
    let _only_one = locked.await.context("the lock")??;
    let transport: Arc<dyn Transport> = Arc::new(HttpTransport::new()?);
    let cn_uuid = match &config.cn_uuid {
        Some(uuid) => uuid.clone(),
        None => {
            let agent = user_agent("vm-agent", env!("CARGO_PKG_VERSION"), None);
            let vminfod = Vminfod::new(&config.services.vminfod, &agent)?;
            let retry = Retry::new(RETRY, RETRY.max, Jitter::from_entropy());
            // Both arms are cancel-safe.
            tokio::select! {
                () = shutdown.wait() => return Ok(()),
                uuid = identity::find(&vminfod, retry) => uuid,
            }
        }
    };
    let address = config.places.status_listen;
    let listener = tokio::net::TcpListener::bind(address)
        .await
        .with_context(|| format!("status.listen {address}"))?;
    tracing::info!(
        address = %listener.local_addr()?,
        version = env!("CARGO_PKG_VERSION"),
        cn_uuid,
        vmapi = config.services.vmapi,
        vminfod = config.services.vminfod,
        "listening"
    );
    let made = clients(&config, &cn_uuid, Arc::clone(&transport), transport)?;
    let agent = Agent::with_clients(config, cn_uuid, made);
    let tasks = daemon::Tasks::new(shutdown.clone());
    agent.listen(listener, &tasks, &shutdown);
    agent.run(shutdown).await;
    tasks.drain(Duration::from_secs(4)).await;
    tracing::info!("stopped");
    Ok(())
}
