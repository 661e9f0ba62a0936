// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The mock VMAPI: the VM records of a data centre, in memory, as the real service keeps and shows them
//! (`docs/contract/vmapi.md` §4). Unless [`Store::run_jobs`] says who does, nobody runs its jobs: a VM that is
//! created stays provisioning, one that is deleted stays as it is, until an agent reports it.

mod metadata; // the maps of a VM, and its roles

mod handler; // the way of a request: the routes and their checks

mod create; // POST /vms

mod provision; // what comes of a job

mod vm; // the record of one VM: read, replaced, moved

mod list; // the parameters of GET /vms, and the page that they ask for

mod filter; // conditions on records: predicates and LDAP filters

mod store; // the records, and the services that VMAPI asks

mod jobs; // who makes and deletes VMs

mod feed; // the changefeed: what was written, to whom it is told

mod differing; // what differs between two copies of a record

mod record; // one record: what is kept of what was sent, and what is shown of it

mod errors; // error answers

#[cfg(test)]
mod tests;

use std::net::SocketAddr;

use crate::faults;
pub use jobs::{Hands, Order};
pub use record::kept;
pub use store::{Peers, Store};

/// A mock VMAPI on a socket.
pub type Server = faults::Server<Store>;

impl Server {
    /// Starts one with an empty store. Port 0 takes a free port.
    pub async fn start(listen: SocketAddr) -> std::io::Result<Self> {
        Self::with_store(listen, Store::default()).await
    }
}
