// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The HTTP of the deployed client: one GET, chunked bodies, lines cut as its splitter cuts them.
//! Bytes become text chunk by chunk, so a character cut by a chunk is damaged.

use super::thrown::Thrown;

/// An answer under way.
#[derive(Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    response: reqwest::Response,
}

/// Sends a GET to `http://HOST:PORT` and reads the head of the answer; no user agent if `agent` is
/// empty.
pub async fn get(base: &str, path: &str, agent: &str) -> Result<Answer, Thrown> {
    let client = reqwest::Client::builder().no_proxy().build()?;
    let mut request = client.get(format!("{}{path}", base.trim_end_matches('/')));
    request = request.header("Accept", "application/json").header("Connection", "keep-alive");
    if !agent.is_empty() {
        request = request.header("User-Agent", agent);
    }
    let response = request.send().await?;
    if response.headers().get("transfer-encoding").is_none_or(|value| value != "chunked") {
        return Err(Thrown::Assertion(format!(
            "every body is chunked, not this one: {response:?}"
        )));
    }
    Ok(Answer { status: response.status().as_u16(), response })
}

impl Answer {
    /// The next piece of the body; `None` at its orderly end. An end inside a chunk is an error.
    /// Cancel-safe.
    pub async fn piece(&mut self) -> Result<Option<Vec<u8>>, Thrown> {
        Ok(self.response.chunk().await?.map(Vec::from))
    }

    /// The whole body as text.
    pub async fn text(mut self) -> Result<String, Thrown> {
        let mut body = Vec::new();
        while let Some(piece) = self.piece().await? {
            body.extend(piece);
        }
        Ok(String::from_utf8_lossy(&body).into_owned())
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
