// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `serve`: waits for the configuration, takes the lock, opens the listeners, runs the agent.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use daemon::cli::late_config;
use daemon::disk;
use daemon::{ConfigError, Lock, Shutdown, exit};

use super::args::Files;
use super::common::{NAME, runtime};
use crate::agent::Agent;
use crate::config::{Config, VmapiChoice};
use crate::serve::CONNECTIONS;

pub(super) fn serve(files: &Files) -> ExitCode {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(err) => return exit::report(NAME, &*err, exit::FAILED),
    };
    let code = runtime.block_on(async {
        let shutdown = Shutdown::new();
        if let Err(err) = shutdown.on_signals() {
            return exit::report(NAME, &err, exit::FAILED);
        }
        let Some(config) = (match late_config(NAME, loader(files), &shutdown).await {
            Ok(config) => config,
            Err(err) => return exit::report(NAME, &err, exit::config_code()),
        }) else {
            return ExitCode::SUCCESS;
        };
        match serve_with(config, shutdown).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(err) => {
                let again = err.downcast_ref::<daemon::lock::LockError>();
                let held = matches!(again, Some(daemon::lock::LockError::Held { .. }));
                exit::report(NAME, &*err, if held { exit::second_code() } else { exit::FAILED })
            }
        }
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    code
}

fn loader(files: &Files) -> impl Fn() -> Result<Config, ConfigError> + Clone + Send + 'static {
    let (file, policy) = (files.config.clone(), files.policy.clone());
    move || Config::load(&file, policy.as_deref())
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
    let address = config.places.status_listen;
    let listener = tokio::net::TcpListener::bind(address)
        .await
        .with_context(|| format!("status.listen {address}"))?;
    let vmapi = match &config.services.vmapi {
        VmapiChoice::Url(url) => url,
        VmapiChoice::None => "none",
    };
    tracing::info!(
        address = %listener.local_addr()?,
        version = env!("CARGO_PKG_VERSION"),
        cn_uuid = config.policy.cn_uuid,
        napi = config.services.napi,
        vmapi,
        vminfod = config.services.vminfod,
        "listening"
    );
    let agent = Agent::new(config)?;
    let tasks = daemon::Tasks::new(shutdown.clone());
    agent.listen(listener, &tasks, &shutdown);
    agent.run(shutdown).await;
    tasks.drain(Duration::from_secs(4)).await;
    tracing::info!("stopped");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)] // C25
    async fn waits_for_a_missing_file() {
        let dir = tempfile::tempdir().unwrap();
        let files = Files {
            config: dir.path().join("net-agent.config.json"),
            policy: None,
            check_config: false,
        };
        let started = tokio::time::Instant::now();
        let (path, shutdown) = (files.config.clone(), Shutdown::new());
        let write = async {
            tokio::time::sleep(Duration::from_secs(3595)).await;
            let cn = "a829c448-085b-4138-adbc-583ac96881c3";
            let text = format!(r#"{{"napi": {{"url": "http://napi.lab"}}, "cn_uuid": "{cn}"}}"#);
            std::fs::write(path, text).unwrap();
        };
        let (found, ()) = tokio::join!(late_config(NAME, loader(&files), &shutdown), write);
        assert_eq!(found.unwrap().unwrap().services.napi, "http://napi.lab");
        assert_eq!(started.elapsed(), Duration::from_secs(3600), "read every ten seconds");
        // A wrong file ends the wait, and so does the shutdown.
        std::fs::write(&files.config, "{").unwrap();
        assert!(late_config(NAME, loader(&files), &shutdown).await.is_err());
        std::fs::remove_file(&files.config).unwrap();
        shutdown.trigger();
        assert!(late_config(NAME, loader(&files), &shutdown).await.unwrap().is_none());
    }
}
