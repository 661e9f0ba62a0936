// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What runs: the servers, the processes of the agents, the consumers.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use rig::nats::Nats;
use rustix::process::Signal;

use super::centre::Hubs;
use crate::held::memory;
use crate::process::Child;

/// Nodes of one process.
pub(super) const TOGETHER: usize = 100;
/// Servers, and consumers that are killed.
pub(super) const SERVERS: usize = 3;
pub(super) const MIRRORS: usize = 2;
/// What `CHANGES` keeps.
pub(super) const BYTES: i64 = 1 << 30;

/// Seconds between two heartbeats of a node: every 2, and as the agent's default where there are many on one machine.
fn heartbeat(nodes: usize) -> usize {
    (nodes / 50).clamp(2, 15)
}

/// Seconds between two audits of a node: all nodes together make as many as a hundred do.
fn audit(nodes: usize) -> usize {
    20 * nodes.div_ceil(TOGETHER)
}

/// How long so many nodes may take to be on the feed, and to be shown there as they are: the servers are compared and
/// get the same messages, and what they all have lost each node finds at its next audit, which may be a quarter late.
pub(super) fn allowance(nodes: usize) -> Duration {
    Duration::from_secs(120 + 2 * audit(nodes) as u64)
}

/// What runs.
pub(super) struct Site {
    pub(super) nats: Nats,
    pub(super) hubs: Hubs,
    pub(super) hubs_url: String,
    pub(super) dir: PathBuf,
    pub(super) program: PathBuf,
    pub(super) seed: u64,
    pub(super) agents: Vec<Option<Child>>,
    pub(super) mirrors: Vec<Option<Child>>,
    pub(super) nodes: usize,
}

impl Site {
    fn servers(&self) -> Vec<String> {
        self.nats.servers().into_iter().flat_map(|server| ["--server".to_owned(), server]).collect()
    }

    fn spawn(&self, name: &str, args: &[String]) -> anyhow::Result<Child> {
        let args: Vec<String> = [format!("@{name}")]
            .into_iter()
            .chain(self.servers())
            .chain(args.iter().cloned())
            .collect();
        let mut child = Child::spawn(name, &self.program, &args).context(name.to_owned())?;
        child.ignore();
        Ok(child)
    }

    pub(super) fn start_agents(&mut self, nth: usize) -> anyhow::Result<()> {
        let first = nth * TOGETHER;
        let count = TOGETHER.min(self.nodes - first);
        let args = [
            ("--hubs", self.hubs_url.clone()),
            ("--dir", self.dir.join("agents").display().to_string()),
            ("--first", first.to_string()),
            ("--count", count.to_string()),
            ("--seed", self.seed.to_string()),
            ("--heartbeat", heartbeat(self.nodes).to_string()),
            ("--audit", audit(self.nodes).to_string()),
        ];
        let args: Vec<String> =
            args.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect();
        self.agents[nth] = Some(self.spawn("fleet-nodes", &args)?);
        Ok(())
    }

    pub(super) fn seen_by(&self, nth: usize) -> PathBuf {
        self.dir.join(format!("mirror-{nth}"))
    }

    pub(super) fn start_mirror(&mut self, nth: usize) -> anyhow::Result<()> {
        let out = self.seen_by(nth);
        // What the one before saw is no word of this one.
        let _none = std::fs::remove_file(&out);
        let args = ["--out".to_owned(), out.display().to_string()];
        self.mirrors[nth] = Some(self.spawn("fleet-mirror", &args)?);
        Ok(())
    }

    pub(super) fn signal_mirror(&self, nth: usize, signal: Signal) {
        if let Some(child) = &self.mirrors[nth] {
            child.signal(signal);
        }
    }

    /// How much memory the agents of a node take.
    pub(super) fn memory(&self) -> Option<u64> {
        let pids = self.agents.iter().flatten().filter_map(Child::id);
        let held: Vec<u64> = pids.filter_map(|pid| memory(pid, "VmRSS").ok()).collect();
        (held.len() == self.agents.len()).then(|| held.iter().sum::<u64>() / self.nodes as u64)
    }

    /// The union of the nodes.
    pub(super) fn truth(&self) -> BTreeMap<String, String> {
        let of = |(cn, hub): (&String, &mocks::hub::Hub)| {
            let pair = |(name, vm): (String, sdc_clients::vminfod::VmObject)| {
                (format!("{cn} {name}"), vm["alias"].as_str().unwrap_or_default().to_owned())
            };
            hub.vms().into_iter().map(pair).collect::<Vec<_>>()
        };
        self.hubs.iter().flat_map(of).collect()
    }
}

/// Ends a process at whatever it does.
pub(super) async fn kill(child: &mut Option<Child>) {
    if let Some(mut child) = child.take() {
        child.signal(Signal::KILL);
        let _ended = child.wait().await;
    }
}
