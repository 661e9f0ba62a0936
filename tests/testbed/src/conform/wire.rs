// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The least HTTP client there is: it sends paths and headers exactly as recorded, which no
//! proper client would.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::reply::{Response, responses};
use super::transcript::Asked;

/// The longest that an answer may take, finalizes among them.
const DEADLINE: Duration = Duration::from_secs(60);

/// Sends one request on its own connection and reads the answer to the end; none if the connection closed
/// without one. One that takes too long is answered with the status 0, so that the others are still compared.
pub(super) async fn exchange(addr: SocketAddr, asked: &Asked) -> std::io::Result<Option<Response>> {
    let late = || Response { body: b"no answer within a minute".to_vec(), ..Response::default() };
    let answer = tokio::time::timeout(DEADLINE, exchanged(addr, asked)).await;
    answer.unwrap_or_else(|_| Ok(Some(late())))
}

async fn exchanged(addr: SocketAddr, asked: &Asked) -> std::io::Result<Option<Response>> {
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
        Err(error) if error.kind() != std::io::ErrorKind::ConnectionReset => return Err(error),
        _ => {}
    }
    let found =
        responses(&bytes, &[asked.method == "HEAD"], true).map_err(std::io::Error::other)?;
    Ok(found.into_iter().next())
}
