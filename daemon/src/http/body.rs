// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Response bodies: streams of shared bytes, all chunked, as the shipped services' are; and
//! request bodies read whole, up to a cap.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use futures_util::stream;
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
pub struct Body(Pin<Box<dyn Stream<Item = Bytes> + Send>>);

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

    /// Pieces as they come.
    pub fn stream(pieces: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Self(Box::pin(pieces))
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

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.as_mut().poll_next(cx).map(|piece| piece.map(|bytes| Ok(Frame::data(bytes))))
    }
}
