// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Where the servers of the feed are, and who asks.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::{ConnectOptions, ReconnectToServer};
use serde::Deserialize;

use super::error::FleetError;
use super::link::{Link, Why, shared};
use super::turns::Turns;
use crate::jitter::Jitter;

/// A request that takes longer is not answered.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// A file of a key.
const LONGEST_KEY: u64 = 4096;

/// The `nats` part of a configuration.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Access {
    /// `nats://host:4222`, or `tls://…`; any of them will do.
    pub servers: Vec<String>,
    /// The file with the seed of this program's key; only root may read it.
    pub nkey: Option<PathBuf>,
    /// Refuse a server without TLS.
    pub tls: bool,
    /// The certificates of the authority that issued the servers'.
    pub ca: Option<PathBuf>,
    /// Under which the requests to JetStream go: a node, which lives in an account of its own, has `$JS.FEED.API`.
    pub api: String,
    /// The beginning of the subjects on which answers come; a node's key may hear no other.
    pub inbox: Option<String>,
}

impl Default for Access {
    fn default() -> Access {
        Access {
            servers: Vec::new(),
            nkey: None,
            tls: false,
            ca: None,
            api: "$JS.API".to_owned(),
            inbox: None,
        }
    }
}

impl Access {
    /// Connects, and keeps connecting for ever; `name` is what the server calls this client. Waits between attempts are
    /// drawn from `jitter`.
    ///
    /// # Errors
    /// If a file of the configuration cannot be used. That no server answers is no error: requests fail until one does.
    pub async fn connect(&self, name: &str, jitter: Jitter) -> Result<Link, FleetError> {
        let turns = Arc::new(Mutex::new(Turns::new(jitter)));
        let (why, access, own) = (Why::default(), self.clone(), name.to_owned());
        let (told, hears) = (why.clone(), why.clone());
        let options = self
            .options(name)?
            .retry_on_initial_connect()
            .max_reconnects(None)
            .reconnect_to_server_callback(move |servers, _info| {
                let (turns, told) = (Arc::clone(&turns), told.clone());
                let (access, own) = (access.clone(), own.clone());
                shared(async move {
                    let options = || Some((access.options(&own).ok()?, access.authorities()));
                    told.examine(&servers, options).await;
                    next(&turns, &servers)
                })
            })
            .event_callback(move |event| {
                hears.hear(&event);
                std::future::ready(())
            });
        let client = options.connect(self.servers.clone()).await.map_err(FleetError::away)?;
        Ok(Link::new(client, why))
    }

    /// The options of each attempt to connect.
    fn options(&self, name: &str) -> Result<ConnectOptions, FleetError> {
        let mut options = ConnectOptions::new()
            .name(name)
            .require_tls(self.tls)
            .request_timeout(Some(PATIENCE))
            .connection_timeout(PATIENCE)
            .ping_interval(Duration::from_secs(20))
            // What is queued while no server answers is sent late; 64 requests are more than this program has open.
            .client_capacity(64);
        if let Some(inbox) = &self.inbox {
            options = options.custom_inbox_prefix(inbox);
        }
        if let Some(ca) = &self.ca {
            options = options.add_root_certificates(ca.clone());
        }
        if let Some(path) = &self.nkey {
            options = options.nkey(seed(path)?);
        }
        Ok(options)
    }

    /// Whose certificates are trusted, for people.
    fn authorities(&self) -> String {
        self.ca.as_ref().map_or("this system".to_owned(), |path| path.display().to_string())
    }
}

fn next(turns: &Mutex<Turns>, servers: &[async_nats::Server]) -> Option<ReconnectToServer> {
    let known: Vec<_> = servers.iter().map(|it| (it.to_string(), it.failed_attempts)).collect();
    let (next, wait) = turns.lock().unwrap_or_else(PoisonError::into_inner).next(&known)?;
    Some(ReconnectToServer { addr: servers.get(next)?.addr.clone(), delay: Some(wait) })
}

/// Reads the seed of a key. Others may not read the file: the key is this program's alone.
fn seed(path: &Path) -> Result<String, FleetError> {
    use std::os::unix::fs::MetadataExt as _;
    let fault = |reason: String| FleetError::File { path: path.display().to_string(), reason };
    let found = std::fs::metadata(path).map_err(|err| fault(err.to_string()))?;
    if found.mode() & 0o077 != 0 {
        return Err(fault("others than its owner may read it: chmod 0600".to_owned()));
    }
    if found.len() > LONGEST_KEY {
        return Err(fault("it is no seed of a key".to_owned()));
    }
    let text = std::fs::read_to_string(path).map_err(|err| fault(err.to_string()))?;
    let seed = text.lines().map(str::trim).find(|line| line.starts_with("SU"));
    seed.map(str::to_owned).ok_or_else(|| fault("it has no line with a seed (SU…)".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_others_may_read_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        std::fs::write(&path, "# node\nSUAFAKE\n").unwrap();
        let mode = |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        mode(0o644);
        assert!(seed(&path).unwrap_err().to_string().contains("chmod 0600"));
        mode(0o600);
        assert_eq!(seed(&path).unwrap(), "SUAFAKE");
    }
}
