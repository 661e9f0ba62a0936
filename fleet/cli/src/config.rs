// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The configuration: where the feed is, and how much its streams keep.

use std::path::Path;
use std::time::Duration;

use daemon::command::{Paths, Program};
use daemon::{ConfigError, Fields};
use sdc_clients::fleet::{Access, Shape};

/// Where the package puts the file.
pub const DEFAULT_FILE: &str = "/opt/smartdc/agents/etc/sdc-fleet.config.json";

/// The whole configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The feed.
    pub nats: Access,
    /// How much the streams keep.
    pub shape: Shape,
    /// Where the program is that asks nodes.
    pub commands: Paths,
}

impl Config {
    /// Reads the file. `servers`, if there are any, are taken instead of the file's; then there may be no file.
    pub fn load(path: &Path, servers: &[String]) -> Result<Config, ConfigError> {
        let mut fields = match Fields::load(path) {
            Err(ConfigError::Read { .. }) if !servers.is_empty() => Fields::empty(),
            fields => fields?,
        };
        let f = &mut fields;
        let mut nats = match f.get("nats").cloned().map(serde_json::from_value::<Access>) {
            None => Access::default(),
            Some(Ok(nats)) => nats,
            Some(Err(reason)) => {
                f.fault("nats", reason);
                Access::default()
            }
        };
        if !servers.is_empty() {
            nats.servers = servers.to_vec();
        }
        if nats.servers.is_empty() {
            f.fault("nats.servers", "expected at least one nats:// address");
        }
        let usual = Shape::default();
        let ages = Duration::from_secs(60)..=Duration::from_secs(400 * 86_400);
        let bytes = f.number(
            "streams.bytes",
            u64::try_from(usual.bytes).unwrap_or(1 << 30),
            1 << 20..=1 << 50,
        );
        let shape = Shape {
            replicas: usize::try_from(f.number("streams.replicas", 3, 1..=5)).unwrap_or(3),
            age: f.span("streams.age", usual.age, ages.clone()),
            bytes: i64::try_from(bytes).unwrap_or(usual.bytes),
            nodes_age: f.span("streams.nodes_age", usual.nodes_age, ages),
        };
        let commands = Paths::read(f, &[Program::SdcOneachnode]);
        fields.finish()?;
        Ok(Config { nats, shape, commands })
    }
}
