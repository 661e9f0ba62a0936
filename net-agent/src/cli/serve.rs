// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `serve`: opens the listeners, runs the agent.

use std::time::Duration;

use daemon::Shutdown;
use daemon::agent::ServeError;
use daemon::http::listen;

use crate::agent::Agent;
use crate::config::{Config, VmapiChoice};

pub(super) async fn serve(config: Config, shutdown: Shutdown) -> Result<(), ServeError> {
    let (listener, address) = listen(config.basics.places.status_listen).await?;
    let vmapi = match &config.services.vmapi {
        VmapiChoice::Url(url) => url,
        VmapiChoice::None => "none",
    };
    tracing::info!(
        %address,
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
    use daemon::agent::FileArgs;
    use daemon::cli::late_config;

    use super::*;
    use crate::config::Own;

    #[tokio::test(start_paused = true)] // C25
    async fn waits_for_a_missing_file() {
        let dir = tempfile::tempdir().unwrap();
        let files = FileArgs {
            config: dir.path().join("net-agent.config.json"),
            policy: None,
            url: None,
            check_config: false,
        };
        let from = files.clone();
        let load = move || from.load::<Own>();
        let started = tokio::time::Instant::now();
        let (path, shutdown) = (files.config.clone(), Shutdown::new());
        let write = async {
            tokio::time::sleep(Duration::from_secs(3595)).await;
            let cn = "a829c448-085b-4138-adbc-583ac96881c3";
            let text = format!(r#"{{"napi": {{"url": "http://napi.lab"}}, "cn_uuid": "{cn}"}}"#);
            std::fs::write(path, text).unwrap();
        };
        let (found, ()) = tokio::join!(late_config("net-agent", load.clone(), &shutdown), write);
        assert_eq!(found.unwrap().unwrap().services.napi, "http://napi.lab");
        assert_eq!(started.elapsed(), Duration::from_secs(3600), "read every ten seconds");
        // A wrong file ends the wait, and so does the shutdown.
        std::fs::write(&files.config, "{").unwrap();
        assert!(late_config("net-agent", load.clone(), &shutdown).await.is_err());
        std::fs::remove_file(&files.config).unwrap();
        shutdown.trigger();
        assert!(late_config("net-agent", load.clone(), &shutdown).await.unwrap().is_none());
    }
}
