// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The mock VMAPI: the VM routes that the agents of a node use, in memory.

mod handler; // the routes

mod store; // the records

use std::net::SocketAddr;

use crate::faults;
pub use store::Store;

/// A mock VMAPI on a socket.
pub type Server = faults::Server<Store>;

impl Server {
    /// Starts one with an empty store. Port 0 takes a free port.
    pub async fn start(listen: SocketAddr) -> std::io::Result<Self> {
        Self::with_store(listen, Store::default()).await
    }
}
