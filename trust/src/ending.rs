// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A connection that ends with the certificates that it was made with: with their time, and at once where the other
//! end's is revoked.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::holder::Watched;

/// A connection, what is left of its time, and what ends when the other end's certificate is revoked; none where that
/// has none.
pub(crate) struct Ending<S> {
    inner: S,
    left: Pin<Box<Sleep>>,
    revoked: Option<BoxFuture<'static, ()>>,
}

impl<S> Ending<S> {
    pub(crate) fn new(inner: S, left: Duration, watched: Option<Watched>) -> Ending<S> {
        let revoked = watched.map(|it| Box::pin(it.revoked()) as BoxFuture<'static, ()>);
        Ending { inner, left: Box::pin(sleep(left)), revoked }
    }

    fn over(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.revoked.as_mut().is_some_and(|it| it.as_mut().poll(cx).is_ready()) {
            self.revoked = Some(Box::pin(std::future::ready(())));
            return Err(io::Error::other("the certificate of the other end was revoked"));
        }
        match self.left.as_mut().poll(cx) {
            Poll::Pending => Ok(()),
            Poll::Ready(()) => {
                Err(io::Error::other("a certificate of this connection has expired"))
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Ending<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.over(cx)?;
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Ending<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.over(cx)?;
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.over(cx)?;
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.over(cx)?;
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.over(cx)?;
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
