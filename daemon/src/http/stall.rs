// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A connection that gives up on a peer that does not move: a request's head must be complete
//! within its deadline once begun, and bytes that we send must be taken within theirs. Both are
//! silent about a connection that merely idles. A peer that has said all it will is answered before
//! it is told so: the library drops a stream's first bytes when it reads the end too early.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// What was asked is answered within this after the peer has closed its half.
const LAST_WORD: Duration = Duration::from_millis(100);

/// Set while a request's head has begun and is not complete; the service clears it.
#[derive(Clone, Debug, Default)]
pub struct Head(Arc<AtomicBool>);

impl Head {
    /// Some of the head has come, even if nobody may see it yet.
    pub(super) fn begin(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// The head is complete.
    pub fn complete(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// The stream with its two deadlines.
pub struct Stalling<T> {
    inner: T,
    head: Head,
    head_limit: Duration,
    write_limit: Duration,
    head_timer: Option<Pin<Box<Sleep>>>,
    end_timer: Option<Pin<Box<Sleep>>>,
    write_timer: Option<Pin<Box<Sleep>>>,
    stalled: Arc<AtomicBool>,
    /// The peer has not taken the last write yet.
    blocked: Arc<AtomicBool>,
    /// What was read already and is to be read again.
    ahead: BytesMut,
}

impl<T> Stalling<T> {
    /// Wraps a stream.
    pub fn new(inner: T, head: Head, head_limit: Duration, write_limit: Duration) -> Self {
        Self {
            inner,
            head,
            head_limit,
            write_limit,
            head_timer: None,
            end_timer: None,
            write_timer: None,
            stalled: Arc::default(),
            blocked: Arc::default(),
            ahead: BytesMut::new(),
        }
    }

    /// True while the peer has not taken the last write.
    pub fn is_blocked(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.blocked)
    }

    /// Lets these bytes be read before all others.
    pub fn put_back(&mut self, ahead: BytesMut) {
        self.ahead = ahead;
    }

    /// Becomes true when a deadline passes.
    pub fn has_stalled(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stalled)
    }

    fn written<R>(
        &mut self,
        cx: &mut Context<'_>,
        result: Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        self.blocked.store(result.is_pending(), Ordering::Relaxed);
        if result.is_ready() {
            self.write_timer = None;
            return result;
        }
        let limit = self.write_limit;
        expired(&mut self.write_timer, limit, &self.stalled, cx)
    }
}

/// Runs the timer; `Pending` until it fires, then an error for ever.
fn expired<R>(
    timer: &mut Option<Pin<Box<Sleep>>>,
    limit: Duration,
    stalled: &AtomicBool,
    cx: &mut Context<'_>,
) -> Poll<io::Result<R>> {
    let timer = timer.get_or_insert_with(|| Box::pin(sleep(limit)));
    match timer.as_mut().poll(cx) {
        Poll::Ready(()) => {
            timer.as_mut().reset(Instant::now());
            stalled.store(true, Ordering::Relaxed);
            Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
        }
        Poll::Pending => Poll::Pending,
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Stalling<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.ahead.is_empty() {
            let count = self.ahead.len().min(buf.remaining());
            buf.put_slice(&self.ahead.split_to(count));
            return Poll::Ready(Ok(()));
        }
        if let Some(timer) = &mut self.end_timer {
            return timer.as_mut().poll(cx).map(Ok);
        }
        let before = buf.filled().len();
        let result = Pin::new(&mut self.inner).poll_read(cx, buf);

        if matches!(result, Poll::Ready(Ok(()))) && buf.filled().len() == before {
            let timer = self.end_timer.insert(Box::pin(sleep(LAST_WORD)));
            return timer.as_mut().poll(cx).map(Ok);
        }
        if result.is_ready() {
            if buf.filled().len() > before && !self.head.0.swap(true, Ordering::Relaxed) {
                self.head_timer = None;
            }
            return result;
        }
        if !self.head.0.load(Ordering::Relaxed) {
            self.head_timer = None;
            return Poll::Pending;
        }
        let this = &mut *self;
        expired(&mut this.head_timer, this.head_limit, &this.stalled, cx)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Stalling<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.written(cx, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.written(cx, result)
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
