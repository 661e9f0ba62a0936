// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `serve`: finds out who the node is, opens the listeners, runs the agent.

use std::sync::Arc;
use std::time::Duration;

use daemon::agent::{Keys as _, ServeError};
use daemon::http::listen;
use daemon::{Shutdown, Tasks};
use sdc_clients::fleet::{Fleet, Wire};
use sdc_clients::http::user_agent;
use sdc_clients::vminfod::Vminfod;
use sdc_clients::{Http, Jitter};
use serde_json::Value;

use crate::agent::Agent;
use crate::config::{Config, Own};
use crate::machine::Machine;
use crate::parts::Parts;

/// Between two questions who the node is.
const WAIT: Duration = Duration::from_secs(2);

pub(super) async fn serve(config: Config, shutdown: Shutdown) -> Result<(), ServeError> {
    let agent = user_agent(Own::NAME, env!("CARGO_PKG_VERSION"), config.cn_uuid.as_deref());
    let http = Http::new(&config.vminfod, &agent)?;
    let vminfod = Vminfod::with_http(http.without_retries());
    // Both arms are cancel-safe.
    let (uuid, hostname) = tokio::select! {
        () = shutdown.wait() => return Ok(()),
        found = who(&vminfod, config.cn_uuid.is_some()) => found,
    };
    let Some(cn_uuid) = config.cn_uuid.clone().or(uuid) else { return Ok(()) };
    let places = &config.basics.places;
    let machine = Machine::of(&places.state_dir).await.map_err(ServeError::failed)?;
    let (listener, address) = listen(places.status_listen).await?;
    let servers = config.nats.servers.join(", ");
    tracing::info!(%address, version = env!("CARGO_PKG_VERSION"), cn_uuid, servers, "listening");
    let jitter = config.basics.seed.map_or_else(Jitter::from_entropy, Jitter::from_seed);
    let name = format!("{} {cn_uuid}", Own::NAME);
    let client = config.nats.connect(&name, jitter).await.map_err(ServeError::failed)?;
    let makes = config.make.is_some().then(|| Fleet::with_client(client.clone(), &config.nats));
    let wire = Arc::new(Wire::new(client, &config.nats));
    let parts = Parts::new(config, cn_uuid, &machine, hostname, wire, &http);
    let agent = Agent { parts, makes };
    let tasks = Tasks::new(shutdown.clone());
    agent.listen(listener, &tasks, &shutdown);
    agent.run(shutdown).await;
    tasks.drain(Duration::from_secs(4)).await;
    tracing::info!("stopped");
    Ok(())
}

/// Returns the uuid and the name of the node. Where the uuid is configured vminfod is asked once, else until it knows.
async fn who(vminfod: &Vminfod, is_configured: bool) -> (Option<String>, Option<String>) {
    let mut said = false;
    loop {
        let answer = vminfod.sysinfo().await;
        if let Ok(answer) = &answer {
            let sysinfo = answer.get("sysinfo").unwrap_or(answer);
            let text = |key: &str| sysinfo.get(key).and_then(Value::as_str);
            let (uuid, name) = (text("UUID"), text("Hostname").map(str::to_owned));
            if uuid.is_some() || is_configured {
                return (uuid.map(sdc_clients::uuid_value), name);
            }
        } else if is_configured {
            return (None, None);
        }
        if !std::mem::replace(&mut said, true) {
            tracing::warn!("waiting for vminfod's sysinfo, which names this node");
        }
        tokio::time::sleep(WAIT).await;
    }
}
