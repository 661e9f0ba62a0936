// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The configuration: a JSON or TOML file.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use daemon::config::{http_url, lower_uuid};
use daemon::kept::Kept;
use daemon::{ConfigError, Fields};
use uuid::Uuid;

use super::history::KEEP;
use super::peers::Addresses;

/// The port that clients know, and that of the pages.
const PORT: u16 = 5315;
const STATUS_PORT: u16 = 5318;
/// The port for agents and volapi, with mutual TLS.
const TRUST_PORT: u16 = 5320;
const AGENTS_PORT: u16 = 5314;

/// Where the records are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Storage {
    /// In one file, which one process opens.
    File(PathBuf),
    /// On a PostgreSQL server, for several services.
    Postgres(String),
}

impl Storage {
    /// Returns the file of the records; none where they are on a server.
    fn file(&self) -> Option<PathBuf> {
        match self {
            Storage::File(file) => Some(file.clone()),
            Storage::Postgres(_) => None,
        }
    }
}

/// All settings of the program. What operators change while it runs is in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Where clients of VMAPI reach it.
    pub listen: SocketAddr,
    /// Host names by which they do, besides addresses; see [`Config::takes_any_name`].
    pub names: Vec<String>,
    /// The address that the answers name; made of `listen` if absent.
    pub url: Option<String>,
    /// Status listener; loopback only.
    pub status_listen: SocketAddr,
    /// Where other nodes may collect metrics, if anywhere.
    pub metrics_listen: Option<SocketAddr>,
    /// The other services.
    pub addresses: Addresses,
    /// The port where agents and volapi reach it, with mutual TLS.
    pub trust_listen: SocketAddr,
    /// Where operators let them in: a unix socket.
    pub control_socket: PathBuf,
    /// The file of the authorities, where the store is a file.
    pub authority_file: PathBuf,
    /// The agents' port on the admin network.
    pub agents_port: u16,
    /// Agents that are elsewhere.
    pub agents_urls: BTreeMap<Uuid, String>,
    /// Where the records are kept.
    pub storage: Storage,
    /// Whether they outlive the zone's next image, and are there.
    pub kept: Kept,
    /// How long the lease of the service that does the rounds runs.
    pub lease: Duration,
    /// How long what has ended is kept.
    pub history_keep: Duration,
    /// The account that operators act as.
    pub operators: Uuid,
    /// A tracing filter.
    pub log_level: String,
}

impl Config {
    /// Returns true if requests under any host name are answered: clients of a data centre reach the service by a
    /// name that only DNS knows. A loopback port, or one with `names`, answers by those alone.
    pub fn takes_any_name(&self) -> bool {
        self.names.is_empty() && !self.listen.ip().is_loopback()
    }

    /// Reads the settings. Also returns the keys that are not known.
    pub fn read(mut fields: Fields) -> Result<(Config, Vec<String>), ConfigError> {
        let f = &mut fields;
        let s = Duration::from_secs;
        let storage = match f.optional_text("store.postgres") {
            Some(address) => Storage::Postgres(address),
            None => Storage::File(f.path("store.file", "/var/db/migration-service/store.redb")),
        };
        let config = Config {
            listen: f.parse("listen", &format!("0.0.0.0:{PORT}")),
            names: f.texts("names"),
            url: match f.get("url").is_some() {
                true => Some(f.required("url", http_url)),
                false => None,
            },
            status_listen: f.loopback("status.listen", STATUS_PORT),
            metrics_listen: f.metrics(),
            addresses: Addresses {
                vmapi: f.required("upstream_vmapi", http_url),
                cnapi: f.required("cnapi_url", http_url),
                napi: f.required("napi_url", http_url),
                imgapi: f.required("imgapi_url", http_url),
                papi: f.required("papi_url", http_url),
            },
            trust_listen: f.parse("trust.listen", &format!("0.0.0.0:{TRUST_PORT}")),
            control_socket: f.path("control_socket", "/var/run/migration-service/control.sock"),
            authority_file: f.path("trust.authority", "/var/db/migration-service/authority.json"),
            agents_port: u16::try_from(f.number("agents.port", AGENTS_PORT.into(), 1..=65_535))
                .unwrap_or(AGENTS_PORT),
            agents_urls: f.urls_of_nodes("agents.urls"),
            kept: Kept::read(f, storage.file()),
            storage,
            lease: f.span("lease", s(15), s(3)..=s(300)),
            history_keep: f.span("history_keep", KEEP, s(86_400)..=s(4000 * 86_400)),
            operators: match f.get("operators_uuid").is_some() {
                true => f.required("operators_uuid", lower_uuid).parse().unwrap_or_default(),
                false => Uuid::nil(),
            },
            log_level: f.text("log_level", "info"),
        };
        Ok((config, fields.finish()?))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const LEAST: &str = r#""upstream_vmapi": "http://v", "cnapi_url": "http://c", "napi_url": "http://n",
        "imgapi_url": "http://i", "papi_url": "http://p""#;

    #[test]
    fn the_least_is_the_addresses_of_the_services() {
        let (config, unknown) =
            Config::read(Fields::from_json(&format!("{{{LEAST}, \"odd\": 1}}")).unwrap()).unwrap();
        assert_eq!((config.listen.port(), config.agents_port), (PORT, AGENTS_PORT));
        assert_eq!(unknown, ["odd"]);
    }

    #[test] // M30
    fn a_port_of_the_network_answers_under_any_name() {
        let read = |more: &str| {
            Config::read(Fields::from_json(&format!("{{{LEAST}{more}}}")).unwrap()).unwrap().0
        };
        assert!(read("").takes_any_name());
        assert!(!read(r#", "listen": "127.0.0.1:5315""#).takes_any_name());
        assert!(!read(r#", "names": ["vmapi.dc.example"]"#).takes_any_name());
    }

    #[test]
    fn all_faults_are_told_at_once() {
        let text = r#"{"status": {"listen": "0.0.0.0:1"}, "lease": "1h",
            "agents": {"urls": {"x": "y"}}, "operators_uuid": "me"}"#;
        let error = Config::read(Fields::from_json(text).unwrap()).unwrap_err().to_string();
        for key in [
            "upstream_vmapi",
            "cnapi_url",
            "status.listen",
            "lease",
            "agents.urls.x",
            "operators_uuid",
        ] {
            assert!(error.contains(key), "{key}: {error}");
        }
    }
}
