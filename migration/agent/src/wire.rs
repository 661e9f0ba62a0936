// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The connections of data streams, whose ends are authenticated: a seam, and TLS over TCP behind it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use daemon::http::{Secure as _, Secured};
use futures_util::future::BoxFuture;
use sdc_clients::http::Duplex;
use sdc_clients::identity::Identity;
use tokio::net::{TcpListener, TcpStream};
use trust::{Doors, Holder};
use uuid::Uuid;

const CONNECTS: Duration = Duration::from_secs(10);

/// Both directions of a connection.
pub type Connection = Box<dyn Duplex>;

/// An accepted connection whose peer is not authenticated yet.
pub type Incoming = BoxFuture<'static, io::Result<Secured>>;

/// How agents reach each other for data.
pub trait Wire: Send + Sync {
    /// Where this agent listens, as others dial it.
    fn address(&self) -> String;

    /// Waits for a connection, and returns from which address it is. Cancel-safe.
    fn accept(&self) -> BoxFuture<'_, io::Result<(Incoming, IpAddr)>>;

    /// Connects to the agent of this node, which proves that it is that one.
    fn dial<'a>(&'a self, address: &'a str, cn: Uuid) -> BoxFuture<'a, io::Result<Connection>>;
}

/// TLS on the admin network.
#[derive(Debug)]
pub struct Tls {
    listener: TcpListener,
    address: SocketAddr,
    doors: Doors,
    holder: Arc<Holder>,
}

impl Tls {
    /// Listens at this address.
    pub async fn bind(address: SocketAddr, holder: &Arc<Holder>) -> io::Result<Tls> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok(Tls { listener, address, doors: Doors::new(holder), holder: Arc::clone(holder) })
    }
}

impl Wire for Tls {
    fn address(&self) -> String {
        self.address.to_string()
    }

    fn accept(&self) -> BoxFuture<'_, io::Result<(Incoming, IpAddr)>> {
        Box::pin(async move {
            let (stream, from) = self.listener.accept().await?;
            Ok((self.doors.secure(stream, from.ip()), from.ip()))
        })
    }

    fn dial<'a>(&'a self, address: &'a str, cn: Uuid) -> BoxFuture<'a, io::Result<Connection>> {
        Box::pin(async move {
            let dialed = tokio::time::timeout(CONNECTS, TcpStream::connect(address)).await;
            let late = || io::Error::new(io::ErrorKind::TimedOut, "no connection within 10 s");
            let stream = dialed.map_err(|_| late())??;
            trust::connect(&self.holder, stream, Identity::Agent(cn)).await
        })
    }
}
