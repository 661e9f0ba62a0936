// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The services that live in zones: their definitions in SAPI, and what each keeps.

use std::path::{Component, Path, PathBuf};

use daemon::Fields;
use serde_json::{Map, Value};

use super::refusal::Refusal;

/// Behind the name of a folder that was moved.
pub const ASIDE: &str = ".before-data";

/// A service that `hub setup` sets up in a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// volapi
    Volapi,
    /// migration-service
    Migration,
    /// A server of the feed.
    Feed,
}

/// A folder that is moved to the delegated dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder {
    /// Where it is in the zone.
    pub from: PathBuf,
    /// Where it will be.
    pub to: PathBuf,
}

/// Where a configuration says that something is kept: the key, what it is without it, the name of the file in the
/// folder (empty: the folder itself), and the folder's new place.
type Keep = (&'static str, &'static str, &'static str, &'static str);

impl Piece {
    /// Returns the name in SAPI, which is none of sdcadm's.
    pub fn service(self) -> &'static str {
        match self {
            Piece::Volapi => "hub-volapi",
            Piece::Migration => "hub-migration",
            Piece::Feed => "hub-feed",
        }
    }

    /// Returns the name of the program in its zone.
    pub fn program(self) -> &'static str {
        match self {
            Piece::Volapi => "volapi",
            Piece::Migration => "migration-service",
            Piece::Feed => "feed",
        }
    }

    /// Returns the word of the command line.
    pub fn word(self) -> &'static str {
        match self {
            Piece::Volapi => "volapi",
            Piece::Migration => "migration",
            Piece::Feed => "feed",
        }
    }

    /// Returns the file, below `/data`, that shows that there are records.
    pub fn records(self) -> &'static str {
        match self {
            Piece::Volapi => "volapi/volapi.redb",
            Piece::Migration => "migration-service/store.redb",
            Piece::Feed => "feed/jetstream",
        }
    }

    /// Returns the configuration in the zone.
    pub fn config(self) -> &'static str {
        match self {
            Piece::Volapi => "/opt/smartdc/volapi/etc/volapi.json",
            Piece::Migration => "/opt/smartdc/migration-service/etc/config.json",
            // Nothing of nats-server's own configuration is read.
            Piece::Feed => "",
        }
    }

    fn keeps(self) -> &'static [Keep] {
        match self {
            Piece::Volapi => &[
                ("state_dir", "/var/db/volapi", "", "volapi"),
                ("trust.dir", "/opt/smartdc/volapi/etc/trust", "", "volapi/trust"),
            ],
            Piece::Migration => &[
                (
                    "store.file",
                    "/var/db/migration-service/store.redb",
                    "store.redb",
                    "migration-service",
                ),
                (
                    "trust.authority",
                    "/var/db/migration-service/authority.json",
                    "authority.json",
                    "migration-service",
                ),
                ("", "/root/.sdc-migrate", "", "migration-service/operator"),
            ],
            Piece::Feed => &[("", "/var/db/nats", "", "feed")],
        }
    }

    /// Returns the definition of the service, without what only a data centre knows.
    pub fn definition(self) -> Map<String, Value> {
        let text = match self {
            Piece::Volapi => include_str!("../../../deploy/zone/hub-volapi.json"),
            Piece::Migration => include_str!("../../../deploy/zone/hub-migration.json"),
            Piece::Feed => include_str!("../../../deploy/zone/hub-feed.json"),
        };
        serde_json::from_str(text).expect("invariant: the shipped definition is an object")
    }

    /// Returns the folders that are to be moved, as the configuration of the zone says.
    pub fn folders(self, config: &mut Fields) -> Result<Vec<Folder>, Refusal> {
        let mut folders: Vec<Folder> = Vec::new();
        for (key, usual, file, to) in self.keeps() {
            let place = match key.is_empty() {
                true => PathBuf::from(usual),
                false => config.path(key, *usual),
            };
            let named = file.is_empty() || place.file_name().is_some_and(|name| name == *file);
            let from = if file.is_empty() { Some(&*place) } else { place.parent() };
            let is_plain = |from: &Path| {
                from.is_absolute()
                    && from.components().skip(1).all(|part| matches!(part, Component::Normal(_)))
            };
            // A folder that is not the service's own has other things in it.
            let own = from
                .filter(|from| is_plain(from) && (from.components().count() > 3 || key.is_empty()));
            let Some(from) = own.filter(|_| named) else {
                return Err(Refusal::Place { key, place, file });
            };
            let folder = Folder { from: from.to_owned(), to: Path::new("/data").join(to) };
            if !from.starts_with("/data") && !folders.contains(&folder) {
                folders.push(folder);
            }
        }
        Ok(folders)
    }
}
