// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A compute node in this process, as every runner has one: the simulated node, and real daemons on it.

use std::sync::Arc;

use daemon::Shutdown;
use daemon::command::Commands;
use sdc_clients::Jitter;
use sdc_clients::http::Transport;
use serde_json::Value;
use simnode::in_process::InProcess;
use simnode::tap::Tap;
use simnode::{CreateOptions, Node, NodeError};
use vminfod::config::Config;
use vminfod::node::Ctx;
use vminfod::node::root::Root;

/// Makes a node whose events this process hears. Returns it with its commands, as they are without any wrapping.
pub fn node(options: CreateOptions) -> Result<(Node, InProcess, Tap), NodeError> {
    let (tap, program) = (Tap::default(), std::env::current_exe().ok());
    let node = Node::create(&CreateOptions { program, ..options })?.tapped(&tap);
    let commands = InProcess::new(&node);
    Ok((node, commands, tap))
}

/// Where a reading of the node without a daemon looks, with commands that work.
pub fn ctx(node: &Node) -> Ctx {
    Ctx::new(Root::new(node.root()), Arc::new(InProcess::new(node)))
}

/// A vminfod.
pub struct Vminfod {
    pub running: vminfod::Running,
    shutdown: Shutdown,
}

impl Vminfod {
    /// Starts one on a port of its own; returns when it serves. `seed` decides its pauses.
    pub async fn start(
        config: Config,
        commands: Arc<dyn Commands>,
        seed: u64,
    ) -> anyhow::Result<Self> {
        let config = Config { listen: ([127, 0, 0, 1], 0).into(), ..config };
        let (jitter, shutdown) = (Jitter::from_seed(seed), Shutdown::new());
        let running = vminfod::serve_with(config, commands, jitter, shutdown.clone()).await?;
        Ok(Self { running, shutdown })
    }

    /// Ends it; returns false if some task did not end.
    pub async fn end(self) -> bool {
        self.shutdown.trigger();
        self.running.ended().await
    }
}

/// Makes a net-agent that reaches NAPI and VMAPI by one transport, and vminfod by the other.
pub fn net_agent(
    config: &Value,
    outside: Arc<dyn Transport>,
    node: Arc<dyn Transport>,
) -> anyhow::Result<Arc<net_agent::agent::Agent>> {
    let config = net_agent::config::Config::from_json(&config.to_string())?;
    let made = net_agent::agent::clients(&config, outside, node)?;
    Ok(net_agent::agent::Agent::with_clients(config, made))
}

/// Makes a vm-agent of this node that reaches VMAPI by one transport, and vminfod by the other.
pub fn vm_agent(
    config: &Value,
    cn: &str,
    outside: Arc<dyn Transport>,
    node: Arc<dyn Transport>,
) -> anyhow::Result<Arc<vm_agent::agent::Agent>> {
    let config = vm_agent::config::Config::from_json(&config.to_string())?;
    let made = vm_agent::agent::clients(&config, cn, outside, node)?;
    Ok(vm_agent::agent::Agent::with_clients(config, cn.to_owned(), made))
}
