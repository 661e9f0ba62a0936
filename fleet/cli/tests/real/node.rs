// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A node with its agent.

use std::sync::Arc;

use daemon::Shutdown;
use fleet_agent::agent::Agent;
use fleet_agent::config::Config;
use fleet_agent::machine::Machine;
use fleet_agent::parts::Parts;
use fleet_agent::status::Task;
use mocks::hub::Hub;
use sdc_clients::fleet::{Access, Fleet, Link, Wire};
use sdc_clients::vminfod::VmObject;
use sdc_clients::{Http, Jitter};
use serde_json::json;

pub(crate) const CN: &str = "c0000000-0000-4000-8000-000000000001";

/// A VM of the node.
pub(crate) fn vm(nth: usize, alias: &str) -> VmObject {
    let uuid = format!("40000000-0000-4000-8000-{nth:012}");
    let vm = json!({"zonename": uuid, "uuid": uuid, "alias": alias, "state": "running"});
    vm.as_object().unwrap().clone()
}

/// An agent that runs until it is killed.
pub(crate) struct Running {
    parts: Arc<Parts>,
    client: Link,
    task: tokio::task::JoinHandle<()>,
    shutdown: Shutdown,
}

impl Running {
    /// Starts the agent of the node that `hub` shows.
    pub(crate) async fn start(hub: &Hub, access: &Access, machine: &Machine) -> Running {
        Running::named(hub, access, machine, "cn-1", "1s").await
    }

    /// Starts one of a node with this name, and so long between two heartbeats.
    pub(crate) async fn named(
        hub: &Hub,
        access: &Access,
        machine: &Machine,
        name: &str,
        every: &str,
    ) -> Running {
        Running::with(hub, access, machine, name, every, None).await
    }

    /// Starts one that makes the streams too.
    pub(crate) async fn maker(
        hub: &Hub,
        access: &Access,
        machine: &Machine,
        makes: &Fleet,
    ) -> Running {
        Running::with(hub, access, machine, "cn-1", "1s", Some(makes.clone())).await
    }

    async fn with(
        hub: &Hub,
        access: &Access,
        machine: &Machine,
        name: &str,
        every: &str,
        makes: Option<Fleet>,
    ) -> Running {
        let streams = json!({"make": makes.is_some(), "replicas": 3, "bytes": 1 << 28});
        let config = json!({"server_uuid": CN, "nats": {"servers": access.servers}, "programs": {}, "streams": streams,
            "vminfod": {"url": "http://hub", "trust_tcp": true}, "heartbeat": every, "audit": "10s",
            "retry": {"min": "100ms", "max": "1s"}});
        let config = Config::from_json(&config.to_string()).unwrap();
        let client = access.connect("agent", Jitter::from_seed(1)).await.unwrap();
        let wire = Arc::new(Wire::new(client.clone(), access));
        let http = Http::with_transport("http://hub", "test", Arc::new(hub.clone())).unwrap();
        let parts = Parts::new(config, CN.to_owned(), machine, Some(name.to_owned()), wire, &http);
        let shutdown = Shutdown::new();
        let agent = Agent { parts: Arc::clone(&parts), makes };
        let stop = shutdown.clone();
        let task = tokio::spawn(async move { agent.run(stop).await });
        Running { parts, client, task, shutdown }
    }

    /// The name of the server that it is connected to.
    pub(crate) fn server(&self) -> String {
        self.client.server_info().server_name
    }

    /// What its publisher says.
    pub(crate) fn says(&self) -> String {
        self.parts.status.state(Task::Publisher).map_or_else(String::new, |it| it.to_string())
    }

    /// Ends it at whatever it awaits.
    pub(crate) fn kill(self) {
        self.shutdown.trigger();
        self.task.abort();
    }
}
