// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Where the daemon and the node are: from flags, else from environment variables, else from the
//! daemon's configuration, else the defaults.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use daemon::command::Spawned;
use daemon::config::environment;
use daemon::http::url_of;
use daemon::{ConfigError, Fields};

use super::args::ReachArgs;
use crate::config::Config;
use crate::node::Ctx;

/// The configuration that the platform image installs.
const INSTALLED: &str = "/opt/smartdc/agents/etc/vminfod.config.json";
/// Variable with the path of another configuration (the lab sets it).
const VARIABLE: &str = "VMINFOD_CONFIG";

/// Variable with the URL of another daemon (the lab sets it).
const URL_VARIABLE: &str = "VMINFOD_URL";

/// Reads the daemon's configuration file: the one that is named, else that of the environment, else the
/// installed one.
pub fn fields(named: Option<&Path>) -> Result<Fields, ConfigError> {
    Fields::find(named, Some(VARIABLE), INSTALLED)
}

/// What a client command is configured with.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// The daemon's base URL.
    pub url: String,
    /// The daemon's configuration.
    pub config: Config,
}

impl ClientConfig {
    /// Reads the configuration and the environment.
    pub fn of(reach: &ReachArgs, root: Option<PathBuf>) -> Result<ClientConfig, ConfigError> {
        let (mut config, _unknown) = Config::read(fields(reach.config.as_deref())?)?;
        if let Some(root) = root {
            config.root = root;
        }
        let variable = || environment(URL_VARIABLE).and_then(|url| url.into_string().ok());
        let url = reach.url.clone().or_else(variable).unwrap_or_else(|| url_of(config.listen));
        Ok(ClientConfig { url, config })
    }

    /// A context that reads the node without the daemon.
    pub fn ctx(&self) -> Ctx {
        self.config.ctx(Arc::new(Spawned::new(self.config.commands.clone())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_then_file_then_defaults() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("c.json");
        std::fs::write(
            &file,
            r#"{"listen": "0.0.0.0:99", "listen_beyond_loopback": true, "root": "/n"}"#,
        )
        .unwrap();
        let reach = ReachArgs { url: None, config: Some(file) };
        let client = ClientConfig::of(&reach, None).unwrap();
        assert_eq!(client.url, "http://127.0.0.1:99");
        assert_eq!(client.config.root, Path::new("/n"));
        let reach = ReachArgs { url: Some("http://x".to_owned()), ..reach };
        let client = ClientConfig::of(&reach, Some("/m".into())).unwrap();
        assert_eq!((client.url.as_str(), client.config.root), ("http://x", "/m".into()));
        let reach = ReachArgs { url: None, config: Some(dir.path().join("absent")) };
        assert!(ClientConfig::of(&reach, None).is_err());
    }
}
