// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A mock NAPI on a socket.

use std::net::SocketAddr;

use super::eras::Era;
use super::options::Options;
use super::store::Store;
use crate::faults;

/// A mock NAPI on a socket.
pub type Server = faults::Server<Store>;

impl Server {
    /// Starts one with an empty store. Port 0 takes a free port.
    pub async fn start(listen: SocketAddr, options: Options) -> std::io::Result<Self> {
        Self::with_store(listen, Store::new(options)).await
    }

    /// Imitates another era from now on.
    pub fn set_era(&self, era: Era) {
        self.store().set_era(era);
    }
}
