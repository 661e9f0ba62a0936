// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The agents of the nodes: the real ones, with waits that are shorter than a step, or longer than
//! all of them.

use std::sync::Arc;

use daemon::Shutdown;
use mocks::transport::InProcess;
use sdc_clients::http::Transport;
use serde_json::json;
use testbed::cn;

use super::wire::Wire;
use super::{CN, World};

/// Which agents run. A vm-agent never asks NAPI; so what net-agents do changes nothing for it, and
/// each kind has an exploration of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Net,
    Vm,
}

/// An agent that runs.
pub(super) enum Running {
    Net(Arc<net_agent::agent::Agent>),
    Vm(Arc<vm_agent::agent::Agent>),
}

impl Running {
    /// Starts the agent of a node.
    pub(super) fn start(world: &World, node: usize, shutdown: &Shutdown) -> Self {
        let wire: Arc<dyn Transport> = Arc::new(Wire {
            world: world.clone(),
            node,
            napi: InProcess::new(world.napi.clone()),
            vmapi: InProcess::new(world.vmapi.clone()),
        });
        let window = |low: &str, high: &str| json!({"min": low, "max": high});
        let common = json!({
            "seed": 7 + node, "log_level": "off", "state_dir": world.state_dir(node),
            "cnapi": {"url": "none"},
            "startup_delay": window("20ms", "20ms"),
            "provisioning_age": "1ms", "resync": "60s", "relist": "0s",
            "retry": window("20s", "30s"), "pace": {"per_second": 1000, "in_flight": 8},
        });
        match world.kind {
            Kind::Net => {
                let mut config = json!({
                    "napi": {"url": "http://napi.lab"}, "vmapi": {"url": "http://vmapi.lab"},
                    "cn_uuid": CN[node], "server_nic_delay": window("0s", "0s"),
                    "settle": "20ms", "second_look": "20ms", "min_age": "1ms",
                    "verdict_retry": ["50ms", "100ms", "20s"],
                    "conflict_retry": window("10ms", "20ms"),
                });
                add(&mut config, &common);
                let agent = cn::net_agent(&config, Arc::clone(&wire), wire).unwrap();
                tokio::spawn(Arc::clone(&agent).run(shutdown.clone()));
                Self::Net(agent)
            }
            Kind::Vm => {
                let (vmapi, cn) = ("http://vmapi.lab", CN[node]);
                // What a node sends is answered, or lost, before another looks again.
                let mut config =
                    json!({"vmapi_url": vmapi, "server_uuid": cn, "second_look": "60s"});
                add(&mut config, &common);
                let agent = cn::vm_agent(&config, cn, Arc::clone(&wire), wire).unwrap();
                tokio::spawn(Arc::clone(&agent).run(shutdown.clone()));
                Self::Vm(agent)
            }
        }
    }

    /// What it knows and means to do, without the times.
    pub(super) fn known(&self) -> String {
        let all = match self {
            Self::Net(agent) => {
                let parts = &agent.parts;
                let departures: Vec<String> = parts
                    .departures
                    .all()
                    .iter()
                    .map(|(mac, d)| {
                        format!("{mac} {} {:?} {} {:?} {}", d.vm, d.left, d.tries, d.waits, d.why)
                    })
                    .collect();
                format!(
                    "{} {:?} {:?} {:?} {:?}",
                    parts.node.with(|inventory| format!("{inventory:?}")),
                    *parts.gate,
                    departures,
                    parts.status.waiting_for(),
                    parts.schedule
                )
            }
            Self::Vm(agent) => format!("{:?}", agent.parts),
        };
        let timeless = |word: &&str| {
            let unit = word.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
            word.len() == unit.len() || !matches!(unit, "s" | "ms" | "µs" | "ns")
        };
        all.split(|c: char| !c.is_alphanumeric() && c != '.').filter(timeless).collect()
    }
}

fn add(config: &mut serde_json::Value, more: &serde_json::Value) {
    let all = more.as_object().unwrap();
    config.as_object_mut().unwrap().extend(all.clone());
}
