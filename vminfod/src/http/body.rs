// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Response bodies: streams of shared bytes. All are chunked, as the shipped service's are.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream;
use hyper::body::{Body as HttpBody, Frame};

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

    /// Pieces as they come.
    pub fn stream(pieces: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Self(Box::pin(pieces))
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
