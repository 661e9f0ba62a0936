// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The source's end of a stream.

use std::io;
use std::time::Duration;

use bytes::Buf;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;

use super::frame::{FRAME, Framer, TOTALS, opening, receipt};
use super::meter::Meter;
use super::rate::Rate;
use super::refused::{Refusals, Refused, StreamError};
use super::token::Token;

/// The target's receiver may take this long for what it was sent, and after the end for its last work.
const IDLE: Duration = Duration::from_secs(300);

/// Sends all bytes of `source`, and returns how many the target has taken. `ended` resolves to whether the source
/// ended well: it is awaited at the end of the bytes, before the target can learn that they are all.
/// Fails with [`StreamError::Source`], [`StreamError::Connection`], [`StreamError::Idle`] where the target took or
/// sent nothing for 5 minutes, and [`Refused::Receipt`].
pub async fn send(
    mut source: impl AsyncRead + Unpin,
    ended: impl Future<Output = io::Result<()>>,
    mut connection: impl AsyncRead + AsyncWrite + Unpin,
    token: &Token,
    (rate, meter, refusals): (&Rate, &Meter, &Refusals),
) -> Result<u64, StreamError> {
    let mut framer = Framer::default();
    put(&mut connection, &opening(&token.id)[..]).await?;
    // The frame that may be the last one is held back until something follows it.
    let (mut held, mut next) = (Vec::new(), Vec::with_capacity(FRAME));
    let mut ended = Some(ended);
    let mut is_last = false;
    while !is_last {
        next.clear();
        let read = (&mut source).take(FRAME as u64).read_to_end(&mut next).await;
        read.map_err(StreamError::Source)?;
        is_last = next.is_empty();
        if is_last && let Some(ended) = ended.take() {
            ended.await.map_err(StreamError::Source)?;
        }
        if is_last || !held.is_empty() {
            let head = framer.frame(&held, is_last);
            rate.pass(head.len() + held.len()).await;
            put(&mut connection, Buf::chain(&head[..], &held[..])).await?;
            meter.add(held.len());
        }
        std::mem::swap(&mut held, &mut next);
    }
    connection.shutdown().await.map_err(StreamError::Connection)?;
    let mut word = [0; TOTALS];
    let read = timeout(IDLE, connection.read_exact(&mut word)).await;
    let (frames, bytes) = framer.totals();
    match read.map_err(|_| StreamError::Idle(IDLE))? {
        Ok(_) if word == receipt(frames, bytes) => Ok(bytes),
        Ok(_) => Err(refusals.count(Refused::Receipt)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Err(refusals.count(Refused::Receipt))
        }
        Err(error) => Err(StreamError::Connection(error)),
    }
}

async fn put(
    connection: &mut (impl AsyncWrite + Unpin),
    mut bytes: impl Buf,
) -> Result<(), StreamError> {
    let put = timeout(IDLE, connection.write_all_buf(&mut bytes)).await;
    put.map_err(|_| StreamError::Idle(IDLE))?.map_err(StreamError::Connection)
}
