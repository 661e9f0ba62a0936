// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The HTTP of the deployed client: one GET, chunked bodies, lines cut as its splitter cuts them.
//! Bytes become text chunk by chunk, so a character cut by a chunk is damaged.

use std::collections::VecDeque;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::thrown::Thrown;

/// An answer under way.
#[derive(Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The head, as it came.
    pub head: String,
    stream: TcpStream,
    raw: VecDeque<u8>,
    /// Bytes left of the chunk that is being read.
    chunk: usize,
    ended: bool,
}

/// Sends a GET to `http://HOST:PORT` and reads the head of the answer; no user agent if `agent` is
/// empty.
pub async fn get(base: &str, path: &str, agent: &str) -> Result<Answer, Thrown> {
    let address = base.trim_start_matches("http://").trim_end_matches('/');
    let mut stream = TcpStream::connect(address).await?;
    let agent = if agent.is_empty() { String::new() } else { format!("User-Agent: {agent}\r\n") };
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {address}\r\n{agent}Accept: application/json\r\nConnection: keep-alive\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut raw = Vec::new();
    let end = loop {
        if let Some(at) = raw.windows(4).position(|four| four == b"\r\n\r\n") {
            break at;
        }
        if stream.read_buf(&mut raw).await? == 0 {
            return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
        }
    };
    let head = String::from_utf8_lossy(raw.get(..end).unwrap_or_default()).into_owned();
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_default();
    if !head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
        return Err(Thrown::Assertion(format!("every body is chunked, not this one: {head}")));
    }
    let raw = raw.split_off(end + 4).into();
    Ok(Answer { status, head, stream, raw, chunk: 0, ended: false })
}

impl Answer {
    /// The next piece of the body; `None` at its orderly end. An end inside a chunk is an error.
    /// Cancel-safe: what was read stays in the answer.
    pub async fn piece(&mut self) -> Result<Option<Vec<u8>>, Thrown> {
        loop {
            if self.ended {
                return Ok(None);
            }
            if self.chunk == 0 {
                if let Some(size) = self.size()? {
                    self.chunk = size;
                    self.ended = size == 0;
                    continue;
                }
            } else if !self.raw.is_empty() {
                let count = self.chunk.min(self.raw.len());
                self.chunk -= count;
                return Ok(Some(self.raw.drain(..count).collect()));
            }
            let mut more = Vec::with_capacity(64 << 10);
            if self.stream.read_buf(&mut more).await? == 0 {
                return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
            }
            self.raw.extend(more);
        }
    }

    /// The whole body as text.
    pub async fn text(mut self) -> Result<String, Thrown> {
        let mut body = Vec::new();
        while let Some(piece) = self.piece().await? {
            body.extend(piece);
        }
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    /// Takes the line with a chunk's size, behind the end of the chunk before it.
    fn size(&mut self) -> Result<Option<usize>, Thrown> {
        let bytes = self.raw.make_contiguous();
        let skip = if bytes.starts_with(b"\r\n") { 2 } else { 0 };
        let rest = bytes.get(skip..).unwrap_or_default();
        let Some(end) = rest.windows(2).position(|two| two == b"\r\n") else { return Ok(None) };
        if end == 0 {
            return Ok(None);
        }
        let text = String::from_utf8_lossy(rest.get(..end).unwrap_or_default()).into_owned();
        let size = usize::from_str_radix(&text, 16)
            .map_err(|_| Thrown::Assertion(format!("{text:?} is no size of a chunk")))?;
        self.raw.drain(..skip + end + 2);
        Ok(Some(size))
    }
}

/// Cuts text into lines: at `\n`, `\r\n` and a lone `\r`.
#[derive(Debug, Default)]
pub struct Splitter {
    rest: String,
    /// The last piece ended with `\r`: a `\n` that comes next belongs to it.
    after_return: bool,
}

impl Splitter {
    /// Takes a piece and gives the lines that it completes.
    pub fn push(&mut self, piece: &[u8]) -> Vec<String> {
        let mut lines = Vec::new();
        for c in String::from_utf8_lossy(piece).chars() {
            match c {
                '\n' if std::mem::take(&mut self.after_return) => {}
                '\r' | '\n' => {
                    self.after_return = c == '\r';
                    lines.push(std::mem::take(&mut self.rest));
                }
                c => {
                    self.after_return = false;
                    self.rest.push(c);
                }
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_in_three_ways_and_pieces_damage_characters() {
        let mut splitter = Splitter::default();
        assert_eq!(splitter.push(b"a\nb\r"), ["a", "b"]);
        assert_eq!(splitter.push(b"\nc\rd\n\n"), ["c", "d", ""]);
        let bytes = "\u{e9}\n".as_bytes();
        assert!(splitter.push(&bytes[..1]).is_empty());
        assert_eq!(splitter.push(&bytes[1..]), ["\u{fffd}\u{fffd}"]);
    }
}
