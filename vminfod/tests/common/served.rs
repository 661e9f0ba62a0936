// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A daemon on the fake node, and what it says.

use std::net::SocketAddr;
use std::time::Duration;

use daemon::Shutdown;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Handle;

/// A daemon on the fake node. Dropping it stops it and waits until all its tasks have ended.
pub struct Served {
    pub url: String,
    pub address: SocketAddr,
    pub(super) shutdown: Shutdown,
    pub(super) running: Option<vminfod::Running>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.shutdown.trigger();
        let running = self.running.take().filter(|_| !std::thread::panicking());
        let ended = |running: vminfod::Running| {
            tokio::task::block_in_place(|| Handle::current().block_on(running.ended()))
        };
        assert!(running.is_none_or(ended), "some task did not end");
    }
}

impl Served {
    pub async fn get(&self, path: &str) -> (u16, String) {
        let response = reqwest::get(format!("{}{path}", self.url)).await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }

    /// One VM, by its zone's name or its uuid.
    pub async fn vm(&self, name: &str) -> Value {
        self.json(&format!("/vms/{name}")).await
    }

    pub async fn json(&self, path: &str) -> Value {
        let (status, text) = self.get(path).await;
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("{path}: {status} {text}"))
    }

    /// A stream whose first line was read.
    pub async fn events(&self) -> Events {
        let mut events = self.stream("").await;
        events.ready = events.next().await.unwrap();
        events.seq = events.ready["seq"].as_u64().unwrap();
        events
    }

    /// A stream of which nothing was read.
    pub async fn stream(&self, query: &str) -> Events {
        let response = reqwest::get(format!("{}/events?{query}", self.url)).await.unwrap();
        assert_eq!(response.status(), 200, "{query}");
        let lines = sdc_clients::vminfod::Lines::new(64 << 20);
        Events { response, lines, ready: Value::Null, seq: 0 }
    }

    /// Sends these bytes as they are and reads to the end.
    pub async fn raw(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let _reset_is_an_end_too = stream.read_to_end(&mut answer).await;
        String::from_utf8(answer).unwrap()
    }
}

/// An open stream.
pub struct Events {
    response: reqwest::Response,
    lines: sdc_clients::vminfod::Lines,
    pub ready: Value,
    /// Of the last line.
    pub seq: u64,
}

impl Events {
    /// The next event; `None` at the orderly end.
    pub async fn next(&mut self) -> Option<Value> {
        let event: Value = serde_json::from_str(&self.line().await?).unwrap();
        self.seq = event["seq"].as_u64().unwrap_or_default();
        Some(event)
    }

    /// The next line; `None` at the orderly end.
    pub async fn line(&mut self) -> Option<String> {
        loop {
            if let Some(line) = self.lines.next_line().unwrap() {
                assert!(!line.is_empty(), "a blank line");
                return Some(String::from_utf8(line.to_vec()).unwrap());
            }
            match self.response.chunk().await.unwrap() {
                Some(chunk) => self.lines.push(&chunk),
                None => {
                    assert_eq!(self.lines.pending(), 0, "the stream ended inside a line");
                    return None;
                }
            }
        }
    }

    /// The next event, or a panic when it takes too long.
    pub async fn soon(&mut self) -> Value {
        self.within(Duration::from_secs(60)).await.expect("no event came")
    }

    pub async fn within(&mut self, limit: Duration) -> Option<Value> {
        tokio::time::timeout(limit, self.next()).await.ok()?
    }
}
