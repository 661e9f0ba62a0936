// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The configuration: one file. Durations carry units and have bounds.

use std::collections::BTreeMap;
use std::time::Duration;

use daemon::agent::{Files, Keys, hub};
use daemon::config::{http_url, lower_uuid};
use daemon::{Fields, Window};
use sdc_clients::fleet::{Access, Shape};
use serde_json::Value;

const DAY: Duration = Duration::from_secs(86_400);

/// Where the package puts the file.
pub const DEFAULT_FILE: &str = "/opt/smartdc/agents/etc/fleet-agent.config.json";
/// The programs that are asked where the configuration names none.
const PROGRAMS: [(&str, &str); 2] =
    [("net-agent", "http://127.0.0.1:5311"), ("vm-agent", "http://127.0.0.1:5313")];

/// When things are done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Times {
    /// Between heartbeats.
    pub heartbeat: Duration,
    /// Between comparisons of the node with the feed.
    pub audit: Duration,
    /// First and longest wait after a failure.
    pub retry: Window,
    /// Between readings of who the node is.
    pub resync: Duration,
}

/// The whole configuration.
pub type Config = daemon::agent::Config<Own>;

/// The keys of this agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    /// This compute node, where the file names it; else vminfod's sysinfo does.
    pub cn_uuid: Option<String>,
    /// vminfod's URL.
    pub vminfod: String,
    /// The feed.
    pub nats: Access,
    /// The node's programs whose status is told, by name.
    pub programs: BTreeMap<String, String>,
    /// Names of metadata whose values are published.
    pub metadata: Vec<String>,
    /// Makes the streams where they are missing: only where the key is the operator's.
    pub make: Option<Shape>,
    /// The waits.
    pub times: Times,
}

impl Keys for Own {
    const NAME: &'static str = "fleet-agent";
    const PORT: u16 = 5319;

    fn read(files: &mut Files) -> Self {
        let f = files.ours();
        let s = Duration::from_secs;
        let cn_uuid = match f.get("server_uuid").is_some() {
            true => Some(f.required("server_uuid", lower_uuid)),
            false => None,
        };
        Self {
            cn_uuid,
            vminfod: hub::url(f),
            nats: nats(f),
            programs: programs(f),
            metadata: f.texts("metadata.publish"),
            make: f.flag("streams.make", false).then(|| shape(f)),
            times: Times {
                heartbeat: f.span("heartbeat", s(15), Duration::from_millis(10)..=s(600)),
                audit: f.span("audit", s(3600), Duration::from_millis(10)..=DAY),
                retry: f.window("retry", Duration::from_millis(500), s(30), DAY),
                resync: f.span("resync", s(300), Duration::from_millis(10)..=DAY),
            },
        }
    }
}

/// Reads `nats`.
fn nats(f: &mut Fields) -> Access {
    let Some(given) = f.get("nats").cloned() else {
        f.fault("nats", "missing");
        return Access::default();
    };
    match serde_json::from_value::<Access>(given) {
        Ok(access) if access.servers.is_empty() => {
            f.fault("nats.servers", "expected at least one nats:// address");
            access
        }
        Ok(access) => access,
        Err(reason) => {
            f.fault("nats", reason);
            Access::default()
        }
    }
}

fn programs(f: &mut Fields) -> BTreeMap<String, String> {
    let default = || PROGRAMS.map(|(name, url)| (name.to_owned(), url.to_owned())).into();
    let given = match f.get("programs").cloned() {
        None => return default(),
        Some(Value::Object(given)) => given,
        Some(_) => {
            f.fault("programs", "expected an object from a program's name to its address");
            return default();
        }
    };
    let mut all = BTreeMap::new();
    for (name, url) in given {
        match url.as_str().map(http_url) {
            Some(Ok(url)) => drop(all.insert(name, url)),
            _ => f.fault(&format!("programs.{name}"), "expected an http:// address"),
        }
    }
    all
}

/// Reads `streams`.
fn shape(f: &mut Fields) -> Shape {
    let usual = Shape::default();
    let bytes = u64::try_from(usual.bytes).unwrap_or(u64::MAX);
    let bytes = f.number("streams.bytes", bytes, 1 << 20..=1 << 50);
    let ages = Duration::from_secs(60)..=400 * DAY;
    Shape {
        replicas: usize::try_from(f.number("streams.replicas", 3, 1..=5)).unwrap_or(3),
        age: f.span("streams.age", usual.age, ages.clone()),
        bytes: i64::try_from(bytes).unwrap_or(usual.bytes),
        nodes_age: f.span("streams.nodes_age", usual.nodes_age, ages),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_file_and_has_defaults() {
        let config = Config::from_json(
            r#"{"nats": {"servers": ["nats://10.99.99.30:4222"], "nkey": "/k"}, "odd": 1,
                "metadata": {"publish": ["sdc:role"]}, "streams": {"make": true, "age": "24h"}}"#,
        )
        .unwrap();
        assert_eq!(config.nats.api, "$JS.API");
        assert_eq!(config.programs.len(), 2);
        assert_eq!(config.make.clone().unwrap().age, DAY);
        assert_eq!(
            (config.metadata.clone(), config.basics.unknown),
            (vec!["sdc:role".into()], vec!["odd".into()])
        );
    }

    #[test]
    fn reports_all_faults_at_once() {
        let text = Config::from_json(
            r#"{"server_uuid": "x", "nats": {"servers": [], "speed": 1}, "programs": {"a": "ftp://x"},
                "heartbeat": "1h", "vminfod": {"url": "https://hub"}}"#,
        )
        .unwrap_err()
        .to_string();
        for key in ["server_uuid:", "nats:", "programs.a:", "heartbeat:", "vminfod.url:"] {
            assert!(text.contains(key), "{key} missing in {text}");
        }
        assert!(Config::from_json("{}").unwrap_err().to_string().contains("nats: missing"));
    }
}
