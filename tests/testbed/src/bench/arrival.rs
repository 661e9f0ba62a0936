// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The time at which a line reaches a listener's socket, from `SO_TIMESTAMPNS` (socket(7)): when a
//! sleeping reader wakes up depends on what else the machine does.

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};

use super::streams::{Lines, listen, skip_ready};

/// How long a line may take before it counts as lost.
const LIMIT: Duration = Duration::from_secs(30);

/// A listener that waits for one line at a time.
pub(super) struct Arrivals {
    stream: TcpStream,
    lines: Lines,
}

impl Arrivals {
    /// Opens a stream and reads its `ready` line.
    pub(super) async fn open(address: SocketAddr) -> anyhow::Result<Arrivals> {
        let mut stream = listen(address).await?;
        skip_ready(&mut stream).await?;
        let stream = stream.into_std()?;
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(LIMIT))?;
        note_times(&stream)?;
        Ok(Arrivals { stream, lines: Lines::default() })
    }

    /// Waits for the next line, in this thread; more than one is an error. Returns when its last byte
    /// was at the socket.
    pub(super) fn line(&mut self) -> anyhow::Result<SystemTime> {
        let mut piece = [0; 16 << 10];
        loop {
            let (count, at) = receive(&self.stream, &mut piece).context("no line came")?;
            match self.lines.count(piece.get(..count).unwrap_or_default()) {
                _ if count == 0 => bail!("the stream ended"),
                0 => {}
                1 => return at.context("the system did not note when a line came"),
                lines => bail!("{lines} lines came at once"),
            }
        }
    }
}

/// Has the system note when what is read came.
#[cfg(target_os = "linux")]
fn note_times(stream: &TcpStream) -> anyhow::Result<()> {
    use nix::sys::socket::{setsockopt, sockopt::ReceiveTimestampns};
    Ok(setsockopt(stream, ReceiveTimestampns, &true)?)
}

/// Reads what is there or comes: how many bytes, and when the last of them came.
#[cfg(target_os = "linux")]
fn receive(stream: &TcpStream, into: &mut [u8]) -> anyhow::Result<(usize, Option<SystemTime>)> {
    use std::os::fd::AsRawFd;

    use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
    use nix::sys::time::TimeSpec;

    let mut control = nix::cmsg_space!(TimeSpec);
    let mut parts = [std::io::IoSliceMut::new(into)];
    let fd = stream.as_raw_fd();
    let message = recvmsg::<()>(fd, &mut parts, Some(&mut control), MsgFlags::empty())?;
    let noted = message.cmsgs()?.find_map(|control| match control {
        ControlMessageOwned::ScmTimestampns(time) => Some(Duration::from(time)),
        _ => None,
    });
    Ok((message.bytes, noted.map(|since| SystemTime::UNIX_EPOCH + since)))
}

/// Elsewhere there is nothing to be had but when it was read.
#[cfg(not(target_os = "linux"))]
fn note_times(_: &TcpStream) -> anyhow::Result<()> {
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn receive(mut stream: &TcpStream, into: &mut [u8]) -> anyhow::Result<(usize, Option<SystemTime>)> {
    let count = std::io::Read::read(&mut stream, into)?;
    Ok((count, Some(SystemTime::now())))
}
