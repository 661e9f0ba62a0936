// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The rate: kept within a tenth, shared, and taken up at once.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::super::{Rate, send};
use super::{End, Pieces, Sink, issuer, receive};

const MB: usize = 1_000_000;

/// Sends `bytes` with the two ends at these rates.
async fn carry(bytes: usize, source: Arc<Rate>, target: Arc<Rate>) {
    let tokens = issuer(1);
    let token = tokens.issue("zones/x").unwrap();
    let (ours, theirs) = tokio::io::duplex(4096);
    let (source, target) = (End::new(&source), End::new(&target));
    let (sent, taken) = tokio::join!(
        send(Pieces(vec![vec![0; bytes]]), async { Ok(()) }, ours, &token, source.all()),
        receive(theirs, &tokens, Sink::default(), &target),
    );
    assert_eq!((sent.unwrap(), taken.unwrap()), (bytes as u64, bytes as u64));
}

fn rate(mbps: u32) -> Arc<Rate> {
    Arc::new(Rate::new(Some(mbps)))
}

/// Checks that `took` is within a tenth of `seconds`.
fn about(took: Duration, seconds: f64) {
    let share = took.as_secs_f64() / seconds;
    assert!((0.9..1.1).contains(&share), "{took:?}, not {seconds} s");
}

#[tokio::test(start_paused = true)]
async fn one_stream_keeps_the_limit_of_either_end() {
    for (mbps, bytes, seconds) in [(1, 2 * MB, 16.0), (8, 5 * MB, 5.0), (1000, 10 * MB, 0.08)] {
        for (source, target) in [(Some(mbps), None), (None, Some(mbps)), (Some(mbps), Some(mbps))] {
            let began = Instant::now();
            carry(bytes, Arc::new(Rate::new(source)), Arc::new(Rate::new(target))).await;
            about(began.elapsed(), seconds);
        }
    }
}

#[tokio::test(start_paused = true)] // M172
async fn one_migration_has_a_limit_of_its_own_within_that_of_the_node() {
    for (node, own, seconds) in [(80, Some(8), 2.0), (8, Some(80), 2.0), (8, None, 2.0)] {
        let own = Arc::new(Rate::within(&rate(node), own));
        let began = Instant::now();
        carry(2 * MB, own, rate(10_000)).await;
        about(began.elapsed(), seconds);
    }
}

#[tokio::test(start_paused = true)]
async fn all_streams_of_a_node_in_and_out_share_one_limit() {
    let node = rate(80);
    let began = Instant::now();
    let mut streams = JoinSet::new();
    for at in 0..6 {
        let other = rate(10_000);
        let (source, target) =
            if at % 2 == 0 { (node.clone(), other) } else { (other, node.clone()) };
        streams.spawn(async move {
            carry(2 * MB, source, target).await;
            Instant::now()
        });
    }
    let ended = streams.join_all().await;
    about(began.elapsed(), 1.2);
    // Each has its share: the first one ends about when the last one does.
    about(*ended.iter().min().unwrap() - began, 1.2);
}

#[tokio::test(start_paused = true)]
async fn no_limit_is_no_wait() {
    let began = Instant::now();
    for mbps in [None, Some(0)] {
        carry(2 * MB, Arc::new(Rate::new(mbps)), Arc::new(Rate::new(mbps))).await;
    }
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_change_is_taken_up_within_a_second() {
    // Old limit, new one, the bytes of the 10 s that begin 1 s after the change.
    for (old, new, want) in
        [(1, 800, 1000 * MB), (800, 1, 1_250_000), (8, 80, 100 * MB), (80, 8, 10 * MB)]
    {
        let node = rate(old);
        let passed = Cell::new(0);
        let passing = async {
            loop {
                node.pass(65_536).await;
                passed.set(passed.get() + 65_536);
            }
        };
        let watching = async {
            tokio::time::sleep(Duration::from_secs(20)).await;
            node.set(Some(new));
            tokio::time::sleep(Duration::from_secs(1)).await;
            let before = passed.get();
            tokio::time::sleep(Duration::from_secs(10)).await;
            passed.get() - before
        };
        let passed = tokio::select! {
            passed = watching => passed,
            () = passing => unreachable!("it has no end"),
        };
        let share = passed as f64 / want as f64;
        assert!((0.9..1.1).contains(&share), "{old} → {new}: {passed}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_waits_is_let_go_when_the_limit_goes() {
    let node = rate(1);
    node.pass(100 * MB).await;
    let waiting = async {
        let began = Instant::now();
        node.pass(1).await;
        began.elapsed()
    };
    let lifting = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        node.set(None);
    };
    let (waited, ()) = tokio::join!(waiting, lifting);
    assert_eq!(waited, Duration::from_secs(3));
}
