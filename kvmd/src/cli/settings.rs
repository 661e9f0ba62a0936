// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Where the configuration and the daemon are: flags, environment, the usual file, defaults.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use daemon::{ConfigError, Fields};

use super::args::{ConfigFile, ReachArgs};
use crate::config::{Config, DEFAULT_FILE};

/// Environment variable: another configuration file.
const VARIABLE: &str = "KVMD_CONFIG";
/// Environment variable: another daemon.
const URL_VARIABLE: &str = "KVMD_URL";

/// Reads the configuration; also returns its unknown keys.
pub fn load(file: &ConfigFile) -> Result<(Config, Vec<String>), ConfigError> {
    match file.config.clone().or_else(|| variable(VARIABLE).map(PathBuf::from)) {
        Some(path) => Config::load(&path),
        None if Path::new(DEFAULT_FILE).exists() => Config::load(Path::new(DEFAULT_FILE)),
        None => Config::read(Fields::empty()),
    }
}

/// Returns the daemon's base URL.
pub fn url(reach: &ReachArgs) -> Result<String, ConfigError> {
    let given = reach.url.clone();
    let given = given.or_else(|| variable(URL_VARIABLE).and_then(|url| url.into_string().ok()));
    match given {
        Some(url) => Ok(url),
        None => Ok(url_of(&load(&reach.file)?.0)),
    }
}

/// Returns the URL of a daemon with this configuration on its own node.
pub fn url_of(config: &Config) -> String {
    let mut address = config.listen;
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    format!("http://{address}")
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_then_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("c.json");
        std::fs::write(&file, r#"{"listen": "127.0.0.1:99"}"#).unwrap();
        let reach = ReachArgs { url: None, file: ConfigFile { config: Some(file) } };
        assert_eq!(url(&reach).unwrap(), "http://127.0.0.1:99");
        let reach = ReachArgs { url: Some("http://x".to_owned()), ..reach };
        assert_eq!(url(&reach).unwrap(), "http://x");
    }
}
