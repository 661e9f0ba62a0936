// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! First lines that the shipped services take and our HTTP library does not, or the reverse.
//!
//! Knows no route. Must never look beyond the first line of a connection's first request: what
//! follows is framed by rules that only the library knows.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use http::{Method, Request};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::stall::Head;

/// The methods that Node's parser knows; with any other it gives up on the connection.
const METHODS: [&str; 25] = [
    "DELETE",
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "OPTIONS",
    "TRACE",
    "COPY",
    "LOCK",
    "MKCOL",
    "MOVE",
    "PROPFIND",
    "PROPPATCH",
    "SEARCH",
    "UNLOCK",
    "REPORT",
    "MKACTIVITY",
    "CHECKOUT",
    "MERGE",
    "M-SEARCH",
    "NOTIFY",
    "SUBSCRIBE",
    "UNSUBSCRIBE",
    "PATCH",
    "PURGE",
];

/// Is this one that Node refuses and closes on: a method nobody knows, a tunnel, or a target that
/// is no path?
pub(super) fn is_refused<B>(request: &Request<B>) -> bool {
    let uri = request.uri();
    let bare = uri.scheme().is_none() && uri.authority().is_some();
    bare || *request.method() == Method::CONNECT || !METHODS.contains(&request.method().as_str())
}

/// A stream whose first line is held back until it is whole and can be parsed: some characters of
/// its target are escaped, as the shipped service does itself, and a line without a version waits
/// for the head's end.
pub(super) struct FirstLine<T> {
    inner: T,
    cap: usize,
    head: Head,
    held: BytesMut,
    done: bool,
}

impl<T> FirstLine<T> {
    /// Wraps a stream; a first line longer than `cap` bytes is let through as it is. What is held
    /// back has begun the head all the same.
    pub(super) fn new(inner: T, cap: usize, head: Head) -> Self {
        Self { inner, cap, head, held: BytesMut::new(), done: false }
    }

    /// Whether what is held can go.
    fn settle(&mut self) {
        let start = self.held.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        let Some(end) = self.held[start..].iter().position(|byte| *byte == b'\n') else {
            self.done = self.held.len() > self.cap;
            return;
        };
        let line = &self.held[start..start + end];
        let rest = &self.held[start + end + 1..];
        let ended = rest.starts_with(b"\r\n") || rest.starts_with(b"\n");
        if is_versionless(line) && !ended && rest.is_empty() {
            return;
        }
        let escaped = escape(line);
        if escaped.len() != line.len() {
            let mut whole = BytesMut::from(&escaped[..]);
            whole.extend_from_slice(&self.held[start + end..]);
            self.held = whole;
        }
        self.done = true;
    }
}

/// `GET /ping` and nothing more: HTTP/0.9, which is answered by no one.
fn is_versionless(line: &[u8]) -> bool {
    let mut words = line.trim_ascii().split(|byte| *byte == b' ');
    let method = words.next().and_then(|word| std::str::from_utf8(word).ok());
    let target = words.next();
    method.is_some_and(|method| METHODS.contains(&method))
        && target.is_some_and(|target| target.starts_with(b"/"))
        && words.next().is_none()
}

fn escape(line: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(line.len());
    for byte in line {
        match byte {
            b'<' => escaped.extend_from_slice(b"%3C"),
            b'>' => escaped.extend_from_slice(b"%3E"),
            b'`' => escaped.extend_from_slice(b"%60"),
            other => escaped.push(*other),
        }
    }
    escaped
}

impl<T: AsyncRead + Unpin> AsyncRead for FirstLine<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while !this.done {
            let mut chunk = [0; 2048];
            let mut read = ReadBuf::new(&mut chunk);
            ready!(Pin::new(&mut this.inner).poll_read(cx, &mut read))?;
            if read.filled().is_empty() {
                this.done = true;
                break;
            }
            this.held.extend_from_slice(read.filled());
            this.head.begin();
            this.settle();
        }
        if this.held.is_empty() {
            return Pin::new(&mut this.inner).poll_read(cx, buf);
        }
        let count = this.held.len().min(buf.remaining());
        buf.put_slice(&this.held[..count]);
        this.held.advance(count);
        if this.held.is_empty() {
            this.held = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for FirstLine<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    async fn through(pieces: &[&str]) -> String {
        let (near, mut far) = duplex(1 << 16);
        for piece in pieces {
            far.write_all(piece.as_bytes()).await.unwrap();
        }
        drop(far);
        let mut text = String::new();
        FirstLine::new(near, 64, Head::default()).read_to_string(&mut text).await.unwrap();
        text
    }

    #[tokio::test]
    async fn only_the_first_target_is_escaped() {
        let head = "GET /<a>`?b=<> HTTP/1.1\r\nX: <\r\n\r\nGET /< HTTP/1.1\r\n\r\n";
        let escaped = "GET /%3Ca%3E%60?b=%3C%3E HTTP/1.1\r\nX: <\r\n\r\nGET /< HTTP/1.1\r\n\r\n";
        assert_eq!(through(&[head]).await, escaped);
        assert_eq!(through(&["GET /<a>`?b", "=<> HTTP/1.1\r", &head[24..]]).await, escaped);
        let long = format!("GET /{} HTTP/1.1\r\n\r\n", "<".repeat(100));
        let given = through(&[&long[..90], &long[90..]]).await;
        assert_eq!(given.len() - given.matches("%3C").count() * 2, long.len());
        for same in ["", "GET", "GET /ping\r\n", "\r\n\r\nGET / HTTP/1.0\r\n\r\n"] {
            assert_eq!(through(&[same]).await, same);
        }
    }

    #[tokio::test]
    async fn a_line_without_a_version_waits() {
        let (near, mut far) = duplex(1 << 16);
        let mut stream = FirstLine::new(near, 64, Head::default());
        far.write_all(b"GET /ping\r\n").await.unwrap();
        let mut buffer = [0; 64];
        let read =
            tokio::time::timeout(std::time::Duration::from_millis(50), stream.read(&mut buffer));
        assert!(read.await.is_err());
        far.write_all(b"\r\n").await.unwrap();
        let count = stream.read(&mut buffer).await.unwrap();
        assert_eq!(&buffer[..count], b"GET /ping\r\n\r\n");
    }

    #[test]
    fn methods_and_targets() {
        let refused = |method: &str, uri: &str| {
            is_refused(&Request::builder().method(method).uri(uri).body(()).unwrap())
        };
        for (method, uri) in [("BREW", "/"), ("get", "/"), ("GET", "ping"), ("CONNECT", "x:1")] {
            assert!(refused(method, uri), "{method} {uri}");
        }
        for (method, uri) in [("GET", "/"), ("OPTIONS", "*"), ("GET", "http://a/b"), ("PURGE", "/")]
        {
            assert!(!refused(method, uri), "{method} {uri}");
        }
    }
}
