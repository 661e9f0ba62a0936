// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The configurations of the daemons in the lab: those of production, with every wait divided by
//! the speed.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use daemon::agent::hub::SOCKET;
use indexmap::IndexMap;
use rig::nfs;
use serde_json::{Value, json};

use super::centre::{ADMIN, Centre};
use super::daemons::Daemons;
use super::options::WorldOptions;
use super::ports::{Ports, local, url};
use super::qemus;
use simnode::Node;

/// What the configurations name.
pub(super) struct Configs<'a> {
    pub(super) options: &'a WorldOptions,
    pub(super) ports: &'a Ports,
    pub(super) node: &'a Node,
    /// The node's admin address.
    pub(super) admin: Ipv4Addr,
    pub(super) centre: &'a Centre,
    /// What runs on the node.
    pub(super) daemons: &'a Daemons,
    /// Where net-agent keeps what must survive it.
    pub(super) state_dir: PathBuf,
}

impl Configs<'_> {
    /// Where agents read vminfod: the socket that it has below its root.
    fn hub(&self) -> String {
        format!("unix:{}{SOCKET}", self.node.root().display())
    }

    pub(super) fn vminfod(&self) -> Value {
        let listen = local(self.ports.vminfod).to_string();
        let mut config = self.node.vminfod_config_json(&listen);
        if let Some(map) = config.as_object_mut() {
            map.insert("sweep".into(), json!(self.span(10_000, 1_000)));
            map.insert("log_level".into(), json!("debug"));
            map.insert("metrics".into(), self.metrics(self.ports.vminfod));
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
            "napi": { "url": self.centre.napi.url() },
            "vmapi": { "url": self.centre.vmapi.url() },
            "cnapi": { "url": self.centre.cnapi.url() },
            "vminfod": { "url": self.hub() },
            "cn_uuid": self.node.cn_uuid(),
            "admin_uuid": ADMIN,
            "no_rabbit": true,
            "status": { "listen": local(self.ports.agent).to_string() },
            "metrics": self.metrics(self.ports.agent),
            "state_dir": self.state_dir,
            "migration_agent": { "state_dir": self.options.dir.join("migration-agent") },
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
            "log_level": "info",
        })
    }

    /// The same for vm-agent; what it says of VMs that went has no shorter waits than production's, and
    /// retries are as quick as they are there.
    pub(super) fn vm_agent(&self) -> Value {
        let most = |ms: u64| json!({ "min": "0s", "max": self.span(ms, 500) });
        json!({
            "vmapi_url": self.centre.vmapi.url(),
            "cnapi": { "url": self.centre.cnapi.url() },
            "napi": { "url": self.centre.napi.url() },
            "vminfod": { "url": self.hub() },
            "server_uuid": self.node.cn_uuid(),
            "no_rabbit": true,
            "status": { "listen": local(self.ports.vm_agent).to_string() },
            "metrics": self.metrics(self.ports.vm_agent),
            "state_dir": self.options.dir.join("vm-agent"),
            "migration_agent": { "state_dir": self.options.dir.join("migration-agent") },
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

    /// Returns `metrics`: the same port at the admin address.
    fn metrics(&self, port: u16) -> Value {
        json!({ "listen": format!("{}:{port}", self.admin) })
    }

    fn span(&self, millis: u64, floor: u64) -> String {
        format!("{}ms", (millis / u64::from(self.options.speed.max(1))).max(floor))
    }

    /// The page shows the agents that run.
    pub(super) fn console(&self) -> Value {
        let migration_status = self.ports.migration_agent;
        let agents = [
            ("net-agent", self.ports.agent),
            ("vm-agent", self.ports.vm_agent),
            ("kvmd", self.ports.kvmd),
            ("migration-agent", migration_status),
        ];
        let agents = agents.iter().filter(|(name, _)| self.daemons.pid(name).is_some());
        let agents = agents.map(|(name, port)| (*name, local(*port).to_string()));
        let mut config = json!({
            "listen": local(self.ports.console).to_string(),
            "vminfod": local(self.ports.vminfod).to_string(),
            "metrics": self.metrics(self.ports.console),
            "agents": agents.collect::<IndexMap<_, _>>(),
        });
        if self.daemons.pid("migration-service").is_some() {
            config["migrations"] = json!(self.centre.migrations.url());
        }
        if self.daemons.pid("volapi").is_some() {
            config["volumes"] = json!(url(self.ports.volapi[0]));
        }
        config
    }

    /// The page of the data centre shows what there is of it.
    pub(super) fn fleet_page(&self, servers: &[String]) -> Value {
        let node = self.console();
        let mut config = json!({
            "listen": local(self.ports.fleet_page).to_string(),
            "nats": { "servers": servers },
            "node_page": format!("{}/", url(self.ports.console)),
        });
        for name in ["migrations", "volumes"] {
            if let Some(service) = node.get(name) {
                config[name] = service.clone();
            }
        }
        config
    }

    /// Storage VMs are called where there is an NFS server that they can run.
    pub(super) fn volapi(&self, workflow: &str, vmapi: &str) -> Value {
        let centre = self.centre;
        let [port, status] = self.ports.volapi;
        let mut config = json!({
            "instance": "0b4a4a3e-8b7c-4a09-9c3e-2a5d8f5e0c11",
            "vmapi": { "url": vmapi },
            "cnapi": { "url": centre.cnapi.url() },
            "napi": { "url": centre.napi.url() },
            "papi": { "url": centre.papi.url() },
            "imgapi": { "url": centre.imgapi.url() },
            "workflow": { "url": workflow },
            "listen": local(port).to_string(),
            "status": { "listen": local(status).to_string() },
            "probe": { "every": if nfs::why_not().is_none() { "1s" } else { "0s" } },
            "state_dir": self.options.dir.join("volapi"),
        });
        if self.daemons.pid("migration-agent").is_some() {
            config["rfd26"] = json!(true); // the agents make its snapshots
            let dir = self.options.dir.join("volapi/trust");
            config["trust"] = json!({ "url": centre.migrations.trust_url(), "dir": dir });
            config["agents"] = json!({ "port": centre.agents[0] });
        }
        if let Value::Object(map) = &mut config {
            map.extend(self.options.volapi.clone());
        }
        config
    }

    /// The commands are those in the node's `bin`. It listens at the admin address, of which vminfod tells it.
    pub(super) fn migration_agent(&self) -> Value {
        let bin = |name: &str| self.node.tool(name);
        let ([port, data_port], status) = (self.centre.agents, self.ports.migration_agent);
        let mut config = json!({
            "service_url": self.centre.migrations.trust_url(),
            "cnapi_url": self.centre.cnapi.url(),
            "server_uuid": self.node.cn_uuid(),
            "no_rabbit": true,
            "trust_dir": self.options.dir.join("migration-agent/trust"),
            "vminfod": { "url": self.hub() },
            "listen": { "port": port, "data_port": data_port },
            "commands": {
                "zfs": bin("zfs"), "zpool": bin("zpool"), "vmadm": bin("vmadm"),
                "net_agent": bin("net-agent"), "zonecfg": bin("zonecfg"),
                "zoneadm": bin("zoneadm"), "svcprop": bin("svcprop"),
            },
            "vm_agent": { "socket": self.options.dir.join("vm-agent/control.sock") },
            "status": { "listen": local(status).to_string() },
            "metrics": self.metrics(status),
            "state_dir": self.options.dir.join("migration-agent"),
            "log_level": "info",
        });
        if let Some(map) = config.as_object_mut() {
            map.extend(self.options.migration_agent.clone());
        }
        config
    }

    /// A service that is killed can do the rounds again soon: its lease is the shortest that there may be.
    pub(super) fn migration_service(&self) -> Value {
        let mut config = json!({
            "listen": self.centre.migrations.listen.to_string(),
            "status": { "listen": self.centre.migrations.status.to_string() },
            "upstream_vmapi": self.centre.vmapi.url(),
            "cnapi_url": self.centre.cnapi.url(),
            "napi_url": self.centre.napi.url(),
            "imgapi_url": self.centre.imgapi.url(),
            "papi_url": self.centre.papi.url(),
            "trust": {
                "listen": self.centre.migrations.trust.to_string(),
                "authority": self.options.dir.join("migration-service/authority.json"),
            },
            "control_socket": self.options.dir.join("migration-service/control.sock"),
            "agents": { "port": self.centre.agents[0] },
            "store": { "file": self.options.dir.join("migration-service/store.redb") },
            "lease": "3s",
            "log_level": "info",
        });
        if let Some(map) = config.as_object_mut() {
            map.extend(self.options.migration_service.clone());
        }
        config
    }

    /// It tells of the agents that run.
    pub(super) fn fleet_agent(&self, servers: &[String]) -> Value {
        let agents = [("net-agent", self.ports.agent), ("vm-agent", self.ports.vm_agent)];
        let agents = agents.iter().filter(|(name, _)| self.daemons.pid(name).is_some());
        let agents = agents.map(|(name, port)| (*name, url(*port)));
        json!({
            "nats": { "servers": servers },
            "vminfod": { "url": self.hub() },
            "server_uuid": self.node.cn_uuid(),
            "programs": agents.collect::<IndexMap<_, _>>(),
            "heartbeat": "1s",
            "status": { "listen": local(self.ports.fleet_agent).to_string() },
            "metrics": self.metrics(self.ports.fleet_agent),
            "state_dir": self.options.dir.join("fleet-agent"),
            "retry": { "min": "100ms", "max": "2s" },
            "seed": self.options.seed,
            "log_level": "info",
        })
    }

    /// kvmd as it runs on SmartOS.
    pub(super) fn kvmd(&self) -> Value {
        json!({
            "enabled": true,
            "listen": local(self.ports.kvmd).to_string(),
            "metrics": self.metrics(self.ports.kvmd),
            "run_dir": self.options.dir.join("kvmd"),
            "control": { "enabled": false },
            "vminfod": {
                "enabled": true, "url": self.hub(), "settle": self.span(2_000, 100),
                "socket": qemus::SOCKET,
            },
            "rescan": self.span(60_000, 500),
        })
    }
}
