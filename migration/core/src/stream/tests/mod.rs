// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Streams under time that is paused.

mod bad; // streams that are refused
mod limited; // the rate
mod whole; // streams that arrive

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, DuplexStream, ReadBuf};

use super::{Meter, Rate, Refusals, Refused, StreamError, Token, Tokens, accept, send};

/// What a receiver got, and whether it got the end.
#[derive(Debug, Clone, Default)]
struct Sink(Arc<Mutex<(Vec<u8>, bool)>>);

impl Sink {
    fn got(&self) -> (Vec<u8>, bool) {
        self.0.lock().unwrap().clone()
    }
}

impl AsyncWrite for Sink {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.lock().unwrap().0.extend(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.lock().unwrap().1 = true;
        Poll::Ready(Ok(()))
    }
}

/// A source that gives each piece in one read.
struct Pieces(Vec<Vec<u8>>);

impl AsyncRead for Pieces {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.0.is_empty() {
            let piece = self.0.remove(0);
            let (now, later) = piece.split_at(piece.len().min(to.remaining()));
            to.put_slice(now);
            if !later.is_empty() {
                self.0.insert(0, later.to_vec());
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// The rate, the meter and the refusals of one end.
struct End {
    rate: Arc<Rate>,
    meter: Meter,
    refusals: Refusals,
}

impl End {
    fn new(rate: &Arc<Rate>) -> End {
        End { rate: rate.clone(), meter: Meter::default(), refusals: Refusals::default() }
    }

    fn free() -> End {
        End::new(&Arc::new(Rate::new(None)))
    }

    fn all(&self) -> (&Rate, &Meter, &Refusals) {
        (&self.rate, &self.meter, &self.refusals)
    }

    fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.refusals.counts().filter(|(_, count)| *count > 0).collect()
    }
}

/// The tokens of an agent.
fn issuer(seed: u8) -> Tokens<&'static str> {
    Tokens::new([seed; 8])
}

/// Receives a stream for the purpose `"zones/x"`.
async fn receive(
    connection: DuplexStream,
    tokens: &Tokens<&'static str>,
    sink: Sink,
    end: &End,
) -> Result<u64, StreamError> {
    let (incoming, purpose) =
        accept(connection, tokens, |purpose| *purpose == "zones/x", &end.refusals).await?;
    assert_eq!(purpose, "zones/x");
    incoming.feed(sink, async { Ok(()) }, end.all()).await
}

/// Feeds these bytes, and the end, to a receiver, and returns what came of it.
async fn received(
    bytes: &[u8],
    tokens: &Tokens<&'static str>,
) -> (Result<u64, StreamError>, Sink, End) {
    let (mut ours, theirs) = tokio::io::duplex(bytes.len().max(1));
    ours.write_all(bytes).await.unwrap();
    ours.shutdown().await.unwrap();
    let (sink, end) = (Sink::default(), End::free());
    let done = receive(theirs, tokens, sink.clone(), &end).await;
    (done, sink, end)
}

/// Returns what a source puts on the connection for this token.
async fn recorded(token: &Token, pieces: &[&[u8]]) -> Vec<u8> {
    let (mut ours, theirs) = tokio::io::duplex(1 << 20);
    let source = Pieces(pieces.iter().map(|piece| piece.to_vec()).collect());
    let end = End::free();
    let recording = async {
        let mut bytes = Vec::new();
        tokio::io::AsyncReadExt::read_to_end(&mut ours, &mut bytes).await.unwrap();
        drop(ours);
        bytes
    };
    let (sent, bytes) =
        tokio::join!(send(source, async { Ok(()) }, theirs, token, end.all()), recording);
    assert!(matches!(
        sent,
        Err(StreamError::Refused(Refused::Receipt) | StreamError::Connection(_))
    ));
    bytes
}
