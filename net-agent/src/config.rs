// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The configuration: the shipped agent's file (`napi.url`, `cn_uuid`, `admin_uuid`, `no_rabbit`,
//! …) with the keys of this agent beside them. Durations carry units and have bounds. No key
//! switches a guard off.

use std::time::Duration;

use daemon::agent::{Files, Keys, Replaced, hub, sibling};
use daemon::config::{http_url, lower_uuid};
use daemon::{Fields, Window};

const DAY: Duration = Duration::from_secs(86_400);
const WEEK: Duration = Duration::from_secs(7 * 86_400);

/// Where the shipped platform keeps the agent's file.
pub const DEFAULT_FILE: &str = "/opt/smartdc/agents/etc/net-agent.config.json";

/// What to do if NAPI has no `/search/nics`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// Prove that `/nics?cn_uuid=` is honoured, then use it.
    Probe,
    /// RFD 58 to the letter: wait for hours and try again.
    Never,
}

impl std::str::FromStr for Fallback {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "probe" => Ok(Self::Probe),
            "never" => Ok(Self::Never),
            _ => Err("expected one of probe never"),
        }
    }
}

/// Where VMAPI is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VmapiChoice {
    /// Ask it before each delete.
    Url(String),
    /// Chosen by the operator: RFD 58's own rule, without `vmapi_confirms` (G8).
    None,
}

/// The services and how they are asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Services {
    /// NAPI's base URL.
    pub napi: String,
    /// VMAPI's.
    pub vmapi: VmapiChoice,
    /// CNAPI's, where a second machine of this uuid is to be looked for.
    pub cnapi: Option<String>,
    /// vminfod's.
    pub vminfod: String,
    /// What to do if NAPI has no `/search/nics` (R4).
    pub fallback: Fallback,
    /// Requests per second to NAPI and VMAPI together.
    pub per_second: u64,
    /// Requests in flight.
    pub in_flight: u64,
}

/// The rules by which records are judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// This compute node.
    pub cn_uuid: String,
    /// The UFDS admin user: `other` NICs of this owner with one of the node's MACs are claimed.
    pub admin_uuid: Option<String>,
    /// `old_enough` (G6).
    pub min_age: Duration,
    /// `settled_state` (G5) for a NIC in `provisioning`.
    pub provisioning_age: Duration,
    /// `seen_twice` (G7).
    pub second_look: Duration,
    /// Whether `vmapi_confirms` (G8) asks VMAPI.
    pub ask_vmapi: bool,
    /// Mirror `stopped` (and back) too, not only `provisioning` → `running`.
    pub mirror_stopped: bool,
}

/// When things are done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Times {
    /// Before the first list (R1).
    pub startup_delay: Window,
    /// Before the node's own NICs are read.
    pub server_nic_delay: Window,
    /// Between a witnessed delete and the first look at what is left.
    pub settle: Duration,
    /// Between comparisons of the agent's view with a fresh one.
    pub resync: Duration,
    /// Between NAPI lists; zero means once per start.
    pub relist: Duration,
    /// Before a NAPI that cannot list by node is asked again (R4).
    pub unsupported_backoff: Duration,
    /// Waits before VMAPI is asked again about a departure; the last one repeats.
    pub verdict_retry: Vec<Duration>,
    /// First and longest wait after a failure.
    pub retry: Window,
    /// First and longest wait after a 412.
    pub conflict_retry: Window,
    /// How long a hidden VM is remembered after its delete.
    pub hidden_memory: Duration,
}

/// The whole configuration.
pub type Config = daemon::agent::Config<Own>;

/// The keys of this agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    pub services: Services,
    /// The rules.
    pub policy: Policy,
    /// The waits.
    pub times: Times,
    /// Which copies here may have been replaced.
    pub replaced: Replaced,
}

impl Keys for Own {
    const NAME: &'static str = "net-agent";
    const PORT: u16 = 5311;

    fn vminfod(&self) -> Option<&str> {
        Some(&self.services.vminfod)
    }

    fn read(files: &mut Files) -> Self {
        let shipped = files.shipped();
        let napi_url = shipped.required("napi.url", http_url);
        let cn_uuid = shipped.required("cn_uuid", lower_uuid);
        let admin_uuid = shipped.optional_text("admin_uuid").filter(|text| !text.is_empty());
        for key in ["agent_uuid", "bindip", "cueballAgent", "instance_uuid", "datacenter_name"] {
            shipped.get(key);
        }
        let replaced = files.replaced();
        let f = files.ours();
        let ms = Duration::from_millis;
        let s = Duration::from_secs;
        let vmapi = vmapi(f, &napi_url);
        let ask_vmapi = vmapi != VmapiChoice::None;
        Self {
            replaced,
            services: Services {
                cnapi: sibling::optional(f, &napi_url, "napi", "cnapi"),
                napi: napi_url,
                vmapi,
                vminfod: hub::url(f),
                fallback: f.parse("fallback", "probe"),
                per_second: f.number("pace.per_second", 5, 1..=1000),
                in_flight: f.number("pace.in_flight", 4, 1..=64),
            },
            policy: Policy {
                cn_uuid,
                admin_uuid,
                min_age: f.span("min_age", s(900), ms(1)..=WEEK),
                provisioning_age: f.span("provisioning_age", s(7200), ms(1)..=WEEK),
                second_look: f.span("second_look", s(60), ms(1)..=DAY),
                ask_vmapi,
                mirror_stopped: f.flag("mirror_stopped", true),
            },
            times: Times {
                startup_delay: f.window("startup_delay", s(120), s(600), DAY),
                server_nic_delay: f.window("server_nic_delay", s(0), s(60), DAY),
                settle: f.span("settle", s(5), ms(1)..=s(3600)),
                resync: f.span("resync", s(300), ms(10)..=DAY),
                relist: f.span("relist", DAY, s(0)..=WEEK),
                unsupported_backoff: f.span("unsupported_backoff", s(4 * 3600), ms(10)..=DAY),
                verdict_retry: verdict_retry(f),
                retry: f.window("retry", s(2), s(64), DAY),
                conflict_retry: f.window("conflict_retry", s(1), s(30), DAY),
                hidden_memory: f.span("hidden_memory", s(300), s(300)..=DAY),
            },
        }
    }
}

