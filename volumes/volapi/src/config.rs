// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The configuration: one file, JSON or TOML. Durations carry units and have bounds.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use daemon::Fields;
use daemon::agent::{Basics, Files, Keys, Mode, Places};
use daemon::config::{http_url, https_url, lower_uuid};
use daemon::kept::Kept;
use uuid::Uuid;

use crate::records::KEEP;
use crate::service::ServiceConfig;

/// Where the file is.
pub const DEFAULT_FILE: &str = "/opt/smartdc/volapi/etc/volapi.json";

/// Where the records are, unless on a PostgreSQL server, and how their file is called there.
const STATE_DIR: &str = "/var/db/volapi";
pub const RECORDS: &str = "volapi.redb";

const AGENTS_PORT: u16 = 5314;
const DAY: Duration = Duration::from_secs(86_400);

/// Where the other services are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    pub vmapi: String,
    pub cnapi: String,
    pub papi: String,
    pub napi: String,
    pub imgapi: String,
    pub workflow: String,
}

/// Where the migration-agents are, which make snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agents {
    /// migration-service's base URL at its port for agents, which lets volapi in.
    pub trust_url: Option<String>,
    /// Where volapi's key and certificate are.
    pub trust_dir: PathBuf,
    /// Their port on the admin network.
    pub port: u16,
    /// Base addresses of those that are elsewhere.
    pub urls: BTreeMap<Uuid, String>,
}

/// The whole configuration.
pub type Config = daemon::agent::Config<Own>;

/// The keys of this service.
#[derive(Clone, Debug)]
pub struct Own {
    /// Where clients are served.
    pub listen: SocketAddr,
    /// The address of the PostgreSQL server; an embedded file if absent.
    pub postgres: Option<String>,
    /// The other services.
    pub services: Addresses,
    /// The migration-agents of the nodes.
    pub agents: Agents,
    /// How long what has ended is kept.
    pub history_keep: Duration,
    /// The service's parameters.
    pub settings: ServiceConfig,
    /// The pause between two calls of each storage VM's NFS server; zero: none are called.
    pub probe_every: Duration,
    /// Whether the records outlive the zone's next image, and are there.
    pub kept: Kept,
}

impl Keys for Own {
    const NAME: &'static str = "volapi";
    const PORT: u16 = 5321;

    fn read(files: &mut Files) -> Own {
        let f = files.ours();
        let (second, first) = (Duration::from_secs, Duration::from_millis);
        let (s, ms) = (second, first);
        let services = Addresses {
            vmapi: f.required("vmapi.url", http_url),
            cnapi: f.required("cnapi.url", http_url),
            papi: f.required("papi.url", http_url),
            napi: f.required("napi.url", http_url),
            imgapi: f.required("imgapi.url", http_url),
            workflow: f.required("workflow.url", http_url),
        };
        let settings = ServiceConfig {
            instance: f.required("instance", lower_uuid),
            images: [
                image(f, "images.second", "800db35c-5408-11eb-9792-872f658e7911"),
                image(f, "images.first", "9fb86870-1941-11e6-8002-4f231c890ed1"),
            ],
            image_source: f.text("images.source", "https://updates.tritondatacenter.com"),
            reboot_grace: f.span("reboot_grace", s(300), s(0)..=DAY),
            ticket_life: f.span("ticket_life", s(600), ms(60_000)..=DAY),
            failed_keep: failed_keep(f),
            rfd26: f.flag("rfd26", false),
            max_snapshots: usize::try_from(f.number("max_snapshots", 16, 1..=1000)).unwrap_or(16),
        };
        let agents = Agents {
            trust_url: match f.get("trust.url").is_some() {
                true => Some(f.required("trust.url", https_url)),
                false => None,
            },
            trust_dir: f.path("trust.dir", "/opt/smartdc/volapi/etc/trust"),
            port: u16::try_from(f.number("agents.port", AGENTS_PORT.into(), 1..=65_535))
                .unwrap_or(AGENTS_PORT),
            urls: f.urls_of_nodes("agents.urls"),
        };
        let history_keep = f.span("history_keep", KEEP, s(86_400)..=s(4000 * 86_400));
        let probe_every = f.span("probe.every", s(20), s(0)..=s(3600));
        let listen = f.parse("listen", "0.0.0.0:80");
        let postgres = f.optional_text("postgres");
        let file = f.path("state_dir", STATE_DIR).join(RECORDS);
        let kept = Kept::read(f, postgres.is_none().then_some(file));
        Own { listen, postgres, services, agents, history_keep, settings, probe_every, kept }
    }

