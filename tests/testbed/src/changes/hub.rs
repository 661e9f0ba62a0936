// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A simulated node and the whole daemon in this process, with real sockets and files.

use std::sync::Arc;

use anyhow::ensure;
use daemon::command::Commands;
use sdc_clients::Http;
use sdc_clients::vminfod::Vminfod;
use tokio::task::JoinHandle;
use vminfod::config::Config;

use simnode::in_process::InProcess;
use simnode::{CreateOptions, Node, Verbs, Wait};

use crate::cn;

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
    /// Where the daemon listens.
    pub url: String,
    /// A client that asks once.
    pub http: Http,
    vminfod: cn::Vminfod,
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
        let HubOptions { vms, seed, config } = options;
        let (node, commands, tap) =
            cn::node(CreateOptions { vms, seed, ..CreateOptions::new(dir.path().join("cn")) })?;
        let feed = tokio::spawn(commands.clone().feed_from(tap));
        let config = Config { root: node.root(), ..config };
        let vminfod = cn::Vminfod::start(config, wrap(commands), seed).await?;
        let url = format!("http://{}", vminfod.running.address);
        let http = Http::new(&url, "testbed")?.without_retries();
        Ok(Self { node, url, http, vminfod, feed, _dir: dir })
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
        let ended = self.vminfod.end().await;
        self.feed.abort();
        ensure!(ended, "some task of vminfod did not end");
        Ok(())
    }
}
