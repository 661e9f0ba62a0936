// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Streams that are refused: nothing beyond the last good frame is fed, and never the end.

use std::time::Duration;

use proptest::prelude::*;

use super::super::frame::{Framer, opening};
use super::super::{FRAME, NoToken, Refused, StreamError, Token, Tokens};
use super::{issuer, received, recorded};

/// Bytes of an opening, and of a frame around its content.
const OPENING: usize = 24;
const AROUND: usize = 13;

/// A stream of three pieces, each a frame, and the last frame, which is empty but for its numbers; with it the
/// ends of the frames.
async fn stream(token: &Token) -> (Vec<u8>, Vec<u8>, Vec<usize>) {
    // The loop fills its frames, so the frames are made by hand.
    let mut framer = Framer::default();
    let mut bytes = opening(&token.id).to_vec();
    let mut ends = vec![bytes.len()];
    for (piece, is_last) in
        [(&b"first piece"[..], false), (b"2", false), (b"the third", false), (b"last", true)]
    {
        bytes.extend(framer.frame(piece, is_last));
        bytes.extend(piece);
        ends.push(bytes.len());
    }
    (bytes, b"first piece2the thirdlast".to_vec(), ends)
}

/// Checks that a changed stream is refused and fed no more than what came before the change.
async fn is_refused(
    changed: &[u8],
    tokens: &Tokens<&'static str>,
    good: &[u8],
    what: &str,
) -> Refused {
    let (done, sink, end) = received(changed, tokens).await;
    let Err(StreamError::Refused(refused)) = done else { panic!("{what}: {done:?}") };
    let (fed, ended) = sink.got();
    assert_eq!((fed.as_slice(), ended), (good, false), "{what}");
    assert_eq!(end.counts().values().sum::<u64>(), 1, "{what}");
    refused
}

/// The content of the frames that end at or before `at`, the last one left out.
fn good_before(at: usize, ends: &[usize]) -> &'static [u8] {
    let lens = [0, 11, 12, 21, 21];
    let frames = ends.iter().skip(1).filter(|end| **end <= at).count();
    &b"first piece2the third"[..lens[frames]]
}

#[tokio::test(start_paused = true)]
async fn the_unchanged_stream_is_taken() {
    let tokens = issuer(1);
    let (bytes, content, ends) = stream(&tokens.issue("zones/x").unwrap()).await;
    assert_eq!((ends[0], ends[1]), (OPENING, OPENING + AROUND + 11));
    let (done, sink, _) = received(&bytes, &tokens).await;
    assert_eq!(done.unwrap(), content.len() as u64);
    assert_eq!(sink.got(), (content, true));
}

#[tokio::test(start_paused = true)]
async fn a_cut_at_every_place_is_noticed() {
    let tokens = issuer(1);
    let len = stream(&tokens.issue("zones/x").unwrap()).await.0.len();
    for at in 0..len {
        let tokens = issuer(1);
        let (bytes, _, ends) = stream(&tokens.issue("zones/x").unwrap()).await;
        let refused =
            is_refused(&bytes[..at], &tokens, good_before(at, &ends), &format!("cut at {at}"))
                .await;
        let number = ends.iter().skip(1).filter(|end| **end <= at).count() as u64;
        let want = if at < OPENING { Refused::Opening } else { Refused::Cut { number } };
        assert_eq!(refused, want);
    }
}

#[tokio::test(start_paused = true)]
async fn frames_repeated_left_out_or_reordered_are_refused() {
    let tokens = issuer(1);
    let issue = || tokens.issue("zones/x").unwrap();
    for (order, good, want) in [
        (&[0, 0, 1, 2, 3][..], 1, Refused::Order { expected: 1, found: 0 }),
        (&[0, 2, 1, 3], 1, Refused::Order { expected: 1, found: 2 }),
        (&[1, 2, 3], 0, Refused::Order { expected: 0, found: 1 }),
        (&[0, 1, 3], 2, Refused::Order { expected: 2, found: 3 }),
        (&[0, 1, 2], 3, Refused::Cut { number: 3 }),
        (&[0, 1, 2, 3, 3], 3, Refused::AfterTheEnd),
        (&[], 0, Refused::Cut { number: 0 }),
    ] {
        let (bytes, _, ends) = stream(&issue()).await;
        let frame = |at: &usize| bytes[ends[*at]..ends[at + 1]].to_vec();
        let changed = [bytes[..OPENING].to_vec(), order.iter().flat_map(frame).collect()].concat();
        let good = good_before(ends[good], &ends);
        assert_eq!(is_refused(&changed, &tokens, good, &format!("{order:?}")).await, want);
    }
}