    fn basics(files: &mut Files) -> Basics {
        let f = files.ours();
        let state_dir = f.path("state_dir", STATE_DIR);
        Basics {
            places: Places {
                control_socket: state_dir.join("control.sock"),
                state_dir,
                status_listen: f.loopback("status.listen", Self::PORT),
                metrics_listen: f.metrics(),
            },
            no_rabbit: true,
            mode: Mode::On,
            seed: f.get("seed").is_some().then(|| f.number("seed", 0, 0..=u64::MAX)),
            log_level: f.text("log_level", "info"),
            unknown: Vec::new(),
        }
    }
}

fn image(f: &mut Fields, key: &str, usual: &str) -> String {
    if f.get(key).is_none() {
        return usual.to_owned();
    }
    f.required(key, lower_uuid)
}

/// Below an hour an operator could still be reading what failed.
fn failed_keep(f: &mut Fields) -> Option<Duration> {
    f.get("failed_keep")?;
    Some(f.span("failed_keep", DAY, DAY / 24..=DAY * 3650))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"{
        "instance": "0B4A4A3E-8b7c-4a09-9c3e-2a5d8f5e0c11",
        "vmapi": {"url": "http://vmapi.dc.example/"}, "cnapi": {"url": "http://cnapi.dc.example"},
        "papi": {"url": "http://papi.dc.example"}, "napi": {"url": "http://napi.dc.example"},
        "imgapi": {"url": "http://imgapi.dc.example"}, "workflow": {"url": "http://wf.dc.example"},
        "odd": 1}"#;

    #[test]
    fn reads_a_file_and_names_unknown_keys() {
        let config = Config::from_json(FILE).unwrap();
        assert_eq!(config.services.vmapi, "http://vmapi.dc.example");
        assert_eq!(config.settings.instance, "0b4a4a3e-8b7c-4a09-9c3e-2a5d8f5e0c11");
        assert_eq!((config.listen.port(), config.postgres.is_none()), (80, true));
        assert_eq!(config.basics.unknown, ["odd"]);
        assert_eq!((config.settings.rfd26, config.settings.failed_keep), (false, None));
        assert_eq!((config.settings.max_snapshots, config.agents.port), (16, 5314));
    }

    #[test]
    fn what_is_off_by_default_can_be_turned_on() {
        let more = FILE.replace("\"odd\": 1", "\"rfd26\": true, \"failed_keep\": \"48h\"");
        let settings = &Config::from_json(&more).unwrap().settings;
        assert_eq!((settings.rfd26, settings.failed_keep), (true, Some(2 * DAY)));
        let off = more.replace("48h", "off");
        assert!(Config::from_json(&off).unwrap_err().to_string().contains("failed_keep:"));
    }

    #[test]
    fn reports_all_faults_at_once() {
        let text = r#"{"listen": "x", "images": {"first": "y"}, "reboot_grace": "1", "instance": "z",
                "rfd26": 1, "max_snapshots": 0, "agents": {"urls": {"x": "y"}}}"#;
        let text = Config::from_json(text).unwrap_err().to_string();
        let keys = ["vmapi.url:", "listen:", "images.first:", "reboot_grace:", "instance:"];
        let added = ["rfd26:", "max_snapshots:", "agents.urls.x:"];
        for key in keys.into_iter().chain(added) {
            assert!(text.contains(key), "{key} missing in {text}");
        }
    }
}
