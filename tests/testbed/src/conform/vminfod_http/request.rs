// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The bytes of a recorded request. The recordings cut long ones; they are grown again to their
//! length by the pattern they show.

use anyhow::{Context, bail, ensure};
use serde_json::Value;

/// The bytes, in the writes in which they were sent.
pub(super) fn writes(request: &Value) -> anyhow::Result<Vec<Vec<u8>>> {
    match request {
        Value::String(text) => Ok(vec![whole(text)?]),
        Value::Array(parts) => parts
            .iter()
            .map(|part| whole(part.as_str().context("a part of a request is no text")?))
            .collect(),
        other => bail!("a request is neither text nor a list: {other}"),
    }
}

fn whole(text: &str) -> anyhow::Result<Vec<u8>> {
    let Some((shown, length)) = cut(text) else { return latin1(text) };
    let shown = latin1(shown)?;
    let grown = grow(&shown, length)?;
    ensure!(grown.len() == length, "a cut request grew to {} of {length} bytes", grown.len());
    Ok(grown)
}

/// What is shown of a cut request, and its true length.
fn cut(text: &str) -> Option<(&str, usize)> {
    let (shown, rest) = text.rsplit_once("...<")?;
    Some((shown, rest.strip_suffix(" bytes>")?.parse().ok()?))
}

fn latin1(text: &str) -> anyhow::Result<Vec<u8>> {
    text.chars().map(|c| u8::try_from(u32::from(c)).context("a request is no latin1")).collect()
}

fn grow(shown: &[u8], length: usize) -> anyhow::Result<Vec<u8>> {
    let text = String::from_utf8_lossy(shown);
    if text.contains("\r\nX-0: 0\r\n") {
        return Ok(numbered_headers(&text, length));
    }
    let last = *shown.last().context("nothing is shown of a cut request")?;
    ensure!(shown.ends_with(&[last; 3]), "a cut request shows no pattern: {text:?}");
    let in_head_line = !text.contains("\r\n");
    let tail: &[u8] =
        if in_head_line { b" HTTP/1.1\r\nHost: 127.0.0.1:9090\r\n\r\n" } else { b"\r\n\r\n" };
    let mut grown = shown.to_vec();
    grown.resize(length.saturating_sub(tail.len()).max(shown.len()), last);
    grown.extend_from_slice(tail);
    Ok(grown)
}

fn numbered_headers(shown: &str, length: usize) -> Vec<u8> {
    let start = shown.find("X-0: 0\r\n").unwrap_or_default();
    let mut grown = shown.as_bytes()[..start].to_vec();
    let mut n = 0;
    while grown.len() + 2 < length {
        grown.extend_from_slice(format!("X-{n}: {n}\r\n").as_bytes());
        n += 1;
    }
    grown.extend_from_slice(b"\r\n");
    grown
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cut_requests_grow_to_their_length() {
        for (text, length, ends) in [
            ("GET /ping?aaaa...<8045 bytes>", 8045, "9090\r\n\r\n"),
            (
                "GET /ping HTTP/1.1\r\nHost: 127.0.0.1:9090\r\nX-A: bbbb...<20051 bytes>",
                20051,
                "b\r\n\r\n",
            ),
            (
                "GET /ping HTTP/1.1\r\nHost: 127.0.0.1:9090\r\nX-0: 0\r\nX-1: 1\r\nX-...<2224 bytes>",
                2224,
                "X-199: 199\r\n\r\n",
            ),
        ] {
            let whole = writes(&json!(text)).unwrap().concat();
            assert_eq!(whole.len(), length, "{text}");
            assert!(whole.ends_with(ends.as_bytes()), "{text}");
        }
        assert!(writes(&json!("GET /pin...<99 bytes>")).is_err());
        assert_eq!(writes(&json!(["a", "\u{e9}"])).unwrap(), [b"a".to_vec(), vec![0xe9]]);
    }
}
