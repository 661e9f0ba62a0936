// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Hostile clients against the real listener: time and memory stay within bounds, and other clients
//! are served.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use super::rig::{LATE, Rig};

/// The most that abuse may cost, in MiB.
const MEMORY: u64 = 96;
/// The headers' deadline is 10 s; the rest is the machine's.
const HEADERS: Duration = Duration::from_secs(40);

#[tokio::test(flavor = "multi_thread")]
async fn row_37_heads_that_never_end_or_are_too_large_are_cut() {
    let rig = Rig::start(2, "", "").await;
    let before = rig.rss();
    let began = Instant::now();
    let mut slow = Vec::new();
    for _ in 0..200 {
        let mut stream = rig.connect().await;
        stream.write_all(b"GET /vms HTTP/1.1\r\nHost: localhost\r\nX-A: ").await.unwrap();
        slow.push(tokio::spawn(async move {
            // One byte a second, until the daemon has had enough.
            loop {
                let mut one = [0; 64];
                match timeout(Duration::from_secs(1), stream.read(&mut one)).await {
                    Ok(Ok(0)) | Ok(Err(_)) => return,
                    Ok(Ok(_)) => {}
                    Err(_) => {
                        let _cut = stream.write_all(b"x").await;
                    }
                }
            }
        }));
    }
    let asked = Instant::now();
    rig.hub().ping().await.unwrap();
    println!("ping beside 200 slow heads: {:?}", asked.elapsed());
    for one in slow {
        timeout(HEADERS, one).await.expect("a slow head is cut").unwrap();
    }
    println!("200 slow heads cut after {:?}", began.elapsed());
    let many: String = (0..10_000).map(|n| format!("X-{n}: y\r\n")).collect();
    let long = "a".repeat(1 << 20);
    for (what, bytes) in [
        ("10,000 headers", format!("GET /ping HTTP/1.1\r\nHost: localhost\r\n{many}\r\n")),
        (
            "a header of 1 MiB",
            format!("GET /ping HTTP/1.1\r\nHost: localhost\r\nX: {long}\r\n\r\n"),
        ),
        ("a path of 1 MiB", format!("GET /vms/{long} HTTP/1.1\r\nHost: localhost\r\n\r\n")),
    ] {
        let answer = rig.send(bytes.as_bytes()).await;
        let first = answer.lines().next().unwrap_or("closed").to_owned();
        println!("{what}: {first}");
        assert!(first == "closed" || first.contains(" 4"), "{what}: {first}");
    }
    rig.answers().await;
    let grown = rig.rss().saturating_sub(before);
    println!("memory grew by {grown} MiB (at most {MEMORY})");
    assert!(grown <= MEMORY);
}

#[tokio::test(flavor = "multi_thread")]
async fn row_38_and_39_junk_and_two_lengths_and_odd_paths_harm_nobody() {
    let rig = Rig::start(2, "", "").await;
    let before = rig.rss();
    let smuggled = "GET /vms HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let both = format!(
        "POST /ping HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{smuggled}",
        smuggled.len() + 5
    );
    let two = format!(
        "POST /ping HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nContent-Length: {}\r\n\r\n{smuggled}",
        smuggled.len()
    );
    for (what, bytes) in [
        ("both lengths", both.as_bytes()),
        ("two lengths", two.as_bytes()),
        ("HTTP/0.9", b"GET /ping\r\n\r\n"),
        ("no HTTP", &[0, 159, 146, 150, 13, 10, 13, 10]),
        ("TLS", &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3, 13, 10, 13, 10]),
        ("NUL", b"GET /vms/\0 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"),
        ("dots", b"GET /vms/../../etc/passwd HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"),
        ("dots in hex", b"GET /vms/%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"),
    ] {
        let answer = rig.send(bytes).await;
        let first = answer.lines().next().unwrap_or("closed").to_owned();
        println!("{what}: {first}");
        assert!(!answer.contains("root:") && !answer.contains("zonename"), "{what}: {answer}");
        assert!(first == "closed" || first.contains(" 4"), "{what}: {first}");
    }
    // A good request with junk behind it gets its answer; the junk gets none of ours.
    let piped = "GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n\x01\x02\x03 junk\r\n\r\n".repeat(3);
    let answer = rig.send(piped.as_bytes()).await;
    assert!(answer.contains("pong") && answer.matches(" 200 ").count() == 1, "{answer}");
    rig.answers().await;
    let grown = rig.rss().saturating_sub(before);
    println!("memory grew by {grown} MiB (at most {MEMORY})");
    assert!(grown <= MEMORY);
}

/// Reads the first line of a stream.
async fn ready(stream: &mut TcpStream) -> usize {
    stream.write_all(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let (mut bytes, mut piece) = (Vec::new(), vec![0; 16384]);
    while !String::from_utf8_lossy(&bytes).contains("\"ready\"") {
        let count = timeout(LATE, stream.read(&mut piece)).await.expect("in time").unwrap();
        assert!(count > 0, "closed: {}", String::from_utf8_lossy(&bytes));
        bytes.extend_from_slice(&piece[..count]);
    }
    bytes.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_33_35_and_36_ten_thousand_listeners_idle_slow_and_reset() {
    let rig = Rig::start(1, "", "").await;
    let (before, fds) = (rig.rss(), rig.fds());
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let most = limit.map_or(10_000, |limit| limit.saturating_sub(300).min(10_000));
    let began = Instant::now();
    let mut listeners = Vec::new();
    for _ in 0..most {
        let mut stream = rig.connect().await;
        ready(&mut stream).await;
        listeners.push(stream);
    }
    let cost = rig.rss().saturating_sub(before);
    println!("{most} idle listeners in {:?}, {cost} MiB more", began.elapsed());
    assert!(cost * 1024 <= most * 64, "more than 64 KiB each: {cost} MiB");
    let asked = Instant::now();
    rig.hub().ping().await.unwrap();
    println!("ping beside them: {:?}", asked.elapsed());
    assert!(asked.elapsed() <= Duration::from_secs(10));
    // Some read a byte a second while the VM comes and goes; the rest is reset mid-event.
    let slow: Vec<TcpStream> = listeners.drain(..50).collect();
    let readers: Vec<_> = slow
        .into_iter()
        .map(|mut stream| {
            tokio::spawn(async move {
                let mut one = [0; 1];
                for _ in 0..5 {
                    sleep(Duration::from_secs(1)).await;
                    let _cut = stream.read(&mut one).await;
                }
            })
        })
        .collect();
    let uuid = rig.hub().vms(true).await.unwrap().vms[0]["uuid"].as_str().unwrap().to_owned();
    let verbs = simnode::Verbs::new(&rig.node, simnode::Wait::none());
    let resets = tokio::spawn(async move {
        for stream in &listeners {
            // Closing with zero linger sends a reset instead of an end.
            stream.set_zero_linger().unwrap();
        }
        drop(listeners);
    });
    for _ in 0..3 {
        let _already = verbs.boot(&uuid).await;
        let _already = verbs.halt(&uuid, 0).await;
    }
    resets.await.unwrap();
    for reader in readers {
        reader.await.unwrap();
    }
    testbed::lab::world::until("every connection is freed", LATE, || async {
        Ok(rig.fds() <= fds + 8)
    })
    .await
    .unwrap();
    println!(
        "file descriptors {} before, {} after; memory {} MiB more",
        fds,
        rig.fds(),
        rig.rss().saturating_sub(before)
    );
    rig.answers().await;
}
