// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Where the daemons of the lab listen.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::net::TcpListener;

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
    /// For clients, and status.
    pub(super) volapi: [u16; 2],
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

/// The ports below those that systems give to outgoing connections: a daemon finds its port again after
/// a restart.
const OURS: std::ops::Range<u32> = 10_240..32_768;

/// How many ports this process has tried.
static TRIED: AtomicU32 = AtomicU32::new(0);

/// The given port, or one that is free at all addresses for 0: each call tries others, and each process begins
/// elsewhere.
pub(super) async fn or_free(given: u16) -> io::Result<u16> {
    if given != 0 {
        return Ok(given);
    }
    let count = OURS.end - OURS.start;
    let first = std::process::id().wrapping_mul(101) % count;
    for _ in OURS {
        let nth = TRIED.fetch_add(1, Ordering::Relaxed);
        let port = OURS.start + (first + nth) % count;
        let port = u16::try_from(port).map_err(io::Error::other)?;
        if TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await.is_ok() {
            return Ok(port);
        }
    }
    Err(io::ErrorKind::AddrInUse.into())
}
