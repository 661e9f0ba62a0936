// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The connections of data streams: a seam, and TCP behind it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

const CONNECTS: Duration = Duration::from_secs(10);

/// Both directions of a connection.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

pub type Connection = Box<dyn Duplex>;

/// How agents reach each other for data.
pub trait Wire: Send + Sync {
    /// Where this agent listens, as others dial it.
    fn address(&self) -> String;

    /// Waits for a connection, and returns from which address it is. Cancel-safe.
    fn accept(&self) -> BoxFuture<'_, io::Result<(Connection, IpAddr)>>;

    /// Connects to another agent.
    fn dial<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Connection>>;
}

/// TCP on the admin network.
#[derive(Debug)]
pub struct Tcp {
    listener: TcpListener,
    address: SocketAddr,
}

impl Tcp {
    /// Listens at this address.
    pub async fn bind(address: SocketAddr) -> io::Result<Tcp> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok(Tcp { listener, address })
    }
}

impl Wire for Tcp {
    fn address(&self) -> String {
        self.address.to_string()
    }

    fn accept(&self) -> BoxFuture<'_, io::Result<(Connection, IpAddr)>> {
        Box::pin(async move {
            let (stream, from) = self.listener.accept().await?;
            Ok((Box::new(stream) as Connection, from.ip()))
        })
    }

    fn dial<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Connection>> {
        Box::pin(async move {
            let dialed = tokio::time::timeout(CONNECTS, TcpStream::connect(address)).await;
            let late = || io::Error::new(io::ErrorKind::TimedOut, "no connection within 10 s");
            Ok(Box::new(dialed.map_err(|_| late())??) as Connection)
        })
    }
}
