// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Many listeners of one daemon, and the time at which each line reached each of them.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::table::Samples;

/// How long anything may take before it counts as lost.
const LIMIT: Duration = Duration::from_secs(30);

/// Listeners that all read as fast as they can.
pub(super) struct Listeners {
    /// When a piece came to one of them and how many lines it ended; closed by whoever ends.
    came: mpsc::Receiver<(Instant, usize)>,
    tasks: JoinSet<anyhow::Result<()>>,
    count: usize,
}

impl Listeners {
    /// Opens so many streams and waits until each has its `ready` line.
    pub(super) async fn open(address: SocketAddr, count: usize) -> anyhow::Result<Listeners> {
        let (tell, came) = mpsc::channel(4096);
        let mut listeners = Listeners { came, tasks: JoinSet::new(), count };
        for _ in 0..count {
            listeners.tasks.spawn(follow(listen(address).await?, tell.clone()));
        }
        listeners.lines(1).await.context("the ready lines")?;
        Ok(listeners)
    }

    /// Waits until every listener has so many more lines; when each line came to each.
    pub(super) async fn lines(&mut self, lines: usize) -> anyhow::Result<Vec<Instant>> {
        let (end, mut times) = (Instant::now() + LIMIT, Vec::with_capacity(lines * self.count));
        while times.len() < lines * self.count {
            tokio::select! {
                Some((at, ended)) = self.came.recv() => times.extend(std::iter::repeat_n(at, ended)),
                Some(ended) = self.tasks.join_next() => return ended?.map(|()| times),
                () = tokio::time::sleep_until(end) => bail!("an event did not reach everybody"),
            }
        }
        Ok(times)
    }

    /// Returns true if lines came that nobody waited for.
    pub(super) fn have_more(&mut self) -> bool {
        self.came.try_recv().is_ok()
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

async fn follow(mut stream: TcpStream, tell: mpsc::Sender<(Instant, usize)>) -> anyhow::Result<()> {
    let mut piece = vec![0; 16 << 10];
    let mut lines = Lines::default();
    loop {
        let count = stream.read(&mut piece).await?;
        let now = Instant::now();
        if count == 0 {
            bail!("a stream has ended");
        }
        let ended = lines.count(piece.get(..count).unwrap_or_default());
        if ended > 0 {
            tell.send((now, ended)).await?;
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
