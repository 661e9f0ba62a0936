// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The configuration. Durations carry units and have bounds. No key switches the proof of who asks or the fence
//! off.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use daemon::agent::{Files, Keys, hub};
use daemon::command::{Paths, Program};
use daemon::config::{http_url, https_url, lower_uuid};
use uuid::Uuid;

/// Where config-agent keeps the agent's file.
pub const DEFAULT_FILE: &str = "/opt/smartdc/agents/etc/migration-agent.config.json";

/// After so long without a request about an open migration, the service is asked whether the copy was replaced.
pub const QUIET: Duration = Duration::from_secs(60);
/// The longest such time.
const LONGEST_QUIET: Duration = Duration::from_secs(600);

/// The programs that it runs.
const PROGRAMS: [Program; 7] = [
    Program::Zfs,
    Program::Zpool,
    Program::Vmadm,
    Program::NetAgent,
    Program::Zonecfg,
    Program::Zoneadm,
    Program::Svcprop,
];

/// Where the agent listens on the admin network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The address; none: the admin address that vminfod's sysinfo has.
    pub address: Option<IpAddr>,
    /// The port for requests.
    pub port: u16,
    pub data_port: u16,
}

impl Listen {
    /// Returns the addresses for requests and for data.
    pub fn at(&self, address: IpAddr) -> [SocketAddr; 2] {
        [self.port, self.data_port].map(|port| SocketAddr::new(address, port))
    }
}

/// The whole configuration.
pub type Config = daemon::agent::Config<Own>;

/// The keys of this agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    /// This compute node.
    pub cn: Uuid,
    /// migration-service's base URL, at its port for agents.
    pub service: String,
    /// CNAPI's, which knows where the other nodes are.
    pub cnapi: String,
    pub vminfod: String,
    /// The socket that our vm-agent has.
    pub vm_agent: PathBuf,
    /// Where the agent's key and certificate are.
    pub trust_dir: PathBuf,
    /// So often the service is asked what was revoked, and whether the certificate is to be renewed.
    pub trust_every: Duration,
    /// Agents at other addresses than CNAPI's.
    pub agents_urls: BTreeMap<Uuid, String>,
    /// Where it listens.
    pub listen: Listen,
    /// The pool of the VMs.
    pub pool: String,
    /// The limit of the streams until the service sets another, in Mbit/s; none is no limit.
    pub mbps: Option<u32>,
    /// After so long without a request about an open migration, the service is asked whether the copy was replaced.
    pub ask_after: Duration,
    /// The node's programs.
    pub commands: Paths,
}

impl Keys for Own {
    const NAME: &'static str = "migration-agent";
    const PORT: u16 = 5317;

    fn vminfod(&self) -> Option<&str> {
        Some(&self.vminfod)
    }

    fn read(files: &mut Files) -> Self {
        let shipped = files.shipped();
        let service = shipped.required("service_url", https_url);
        let cnapi = shipped.required("cnapi_url", http_url);
        let cn = shipped.required("server_uuid", lower_uuid).parse().unwrap_or_default();
        let f = files.ours();
        let mut port = |key: &str, default| {
            u16::try_from(f.number(key, default, 0..=65_535)).unwrap_or_default()
        };
        let (port, data_port) = (port("listen.port", 5314), port("listen.data_port", 5316));
        let address = f.get("listen.address").is_some();
        let address = address.then(|| f.parse("listen.address", "127.0.0.1"));
        let mbps = u32::try_from(f.number("mbps", 500, 0..=1_000_000)).unwrap_or_default();
        Self {
            cn,
            service,
            cnapi,
            vminfod: hub::url(f),
            vm_agent: f.path("vm_agent.socket", "/var/db/vm-agent/control.sock"),
            trust_dir: f.path("trust_dir", "/var/db/migration-agent/trust"),
            trust_every: f.span("trust_every", trust::ROUND, Duration::from_secs(1)..=trust::ROUND),
            agents_urls: f.urls_of_nodes("agents.urls"),
            listen: Listen { address, port, data_port },
            pool: f.text("pool", "zones"),
            mbps: Some(mbps).filter(|mbps| *mbps > 0),
            ask_after: f.span("ask_after", QUIET, Duration::from_secs(1)..=LONGEST_QUIET),
            commands: Paths::read(f, &PROGRAMS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CN: &str = "564d0b8e-6099-4c50-a1b1-0f0b30000001";

    #[test]
    fn three_keys_are_enough() {
        let text = format!(
            r#"{{"service_url": "https://migration.example/", "cnapi_url": "http://cnapi.example",
                "server_uuid": "{CN}", "odd": 1}}"#
        );
        let config = Config::from_json(&text).unwrap();
        assert_eq!(
            (config.service.as_str(), config.cn.to_string()),
            ("https://migration.example", CN.to_owned())
        );
        assert_eq!(
            (config.listen.port, config.listen.data_port, config.listen.address),
            (5314, 5316, None)
        );
        assert_eq!((config.mbps, config.basics.unknown), (Some(500), vec!["odd".to_owned()]));
    }

    #[test]
    fn reports_all_faults_at_once() {
        let text =
            Config::from_json(r#"{"listen": {"address": "x", "port": 70000}, "mbps": "fast"}"#)
                .unwrap_err()
                .to_string();
        for key in [
            "cnapi_url:",
            "service_url:",
            "server_uuid:",
            "listen.address:",
            "listen.port:",
            "mbps:",
        ] {
            assert!(text.contains(key), "{key} missing in {text}");
        }
    }

    #[test]
    fn documents_every_key() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/config-migration-agent.md");
        let page = std::fs::read_to_string(page).unwrap();
        let keys = page.lines().filter(|line| line.starts_with("| `"));
        let keys = keys.filter_map(|line| line.split('|').nth(1));
        let names: Vec<&str> = keys.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
        // A file with a value of the wrong kind for each key is refused for each of them.
        let mut file = serde_json::Map::new();
        for name in &names {
            let (outer, inner) = name.split_once('.').unwrap_or((name, ""));
            let wrong = serde_json::json!([]);
            let place = file.entry(outer).or_insert_with(|| serde_json::json!({}));
            match inner {
                "" => *place = wrong,
                _ => place[inner] = wrong,
            }
        }
        let error = Config::from_json(&serde_json::Value::Object(file).to_string()).unwrap_err();
        let faults = error.to_string();
        let missing: Vec<&&str> =
            names.iter().filter(|name| !faults.contains(&format!("{name}:"))).collect();
        // A seed may be any value that is no number: it is drawn then.
        assert!(missing.is_empty(), "{missing:?} are no keys: {faults}");
        assert_eq!(faults.matches(": ").count(), names.len() + 1, "{faults}");
    }
}