#[tokio::test(start_paused = true)]
async fn lengths_and_kinds_that_do_not_fit_are_refused_before_anything_is_read() {
    let tokens = issuer(1);
    let head = |kind: u8, length: u32| [&[kind][..], &[0; 8], &length.to_be_bytes()].concat();
    let long = u32::try_from(FRAME).unwrap() + 1;
    for (kind, length, want) in [
        (1, 0, Refused::Length { number: 0, length: 0 }),
        (1, long, Refused::Length { number: 0, length: long }),
        (1, u32::MAX, Refused::Length { number: 0, length: u32::MAX }),
        (2, 15, Refused::Length { number: 0, length: 15 }),
        (2, long + 16, Refused::Length { number: 0, length: long + 16 }),
        (0, 5, Refused::Kind { number: 0 }),
        (3, 5, Refused::Kind { number: 0 }),
    ] {
        let token = tokens.issue("zones/x").unwrap();
        let bytes = [&opening(&token.id)[..], &head(kind, length)].concat();
        assert_eq!(is_refused(&bytes, &tokens, b"", "length").await, want);
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_opens_one_stream_once_and_in_time() {
    let tokens = issuer(1);
    let other = issuer(2);
    let token = tokens.issue("zones/x").unwrap();
    let bytes = recorded(&token, &[b"bytes"]).await;
    assert_eq!(is_refused(&bytes, &other, b"", "of another agent").await, Refused::UnknownToken);
    assert_eq!(is_refused(&[b'x'; 99], &tokens, b"", "noise").await, Refused::Opening);

    // The token of another node's stream: refused, and it still opens that one.
    let foreign = tokens.issue("zones/y").unwrap();
    let wrong = opening(&foreign.id);
    for _ in 0..2 {
        assert_eq!(is_refused(&wrong, &tokens, b"", "wrong").await, Refused::WrongToken);
    }
    let (done, sink, _) = received(&bytes, &tokens).await;
    assert_eq!((done.unwrap(), sink.got()), (5, (b"bytes".to_vec(), true)));
    assert_eq!(is_refused(&bytes, &tokens, b"", "replayed").await, Refused::UsedToken);

    let late = recorded(&tokens.issue("zones/x").unwrap(), &[b"bytes"]).await;
    tokio::time::advance(Duration::from_secs(121)).await;
    assert_eq!(is_refused(&late, &tokens, b"", "late").await, Refused::UnknownToken);
}

#[tokio::test(start_paused = true)]
async fn tokens_are_bounded_and_different() {
    let tokens = issuer(1);
    let token = tokens.issue("zones/x").unwrap();
    let text = token.id();
    assert_eq!(Token::read(&text), Ok(token));
    assert_ne!(tokens.issue("zones/x").unwrap().id(), text);
    for text in ["", "é", &text[1..], &format!("{text}00"), &text.replace(|_: char| true, "g")] {
        assert_eq!(Token::read(text), Err(NoToken::Text));
    }
    for _ in 2..1024 {
        tokens.issue("zones/x").unwrap();
    }
    assert_eq!(tokens.issue("zones/x").unwrap_err(), NoToken::TooMany);
    tokio::time::advance(Duration::from_secs(121)).await;
    tokens.issue("zones/x").unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_cut_of_any_stream_is_noticed(
        size in 1usize..200_000, at in any::<prop::sample::Index>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let tokens = issuer(1);
            let content: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
            let mut bytes = recorded(&tokens.issue("zones/x").unwrap(), &[&content]).await;
            let at = at.index(bytes.len());
            bytes.truncate(at);
            let whole_frames = at.saturating_sub(OPENING) / (FRAME + AROUND);
            let good = &content[..(whole_frames * FRAME).min(size)];
            is_refused(&bytes, &tokens, good, &format!("{size} bytes, {at}")).await;
        });
    }
}
