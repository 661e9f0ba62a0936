// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The configuration: a JSON or TOML file. Every key has a default that fits a real node.

use std::net::{Ipv4Addr, SocketAddr};

use daemon::command::{Paths, Program};
use daemon::config::http_url;
use daemon::{ConfigError, Fields};
use serde_json::Value;

/// The name under which the page shows the hub.
pub(crate) const HUB: &str = "vminfod";
/// The name under which the page shows migration-service.
pub(crate) const MIGRATIONS: &str = "migrations";
/// The name under which the page shows volapi.
pub(crate) const VOLUMES: &str = "volumes";
/// The hub's port.
const HUB_PORT: u16 = 9090;
/// The port of the page.
pub(crate) const PORT: u16 = 5310;
/// The agents that are shown if the file names none.
const AGENTS: [(&str, u16); 3] = [("net-agent", 5311), ("vm-agent", 5313), ("kvmd", 5312)];

/// All settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Address of the page; loopback only.
    pub listen: SocketAddr,
    /// Address of vminfod; loopback only.
    pub vminfod: SocketAddr,
    /// Name and address of each agent; loopback only.
    pub agents: Vec<(String, SocketAddr)>,
    /// The URL of migration-service, which is elsewhere in the data centre; none: no tab.
    pub migrations: Option<String>,
    /// The URL of volapi, which is elsewhere in the data centre; none: no tab.
    pub volumes: Option<String>,
    /// Where svcprop is.
    pub commands: Paths,
    /// Where other nodes may collect metrics, if anywhere.
    pub metrics: Option<SocketAddr>,
    /// A tracing filter.
    pub log_level: String,
}

impl Config {
    /// The defaults, with vminfod at `vminfod`.
    pub fn beside(vminfod: SocketAddr) -> Self {
        Self {
            listen: local(PORT),
            vminfod,
            agents: AGENTS.map(|(name, port)| (name.to_owned(), local(port))).into(),
            migrations: None,
            volumes: None,
            commands: Paths::read(&mut Fields::empty(), &[Program::Svcprop]),
            metrics: None,
            log_level: "info".to_owned(),
        }
    }

    /// Returns the name and the URL of each program that the page asks, vminfod first.
    pub(crate) fn programs(&self) -> Vec<(String, String)> {
        let here = std::iter::once((HUB.to_owned(), self.vminfod)).chain(self.agents.clone());
        let here = here.map(|(name, address)| (name, format!("http://{address}")));
        here.chain(services(&self.migrations, &self.volumes)).collect()
    }

    /// Reads the settings. Also returns the keys that are not known.
    pub fn read(mut fields: Fields) -> Result<(Self, Vec<String>), ConfigError> {
        let default = Self::beside(local(HUB_PORT));
        let config = Self {
            listen: fields.loopback("listen", PORT),
            vminfod: fields.loopback("vminfod", HUB_PORT),
            agents: agents(&mut fields).unwrap_or(default.agents),
            migrations: service(&mut fields, MIGRATIONS),
            volumes: service(&mut fields, VOLUMES),
            commands: Paths::read(&mut fields, &[Program::Svcprop]),
            metrics: fields.metrics(),
            log_level: fields.text("log_level", &default.log_level),
        };
        Ok((config, fields.finish()?))
    }
}

/// Returns the services of the data centre of which the address is known.
pub(crate) fn services(
    migrations: &Option<String>,
    volumes: &Option<String>,
) -> impl Iterator<Item = (String, String)> {
    let all = [(MIGRATIONS, migrations.clone()), (VOLUMES, volumes.clone())].into_iter();
    all.filter_map(|(name, url)| Some((name.to_owned(), url?)))
}

fn local(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

pub(crate) fn service(fields: &mut Fields, name: &str) -> Option<String> {
    let given = fields.optional_text(name)?;
    http_url(&given).map_err(|why| fields.fault(name, why)).ok()
}

/// `agents`: an object from name to address.
fn agents(fields: &mut Fields) -> Option<Vec<(String, SocketAddr)>> {
    let Value::Object(given) = fields.get("agents")?.clone() else {
        fields.fault("agents", "expected an object from name to address");
        return None;
    };
    let mut agents = Vec::new();
    for (name, address) in given {
        let key = format!("agents.{name}");
        if !is_name(&name) || [HUB, MIGRATIONS, VOLUMES].contains(&name.as_str()) {
            let what = "expected a name of letters, digits and -, other than vminfod, migrations and volumes";
            fields.fault(&key, what);
        }
        match address.as_str().map(str::parse::<SocketAddr>) {
            Some(Ok(address)) if address.ip().is_loopback() => agents.push((name, address)),
            _ => fields.fault(&key, "expected a loopback ADDRESS:PORT"),
        }
    }
    Some(agents)
}

/// Returns true if the name may stand in a path of ours as it is.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(Config, Vec<String>), ConfigError> {
        Config::read(Fields::from_json(text).unwrap())
    }

    #[test]
    fn reads_defaults_and_overrides() {
        let (config, _) = read("{}").unwrap();
        assert_eq!(config, Config::beside(local(HUB_PORT)));
        let (config, unknown) = read(
            r#"{"listen": "127.0.0.1:1", "vminfod": "[::1]:2", "agents": {"a": "127.0.0.1:3"},
                "migrations": "http://10.0.0.9:80/", "volumes": "http://10.0.0.8", "odd": 1}"#,
        )
        .unwrap();
        assert_eq!((config.listen, config.vminfod.to_string()), (local(1), "[::1]:2".to_owned()));
        assert_eq!(config.agents, [("a".to_owned(), local(3))]);
        assert_eq!(config.migrations.as_deref(), Some("http://10.0.0.9:80"));
        assert_eq!(config.volumes.as_deref(), Some("http://10.0.0.8"));
        assert_eq!(unknown, ["odd"]);
    }

    #[test]
    fn refuses_addresses_of_other_nodes_and_odd_names() {
        let text = r#"{"listen": "0.0.0.0:1", "vminfod": "10.0.0.1:2",
            "agents": {"far": "10.0.0.1:3", "a/b": "127.0.0.1:4", "vminfod": "127.0.0.1:5", "no": 6,
                "migrations": "127.0.0.1:7", "volumes": "127.0.0.1:8"}, "migrations": "https://x",
                "volumes": "y"}"#;
        let message = read(text).unwrap_err().to_string();
        for key in [
            "listen",
            "vminfod",
            "agents.far",
            "agents.a/b",
            "agents.vminfod",
            "agents.no",
            "agents.migrations",
            "agents.volumes",
            "migrations",
            "volumes",
        ] {
            assert!(message.contains(&format!("{key}:")), "{key} in {message}");
        }
        assert!(read(r#"{"agents": []}"#).is_err());
    }
}
