// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Streams that arrive, and ends that fail.

use std::io;
use std::time::Duration;

use proptest::prelude::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::super::{FRAME, Refused, StreamError, accept, send};
use super::{End, Pieces, Sink, issuer, receive};

/// Sends the pieces through a connection with room for `room` bytes.
async fn carry(pieces: Vec<Vec<u8>>, room: usize) -> (u64, u64, Sink, End, End) {
    let tokens = issuer(1);
    let token = tokens.issue("zones/x").unwrap();
    let (ours, theirs) = tokio::io::duplex(room);
    let (sink, source_end, target_end) = (Sink::default(), End::free(), End::free());
    let (sent, taken) = tokio::join!(
        send(Pieces(pieces), async { Ok(()) }, ours, &token, source_end.all()),
        receive(theirs, &tokens, sink.clone(), &target_end),
    );
    (sent.unwrap(), taken.unwrap(), sink, source_end, target_end)
}

#[tokio::test(start_paused = true)]
async fn a_stream_arrives_whole_and_is_counted_on_both_sides() {
    for sizes in [vec![], vec![1], vec![FRAME], vec![FRAME + 1, 3], vec![FRAME * 2], vec![7; 100]] {
        let bytes = |size: &usize| (0..*size).map(|at| at as u8).collect::<Vec<u8>>();
        let pieces: Vec<Vec<u8>> = sizes.iter().map(bytes).collect();
        let all = pieces.concat();
        let (sent, taken, sink, source, target) = carry(pieces, 1000).await;
        let len = all.len() as u64;
        assert_eq!((sent, taken), (len, len), "{sizes:?}");
        assert!(sink.got() == (all, true), "{sizes:?}");
        assert_eq!((source.meter.bytes(), target.meter.bytes()), (len, len));
        assert!(source.counts().is_empty() && target.counts().is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn any_bytes_in_any_pieces_arrive(
        pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..2000), 0..20),
        room in 1usize..5000,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let all = pieces.concat();
        let (_, _, sink, _, _) = runtime.block_on(carry(pieces, room));
        prop_assert_eq!(sink.got(), (all, true));
    }
}

#[tokio::test(start_paused = true)]
async fn a_source_that_did_not_end_well_makes_no_whole_stream() {
    let tokens = issuer(1);
    let token = tokens.issue("zones/x").unwrap();
    let (ours, theirs) = tokio::io::duplex(1 << 20);
    let (sink, source_end, target_end) = (Sink::default(), End::free(), End::free());
    let killed = async { Err(io::Error::other("zfs send was killed")) };
    let (sent, taken) = tokio::join!(
        send(Pieces(vec![vec![1; 100_000]]), killed, ours, &token, source_end.all()),
        receive(theirs, &tokens, sink.clone(), &target_end),
    );
    assert!(matches!(sent, Err(StreamError::Source(_))), "{sent:?}");
    assert!(matches!(taken, Err(StreamError::Refused(Refused::Cut { .. }))), "{taken:?}");
    let (bytes, ended) = sink.got();
    assert!(bytes.len() < 100_000 && !ended);
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_did_not_end_well_gives_no_receipt() {
    let tokens = issuer(1);
    let token = tokens.issue("zones/x").unwrap();
    let (ours, theirs) = tokio::io::duplex(1 << 20);
    let (source_end, target_end) = (End::free(), End::free());
    let receiving = async {
        let (incoming, _) = accept(theirs, &tokens, |_| true, &target_end.refusals).await?;
        let full = async { Err(io::Error::other("out of space")) };
        incoming.feed(Sink::default(), full, target_end.all()).await
    };
    let sending = send(Pieces(vec![vec![1; 9]]), async { Ok(()) }, ours, &token, source_end.all());
    let (sent, taken) = tokio::join!(sending, receiving);
    assert!(matches!(taken, Err(StreamError::Sink(_))), "{taken:?}");
    assert!(matches!(sent, Err(StreamError::Refused(Refused::Receipt))), "{sent:?}");
    assert_eq!(source_end.counts(), [("receipt", 1)].into());
}

#[tokio::test(start_paused = true)]
async fn a_receipt_for_something_else_is_refused() {
    let token = issuer(1).issue("zones/x").unwrap();
    let (ours, mut theirs) = tokio::io::duplex(1 << 20);
    let end = End::free();
    let forging = async {
        theirs.read_exact(&mut [0; 24]).await.unwrap();
        theirs.write_all(&[7; 16]).await.unwrap();
    };
    let sending = send(Pieces(vec![vec![1; 9]]), async { Ok(()) }, ours, &token, end.all());
    let (sent, ()) = tokio::join!(sending, forging);
    assert!(matches!(sent, Err(StreamError::Refused(Refused::Receipt))), "{sent:?}");
}

#[tokio::test(start_paused = true)]
async fn an_end_that_is_silent_is_given_up() {
    let tokens = issuer(1);
    let (_silent, theirs) = tokio::io::duplex(10);
    let end = End::free();
    let opened = receive(theirs, &tokens, Sink::default(), &end).await;
    assert!(matches!(opened, Err(StreamError::Idle(after)) if after == Duration::from_secs(10)));

    let token = tokens.issue("zones/x").unwrap();
    let (ours, _full) = tokio::io::duplex(10);
    let sent = send(Pieces(vec![]), async { Ok(()) }, ours, &token, end.all()).await;
    assert!(matches!(sent, Err(StreamError::Idle(after)) if after == Duration::from_secs(300)));

    let token = tokens.issue("zones/x").unwrap();
    let opening = super::recorded(&token, &[]).await[..24].to_vec();
    let (mut ours, theirs) = tokio::io::duplex(100);
    ours.write_all(&opening).await.unwrap();
    let fed = receive(theirs, &tokens, Sink::default(), &end).await;
    assert!(matches!(fed, Err(StreamError::Idle(after)) if after == Duration::from_secs(300)));
    drop(ours);
}
