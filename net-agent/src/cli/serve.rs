// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The daemon: waits for its configuration, takes the lock, opens its listeners, runs the agent.
//! Wiring and nothing else.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use daemon::http::{Limits, Server};
use daemon::{Lock, Shutdown, exit};

use super::{Files, runtime};
use crate::agent::Agent;
use crate::config::Config;

/// How often a missing configuration file is looked for, as the shipped agent does.
const CONFIG_POLL: Duration = Duration::from_secs(10);

pub(super) fn serve(files: &Files) -> ExitCode {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(err) => {
            eprintln!("net-agent: {err:#}");
            return ExitCode::from(exit::FAILED);
        }
    };
    let code = runtime.block_on(async {
        let shutdown = Shutdown::new();
        if let Err(err) = shutdown.on_signals() {
            return exit::report("net-agent", &err, exit::FAILED);
        }
        let Some(config) = (match configured(files, &shutdown).await {
            Ok(config) => config,
            Err(err) => return exit::report("net-agent", &err, exit::config_code()),
        }) else {
            return ExitCode::SUCCESS;
        };
        match serve_with(config, shutdown).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(err) => {
                eprintln!("net-agent: {err:#}");
                // A second copy would fail for ever: SMF must not try again and again.
                let again = err.downcast_ref::<daemon::lock::LockError>();
                let held = matches!(again, Some(daemon::lock::LockError::Held { .. }));
                let smf = std::env::var_os("SMF_FMRI").is_some();
                ExitCode::from(if held && smf { exit::SMF_FATAL } else { exit::FAILED })
            }
        }
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    code
}

/// Waits for the file (config-agent writes it late on a fresh node). None: told to stop first.
async fn configured(
    files: &Files,
    shutdown: &Shutdown,
) -> Result<Option<Config>, daemon::ConfigError> {
    let mut said = false;
    loop {
        match Config::load(&files.config, files.policy.as_deref()) {
            Err(daemon::ConfigError::Read { path, source })
                if source.kind() == std::io::ErrorKind::NotFound =>
            {
                if !said {
                    daemon::log::init("net-agent", "info");
                    tracing::warn!(path = %path.display(), "waiting for the configuration file");
                    said = true;
                }
            }
            other => return other.map(Some),
        }
        // Both arms are cancel-safe.
        tokio::select! {
            () = shutdown.wait() => return Ok(None),
            () = tokio::time::sleep(CONFIG_POLL) => {}
        }
    }
}

async fn serve_with(config: Config, shutdown: Shutdown) -> anyhow::Result<()> {
    daemon::log::init("net-agent", &config.log_level);
    for key in &config.unknown {
        tracing::warn!(key, "unknown key in the configuration");
    }
    std::fs::create_dir_all(&config.state_dir)
        .with_context(|| format!("state_dir {}", config.state_dir.display()))?;
    let _only_one = Lock::take(&config.state_dir.join("lock"))?;
    let listener = tokio::net::TcpListener::bind(config.status_listen)
        .await
        .with_context(|| format!("status.listen {}", config.status_listen))?;
    tracing::info!(
        address = %listener.local_addr()?,
        version = env!("CARGO_PKG_VERSION"),
        cn_uuid = config.cn_uuid,
        napi = config.napi_url,
        vmapi = ?config.vmapi,
        vminfod = config.vminfod_url,
        "listening"
    );
    let socket = config.control_socket.clone();
    let agent = Agent::new(config)?;
    let limits = Limits { connections: 256, requests_per_second: 200, ..Limits::default() };
    let tasks = daemon::Tasks::new(shutdown.clone());
    let shown = Arc::clone(&agent);
    let server = Server::new(limits, shutdown.clone());
    tasks.spawn("status", server.serve(listener, move |asked| Arc::clone(&shown).answer(asked)));
    match daemon::http::bind_unix(&socket, 0o600) {
        Ok(bound) => {
            let told = Arc::clone(&agent);
            let server = Server::new(limits, shutdown.clone());
            tasks.spawn(
                "control",
                server.serve(bound, move |asked| Arc::clone(&told).control(asked)),
            );
        }
        // NICs are kept up without it; only approvals have to wait.
        Err(err) => tracing::error!(socket = %socket.display(), reason = %err, "no control socket"),
    }
    agent.run(shutdown).await;
    tasks.drain(Duration::from_secs(4)).await;
    tracing::info!("stopped");
    Ok(())
}
