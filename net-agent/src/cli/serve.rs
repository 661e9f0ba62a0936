// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The daemon: waits for its configuration, takes the lock, opens its listeners, runs the agent.
//! Wiring and nothing else.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use daemon::{Lock, Shutdown, exit};

use super::args::Files;
use super::{NAME, runtime};
use crate::agent::Agent;
use crate::config::Config;
use crate::pages::CONNECTIONS;

/// How often a missing configuration file is looked for, as the shipped agent does.
const CONFIG_POLL: Duration = Duration::from_secs(10);

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
        let Some(config) = (match configured(files, &shutdown).await {
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
                    daemon::log::init(NAME, "info");
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
    daemon::log::init(NAME, &config.log_level);
    for key in &config.unknown {
        tracing::warn!(key, "unknown key in the configuration");
    }
    // One listener is a port, the other a socket.
    daemon::descriptors::raise(2 * CONNECTIONS);
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

    #[tokio::test(start_paused = true)]
    async fn a_missing_file_is_waited_for() {
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
        let (found, ()) = tokio::join!(configured(&files, &shutdown), write);
        assert_eq!(found.unwrap().unwrap().napi_url, "http://napi.lab");
        assert_eq!(started.elapsed(), Duration::from_secs(3600), "looked for every ten seconds");
        // Told to stop, it stops; a file that is wrong ends the wait.
        std::fs::write(&files.config, "{").unwrap();
        assert!(configured(&files, &shutdown).await.is_err());
        std::fs::remove_file(&files.config).unwrap();
        shutdown.trigger();
        assert!(configured(&files, &shutdown).await.unwrap().is_none());
    }
}
