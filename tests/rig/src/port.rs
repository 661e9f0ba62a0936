// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A TCP port that only the test's own daemons get. A port that was free a moment ago is soon another's: the system
//! gives it to any connection and to whoever asks for port 0. Here a socket stays bound to it that never listens:
//! connections are refused, and a daemon that is told the number binds it too, as often as it is started, since both
//! allow the address to be used again.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::net::{TcpSocket, TcpStream};
use tokio::time::sleep;

/// Between two attempts to connect.
const POLL: Duration = Duration::from_millis(5);

/// Holds the port until it is dropped.
#[derive(Debug)]
pub struct Port {
    _held: TcpSocket,
    address: SocketAddr,
}

impl Port {
    /// Takes a port of 127.0.0.1.
    pub fn local() -> io::Result<Self> {
        Self::at(Ipv4Addr::LOCALHOST)
    }

    /// Takes a port of every address.
    pub fn everywhere() -> io::Result<Self> {
        Self::at(Ipv4Addr::UNSPECIFIED)
    }

    fn at(ip: Ipv4Addr) -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind((ip, 0).into())?;
        let port = socket.local_addr()?.port();
        Ok(Self { _held: socket, address: (Ipv4Addr::LOCALHOST, port).into() })
    }

    /// Returns its address at the loopback interface.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until the port refuses connections.
    pub async fn refuses(&self) -> io::Result<()> {
        refuses(self.address).await
    }

    /// Returns the URL of a daemon that listens there.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// Waits until connections to this address are refused, before a test listens where a daemon has ended: a process that
/// is being started has a copy of its listener, until it executes its program.
pub async fn refuses(address: SocketAddr) -> io::Result<()> {
    loop {
        match TcpStream::connect(address).await {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(()),
            Err(error) => return Err(error),
            Ok(_) => sleep(POLL).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::io::ErrorKind;

    use tokio::net::TcpListener;

    #[tokio::test]
    async fn a_port_is_refused_until_a_daemon_has_it_and_between_two() {
        for port in [Port::local().unwrap(), Port::everywhere().unwrap()] {
            for _ in 0..2 {
                port.refuses().await.unwrap();
                let daemon = TcpListener::bind(port.address()).await.unwrap();
                TcpStream::connect(port.address()).await.unwrap();
                let second = TcpListener::bind(port.address()).await.unwrap_err();
                assert_eq!(second.kind(), ErrorKind::AddrInUse);
                drop(daemon);
            }
        }
    }

    #[tokio::test]
    async fn nobody_who_asks_for_any_port_is_given_it() {
        let port = Port::local().unwrap();
        for _ in 0..2000 {
            let any = TcpListener::bind("127.0.0.1:0").await.unwrap();
            assert_ne!(any.local_addr().unwrap(), port.address());
        }
    }
}
