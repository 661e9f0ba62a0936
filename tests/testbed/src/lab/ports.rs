// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Where the daemons of the lab listen.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::TcpListener;

/// The port of each daemon.
#[derive(Debug)]
pub(super) struct Ports {
    pub(super) vminfod: u16,
    pub(super) agent: u16,
    pub(super) vm_agent: u16,
    pub(super) kvmd: u16,
    pub(super) console: u16,
}

/// The base URL of the daemon on this port.
pub(super) fn url(port: u16) -> String {
    format!("http://{}", local(port))
}

/// The address that a daemon listens on.
pub(super) fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// The given port, or a free one for 0.
pub(super) async fn or_free(given: u16) -> io::Result<u16> {
    match given {
        0 => Ok(TcpListener::bind(local(0)).await?.local_addr()?.port()),
        given => Ok(given),
    }
}