fn vmapi(f: &mut Fields, napi_url: &str) -> VmapiChoice {
    match f.optional_text("vmapi.url").or_else(|| text_of(f, "vmapi")) {
        Some(text) if text == "none" => VmapiChoice::None,
        Some(text) => match http_url(&text) {
            Ok(url) => VmapiChoice::Url(url),
            Err(reason) => {
                f.fault("vmapi.url", reason);
                VmapiChoice::Url(String::new())
            }
        },
        None => match sibling::sibling(napi_url, "napi", "vmapi") {
            Some(url) => VmapiChoice::Url(url),
            None => {
                if !napi_url.is_empty() {
                    f.fault("vmapi.url", "cannot be derived from napi.url; give it, or \"none\"");
                }
                VmapiChoice::Url(String::new())
            }
        },
    }
}

fn text_of(f: &mut Fields, key: &str) -> Option<String> {
    f.get(key).and_then(|value| value.as_str()).map(str::to_owned)
}

fn verdict_retry(f: &mut Fields) -> Vec<Duration> {
    let usual = [5, 15, 60, 300].map(Duration::from_secs);
    let spans = f.spans("verdict_retry", &usual);
    if spans.is_empty() || spans.iter().any(Duration::is_zero) {
        f.fault("verdict_retry", "needs at least one wait, none of them zero");
        return usual.to_vec();
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    const CN: &str = "a829c448-085b-4138-adbc-583ac96881c3";

    fn minimal(extra: &str) -> String {
        format!(r#"{{"napi": {{"url": "http://napi.lab.example"}}, "cn_uuid": "{CN}"{extra}}}"#)
    }

    #[test] // R20
    fn reads_the_shipped_file_unchanged() {
        let config = Config::from_json(&minimal(
            r#", "logLevel": "info", "no_rabbit": true, "agent_uuid": "x", "bindip": "10.0.0.9",
               "admin_uuid": "930896af-bf8c-48d4-885c-6573a94b1853",
               "cueballAgent": {"resolvers": ["10.0.0.1"], "spares": 3}"#,
        ))
        .unwrap();
        assert_eq!(config.services.vmapi, VmapiChoice::Url("http://vmapi.lab.example".to_owned()));
        assert_eq!(config.times.startup_delay.min, Duration::from_secs(120));
        assert_eq!(config.times.startup_delay.max, Duration::from_secs(600));
        assert_eq!(config.basics.unknown, ["logLevel"]);
        assert!(config.basics.no_rabbit);
    }

    #[test]
    fn reports_all_faults_at_once() {
        let text = Config::from_json(
            r#"{"napi": {"url": "nowhere"}, "cn_uuid": "", "settle": "5", "mode": "off",
                "startup_delay": {"min": "10s", "max": "5s"}, "status": {"listen": "0.0.0.0:1"}}"#,
        )
        .unwrap_err()
        .to_string();
        for key in ["napi.url:", "cn_uuid:", "settle:", "mode:", "startup_delay:", "status.listen:"]
        {
            assert!(text.contains(key), "{key} missing in {text}");
        }
    }

    #[test] // C34
    fn refuses_https() {
        for key in ["napi", "vmapi", "vminfod"] {
            let url = r#"{"url": "https://service.lab"}"#;
            let text = minimal("").replace(r#"{"url": "http://napi.lab.example"}"#, url);
            let text = match key {
                "napi" => text,
                _ => minimal(&format!(r#", "{key}": {url}"#)),
            };
            let faults = Config::from_json(&text).unwrap_err().to_string();
            assert!(faults.contains(&format!("{key}.url: ")), "{faults}");
            assert!(faults.contains("no TLS is built in"), "{faults}");
        }
    }

    #[test]
    fn derives_vmapi_unless_given() {
        for (extra, napi, want) in [
            ("", "http://napi.lab", Ok(VmapiChoice::Url("http://vmapi.lab".into()))),
            ("", "http://127.0.0.1:80", Err(())),
            (r#", "vmapi": {"url": "none"}"#, "http://127.0.0.1:80", Ok(VmapiChoice::None)),
            (r#", "vmapi": "none""#, "http://127.0.0.1:80", Ok(VmapiChoice::None)),
            (
                r#", "vmapi": {"url": "http://127.0.0.1:81"}"#,
                "http://napi.lab",
                Ok(VmapiChoice::Url("http://127.0.0.1:81".into())),
            ),
        ] {
            let text = format!(r#"{{"napi": {{"url": "{napi}"}}, "cn_uuid": "{CN}"{extra}}}"#);
            let found = Config::from_json(&text).map(|c| c.services.vmapi.clone()).map_err(|_| ());
            assert_eq!(found, want, "{napi} {extra}");
        }
    }
}
