// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The call against a small server that answers what the test says.

use std::time::Duration;

use proptest::prelude::*;
use tokio::net::TcpListener;

use super::*;

const LATE: Duration = Duration::from_secs(60);

/// A server that reads a call, answers these bytes, and so on; then it closes.
async fn server(answers: Vec<Vec<u8>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut peer, _) = listener.accept().await.unwrap();
        for answer in answers {
            let mut call = [0; 44];
            peer.read_exact(&mut call).await.unwrap();
            peer.write_all(&answer).await.unwrap();
        }
    });
    address
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().copied().flat_map(u32::to_be_bytes).collect()
}

fn record(all: &[u32]) -> Vec<u8> {
    let body = words(all);
    [words(&[LAST | u32::try_from(body.len()).unwrap()]), body].concat()
}

async fn asked(answers: Vec<Vec<u8>>) -> String {
    let answer = tokio::time::timeout(LATE, null_call(server(answers).await)).await.unwrap();
    answer.map_or_else(|fault| fault.to_string(), |()| "serves".to_owned())
}

#[tokio::test] // V86
async fn a_server_that_accepts_the_call_serves() {
    assert_eq!(asked(vec![record(&[1, 1, 0, 0, 0, 0])]).await, "serves");
    // A verifier of five bytes takes two words.
    assert_eq!(asked(vec![record(&[1, 1, 0, 1, 5, 7, 7, 0])]).await, "serves");
    // The reply in three fragments, one of them empty.
    let pieces = [words(&[8, 1, 1]), words(&[0]), words(&[LAST | 16, 0, 0, 0, 0])].concat();
    assert_eq!(asked(vec![pieces]).await, "serves");
    // Version 4 alone.
    let mismatch = record(&[1, 1, 0, 0, 0, 2, 4, 4]);
    assert_eq!(asked(vec![mismatch.clone(), record(&[2, 1, 0, 0, 0, 0])]).await, "serves");
    let other = record(&[2, 1, 0, 0, 0, 2, 2, 2]);
    let said = asked(vec![mismatch, other]).await;
    assert_eq!(said, "the server refuses: it has neither version 3 nor 4");
}

#[tokio::test] // V86
async fn a_refusal_garbage_and_silence_are_told_apart() {
    for (answer, said) in [
        (record(&[1, 1, 0, 0, 0, 1]), "the server refuses: it has no NFS"),
        (record(&[1, 1, 0, 0, 0, 5]), "the server refuses: it cannot serve the call"),
        (record(&[1, 1, 1, 0, 2, 2]), "the server refuses: it denies the call"),
        (record(&[9, 1, 0, 0, 0, 0]), "the answer is not an RPC reply: it is for another call"),
        (record(&[1, 0, 2]), "the answer is not an RPC reply: it is a call"),
        (record(&[1, 1, 0, 0, 400]), "the answer is not an RPC reply: it is too short"),
        (record(&[1, 1, 0, 0, u32::MAX]), "the answer is not an RPC reply: it is too short"),
        (record(&[]), "the answer is not an RPC reply: it is too short"),
        (record(&[1, 1, 0, 0, 0, 77]), "the answer is not an RPC reply: its status is none"),
        (
            b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
            "the answer is not an RPC reply: it is too long",
        ),
        (words(&[0; 1100]), "the answer is not an RPC reply: it never ends"),
        (words(&[LAST | 24, 1, 1]), "the connection ended"),
        (vec![], "the connection ended"),
    ] {
        let result = asked(vec![answer.clone()]).await;
        assert!(result.starts_with(said), "{answer:02x?}: {result}");
    }
    let nobody = rig::port::Port::local().unwrap();
    let said = null_call(nobody.address()).await.unwrap_err().to_string();
    assert!(said.starts_with("no connection: "), "{said}");
}

proptest! {
    #[test] // V86
    fn no_reply_is_too_odd_to_be_judged(
        bytes in proptest::collection::vec(any::<u8>(), 0..64),
        words in proptest::collection::vec(0..6_u32, 0..12),
    ) {
        // It only must not panic, and only a whole reply says that the server serves.
        let _ = judge(&bytes, 1);
        let served = judge(&super::tests::words(&words), 1).is_ok_and(|it| it == Served::Yes);
        prop_assert!(!served || words.len() >= 6 && words[..3] == [1, 1, 0]);
    }
}
