// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The processes that are killed: agents of many nodes, and a consumer that writes down what it sees.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser;
use daemon::Shutdown;
use fleet_agent::agent::Agent;
use fleet_agent::config::Config;
use fleet_agent::machine::Machine;
use fleet_agent::parts::Parts;
use sdc_clients::fleet::{Access, Fleet, Follower, Mirror, Wire};
use sdc_clients::vminfod::VmFields as _;
use sdc_clients::{Http, Jitter};
use serde_json::json;
use tokio::time::{Instant, sleep_until};

use super::centre::cn;
use super::site::{BYTES, SERVERS};

/// Between two looks of a consumer at what it has.
const LOOK: Duration = Duration::from_millis(300);

/// Between two snapshots of a consumer: some in a run.
const AUDIT: Duration = Duration::from_secs(120);

#[derive(Debug, Parser)]
struct NodesArgs {
    #[arg(long)]
    server: Vec<String>,
    /// Where the nodes are served.
    #[arg(long)]
    hubs: String,
    /// Where the agents keep their files.
    #[arg(long)]
    dir: PathBuf,
    #[arg(long)]
    first: usize,
    #[arg(long)]
    count: usize,
    #[arg(long)]
    seed: u64,
    /// Seconds between two heartbeats: few, so that a takeover fits into a test.
    #[arg(long, default_value_t = 2)]
    heartbeat: u64,
    /// Seconds between two audits.
    #[arg(long, default_value_t = 20)]
    audit: u64,
}

/// The process of the agents of some nodes.
pub fn nodes(args: &[OsString]) -> ExitCode {
    crate::arguments::command("testbed @fleet-nodes", args, async |args: NodesArgs| {
        let shutdown = Shutdown::new();
        shutdown.on_signals()?;
        let mut running = tokio::task::JoinSet::new();
        for nth in args.first..args.first + args.count {
            let agent = agent(&args, nth).await.with_context(|| format!("node {nth}"))?;
            let shutdown = shutdown.clone();
            running.spawn(async move { agent.run(shutdown).await });
        }
        running.join_all().await;
        Ok(true)
    })
}

async fn agent(args: &NodesArgs, nth: usize) -> anyhow::Result<Agent> {
    let (cn, dir) = (cn(nth), args.dir.join(nth.to_string()));
    std::fs::create_dir_all(&dir)?;
    // As on a headnode, the operator's key is on one of them.
    let streams = json!({"make": nth == 0, "replicas": SERVERS, "bytes": BYTES});
    let config = json!({"server_uuid": cn, "streams": streams, "nats": {"servers": args.server}, "programs": {},
        "vminfod": {"url": format!("{}/{cn}", args.hubs), "trust_tcp": true}, "state_dir": dir,
        "heartbeat": format!("{}s", args.heartbeat), "audit": format!("{}s", args.audit), "retry": {"min": "100ms", "max": "2s"},
        "seed": args.seed.wrapping_add(nth as u64)});
    let config = Config::from_json(&config.to_string())?;
    let jitter = Jitter::from_seed(args.seed.wrapping_add(nth as u64));
    let client = config.nats.connect(&format!("node {nth}"), jitter).await?;
    let makes = config.make.is_some().then(|| Fleet::with_client(client.clone(), &config.nats));
    let wire = Arc::new(Wire::new(client, &config.nats));
    let http = Http::new(&format!("{}/{cn}", args.hubs), "fleet-feed")?;
    let machine = Machine::of(&dir).await?;
    let parts = Parts::new(config, cn, &machine, Some(format!("node-{nth}")), wire, &http);
    Ok(Agent { parts, makes })
}

#[derive(Debug, Parser)]
struct MirrorArgs {
    #[arg(long)]
    server: Vec<String>,
    /// Where it writes what it sees.
    #[arg(long)]
    out: PathBuf,
}

/// The process of a consumer.
pub fn mirror(args: &[OsString]) -> ExitCode {
    crate::arguments::command("testbed @fleet-mirror", args, async |args: MirrorArgs| {
        let access = Access { servers: args.server, ..Access::default() };
        let fleet = Fleet::connect(&access, "mirror", Jitter::from_entropy()).await?;
        let mut follower = Follower::new(&fleet, "vms.*.*", Jitter::from_entropy()).audited(AUDIT);
        let mut next_look = Instant::now();
        let mut written = BTreeMap::new();
        loop {
            // Both arms are cancel-safe.
            tokio::select! {
                _ = follower.next() => {}
                () = sleep_until(next_look) => {
                    let began = Instant::now();
                    let seen = shown(follower.mirror());
                    if seen != written {
                        let next = args.out.with_extension("new");
                        std::fs::write(&next, serde_json::to_vec(&seen)?)?;
                        std::fs::rename(&next, &args.out)?;
                        written = seen;
                    }
                    // What many VMs cost leaves time to follow them.
                    next_look = Instant::now() + LOOK.max(4 * began.elapsed());
                }
            }
        }
    })
}

/// The VMs of a mirror: by node and VM, the alias, which tells the state's number.
pub(super) fn shown(mirror: &Mirror) -> BTreeMap<String, String> {
    let pair = |vm: &Arc<sdc_clients::fleet::FleetVm>| {
        (format!("{} {}", vm.cn, vm.uuid), vm.object.alias().unwrap_or_default().to_owned())
    };
    mirror.vms().map(pair).collect()
}
