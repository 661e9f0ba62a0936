// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The configurations of the daemons in the lab: those of production, with every wait divided by
//! the speed.

use std::path::PathBuf;

use indexmap::IndexMap;
use serde_json::{Value, json};

use super::options::{Part, WorldOptions};
use super::ports::{Ports, local, url};
use simnode::Node;

/// The user that owns the data centre.
pub const ADMIN: &str = "930896af-bf8c-48d4-885c-6573a94b1853";

/// What the configurations name.
pub(super) struct Configs<'a> {
    pub(super) options: &'a WorldOptions,
    pub(super) ports: &'a Ports,
    pub(super) node: &'a Node,
    pub(super) napi: String,
    pub(super) vmapi: String,
    /// Where net-agent keeps what must survive it.
    pub(super) state_dir: PathBuf,
}

impl Configs<'_> {
    pub(super) fn vminfod(&self) -> Value {
        let listen = local(self.ports.vminfod).to_string();
        let mut config = self.node.vminfod_config_json(&listen);
        if let Some(map) = config.as_object_mut() {
            map.insert("sweep".into(), json!(self.span(10_000, 1_000)));
            map.insert("log_level".into(), json!("debug"));
            map.extend(self.options.vminfod.clone());
        }
        config
    }

    /// Production's configuration with every wait divided by the speed; a floor keeps a wait that
    /// real programs must be able to meet on a busy machine.
    pub(super) fn agent(&self) -> Value {
        let window =
            |low: u64, high: u64| json!({ "min": self.span(low, 0), "max": self.span(high, 0) });
        let verdicts = [5_000, 15_000, 60_000, 300_000].map(|ms| self.span(ms, 100));
        json!({
            "napi": { "url": self.napi },
            "vmapi": { "url": self.vmapi },
            "vminfod": { "url": url(self.ports.vminfod) },
            "cn_uuid": self.node.cn_uuid(),
            "admin_uuid": ADMIN,
            "no_rabbit": true,
            "status": { "listen": local(self.ports.agent).to_string() },
            "state_dir": self.state_dir,
            "seed": self.options.seed,
            "startup_delay": window(120_000, 600_000),
            "server_nic_delay": window(0, 60_000),
            "settle": self.span(5_000, 100),
            "second_look": self.span(60_000, 250),
            "min_age": self.span(900_000, 1_000),
            "provisioning_age": self.span(7_200_000, 10_000),
            "resync": self.span(300_000, 1_000),
            "relist": self.span(86_400_000, 10_000),
            "unsupported_backoff": self.span(14_400_000, 1_500),
            "verdict_retry": verdicts,
            "retry": window(2_000, 64_000),
            "conflict_retry": window(1_000, 30_000),
            "config_poll": self.span(10_000, 250),
            "log_level": "info",
        })
    }

    /// The same for vm-agent; what it says of VMs that went has no shorter waits than production's, and
    /// retries are as quick as they are there.
    pub(super) fn vm_agent(&self) -> Value {
        let most = |ms: u64| json!({ "min": "0s", "max": self.span(ms, 500) });
        json!({
            "vmapi_url": self.vmapi,
            "vminfod": { "url": url(self.ports.vminfod) },
            "server_uuid": self.node.cn_uuid(),
            "no_rabbit": true,
            "status": { "listen": local(self.ports.vm_agent).to_string() },
            "state_dir": self.options.dir.join("vm-agent"),
            "seed": self.options.seed,
            "startup_delay": most(300_000),
            "relist": self.span(86_400_000, 10_000),
            "resync": self.span(300_000, 1_000),
            "second_look": self.span(60_000, 250),
            "provisioning_age": self.span(7_200_000, 10_000),
            "retry": { "min": "100ms", "max": self.span(30_000, 2_000) },
            "log_level": "info",
        })
    }

    fn span(&self, millis: u64, floor: u64) -> String {
        format!("{}ms", (millis / u64::from(self.options.speed.max(1))).max(floor))
    }

    pub(super) fn console(&self) -> Value {
        let agents = [
            (Part::NetAgent, "net-agent", self.ports.agent),
            (Part::VmAgent, "vm-agent", self.ports.vm_agent),
            (Part::Kvmd, "kvmd", self.ports.kvmd),
        ];
        let agents = agents.iter().filter(|(part, ..)| !self.options.without.contains(part));
        let agents = agents.map(|(_, name, port)| (*name, local(*port).to_string()));
        json!({
            "listen": local(self.ports.console).to_string(),
            "vminfod": local(self.ports.vminfod).to_string(),
            "agents": agents.collect::<IndexMap<_, _>>(),
        })
    }

    /// kvmd as it runs on SmartOS.
    pub(super) fn kvmd(&self) -> Value {
        json!({
            "enabled": true,
            "listen": local(self.ports.kvmd).to_string(),
            "run_dir": self.options.dir.join("kvmd"),
            "control": { "enabled": false },
            "vminfod": { "enabled": true, "url": url(self.ports.vminfod), "settle": self.span(2_000, 100) },
        })
    }
}
