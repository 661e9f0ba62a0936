// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The least HTTP client there is: it sends paths and headers exactly as recorded, which no
//! proper client would.

use std::collections::HashMap;
use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::transcript::Asked;

/// An answer; no status if the connection closed without one.
#[derive(Debug, Clone, Default)]
pub(super) struct Got {
    pub(super) status: Option<u16>,
    pub(super) headers: HashMap<String, String>,
    pub(super) body: Vec<u8>,
}

impl Got {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    pub(super) fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }
}

/// Sends one request on its own connection and reads the answer to the end.
pub(super) async fn exchange(addr: SocketAddr, asked: &Asked) -> std::io::Result<Got> {
    let body = match (&asked.body_raw, &asked.body) {
        (Some(raw), _) => Some(raw.clone()),
        (None, Some(body)) => Some(body.to_string()),
        (None, None) => None,
    };
    let mark = if asked.query.is_empty() { "" } else { "?" };
    let mut text = format!(
        "{} {}{mark}{} HTTP/1.1\r\nhost: {addr}\r\n",
        asked.method, asked.path, asked.query
    );
    for (name, value) in &asked.headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    let writes = matches!(asked.method.as_str(), "POST" | "PUT" | "PATCH");
    if body.is_some() || writes {
        text.push_str(&format!("content-length: {}\r\n", body.as_ref().map_or(0, String::len)));
    }
    text.push_str("connection: close\r\n\r\n");
    text.push_str(body.as_deref().unwrap_or_default());
    let mut stream = tokio::net::TcpStream::connect(addr).await?;
    stream.write_all(text.as_bytes()).await?;
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes).await {
        Err(error) if error.kind() != std::io::ErrorKind::ConnectionReset => Err(error),
        _ => Ok(parse(&bytes)),
    }
}

fn parse(bytes: &[u8]) -> Got {
    let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") else { return Got::default() };
    let (head, body) = bytes.split_at(end);
    let head = String::from_utf8_lossy(head);
    let mut lines = head.split("\r\n");
    let status =
        lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse().ok());
    let headers = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    Got { status, headers, body: body.get(4..).unwrap_or_default().to_vec() }
}
