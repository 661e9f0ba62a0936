// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Connecting to a monitor's socket, and reading from it without a buffer of one's own: an
//! instance that says nothing costs a descriptor and a few hundred bytes.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout};

use crate::clock::process;
use crate::qmp::{Line, Lines, NEGOTIATE, Peer};

/// A refused connection is tried again this soon at first: bind comes before listen.
const SOON: Duration = Duration::from_millis(10);
/// … and this late at last; then the file is a dead process's.
const LATE: Duration = Duration::from_secs(1);
/// Between two tries where the backlog is full: never probe in a loop.
const BACKLOG: Duration = Duration::from_secs(5);
/// How much is read at once.
const PIECE: usize = 4096;
/// How often the socket is read in one turn before others have theirs.
const TURNS: usize = 64;

/// Why there is nothing to connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nobody {
    /// No socket under this name.
    Absent,
    /// A socket that nobody serves.
    Stale,
    /// It cannot be had now (full backlog, permissions): a later look tries again.
    Refused,
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    lines: Lines,
    /// Who serves it, where the system tells.
    pub peer: Option<Peer>,
}

/// What a turn of reading found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// More may come.
    Open,
    /// The end, with everything before it read (K5).
    Ended,
}

/// Connects, as long as there is something to connect to.
///
/// # Errors
/// Why not.
pub async fn dial(socket: &Path, within: Duration) -> Result<Connection, Nobody> {
    let deadline = Instant::now() + within;
    let mut wait = SOON;
    loop {
        let tried = timeout(within, once(socket)).await;
        let pause = match tried {
            Ok(Ok(connection)) => return Ok(connection),
            Ok(Err(error)) => match error.kind() {
                io::ErrorKind::NotFound => return Err(Nobody::Absent),
                io::ErrorKind::ConnectionRefused if wait > LATE => return Err(Nobody::Stale),
                io::ErrorKind::ConnectionRefused => {
                    wait *= 2;
                    wait / 2
                }
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
        sleep(pause).await;
    }
}

/// Connects now or not at all. Only to a socket: never through a link, never to a pipe.
///
/// # Errors
/// What the system says; `NotFound` too when the file is no socket.
pub async fn once(socket: &Path) -> io::Result<Connection> {
    if !std::fs::symlink_metadata(socket)?.file_type().is_socket() {
        return Err(io::ErrorKind::NotFound.into());
    }
    let stream = UnixStream::connect(socket).await?;
    let pid = stream.peer_cred().ok().and_then(|cred| cred.pid()).filter(|pid| *pid > 0);
    let connection =
        Connection { stream, lines: Lines::default(), peer: pid.map(process::identify) };
    connection.negotiate();
    Ok(connection)
}

impl Connection {
    /// Sends the one thing that is ever sent (K3), without waiting for the greeting: a socket
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

    /// Reads what there is and gives its lines. A reset is an end like any other, after what was
    /// received before it.
    pub fn read(&mut self, mut give: impl FnMut(Line)) -> Turn {
        let mut resets = 0;
        for _ in 0..TURNS {
            let mut piece = [0; PIECE];
            match self.stream.try_read(&mut piece) {
                Ok(0) => return self.end(give),
                Ok(count) => self.lines.push(piece.get(..count).unwrap_or_default(), &mut give),
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
