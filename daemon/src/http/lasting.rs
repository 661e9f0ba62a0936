// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Answers that may last for days: once the head of one is out, its connection is taken from the
//! HTTP library, whose buffers (16 KiB for each) a stream that mostly waits has no use for.
//!
//! Must send what the library would: the same chunks, and after the last of them a connection that
//! takes another request. Must never hold more of a stream than one write.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::body::{Body, Chunk};

/// Chunks are put together up to so many bytes,
const ROOM: usize = 16 << 10;
/// and so many pieces.
const PIECES: usize = 48;

/// Writes a body in chunks, its end too. What the peer says meanwhile is put into `ahead`, which
/// has what was read already; no more is read than once, as the library does.
///
/// # Errors
/// The connection breaks, or the peer leaves.
pub(super) async fn write<T>(io: &mut T, body: Body, ahead: &mut BytesMut) -> io::Result<()>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let mut writing = Writing { body, out: Chunk::default(), ended: false };
    std::future::poll_fn(|cx| {
        if let Poll::Ready(done) = writing.poll(io, cx) {
            return Poll::Ready(done);
        }
        if ahead.is_empty() {
            ready!(listen(io, ahead, cx))?;
        }
        Poll::Pending
    })
    .await
}

struct Writing {
    body: Body,
    out: Chunk,
    ended: bool,
}

impl Writing {
    fn poll<T>(&mut self, io: &mut T, cx: &mut Context<'_>) -> Poll<io::Result<()>>
    where
        T: AsyncWrite + Unpin,
    {
        loop {
            self.fill(cx);
            if !self.out.has_remaining() {
                // Nothing is kept for one that waits.
                self.out = Chunk::default();
                ready!(Pin::new(&mut *io).poll_flush(cx))?;
                return if self.ended { Poll::Ready(Ok(())) } else { Poll::Pending };
            }
            let mut slices = [io::IoSlice::new(&[]); PIECES];
            let count = self.out.chunks_vectored(&mut slices);
            let slices = slices.get(..count).unwrap_or_default();
            match ready!(Pin::new(&mut *io).poll_write_vectored(cx, slices))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.out.advance(written),
            }
        }
    }

    fn fill(&mut self, cx: &mut Context<'_>) {
        while !self.ended && self.out.remaining() < ROOM && self.out.pieces() < PIECES {
            match self.body.poll_chunk(cx) {
                Poll::Ready(Some(chunk)) if chunk.has_remaining() => {
                    self.out.push(Bytes::from(format!("{:X}\r\n", chunk.remaining())));
                    self.out.append(chunk);
                    self.out.push(Bytes::from_static(b"\r\n"));
                }
                // An empty one would end the body.
                Poll::Ready(Some(_)) => {}
                Poll::Ready(None) => {
                    self.out.push(Bytes::from_static(b"0\r\n\r\n"));
                    self.ended = true;
                }
                Poll::Pending => return,
            }
        }
    }
}

/// Waits until the peer says something or leaves.
fn listen<T>(io: &mut T, ahead: &mut BytesMut, cx: &mut Context<'_>) -> Poll<io::Result<()>>
where
    T: AsyncRead + Unpin,
{
    let mut bytes = [0; 1024];
    let mut read = ReadBuf::new(&mut bytes);
    ready!(Pin::new(io).poll_read(cx, &mut read))?;
    if read.filled().is_empty() {
        return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
    }
    ahead.extend_from_slice(read.filled());
    // The rest stays where it is until the stream has ended.
    Poll::Pending
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::stream;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    fn body(lines: &[&str]) -> Body {
        let lines: Vec<Bytes> = lines.iter().map(|line| line.as_bytes().to_vec().into()).collect();
        Body::stream(stream::iter(lines))
    }

    #[tokio::test]
    async fn each_line_is_a_chunk_through_a_narrow_pipe_too() {
        for width in [1, 7, 1 << 16] {
            let (mut near, mut far) = duplex(width);
            let reader = tokio::spawn(async move {
                let mut text = String::new();
                far.read_to_string(&mut text).await.unwrap();
                text
            });
            let long = "x".repeat(20_000);
            let written = write(&mut near, body(&["ab\n", "", &long]), &mut BytesMut::new()).await;
            written.unwrap();
            drop(near);
            let want = format!("3\r\nab\n\r\n4E20\r\n{long}\r\n0\r\n\r\n");
            assert!(reader.await.unwrap() == want, "{width}");
        }
    }

    #[tokio::test]
    async fn a_peer_that_speaks_is_kept_for_later_and_one_that_leaves_ends_it() {
        let (mut near, mut far) = duplex(64);
        let (mut ahead, never) = (BytesMut::new(), || Body::stream(stream::pending()));
        far.write_all(b"GET /next").await.unwrap();
        let wait = Duration::from_millis(20);
        assert!(tokio::time::timeout(wait, write(&mut near, never(), &mut ahead)).await.is_err());
        assert_eq!(&ahead[..], b"GET /next");
        let mut ahead = BytesMut::new();
        drop(far);
        let error = write(&mut near, never(), &mut ahead).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
