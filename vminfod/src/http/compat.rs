// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The quirks of the shipped interface that deployed clients rely on, and nothing else: which first
//! lines and methods are taken, how paths are understood, how answers are framed, which texts a 404
//! carries, how `/status` writes durations.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use bytes::BytesMut;
use daemon::http::first_line::{escape, line};
use daemon::http::reply;
use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, HeaderValue};
use http::uri::PathAndQuery;
use http::{Method, StatusCode, Uri, Version};

pub use daemon::http::query::value as query;

/// Body of a 404 for a path that is no route.
pub(super) const UNSUPPORTED_PATH: &str = "Unsupported URL Path";

/// The methods of Node's parser, which closes the connection on any other. Without CONNECT.
const METHODS: &str = "DELETE GET HEAD POST PUT OPTIONS TRACE COPY LOCK MKCOL MOVE PROPFIND \
    PROPPATCH SEARCH UNLOCK REPORT MKACTIVITY CHECKOUT MERGE M-SEARCH NOTIFY SUBSCRIBE \
    UNSUBSCRIBE PATCH PURGE";

fn is_known(method: &str) -> bool {
    METHODS.split(' ').any(|known| known == method)
}

/// Returns the body of a 404 for a VM.
pub(super) fn vm_not_found(name: &str) -> String {
    format!("VM Not Found: {name}")
}

/// Lets the routes answer a request as the shipped service would.
pub(super) async fn shipped(request: Request, next: Next) -> Response {
    let version = request.version();
    let keeps = version == Version::HTTP_11 && !wants_close(&request);
    let mut response = match accept(request).await {
        Ok(request) => next.run(request).await,
        Err(refusal) => refusal,
    };
    // hyper adds `keep-alive` to an answer in 1.1 where a client of 1.0 asked for it.
    *response.version_mut() = version;
    // Chunked, as shipped: a body of unknown length. A client of 1.0 reads until the end, also one that asks for
    // keep-alive.
    response.headers_mut().remove(CONTENT_LENGTH);
    let mut response = response.map(|body| Body::from_stream(body.into_data_stream()));
    let connection = HeaderValue::from_static(if keeps { "keep-alive" } else { "close" });
    response.headers_mut().entry(CONNECTION).or_insert(connection);
    response
}

/// Returns the request with the path of a route, or a 400 without a body.
async fn accept(mut request: Request) -> Result<Request, Response> {
    let uri = request.uri();
    let is_path = uri.scheme().is_some() || uri.authority().is_none();
    if !is_path || !is_known(request.method().as_str()) {
        let mut refusal = reply(StatusCode::BAD_REQUEST, Body::empty());
        refusal.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        return Err(refusal);
    }
    if request.headers().contains_key(EXPECT) {
        send_continue(std::mem::take(request.body_mut())).await;
    }
    if request.method() != Method::GET {
        return Err(reply(StatusCode::BAD_REQUEST, Body::empty()));
    }
    let uri = request.uri();
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    // Routes decode percent signs, the shipped service does not.
    let path = canonical(uri.path()).replace('%', "%25") + &query;
    if let Ok(path) = path.parse::<PathAndQuery>() {
        *request.uri_mut() = Uri::from(path);
    }
    Ok(request)
}

fn wants_close(request: &Request) -> bool {
    let mut values = request.headers().get_all(CONNECTION).iter();
    values.any(|value| {
        let mut words = value.as_bytes().split(|byte| *byte == b',');
        words.any(|word| word.trim_ascii().eq_ignore_ascii_case(b"close"))
    })
}

/// Sends `100 Continue`, as hyper does once the body is read for the first time.
async fn send_continue(mut body: Body) {
    let _wanted = poll_fn(|cx| Poll::Ready(Pin::new(&mut body).poll_frame(cx).is_ready())).await;
    tokio::task::yield_now().await;
}

/// Edits the first line of a connection, which is all that `held` has; returns true once it can be
/// parsed. Characters that the shipped service escapes itself are escaped, and a line without a
/// version (HTTP/0.9) waits for the end of the head, which never gets an answer.
pub fn first_line(held: &mut BytesMut) -> bool {
    let Some(line) = line(held) else { return false };
    if held.len() == line.end + 1 && is_versionless(&held[line]) {
        return false;
    }
    escape(held, b"<>`")
}

fn is_versionless(line: &[u8]) -> bool {
    let mut words = line.trim_ascii().split(|byte| *byte == b' ');
    let method = words.next().and_then(|word| std::str::from_utf8(word).ok());
    let target = words.next();
    method.is_some_and(is_known)
        && target.is_some_and(|target| target.starts_with(b"/"))
        && words.next().is_none()
}

/// Returns the path of the route that a path leads to: `//`, `.` and `..` are collapsed as in POSIX,
/// and what follows the parts that a route uses is dropped. Percent signs are not decoded.
pub fn canonical(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let used = match parts.first() {
        Some(&("vms" | "why")) => 2,
        Some(&"ui") => parts.len(),
        _ => 1,
    };
    parts.truncate(used);
    format!("/{}", parts.join("/"))
}

/// Returns true if a query value is true in JavaScript: any text but the empty one, `false` included.
pub fn wants(text: Option<&str>, key: &str) -> bool {
    query(text, key).is_some_and(|value| !value.is_empty())
}

