// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Where the configuration and the daemon are: flags, environment, the usual file, defaults.

use daemon::config::environment;
use daemon::http::url_of;
use daemon::{ConfigError, Fields};

use super::args::{ConfigFile, ReachArgs};
use crate::config::{Config, DEFAULT_FILE};

/// Environment variable: another configuration file.
const VARIABLE: &str = "KVMD_CONFIG";
/// Environment variable: another daemon.
const URL_VARIABLE: &str = "KVMD_URL";

/// Reads the configuration; also returns its unknown keys.
pub fn load(file: &ConfigFile) -> Result<(Config, Vec<String>), ConfigError> {
    Config::read(Fields::find(file.config.as_deref(), Some(VARIABLE), DEFAULT_FILE)?)
}

/// Returns the daemon's base URL.
pub fn url(reach: &ReachArgs) -> Result<String, ConfigError> {
    let variable = || environment(URL_VARIABLE).and_then(|url| url.into_string().ok());
    match reach.url.clone().or_else(variable) {
        Some(url) => Ok(url),
        None => Ok(url_of(load(&reach.file)?.0.listen)),
    }
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
