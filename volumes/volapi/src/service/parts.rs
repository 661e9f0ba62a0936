// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The service: its parts, each of which owns what only it changes.

use std::sync::Arc;

use super::archive::Archive;
use super::create::Creates;
use super::delete::Deletes;
use super::follow::Follower;
use super::networks::NetworkChanges;
use super::packages::Packages;
use super::references::References;
use super::rollbacks::Rollbacks;
use super::snapshots::Snapshots;
use super::state::{Counts, ServiceConfig, Shared};
use super::update::Updates;
use super::works::Works;
use crate::peers::Peers;
use crate::records::Records;

#[derive(Debug)]
pub struct Service {
    pub shared: Arc<Shared>,
    pub(super) works: Arc<Works>,
    pub creates: Creates,
    pub updates: Updates,
    pub deletes: Arc<Deletes>,
    pub references: References,
    pub packages: Arc<Packages>,
    pub networks: Arc<NetworkChanges>,
    pub snapshots: Snapshots,
    pub follower: Arc<Follower>,
    pub archive: Archive,
}

impl Service {
    /// A service over these records.
    pub fn new(records: Records, peers: Peers, settings: ServiceConfig) -> Service {
        let shared = Arc::new(Shared { records, peers, settings, counts: Counts::default() });
        let works = Arc::new(Works::new(&shared));
        let packages = Arc::new(Packages::new(&shared));
        let deletes = Arc::new(Deletes::new(&shared, &works));
        let networks = Arc::new(NetworkChanges::new(&shared));
        let follower = Arc::new(Follower::new(&shared));
        let rollbacks = Rollbacks::new(&shared, &networks, &follower);
        Service {
            creates: Creates::new(&shared, &works, &packages),
            updates: Updates::new(&shared, &works),
            references: References::new(&shared, &follower),
            snapshots: Snapshots::new(&shared, &works, &deletes, &networks, rollbacks),
            archive: Archive::new(&shared),
            shared,
            works,
            deletes,
            packages,
            networks,
            follower,
        }
    }
}
