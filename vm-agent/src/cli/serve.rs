// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `serve`: finds out who the node is, opens the listeners, runs the agent.

use std::sync::Arc;
use std::time::Duration;

use daemon::Shutdown;
use daemon::agent::{ServeError, find_uuid};
use daemon::http::listen;
use sdc_clients::http::{HttpTransport, Transport, user_agent};
use sdc_clients::vminfod::Vminfod;

use crate::agent::{Agent, clients};
use crate::config::Config;

pub(super) async fn serve(config: Config, shutdown: Shutdown) -> Result<(), ServeError> {
    let outside: Arc<dyn Transport> = Arc::new(HttpTransport::new()?);
    let node: Arc<dyn Transport> = Arc::new(HttpTransport::to(&config.services.vminfod)?);
    let cn_uuid = match &config.cn_uuid {
        Some(uuid) => uuid.clone(),
        None => {
            let agent = user_agent("vm-agent", env!("CARGO_PKG_VERSION"), None);
            let vminfod = Vminfod::new(&config.services.vminfod, &agent)?;
            // Both arms are cancel-safe.
            tokio::select! {
                () = shutdown.wait() => return Ok(()),
                uuid = find_uuid(&vminfod) => uuid,
            }
        }
    };
    let (listener, address) = listen(config.basics.places.status_listen).await?;
    tracing::info!(
        %address,
        version = env!("CARGO_PKG_VERSION"),
        cn_uuid,
        vmapi = config.services.vmapi,
        vminfod = config.services.vminfod,
        "listening"
    );
    let made = clients(&config, &cn_uuid, outside, node)?;
    let agent = Agent::with_clients(config, cn_uuid, made);
    let tasks = daemon::Tasks::new(shutdown.clone());
    agent.listen(listener, &tasks, &shutdown);
    agent.run(shutdown).await;
    tasks.drain(Duration::from_secs(4)).await;
    tracing::info!("stopped");
    Ok(())
}
