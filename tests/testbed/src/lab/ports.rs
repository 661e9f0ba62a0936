// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Where the daemons of the lab listen.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use rig::port::Port;

/// The port of each daemon.
#[derive(Debug)]
pub(super) struct Ports {
    pub(super) vminfod: u16,
    pub(super) agent: u16,
    pub(super) vm_agent: u16,
    pub(super) kvmd: u16,
    pub(super) console: u16,
    /// For its status.
    pub(super) migration_agent: u16,
    pub(super) fleet_agent: u16,
    /// The page of the data centre.
    pub(super) fleet_page: u16,
    /// For clients, and status.
    pub(super) volapi: [u16; 2],
    /// Keeps those of them that were free from everybody else, also between two starts of a daemon.
    pub(super) _held: Vec<Port>,
}

/// The base URL of the daemon on this port.
pub(super) fn url(port: u16) -> String {
    format!("http://{}", local(port))
}

/// The admin address of a node.
pub(super) fn admin(nth: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::LOCALHOST) + 1 + nth)
}

/// The address that a daemon listens on for its own node.
pub(super) fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// The given port, or for 0 one that is kept for the lab at all addresses.
pub(super) fn or_free(given: u16, held: &mut Vec<Port>) -> io::Result<u16> {
    if given != 0 {
        return Ok(given);
    }
    let port = Port::everywhere()?;
    let number = port.address().port();
    held.push(port);
    Ok(number)
}
