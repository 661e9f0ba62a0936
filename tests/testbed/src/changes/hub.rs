// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A simulated node and the whole daemon in this process, with real sockets and files.

use std::path::Path;
use std::sync::Arc;

use anyhow::ensure;
use daemon::Shutdown;
use daemon::command::Commands;
use sdc_clients::vminfod::Vminfod;
use sdc_clients::{Http, Jitter};
use tokio::task::JoinHandle;
use vminfod::config::Config;

use simnode::in_process::InProcess;
use simnode::tap::Tap;
use simnode::{CreateOptions, Node, Verbs, Wait};

/// How a hub is made.
pub struct HubOptions {
    /// VMs to begin with.
    pub vms: u32,
    /// Decides everything random.
    pub seed: u64,
    /// The daemon's settings, without its root and its address.
    pub config: Config,
}

impl HubOptions {
    /// So many VMs, everything else as on a real node.
    pub fn new(vms: u32, seed: u64) -> Self {
        Self { vms, seed, config: Config::default() }
    }
}

/// A node with a daemon.
pub struct Hub {
    /// The node; what is done to it is announced to the daemon.
    pub node: Node,
    /// The node's commands, as they are without any wrapping.
    pub commands: InProcess,
    /// Where the daemon listens.
    pub url: String,
    /// A client that asks once.
    pub http: Http,
    running: vminfod::Running,
    shutdown: Shutdown,
    feed: JoinHandle<()>,
    _dir: tempfile::TempDir,
}

impl Hub {
    /// Makes a node and serves it.
    pub async fn start(options: HubOptions) -> anyhow::Result<Self> {
        Self::start_with(options, |commands| Arc::new(commands)).await
    }

    /// The same with other commands than the node's own.
    pub async fn start_with(
        options: HubOptions,
        wrap: impl FnOnce(InProcess) -> Arc<dyn Commands>,
    ) -> anyhow::Result<Self> {
        let dir = tempfile::tempdir()?;
        let (node, tap) = tapped_node(&dir.path().join("cn"), options.vms, options.seed)?;
        let commands = InProcess::new(&node);
        let feed = tokio::spawn(commands.clone().feed_from(tap));
        let shutdown = Shutdown::new();
        let config =
            Config { root: node.root(), listen: ([127, 0, 0, 1], 0).into(), ..options.config };
        let running = vminfod::serve_with(
            config,
            wrap(commands.clone()),
            Jitter::from_seed(options.seed),
            shutdown.clone(),
        )
        .await?;
        let url = format!("http://{}", running.address);
        let http = Http::new(&url, "testbed")?.without_retries();
        Ok(Self { node, commands, url, http, running, shutdown, feed, _dir: dir })
    }

    /// A client of the daemon.
    pub fn client(&self) -> Vminfod {
        Vminfod::with_http(self.http.clone())
    }

    /// vmadm's verbs, which wait for their effects in the daemon.
    pub fn verbs(&self) -> anyhow::Result<Verbs> {
        Ok(Verbs::new(&self.node, Wait::at(&self.url)?))
    }

    /// The names of the node's zones.
    pub fn zones(&self) -> anyhow::Result<Vec<String>> {
        Ok(self.node.zones()?.iter().map(|zone| zone.zonename.clone()).collect())
    }

    /// Ends the daemon.
    pub async fn stop(self) -> anyhow::Result<()> {
        self.shutdown.trigger();
        let ended = self.running.ended().await;
        self.feed.abort();
        ensure!(ended, "some task of vminfod did not end");
        Ok(())
    }
}

/// A node whose events this process hears.
pub fn tapped_node(dir: &Path, vms: u32, seed: u64) -> anyhow::Result<(Node, Tap)> {
    let tap = Tap::default();
    let program = std::env::current_exe().ok();
    let options = CreateOptions { vms, seed, program, ..CreateOptions::new(dir) };
    Ok((Node::create(&options)?.tapped(&tap), tap))
}
