// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A connection's socket with its deadlines: a request head must be complete within one after its
//! first byte, and the peer must take written bytes within another. Idle connections have neither.
//!
//! An end of file is passed on a little late, because hyper drops the first bytes of an answer if
//! it reads the end before it has written them.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use sdc_clients::http::Duplex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, Sleep, sleep};

use super::first_line::FirstLine;
use super::limits::Limits;

/// How late an end of file is passed on.
const END_DELAY: Duration = Duration::from_millis(100);

/// A socket that can be closed in a way that the peer's program sees as an error.
pub(super) trait Reset {
    /// Makes the coming close a reset.
    fn reset(&self);
}

impl Reset for TcpStream {
    fn reset(&self) {
        let _best_effort = self.set_zero_linger();
    }
}

impl Reset for UnixStream {
    /// A unix socket has no reset: its peer sees an end of file without a last chunk.
    fn reset(&self) {}
}

/// A connection whose client is known. Its reader gets an error where it ends without a word.
pub(super) struct Proved(pub(super) Box<dyn Duplex>);

impl Reset for Proved {
    fn reset(&self) {}
}

impl AsyncRead for Proved {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Proved {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// What a connection's task and its socket tell each other.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Some of a request head has come, and not all of it.
    head_begun: AtomicBool,
    /// There are no heads any more.
    http_left: AtomicBool,
    /// A deadline has passed.
    stalled: AtomicBool,
}

impl Progress {
    /// Stops the deadline of the head.
    pub(super) fn head_complete(&self) {
        self.head_begun.store(false, Ordering::Relaxed);
    }

    /// What comes after the answer is not HTTP, and may come at any time.
    pub(super) fn leave_http(&self) {
        self.http_left.store(true, Ordering::Relaxed);
    }

    fn awaits_head(&self) -> bool {
        self.head_begun.load(Ordering::Relaxed) && !self.http_left.load(Ordering::Relaxed)
    }

    /// Returns true after a deadline has passed.
    pub(super) fn has_stalled(&self) -> bool {
        self.stalled.load(Ordering::Relaxed)
    }
}

pub(super) struct Socket<T> {
    inner: T,
    limits: Limits,
    progress: Arc<Progress>,
    head_timer: Option<Pin<Box<Sleep>>>,
    end_timer: Option<Pin<Box<Sleep>>>,
    write_timer: Option<Pin<Box<Sleep>>>,
    first_line: Option<FirstLine>,
    /// Bytes that were read and held back for `first_line`.
    held: BytesMut,
}

impl<T: Reset> Socket<T> {
    pub(super) fn new(inner: T, limits: Limits, first_line: Option<FirstLine>) -> Self {
        let (head_timer, end_timer, write_timer) = (None, None, None);
        let (progress, held) = (Arc::default(), BytesMut::new());
        Self { inner, limits, progress, head_timer, end_timer, write_timer, first_line, held }
    }

    pub(super) fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }

    /// Closes the connection with a reset.
    pub(super) fn reset(self) {
        self.inner.reset();
    }

    fn poll_head_deadline(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.progress.awaits_head() {
            self.head_timer = None;
            return Poll::Pending;
        }
        poll_deadline(&mut self.head_timer, self.limits.head, &self.progress, cx)
    }

    fn after_write<R>(
        &mut self,
        written: Poll<io::Result<R>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<R>> {
        if written.is_ready() {
            self.write_timer = None;
            return written;
        }
        let late = poll_deadline(&mut self.write_timer, self.limits.write, &self.progress, cx);
        if late.is_ready() {
            // What was begun cannot be finished, so the peer must not take it for the end.
            self.inner.reset();
        }
        late
    }
}

/// Returns `Pending` until the timer fires, and an error from then on.
fn poll_deadline<R>(
    timer: &mut Option<Pin<Box<Sleep>>>,
    limit: Duration,
    progress: &Progress,
    cx: &mut Context<'_>,
) -> Poll<io::Result<R>> {
    let timer = timer.get_or_insert_with(|| Box::pin(sleep(limit)));
    if timer.as_mut().poll(cx).is_pending() {
        return Poll::Pending;
    }
    timer.as_mut().reset(Instant::now());
    progress.stalled.store(true, Ordering::Relaxed);
    Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
}

impl<T: AsyncRead + Reset + Unpin> AsyncRead for Socket<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while let Some(first_line) = this.first_line {
            let mut chunk = [0; 2048];
            let mut read = ReadBuf::new(&mut chunk);
            if Pin::new(&mut this.inner).poll_read(cx, &mut read)?.is_pending() {
                return this.poll_head_deadline(cx);
            }
            this.held.extend_from_slice(read.filled());
            this.progress.head_begun.store(true, Ordering::Relaxed);
            let ended = read.filled().is_empty() || this.held.len() > this.limits.head_bytes;
            if ended || first_line(&mut this.held) {
                this.first_line = None;
            }
        }
        if !this.held.is_empty() {
            let count = this.held.len().min(buf.remaining());
            buf.put_slice(&this.held[..count]);
            this.held.advance(count);
            if this.held.is_empty() {
                this.held = BytesMut::new();
            }
            return Poll::Ready(Ok(()));
        }
        if let Some(timer) = &mut this.end_timer {
            return timer.as_mut().poll(cx).map(Ok);
        }
        let before = buf.filled().len();
        if Pin::new(&mut this.inner).poll_read(cx, buf)?.is_pending() {
            return this.poll_head_deadline(cx);
        }
        if buf.filled().len() == before {
            let timer = this.end_timer.insert(Box::pin(sleep(END_DELAY)));
            return timer.as_mut().poll(cx).map(Ok);
        }
        if !this.progress.head_begun.swap(true, Ordering::Relaxed) {
            this.head_timer = None;
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Reset + Unpin> AsyncWrite for Socket<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.after_write(written, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.after_write(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
