// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Raw connections for the abuse: bytes out, bytes in, and nobody who corrects them.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use super::LATE;

/// A daemon under abuse.
pub struct Target {
    pub name: &'static str,
    /// Where it listens.
    pub at: SocketAddr,
    pub pid: u32,
    /// Its limit of a head.
    pub head: Duration,
}

impl Target {
    /// The daemon at this URL.
    pub fn new(name: &'static str, url: &str, pid: u32, head: Duration) -> Self {
        Self { name, at: url.trim_start_matches("http://").parse().unwrap(), pid, head }
    }

    pub async fn ping(&self) {
        assert!(get_one(self.at, "/ping").await.contains("pong"), "{}", self.name);
    }
}

/// A request that nobody can object to.
pub fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")
}

pub async fn get_one(at: SocketAddr, path: &str) -> String {
    say(at, get(path).as_bytes()).await
}

/// Says this and nothing more; all that is answered until the end.
pub async fn say(at: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(at).await.unwrap();
    // One that is cut in the middle is an answer too.
    let _cut = timeout(LATE, stream.write_all(bytes)).await.expect("it takes no bytes");
    let _cut = stream.shutdown().await;
    until_closed(&mut stream).await
}

/// What comes until the daemon closes, which it must.
pub async fn until_closed(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let _reset_is_an_end_too =
        timeout(LATE, stream.read_to_end(&mut answer)).await.expect("it is not closed");
    String::from_utf8_lossy(&answer).into_owned()
}

/// The answers' first lines, for people.
pub fn status_of(answers: &str) -> String {
    let lines: Vec<&str> = answers.lines().filter(|line| line.starts_with("HTTP/1.")).collect();
    if lines.is_empty() { "closed".to_owned() } else { lines.join(", ") }
}

/// An open event stream, its lead read; from here on when `since` is given.
pub async fn listener(target: &Target, since: Option<(&str, u64)>) -> TcpStream {
    let mut stream = TcpStream::connect(target.at).await.unwrap();
    let path = since.map_or_else(
        || "/events".to_owned(),
        |(epoch, seq)| format!("/events?epoch={epoch}&since={seq}"),
    );
    stream.write_all(get(&path).as_bytes()).await.unwrap();
    let (lead, sought) = match since {
        None => ("\"ready\"", "}\n"),
        Some(_) => ("\"resume\"", "}\n"),
    };
    let read = until_both(&mut stream, lead, sought).await;
    assert!(read.starts_with("HTTP/1.1 200"), "{}: {read}", target.name);
    stream
}

/// So many listeners that carry on from now and only wait.
pub async fn crowd(target: &Target, count: usize) -> Vec<TcpStream> {
    let mut first = TcpStream::connect(target.at).await.unwrap();
    first.write_all(get("/events").as_bytes()).await.unwrap();
    let ready = until_both(&mut first, "\"ready\"", "}\n").await;
    let after = |key: &str| {
        let rest = &ready[ready.find(key).unwrap() + key.len()..];
        rest.trim_start_matches('"').split(['"', ',', '}']).next().unwrap().to_owned()
    };
    let (epoch, seq) = (after("\"epoch\":"), after("\"seq\":").parse().unwrap());
    let opened = stream::iter(0..count).map(|_| listener(target, Some((&epoch, seq))));
    opened.buffer_unordered(128).collect().await
}

/// Reads until a line that says this has come.
pub async fn until_line(stream: &mut TcpStream, what: &str) {
    until_both(stream, what, "}\n").await;
}

async fn until_both(stream: &mut TcpStream, first: &str, then: &str) -> String {
    let mut all = String::new();
    let mut piece = vec![0; 64 << 10];
    loop {
        if let Some(at) = all.find(first)
            && all[at..].contains(then)
        {
            return all;
        }
        let read = timeout(LATE, stream.read(&mut piece)).await.expect("nothing comes");
        let count = read.unwrap();
        assert!(count > 0, "the stream ended: {all}");
        all.push_str(&String::from_utf8_lossy(&piece[..count]));
    }
}

/// Ends it as a crash does: no goodbye.
pub fn reset(stream: TcpStream) {
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
}

/// A connection that can take little before it is read.
pub async fn small_window(at: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(2048).unwrap();
    socket.connect(at).await.unwrap()
}

/// Takes a byte, if there is one.
pub async fn one_byte(stream: &mut TcpStream) {
    let mut byte = [0];
    let _none_or_cut = timeout(Duration::from_millis(1), stream.read(&mut byte)).await;
}
