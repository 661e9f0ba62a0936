// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The target's end of a stream.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;

use super::frame::{Checker, HEAD, LONGEST, OPENING};
use super::meter::Meter;
use super::rate::Rate;
use super::refused::{Refusals, Refused, StreamError};
use super::token::Tokens;

/// A connection has this long to open a stream.
const OPENS: Duration = Duration::from_secs(10);
/// Nothing may move for this long. `zfs send` may think for minutes before a piece.
const IDLE: Duration = Duration::from_secs(300);

/// A stream that was opened with a token.
pub struct Incoming<C> {
    connection: C,
    checker: Checker,
}

/// Reads the opening of a stream, and returns the stream and what its token was issued for. `is_for` returns whether
/// that is meant for the program at the other end of the connection.
/// Fails with [`StreamError::Refused`], [`StreamError::Connection`], and [`StreamError::Idle`] after 10 s.
pub async fn accept<C: AsyncRead + AsyncWrite + Unpin, T>(
    mut connection: C,
    tokens: &Tokens<T>,
    is_for: impl Fn(&T) -> bool,
    refusals: &Refusals,
) -> Result<(Incoming<C>, T), StreamError> {
    let mut opening = [0; OPENING];
    let read = timeout(OPENS, connection.read_exact(&mut opening)).await;
    match read.map_err(|_| StreamError::Idle(OPENS))? {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            return Err(refusals.count(Refused::Opening));
        }
        Err(error) => return Err(StreamError::Connection(error)),
    }
    let redeemed = tokens.redeem(&opening, is_for);
    let purpose = redeemed.map_err(|refused| refusals.count(refused))?;
    Ok((Incoming { connection, checker: Checker::default() }, purpose))
}

impl<C: AsyncRead + AsyncWrite + Unpin> Incoming<C> {
    /// Feeds the stream to `sink` and closes it, awaits `taken`, which resolves to whether the receiver took
    /// everything and has a deadline of its own, and reports to the source. Returns the bytes. After an error nothing
    /// more is fed, and the last piece never was: the caller ends the receiver.
    /// Fails with [`StreamError::Refused`], [`StreamError::Connection`], [`StreamError::Sink`], and
    /// [`StreamError::Idle`] where nothing came, or was taken, for 5 minutes.
    pub async fn feed(
        mut self,
        mut sink: impl AsyncWrite + Unpin,
        taken: impl Future<Output = io::Result<()>>,
        (rate, meter, refusals): (&Rate, &Meter, &Refusals),
    ) -> Result<u64, StreamError> {
        let mut frame = vec![0; LONGEST];
        let mut bytes = 0;
        let mut is_last = false;
        while !is_last {
            let mut head = [0; HEAD];
            self.read(&mut head, refusals).await?;
            let head = self.checker.head(head).map_err(|refused| refusals.count(refused))?;
            rate.pass(HEAD + head.length).await;
            let content = &mut frame[..head.length];
            self.read(content, refusals).await?;
            let checked = self.checker.check(&head, content);
            let piece = checked.map_err(|refused| refusals.count(refused))?;
            is_last = piece.is_last;
            if is_last {
                self.ends(refusals).await?;
            }
            let fed = timeout(IDLE, sink.write_all(piece.data)).await;
            fed.map_err(|_| StreamError::Idle(IDLE))?.map_err(StreamError::Sink)?;
            meter.add(piece.data.len());
            bytes += piece.data.len() as u64;
        }
        let closed = timeout(IDLE, sink.shutdown()).await;
        closed.map_err(|_| StreamError::Idle(IDLE))?.map_err(StreamError::Sink)?;
        drop(sink);
        taken.await.map_err(StreamError::Sink)?;
        let receipt = self.checker.receipt();
        self.connection.write_all(&receipt).await.map_err(StreamError::Connection)?;
        self.connection.shutdown().await.map_err(StreamError::Connection)?;
        Ok(bytes)
    }

    async fn read(&mut self, bytes: &mut [u8], refusals: &Refusals) -> Result<(), StreamError> {
        let read = timeout(IDLE, self.connection.read_exact(bytes)).await;
        match read.map_err(|_| StreamError::Idle(IDLE))? {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(refusals.count(Refused::Cut { number: self.checker.next() }))
            }
            Err(error) => Err(StreamError::Connection(error)),
        }
    }

    /// Waits for the end of what the source sends.
    async fn ends(&mut self, refusals: &Refusals) -> Result<(), StreamError> {
        let read = timeout(IDLE, self.connection.read(&mut [0])).await;
        match read.map_err(|_| StreamError::Idle(IDLE))? {
            Ok(0) => Ok(()),
            Ok(_) => Err(refusals.count(Refused::AfterTheEnd)),
            Err(error) => Err(StreamError::Connection(error)),
        }
    }
}
