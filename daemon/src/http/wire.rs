// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the HTTP library is given to write: a body, or nothing, where the body is left for another
//! who drives the connection ([`lasting`](super::lasting)).
//!
//! Must never poll a body that it has left.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use hyper::body::{Body as HttpBody, Frame};

use super::body::{Body, Chunk};

/// A body for the wire: each chunk is one there, whatever the number of its pieces.
pub(super) enum Wire {
    /// All of it.
    Whole(Body),
    /// Nothing: once it is asked for, another writes it.
    Left(Handover),
}

impl HttpBody for Wire {
    type Data = Chunk;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Chunk>, Infallible>>> {
        match self.get_mut() {
            Wire::Whole(body) => {
                let chunk = ready!(body.poll_chunk(cx));
                Poll::Ready(chunk.map(|chunk| Ok(Frame::data(chunk))))
            }
            Wire::Left(handover) => {
                handover.ask();
                Poll::Pending
            }
        }
    }
}

/// Where a service leaves a body that lasts for whoever drives the connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Handover(Arc<Mutex<Left>>);

#[derive(Debug, Default)]
struct Left {
    body: Option<(Body, bool)>,
    asked: bool,
}

impl Handover {
    /// Leaves a body, and whether the connection is to be closed after it.
    pub(super) fn leave(&self, body: Body, closes: bool) {
        self.lock().body = Some((body, closes));
    }

    /// The library has written the head and wants the body.
    pub(super) fn ask(&self) {
        self.lock().asked = true;
    }

    /// Has it?
    pub(super) fn is_asked(&self) -> bool {
        self.lock().asked
    }

    /// What was left.
    pub(super) fn take(&self) -> Option<(Body, bool)> {
        self.lock().body.take()
    }

    fn lock(&self) -> MutexGuard<'_, Left> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use bytes::{Buf, Bytes};
    use futures_util::stream;

    use super::*;

    #[tokio::test]
    async fn a_chunk_is_one_on_the_wire_whatever_its_pieces() {
        let chunks = [Chunk::from_iter(["abc", "def"].map(Bytes::from)), Chunk::one("g".into())];
        let mut frames = Vec::new();
        let mut wire = Wire::Whole(Body::chunks(stream::iter(chunks)));
        while let Some(Ok(frame)) = poll_fn(|cx| Pin::new(&mut wire).poll_frame(cx)).await {
            frames.push(frame.into_data().unwrap().remaining());
        }
        assert_eq!(frames, [6, 1]);
    }
}
