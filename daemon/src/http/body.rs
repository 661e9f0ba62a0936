// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Response bodies: streams of shared bytes, all chunked, as the shipped services' are; and
//! request bodies read whole, up to a cap.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io::IoSlice;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use futures_util::stream;
use futures_util::{Stream, StreamExt};
use hyper::body::{Body as HttpBody, Frame, Incoming};

/// A request's body that is not taken.
#[derive(Debug, thiserror::Error)]
pub enum TooMuch {
    /// More bytes than this.
    #[error("the body has more than {0} bytes")]
    Cap(usize),
    /// It broke off.
    #[error("the body broke off: {0}")]
    Broken(#[from] hyper::Error),
}

/// Reads a request's body of at most `cap` bytes. Wrap it in a timeout where the peer may stall.
///
/// # Errors
/// It is longer, or the connection broke.
pub async fn collect(mut body: Incoming, cap: usize) -> Result<Bytes, TooMuch> {
    let mut bytes = BytesMut::new();
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let Ok(piece) = frame?.into_data() else { continue };
        if bytes.len() + piece.len() > cap {
            return Err(TooMuch::Cap(cap));
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes.freeze())
}

/// A body; its length is never announced.
pub struct Body {
    chunks: Pin<Box<dyn Stream<Item = Chunk> + Send>>,
    /// What is left of a chunk whose pieces are taken one by one.
    left: VecDeque<Bytes>,
    /// It may go on for ever.
    lasts: bool,
}

impl Body {
    /// No bytes.
    pub fn empty() -> Self {
        Self::stream(stream::empty())
    }

    /// These bytes.
    pub fn once(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Self::stream(stream::iter((!bytes.is_empty()).then_some(bytes)))
    }

    /// These pieces.
    pub fn pieces<const N: usize>(pieces: [Bytes; N]) -> Self {
        Self::stream(stream::iter(pieces))
    }

    /// Pieces as they come, each a chunk of its own.
    pub fn stream(pieces: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Self::chunks(pieces.map(Chunk::one))
    }

    /// Chunks as they come.
    pub fn chunks(chunks: impl Stream<Item = Chunk> + Send + 'static) -> Self {
        Self { chunks: Box::pin(chunks), left: VecDeque::new(), lasts: false }
    }

    /// The same, of a stream that mostly waits and may go on for ever.
    pub fn lasting(pieces: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Self { lasts: true, ..Self::stream(pieces) }
    }

    /// May it go on for ever?
    pub(super) fn lasts(&self) -> bool {
        self.lasts
    }

    /// The next chunk.
    pub(super) fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Chunk>> {
        self.chunks.as_mut().poll_next(cx)
    }
}

impl Default for Body {
    fn default() -> Self {
        Self::empty()
    }
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Body")
    }
}

/// For a client in the same process: piece by piece.
impl HttpBody for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        loop {
            if let Some(piece) = self.left.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            match ready!(self.poll_chunk(cx)) {
                Some(chunk) => self.left = chunk.pieces,
                None => return Poll::Ready(None),
            }
        }
    }
}

/// Shared bytes that are sent together as they lie, without being copied into one place.
#[derive(Debug, Default)]
pub struct Chunk {
    /// None of them empty.
    pieces: VecDeque<Bytes>,
    bytes: usize,
}

impl Chunk {
    /// One piece.
    pub fn one(bytes: Bytes) -> Self {
        let mut chunk = Self { pieces: VecDeque::with_capacity(1), bytes: 0 };
        chunk.push(bytes);
        chunk
    }

    /// One more piece at its end.
    pub fn push(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.bytes += bytes.len();
            self.pieces.push_back(bytes);
        }
    }

    /// All of another one at its end.
    pub(super) fn append(&mut self, mut other: Chunk) {
        self.bytes += other.bytes;
        self.pieces.append(&mut other.pieces);
    }

    /// How many pieces are left.
    pub(super) fn pieces(&self) -> usize {
        self.pieces.len()
    }
}

impl FromIterator<Bytes> for Chunk {
    fn from_iter<T: IntoIterator<Item = Bytes>>(pieces: T) -> Self {
        let mut chunk = Self::default();
        pieces.into_iter().for_each(|piece| chunk.push(piece));
        chunk
    }
}

impl Buf for Chunk {
    fn remaining(&self) -> usize {
        self.bytes
    }

    fn chunk(&self) -> &[u8] {
        self.pieces.front().map_or(&[], |piece| piece)
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let pairs = slices.iter_mut().zip(&self.pieces);
        pairs.map(|(slice, piece)| *slice = IoSlice::new(piece)).count()
    }

    fn advance(&mut self, count: usize) {
        let mut left = count;
        while let Some(first) = self.pieces.front_mut().filter(|_| left > 0) {
            let step = left.min(first.len());
            first.advance(step);
            if first.is_empty() {
                self.pieces.pop_front();
            }
            self.bytes -= step;
            left -= step;
        }
        assert!(left == 0, "{count} bytes were sent of a chunk that had fewer");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk() -> Chunk {
        ["ab", "", "c", "def"].map(|text| Bytes::from_static(text.as_bytes())).into_iter().collect()
    }

    #[test]
    fn a_chunk_is_its_pieces_in_their_order_wherever_it_is_cut() {
        for step in 1..=6 {
            let (mut chunk, mut text) = (chunk(), Vec::new());
            while chunk.has_remaining() {
                let mut slices = [IoSlice::new(&[]); 2];
                let filled = chunk.chunks_vectored(&mut slices);
                let seen: Vec<u8> = slices[..filled].iter().flat_map(|s| s.to_vec()).collect();
                assert!(!seen.is_empty() && seen.starts_with(chunk.chunk()));
                let taken = step.min(seen.len());
                text.extend_from_slice(&seen[..taken]);
                chunk.advance(taken);
            }
            assert_eq!(text, b"abcdef", "{step}");
        }
        assert_eq!(chunk().remaining(), 6);
    }

    #[tokio::test]
    async fn the_process_itself_has_the_pieces() {
        let mut pieces = Vec::new();
        let mut body = Body::chunks(stream::iter([chunk(), Chunk::one("g".into())]));
        while let Some(Ok(frame)) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            pieces.push(frame.into_data().unwrap());
        }
        assert_eq!(pieces, ["ab", "c", "def", "g"]);
    }
}
