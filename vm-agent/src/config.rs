// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The configuration: the shipped agent's file (`vmapi_url`, `server_uuid`, `no_rabbit`, …) with the
//! keys of this agent beside them. Durations carry units and have bounds. No key switches a guard off.

use std::time::Duration;

use daemon::Window;
use daemon::agent::{Files, Keys, Replaced, hub, sibling};
use daemon::config::{http_url, lower_uuid};

const DAY: Duration = Duration::from_secs(86_400);
const WEEK: Duration = Duration::from_secs(7 * 86_400);

/// Where the shipped platform keeps the agent's file.
pub const DEFAULT_FILE: &str = "/opt/smartdc/agents/etc/vm-agent.config.json";

/// The services and how they are asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Services {
    /// VMAPI's base URL.
    pub vmapi: String,
    /// CNAPI's and NAPI's, where a second machine of this uuid is to be looked for.
    pub census: Option<(String, String)>,
    /// vminfod's.
    pub vminfod: String,
    /// Turns per second; each has at most two requests to VMAPI.
    pub per_second: u64,
    /// Turns under way.
    pub in_flight: u64,
}

/// When things are done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Times {
    /// Before VMAPI is first asked for its list.
    pub startup_delay: Window,
    /// Between lists of VMAPI; zero means one per start.
    pub relist: Duration,
    /// First and longest wait after a failure.
    pub retry: Window,
    /// Between readings of who the node is.
    pub resync: Duration,
    /// How long a hidden VM is remembered after its delete.
    pub hidden_memory: Duration,
    /// How long a VM that VMAPI lists as provisioning may be missing here.
    pub provisioning_age: Duration,
    /// Between the two looks where many VMs left at once.
    pub second_look: Duration,
}

/// The whole configuration.
pub type Config = daemon::agent::Config<Own>;

/// The keys of this agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    /// This compute node, where the file names it; else vminfod's sysinfo does.
    pub cn_uuid: Option<String>,
    pub services: Services,
    /// The waits.
    pub times: Times,
    /// Which copies here may have been replaced.
    pub replaced: Replaced,
}

impl Keys for Own {
    const NAME: &'static str = "vm-agent";
    const PORT: u16 = 5313;

    fn vminfod(&self) -> Option<&str> {
        Some(&self.services.vminfod)
    }

    fn read(files: &mut Files) -> Self {
        let shipped = files.shipped();
        let vmapi = shipped.required("vmapi_url", http_url);
        let cn_uuid = match shipped.get("server_uuid").is_some() {
            true => Some(shipped.required("server_uuid", lower_uuid)),
            false => None,
        };
        for key in ["periodic_interval", "cueballHttpAgent", "logLevel", "agent_uuid"] {
            shipped.get(key);
        }
        let replaced = files.replaced();
        let f = files.ours();
        let ms = Duration::from_millis;
        let s = Duration::from_secs;
        let [cnapi, napi] =
            ["cnapi", "napi"].map(|other| sibling::optional(f, &vmapi, "vmapi", other));
        Self {
            replaced,
            cn_uuid,
            services: Services {
                census: cnapi.zip(napi),
                vmapi,
                vminfod: hub::url(f),
                per_second: f.number("pace.per_second", 5, 1..=1000),
                in_flight: f.number("pace.in_flight", 4, 1..=64),
            },
            times: Times {
                startup_delay: f.window("startup_delay", s(0), s(600), DAY),
                relist: f.span("relist", DAY, s(0)..=WEEK),
                retry: f.window("retry", ms(500), s(30), DAY),
                resync: f.span("resync", s(300), ms(10)..=DAY),
                hidden_memory: f.span("hidden_memory", s(300), s(300)..=DAY),
                provisioning_age: f.span("provisioning_age", s(7200), ms(1)..=WEEK),
                second_look: f.span("second_look", s(60), ms(1)..=DAY),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_shipped_file_unchanged() {
        let config = Config::from_json(
            r#"{"vmapi_url": "http://vmapi.lab.example/", "no_rabbit": true, "periodic_interval": 60000,
                "cueballHttpAgent": {"maximum": 100, "spares": 4}, "odd": 1}"#,
        )
        .unwrap();
        assert_eq!(config.services.vmapi, "http://vmapi.lab.example");
        assert_eq!((config.cn_uuid.clone(), config.basics.no_rabbit), (None, true));
        assert_eq!(config.basics.unknown, ["odd"]);
    }

    #[test]
    fn reports_all_faults_at_once() {
        let text = Config::from_json(
            r#"{"server_uuid": "x", "mode": "off", "status": {"listen": "0.0.0.0:1"},
                "retry": {"min": "9s", "max": "1s"}, "vminfod": {"url": "https://hub"}}"#,
        )
        .unwrap_err()
        .to_string();
        for key in
            ["vmapi_url:", "server_uuid:", "mode:", "status.listen:", "retry:", "vminfod.url:"]
        {
            assert!(text.contains(key), "{key} missing in {text}");
        }
    }
}
