// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What every file watcher is given and owes; how it watches is its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::watch;

use super::inbox::Inbox;
use super::{Signal, ZoneFile};
use crate::root::Root;

/// The zones whose files matter: name → zonepath, both the very texts of zoneadm's rows.
pub type Zones = Arc<BTreeMap<Arc<str>, Arc<str>>>;

/// The config files of a zone, without `.json`.
pub const CONFIG_FILES: [&str; 3] = ["metadata", "tags", "routes"];

/// What a watcher works on.
#[derive(Clone)]
pub struct Order {
    /// Where the node's files are.
    pub root: Root,
    /// Which zones, as of now.
    pub zones: watch::Receiver<Zones>,
    /// Where signals go.
    pub inbox: Arc<Inbox>,
    /// Told when the watcher is in place.
    pub health: Arc<dyn Fn(bool) + Send + Sync>,
}

/// A way to hear of file changes. `follow` runs until it fails; dropping it ends it.
pub trait Watch: Send + Sync {
    /// Watches the node's files and those of the wanted zones. Whenever a file or directory comes
    /// into being, goes or is replaced, a signal of its zone must follow.
    fn follow(&self, order: Order) -> BoxFuture<'static, Result<(), WatchError>>;
}

/// Why a watcher ended.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The system refused.
    #[error("file watcher: {0}")]
    System(#[from] std::io::Error),
    /// The helper cannot be started.
    #[error(transparent)]
    Start(#[from] crate::commands::CommandError),
    /// The helper said what it should not, or ended.
    #[error("fswatcher: {0}")]
    Helper(String),
}

/// What a name in the directory of zone configurations means.
pub fn zone_config_signal(name: &str) -> Option<Signal> {
    if name == "index" {
        return Some(Signal::Index);
    }
    if let Some(uuid) = name.strip_suffix("-receiving.json") {
        return Some(Signal::File(uuid.to_owned(), ZoneFile::Receiving));
    }
    let zone = name.strip_suffix(".xml").filter(|zone| !zone.is_empty())?;
    Some(Signal::File(zone.to_owned(), ZoneFile::Xml))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_zone_configurations() {
        assert_eq!(zone_config_signal("index"), Some(Signal::Index));
        assert_eq!(zone_config_signal("z.xml"), Some(Signal::File("z".into(), ZoneFile::Xml)));
        assert_eq!(
            zone_config_signal("u-receiving.json"),
            Some(Signal::File("u".into(), ZoneFile::Receiving))
        );
        for name in [".xml", "z.xml.tmp", "zonecfgA1", "index.new"] {
            assert_eq!(zone_config_signal(name), None, "{name}");
        }
    }
}
