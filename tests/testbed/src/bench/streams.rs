// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Many listeners of one daemon, and the time at which each line reached each of them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::table::Samples;

/// How long anything may take before it counts as lost.
const LIMIT: Duration = Duration::from_secs(30);

/// Listeners that all read as fast as they can.
pub(super) struct Listeners {
    seen: Arc<Seen>,
    count: usize,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

#[derive(Default)]
struct Seen {
    /// Lines that came since the last look, over all listeners.
    lines: AtomicUsize,
    ready: AtomicUsize,
    wanted: AtomicUsize,
    all: Notify,
    times: std::sync::Mutex<Vec<Instant>>,
    ended: AtomicBool,
}

impl Seen {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Instant>> {
        self.times.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Listeners {
    /// Opens so many streams and waits until each has its `ready` line.
    pub(super) async fn open(address: SocketAddr, count: usize) -> anyhow::Result<Listeners> {
        let seen = Arc::new(Seen::default());
        let mut tasks = Vec::with_capacity(count);
        for _ in 0..count {
            let stream = listen(address).await?;
            let seen = Arc::clone(&seen);
            tasks.push(tokio::spawn(async move {
                if follow(stream, &seen).await.is_err() {
                    seen.ended.store(true, Ordering::Relaxed);
                    seen.all.notify_one();
                }
            }));
        }
        let all = async {
            while seen.ready.load(Ordering::Acquire) < count {
                seen.all.notified().await;
            }
        };
        tokio::time::timeout(LIMIT, all).await.context("not every listener got its ready line")?;
        Ok(Listeners { seen, count, tasks })
    }

    /// Waits until every listener has so many more lines; when each line came to each.
    pub(super) async fn lines(&self, lines: usize) -> anyhow::Result<Vec<Instant>> {
        let wanted = lines * self.count;
        self.seen.wanted.store(wanted, Ordering::Release);
        let all = async {
            while self.seen.lines.load(Ordering::Acquire) < wanted {
                if self.seen.ended.load(Ordering::Relaxed) {
                    bail!("a stream has ended");
                }
                self.seen.all.notified().await;
            }
            Ok(())
        };
        tokio::time::timeout(LIMIT, all).await.context("an event did not reach everybody")??;
        self.seen.lines.fetch_sub(wanted, Ordering::AcqRel);
        Ok(std::mem::take(&mut *self.seen.lock()))
    }

    /// How many lines came that nobody has waited for.
    pub(super) fn pending(&self) -> usize {
        self.seen.lines.load(Ordering::Acquire)
    }
}

impl Drop for Listeners {
    fn drop(&mut self) {
        self.tasks.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

/// An open stream of which nothing was read yet.
pub(super) async fn listen(address: SocketAddr) -> anyhow::Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
    Ok(stream)
}

/// Reads until the first newline that ends a line of events (a head's lines end in CR LF, those of
/// chunks too).
pub(super) async fn skip_ready(stream: &mut TcpStream) -> anyhow::Result<()> {
    let mut piece = vec![0; 64 << 10];
    let mut lines = Lines::default();
    loop {
        let count = stream.read(&mut piece).await?;
        if count == 0 {
            bail!("the stream ended before its ready line");
        }
        if lines.count(piece.get(..count).unwrap_or_default()) > 0 {
            return Ok(());
        }
    }
}

/// Counts lines of events: newlines that do not follow a carriage return.
#[derive(Default)]
pub(super) struct Lines {
    last: u8,
}

impl Lines {
    /// Those that end in the next bytes.
    pub(super) fn count(&mut self, bytes: &[u8]) -> usize {
        let mut lines = 0;
        for byte in bytes {
            lines += usize::from(*byte == b'\n' && self.last != b'\r');
            self.last = *byte;
        }
        lines
    }
}

async fn follow(mut stream: TcpStream, seen: &Seen) -> anyhow::Result<()> {
    skip_ready(&mut stream).await?;
    seen.ready.fetch_add(1, Ordering::AcqRel);
    seen.all.notify_one();
    let mut piece = vec![0; 16 << 10];
    let mut lines = Lines::default();
    loop {
        let count = stream.read(&mut piece).await?;
        let now = Instant::now();
        if count == 0 {
            bail!("the stream ended");
        }
        let ended = lines.count(piece.get(..count).unwrap_or_default());
        if ended == 0 {
            continue;
        }
        seen.lock().extend(std::iter::repeat_n(now, ended));
        let so_far = seen.lines.fetch_add(ended, Ordering::AcqRel) + ended;
        if so_far >= seen.wanted.load(Ordering::Acquire) {
            seen.all.notify_one();
        }
    }
}

/// The latest of these, after that.
pub(super) fn latest(times: &[Instant], since: Instant) -> Duration {
    times.iter().max().map_or(Duration::ZERO, |last| *last - since)
}

/// All of these, after that.
pub(super) fn since(times: &[Instant], since: Instant, into: &mut Samples) {
    times.iter().for_each(|time| into.push(*time - since));
}
