// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Connections to monitor sockets. A connection has no read buffer of its own: an instance that says
//! nothing costs a descriptor and a few hundred bytes.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::Duration;

use sdc_clients::Jitter;
use sdc_clients::retry::{Backoff, Policy};
use sdc_clients::vminfod::Lines;
use tokio::net::UnixStream;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use crate::clock::process;
use crate::qmp::{self, Line, NEGOTIATE, Peer};

/// For refused connections: QEMU binds before it listens. When it is exhausted, the file is a dead
/// process's.
const REFUSED: Policy = Policy {
    initial: Duration::from_millis(10),
    max: Duration::from_secs(1),
    multiplier: 2.0,
    max_attempts: Some(8),
    max_elapsed: None,
};
/// Pause between two attempts while the backlog is full.
const BACKLOG: Duration = Duration::from_secs(5);
/// How much is read at once.
const PIECE: usize = 4096;
/// How many reads one turn makes before other tasks have theirs.
const TURNS: usize = 64;

/// Why there is no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nobody {
    /// No socket under this name.
    Absent,
    /// A socket without a server.
    Stale,
    /// Not now (full backlog, permissions): the next rescan tries again.
    Refused,
}

#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    lines: Lines,
    /// The process at the other end, where the system tells it.
    pub peer: Option<Peer>,
}

/// The result of a turn of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// More may come.
    Open,
    /// The end, with everything before it read (K5).
    Ended,
}

/// Connects; tries again as long as something may answer. `poke`, a new file under the name, ends a
/// pause and begins anew. It does not end an attempt: a monitor serves one client at a time, and one
/// that was connected to and hung up on may accept no other.
pub async fn dial(
    socket: &Path,
    within: Duration,
    poke: &Notify,
    jitter: Jitter,
) -> Result<Connection, Nobody> {
    let mut deadline = Instant::now() + within;
    let mut refused = Backoff::new(&REFUSED, jitter);
    loop {
        let pause = match timeout(within, once(socket)).await {
            Ok(Ok(connection)) => return Ok(connection),
            Ok(Err(error)) => match error.kind() {
                io::ErrorKind::NotFound => return Err(Nobody::Absent),
                io::ErrorKind::ConnectionRefused => refused.next_delay().ok_or(Nobody::Stale)?,
                io::ErrorKind::WouldBlock => BACKLOG,
                _ => {
                    tracing::warn!(socket = %socket.display(), %error, "cannot connect");
                    return Err(Nobody::Refused);
                }
            },
            Err(_elapsed) => return Err(Nobody::Refused),
        };
        if Instant::now() + pause > deadline {
            return Err(Nobody::Refused);
        }
        // Both arms are cancel-safe: nothing is under way during a pause.
        tokio::select! {
            () = sleep(pause) => {}
            () = poke.notified() => {
                deadline = Instant::now() + within;
                refused.reset();
            }
        }
    }
}

/// Makes one attempt. Connects to sockets only, not through a link and not to a pipe.
/// Fails with `NotFound` also if the file is no socket.
pub async fn once(socket: &Path) -> io::Result<Connection> {
    if !std::fs::symlink_metadata(socket)?.file_type().is_socket() {
        return Err(io::ErrorKind::NotFound.into());
    }
    let stream = UnixStream::connect(socket).await?;
    let pid = stream.peer_cred().ok().and_then(|cred| cred.pid()).filter(|pid| *pid > 0);
    let connection = Connection { stream, lines: qmp::lines(), peer: pid.map(process::identify) };
    connection.negotiate();
    Ok(connection)
}

impl Connection {
    /// Sends the one command that is ever sent (K3), without waiting for the greeting: a socket
    /// takes 31 bytes at once, and one that does not is no monitor.
    fn negotiate(&self) {
        let mut rest = NEGOTIATE;
        while let Ok(count) = self.stream.try_write(rest) {
            rest = rest.get(count..).unwrap_or_default();
            if rest.is_empty() || count == 0 {
                return;
            }
        }
    }

    /// Waits until there is something to read. Cancel-safe.
    pub async fn readable(&self) {
        // An error shows again when it is read.
        let _shown_by_the_read = self.stream.readable().await;
    }

    /// Reads what has come and gives its lines. A reset ends the connection like an end of file, after
    /// the bytes before it.
    pub fn read(&mut self, mut give: impl FnMut(Line)) -> Turn {
        let mut resets = 0;
        for _ in 0..TURNS {
            let mut piece = [0; PIECE];
            match self.stream.try_read(&mut piece) {
                Ok(0) => return self.end(give),
                Ok(count) => {
                    self.lines.push(piece.get(..count).unwrap_or_default());
                    while let Some(line) = self.lines.next_line().transpose() {
                        give(line);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Turn::Open,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_reset) if resets < 2 => resets += 1,
                Err(_) => return self.end(give),
            }
        }
        Turn::Open
    }

    fn end(&mut self, mut give: impl FnMut(Line)) -> Turn {
        if let Some(line) = self.lines.finish() {
            give(line);
        }
        Turn::Ended
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener as Full;

    use tokio::io::AsyncReadExt;
    use tokio::net::UnixListener;
    use tokio::task::yield_now;

    use super::*;

    const WITHIN: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_poke_leaves_the_first_connection_standing() {
        for turns in (0..4).cycle().take(64) {
            let dir = tempfile::tempdir().expect("dir");
            let socket = dir.path().join("a.kvmd");
            let listener = UnixListener::bind(&socket).expect("bind");
            let poke = Notify::new();
            let poked = async {
                for _turn in 0..turns {
                    yield_now().await;
                }
                poke.notify_one();
            };
            let (dialed, ()) =
                tokio::join!(dial(&socket, WITHIN, &poke, Jitter::from_seed(1)), poked);
            let _held = dialed.expect("connected");
            let (mut first, _from) = listener.accept().await.expect("accept");
            let mut said = vec![0; NEGOTIATE.len()];
            first.read_exact(&mut said).await.expect("the first connection lives");
            assert_eq!(said, NEGOTIATE, "poked after {turns} turns");
        }
    }

    #[tokio::test]
    async fn a_new_file_ends_the_backlog_pause() {
        let dir = tempfile::tempdir().expect("dir");
        let socket = dir.path().join("a.kvmd");
        let full = Full::bind(&socket).expect("bind");
        // The usual backlog is more than the descriptors that a process may have.
        rustix::net::listen(&full, 1).expect("listen");
        let mut waiting = Vec::new();
        let last = loop {
            match UnixStream::connect(&socket).await {
                Ok(stream) => waiting.push(stream),
                Err(error) => break error.kind(),
            }
        };
        assert_eq!(last, io::ErrorKind::WouldBlock);
        let poke = Notify::new();
        let began = Instant::now();
        let renewed = async {
            yield_now().await;
            std::fs::remove_file(&socket).expect("remove");
            let listener = UnixListener::bind(&socket).expect("bind");
            poke.notify_one();
            listener
        };
        let (dialed, listener) =
            tokio::join!(dial(&socket, WITHIN, &poke, Jitter::from_seed(1)), renewed);
        assert!(dialed.is_ok(), "{dialed:?}");
        assert!(began.elapsed() < BACKLOG, "it waited for the pause to pass");
        drop((full, listener));
    }
}