/// Returns monotonic time as `/status` writes it: `1549.580650862`.
pub(super) fn hrtime(at: Duration) -> String {
    format!("{}.{:09}", at.as_secs(), at.subsec_nanos())
}

/// Returns a duration as `/status` writes it: `65.000000000s (1.08m)`.
pub(super) fn pretty(span: Duration) -> String {
    const UNITS: [(&str, u128); 6] = [
        ("d", 86_400_000_000_000),
        ("h", 3_600_000_000_000),
        ("m", 60_000_000_000),
        ("s", 1_000_000_000),
        ("ms", 1_000_000),
        ("us", 1_000),
    ];
    let nanos = span.as_nanos();
    let (unit, size) = UNITS.into_iter().find(|(_, size)| nanos >= *size).unwrap_or(("ns", 1));
    let hundredths = (nanos * 100 + size / 2) / size;
    let mut number = format!("{}.{:02}", hundredths / 100, hundredths % 100);
    while number.ends_with('0') {
        number.pop();
    }
    let number = number.strip_suffix('.').unwrap_or(&number);
    format!("{}s ({number}{unit})", hrtime(span))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_collapsed_and_cut_after_their_route() {
        for path in ["/ping", "//ping", "/./ping", "/a/../ping", "/../../ping", "/ping/x/y"] {
            assert_eq!(canonical(path), "/ping", "{path}");
        }
        for path in ["/vms", "/vms/", "/vms//"] {
            assert_eq!(canonical(path), "/vms", "{path}");
        }
        for (path, route) in [
            ("/vms/z/x", "/vms/z"),
            ("/vms/%41", "/vms/%41"),
            ("/ui/agents/a/b", "/ui/agents/a/b"),
            ("/PING", "/PING"),
            ("/ping;a=b", "/ping;a=b"),
            ("*", "/*"),
            ("/", "/"),
        ] {
            assert_eq!(canonical(path), route);
        }
    }

    fn edited(pieces: &[&str]) -> (String, bool) {
        let (mut held, mut done) = (BytesMut::new(), false);
        for piece in pieces {
            held.extend_from_slice(piece.as_bytes());
            done = done || first_line(&mut held);
        }
        (String::from_utf8(held.to_vec()).unwrap(), done)
    }

    #[test]
    fn only_the_first_target_is_escaped() {
        let head = "GET /<a>`?b=<> HTTP/1.1\r\nX: <\r\n\r\nGET /< HTTP/1.1\r\n\r\n";
        let escaped = "GET /%3Ca%3E%60?b=%3C%3E HTTP/1.1\r\nX: <\r\n\r\nGET /< HTTP/1.1\r\n\r\n";
        assert_eq!(edited(&[head]), (escaped.to_owned(), true));
        assert_eq!(edited(&["GET /<a>`?b", &head[11..]]), (escaped.to_owned(), true));
        for (same, done) in [("", false), ("GET", false), ("\r\n\r\nGET / HTTP/1.0\r\n\r\n", true)]
        {
            assert_eq!(edited(&[same]), (same.to_owned(), done));
        }
    }

    #[test]
    fn a_line_without_a_version_waits_for_the_end_of_the_head() {
        assert!(!edited(&["GET /ping\r\n"]).1);
        assert_eq!(edited(&["GET /ping\r\n", "\r\n"]), ("GET /ping\r\n\r\n".to_owned(), true));
    }

    #[tokio::test]
    async fn unknown_methods_and_targets_that_are_no_path_are_refused() {
        let status = async |method: &str, uri: &str| {
            let request = Request::builder().method(method).uri(uri).body(Body::empty()).unwrap();
            accept(request).await.map(|request| request.uri().to_string())
        };
        for (method, uri) in [("BREW", "/"), ("get", "/"), ("GET", "ping"), ("CONNECT", "x:1")] {
            let refusal = status(method, uri).await.unwrap_err();
            assert_eq!(refusal.status().as_u16(), 400, "{method} {uri}");
            assert_eq!(refusal.headers()[CONNECTION], "close", "{method} {uri}");
        }
        for (method, uri) in [("POST", "/"), ("OPTIONS", "*"), ("PURGE", "/")] {
            let refusal = status(method, uri).await.unwrap_err();
            assert_eq!((refusal.status().as_u16(), refusal.headers().get(CONNECTION)), (400, None));
        }
        assert_eq!(status("GET", "http://a//b?c").await.unwrap(), "/b?c");
        assert_eq!(status("GET", "/vms/%37?c=%41").await.unwrap(), "/vms/%2537?c=%41");
    }

    #[test]
    fn truth_is_javascripts() {
        for text in ["full=true", "full=1", "full=false", "x=1&full=0"] {
            assert!(wants(Some(text), "full"), "{text}");
        }
        for text in ["full", "full=", "fuller=1", ""] {
            assert!(!wants(Some(text), "full"), "{text}");
        }
        assert!(!wants(None, "full"));
    }

    #[test]
    fn durations_are_written_as_shipped() {
        for (nanos, text) in [
            (0, "0.000000000s (0ns)"),
            (65_000_000_000, "65.000000000s (1.08m)"),
            (7_104_198_154, "7.104198154s (7.1s)"),
            (6_832_593_138, "6.832593138s (6.83s)"),
            (1_500, "0.000001500s (1.5us)"),
            (86_400_000_000_000, "86400.000000000s (1d)"),
        ] {
            assert_eq!(pretty(Duration::from_nanos(nanos)), text);
        }
    }
}
