// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Connections whose other end has proved who it is, in both directions. Handshakes are bounded in time, in number, and
//! of each address.

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use daemon::http::{Openings, Secure, Secured, Shown};
use futures_util::future::BoxFuture;
use rustls::pki_types::ServerName;
use sdc_clients::http::Duplex;
use sdc_clients::identity::Identity;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::certificate::About;
use crate::ending::Ending;
use crate::holder::{Holder, Watched};
use crate::refusals::Reason;
use crate::words::worded;

/// A handshake may take so long.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Makes connections that come in prove who they are.
#[derive(Debug)]
pub struct Doors {
    holder: Arc<Holder>,
    openings: Arc<Mutex<Openings>>,
}

impl Doors {
    /// Those of a program that holds this.
    pub fn new(holder: &Arc<Holder>) -> Doors {
        Doors { holder: Arc::clone(holder), openings: Arc::default() }
    }

    /// Lets a connection in that comes from this address.
    /// Fails where the handshake fails, takes 10 s, or has to make room for later ones. That is counted.
    pub fn open<S>(&self, stream: S, from: IpAddr) -> BoxFuture<'static, io::Result<Secured>>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (holder, openings) = (Arc::clone(&self.holder), Arc::clone(&self.openings));
        Box::pin(async move {
            let (number, room) = lock(&openings).enter(from);
            let opened = tokio::select! {
                opened = timeout(HANDSHAKE, shaken(&holder, stream)) => match opened {
                    Ok(shaken) => shaken.map_err(|error| (Reason::of(&error), error)),
                    Err(_) => Err((Reason::Late, late())),
                },
                // It is dropped where it is: it has proved nothing.
                _ = room => Err((Reason::Crowded, io::Error::other("too many handshakes are under way"))),
            };
            lock(&openings).leave(number);
            opened.map_err(|(reason, error)| {
                holder.refusals().add(reason);
                error
            })
        })
    }
}

impl Secure for Doors {
    fn secure(
        &self,
        stream: tokio::net::TcpStream,
        from: IpAddr,
    ) -> BoxFuture<'static, io::Result<Secured>> {
        self.open(stream, from)
    }
}

fn lock(openings: &Mutex<Openings>) -> MutexGuard<'_, Openings> {
    openings.lock().unwrap_or_else(PoisonError::into_inner)
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "no handshake within 10 s")
}

async fn shaken<S>(holder: &Holder, stream: S) -> io::Result<Secured>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let live = holder.used()?;
    let accepting = TlsAcceptor::from(Arc::clone(&live.server)).accept(stream);
    let stream = accepting.await.map_err(worded)?;
    let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let about = shown.map(|shown| About::read(shown)).transpose().map_err(io::Error::other)?;
    let peer = about.as_ref().map(|it| it.identity);
    let watched = about.as_ref().map(|about| holder.watched(about));
    let stream = ended(holder, &live.about, about.as_ref(), stream);
    let is_revoked = move || watched.as_ref().is_some_and(Watched::is_revoked);
    Ok(Secured { stream, peer, shown: about.map(Shown::from), is_revoked: Arc::new(is_revoked) })
}

/// The connection ends with the first certificate of its ends, and when theirs is revoked.
fn ended<S>(holder: &Holder, ours: &About, theirs: Option<&About>, stream: S) -> Box<dyn Duplex>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let now = holder.now();
    // One of ours that is over is the other end's to refuse, in words that say so: a deadline here would race with
    // them.
    let ours = Some(ours.until).filter(|until| *until > now);
    let until = ours.into_iter().chain(theirs.map(|it| it.until)).min().unwrap_or(now);
    let left = u64::try_from(until - now).unwrap_or_default();
    let watched = theirs.map(|theirs| holder.watched(theirs));
    Box::new(Ending::new(stream, Duration::from_secs(left), watched))
}

/// Makes a connection to a program that proves that it is this one.
/// Fails where it does not within 10 s. [`has_answered`](crate::has_answered) returns whether a peer answered at all.
pub async fn connect<S>(holder: &Holder, stream: S, to: Identity) -> io::Result<Box<dyn Duplex>>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let live = holder.used()?;
    let stream = shake(Arc::clone(&live.client), stream, to).await?;
    let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let about = shown.map(|shown| About::read(shown)).transpose().map_err(io::Error::other)?;
    Ok(ended(holder, &live.about, about.as_ref(), stream))
}

pub(crate) async fn shake<S>(
    config: Arc<rustls::ClientConfig>,
    stream: S,
    to: Identity,
) -> io::Result<tokio_rustls::client::TlsStream<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let name = ServerName::try_from(to.name()).map_err(io::Error::other)?;
    let shaken = timeout(HANDSHAKE, TlsConnector::from(config).connect(name, stream)).await;
    shaken.map_err(|_| late())?.map_err(worded)
}
