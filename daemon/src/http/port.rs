// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The TCP port of a daemon: binding it, and the URL by which its own node reaches it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::TcpListener;

/// The port cannot be bound.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {source}")]
pub struct ListenError {
    address: SocketAddr,
    source: io::Error,
}

/// Binds a port; returns the listener and its address, which has a number where 0 was asked for.
pub async fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), ListenError> {
    let bound = async {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    bound.await.map_err(|source| ListenError { address, source })
}

/// Returns the URL of a daemon that listens on this address, for clients on its own node.
pub fn url_of(listen: SocketAddr) -> String {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    format!("http://{}", SocketAddr::new(ip, listen.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_has_a_number_and_one_owner() {
        let (_held, address) = listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        assert_ne!(address.port(), 0);
        let error = listen(address).await.unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot listen on {address}: ")), "{error}");
    }

    #[test]
    fn every_address_is_reached_at_the_loopback_one() {
        for (listen, url) in [
            ("0.0.0.0:99", "http://127.0.0.1:99"),
            ("[::]:99", "http://[::1]:99"),
            ("10.0.0.1:99", "http://10.0.0.1:99"),
        ] {
            assert_eq!(url_of(listen.parse().unwrap()), url);
        }
    }
}
