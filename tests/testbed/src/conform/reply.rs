// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Bytes of a reply → responses, without the leniency of an HTTP library. Pure.

use serde_json::Value;

/// One response found in a reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Response {
    /// The status code.
    pub(super) status: u16,
    /// The status line and the headers.
    pub(super) head: String,
    /// The body, decoded.
    pub(super) body: Vec<u8>,
    /// The body came to its end.
    pub(super) complete: bool,
}

impl Response {
    /// The value of a header.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.split("\r\n").skip(1).filter_map(|line| line.split_once(':'));
        lines.find_map(|(key, value)| key.eq_ignore_ascii_case(name).then_some(value.trim()))
    }

    /// The body, if it is JSON.
    pub(super) fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }
}

/// All responses in these bytes; `heads` says of each request in turn whether it is a HEAD, whose
/// response has no body. An error when something is no response.
pub(super) fn responses(
    bytes: &[u8],
    heads: &[bool],
    closed: bool,
) -> Result<Vec<Response>, String> {
    let (mut rest, mut found, mut answered) = (bytes, Vec::new(), 0);
    while !rest.is_empty() {
        let Some(end) = find(rest, b"\r\n\r\n") else {
            return Err(format!("no head of a response: {:?}", String::from_utf8_lossy(rest)));
        };
        let head = String::from_utf8_lossy(&rest[..end]).into_owned();
        rest = &rest[end + 4..];
        let mut response = parse_head(head)?;
        let informational = response.status < 200;
        let bodiless = informational || heads.get(answered).copied().unwrap_or(false);
        rest = if bodiless {
            response.complete = true;
            rest
        } else {
            take_body(rest, closed, &mut response)?
        };
        if !informational {
            answered += 1;
        }
        found.push(response);
    }
    Ok(found)
}

fn parse_head(head: String) -> Result<Response, String> {
    let status = head
        .strip_prefix("HTTP/1.1 ")
        .or_else(|| head.strip_prefix("HTTP/1.0 "))
        .and_then(|rest| rest.get(..3)?.parse().ok())
        .ok_or_else(|| format!("no status line: {head:?}"))?;
    Ok(Response { status, head, ..Response::default() })
}

fn take_body<'a>(
    rest: &'a [u8],
    closed: bool,
    response: &mut Response,
) -> Result<&'a [u8], String> {
    let chunked = response
        .header("transfer-encoding")
        .is_some_and(|value| value.eq_ignore_ascii_case("chunked"));
    if chunked {
        return take_chunks(rest, response);
    }
    if let Some(length) = response.header("content-length").and_then(|value| value.parse().ok()) {
        let (body, after) = rest.split_at_checked(length).unwrap_or((rest, &[]));
        response.complete = body.len() == length;
        response.body = body.to_vec();
        return Ok(after);
    }
    response.body = rest.to_vec();
    response.complete = closed;
    Ok(&[])
}

fn take_chunks<'a>(mut rest: &'a [u8], response: &mut Response) -> Result<&'a [u8], String> {
    loop {
        let Some(end) = find(rest, b"\r\n") else { return Ok(&[]) };
        let size = String::from_utf8_lossy(&rest[..end]).into_owned();
        let size = usize::from_str_radix(&size, 16).map_err(|_| format!("no chunk: {size:?}"))?;
        rest = &rest[end + 2..];
        let (chunk, after) = rest.split_at_checked(size).unwrap_or((rest, &[]));
        response.body.extend_from_slice(chunk);
        if chunk.len() < size || after.len() < 2 {
            return Ok(&[]);
        }
        if !after.starts_with(b"\r\n") {
            return Err("a chunk is longer than it says".to_owned());
        }
        rest = &after[2..];
        if size == 0 {
            response.complete = true;
            return Ok(rest);
        }
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_responses_of_every_framing() {
        let bytes = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-type: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\nHTTP/1.1 404 X\r\nContent-Length: 1\r\n\r\ndHTTP/1.0 400 Y\r\n\r\nrest";
        let found = responses(bytes, &[], true).unwrap();
        let seen: Vec<_> = found.iter().map(|r| (r.status, &r.body[..], r.complete)).collect();
        assert_eq!(
            seen,
            [(100, &b""[..], true), (200, b"abc", true), (404, b"d", true), (400, b"rest", true)]
        );
        assert_eq!(found[1].header("content-type"), Some("a"));
    }

    #[test]
    fn open_ends_and_heads() {
        let open = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n";
        assert!(!responses(open, &[], false).unwrap()[0].complete);
        let head = b"HTTP/1.1 400 X\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert!(responses(head, &[true], false).unwrap()[0].complete);
        assert!(responses(b"hello", &[], true).is_err());
    }
}
