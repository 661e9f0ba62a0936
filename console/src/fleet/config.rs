// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The configuration of the page of the data centre.

use std::net::SocketAddr;

use daemon::{ConfigError, Fields};
use sdc_clients::fleet::Access;

use crate::config::{MIGRATIONS, PORT, VOLUMES, service};

/// All settings.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// Address of the page; loopback only.
    pub(crate) listen: SocketAddr,
    /// The feed.
    pub(crate) nats: Access,
    /// The address of a node's own page, in which `{name}` and `{uuid}` stand for the node; none: no link.
    pub(crate) node_page: Option<String>,
    /// The URLs of migration-service and volapi.
    pub(crate) migrations: Option<String>,
    pub(crate) volumes: Option<String>,
    /// Where other nodes may collect metrics, if anywhere.
    pub(crate) metrics: Option<SocketAddr>,
    /// A tracing filter.
    pub(crate) log_level: String,
}

impl Config {
    /// Reads the settings. Also returns the keys that are not known.
    pub(crate) fn read(mut fields: Fields) -> Result<(Config, Vec<String>), ConfigError> {
        let f = &mut fields;
        let nats = match f.get("nats").cloned().map(serde_json::from_value::<Access>) {
            None => Access::default(),
            Some(Ok(nats)) => nats,
            Some(Err(reason)) => {
                f.fault("nats", reason);
                Access::default()
            }
        };
        if nats.servers.is_empty() {
            f.fault("nats.servers", "expected at least one nats:// address");
        }
        let node_page = f.optional_text("node_page");
        let is_web = |text: &String| ["http://", "https://"].iter().any(|it| text.starts_with(it));
        if node_page.as_ref().is_some_and(|text| !is_web(text)) {
            f.fault("node_page", "expected http:// or https://, with {name} or {uuid}");
        }
        let config = Config {
            listen: f.loopback("listen", PORT),
            nats,
            node_page,
            migrations: service(f, MIGRATIONS),
            volumes: service(f, VOLUMES),
            metrics: f.metrics(),
            log_level: f.text("log_level", "info"),
        };
        Ok((config, fields.finish()?))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn all_faults_are_told_at_once_and_the_feed_is_needed() {
        let read = |text: &str| Config::read(Fields::from_json(text).unwrap());
        let text = r#"{"listen": "0.0.0.0:1", "node_page": "javascript:1", "nats": {"x": 1}}"#;
        let faults = read(text).unwrap_err().to_string();
        for key in ["listen:", "node_page:", "nats:", "nats.servers:"] {
            assert!(faults.contains(key), "{key} in {faults}");
        }
        let text =
            r#"{"nats": {"servers": ["nats://a:4222"]}, "node_page": "http://{name}/", "odd": 1}"#;
        let (config, unknown) = read(text).unwrap();
        assert_eq!((config.listen.port(), unknown), (PORT, vec!["odd".to_owned()]));
    }
}
