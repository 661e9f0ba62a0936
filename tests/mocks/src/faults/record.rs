// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The request log of a mock. It is bounded: the oldest requests are dropped first.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::Request;
use serde::Serialize;
use tokio::time::Instant;

use super::http::Reply;

/// Number of requests that are kept.
const MOST_REQUESTS: usize = 100_000;
/// Bytes of requests that are kept.
const MOST_BYTES: usize = 64 << 20;

/// A logged request.
#[derive(Debug, Clone, Serialize)]
pub struct Seen {
    /// Milliseconds since the mock started.
    pub at_ms: u64,
    /// The method.
    pub method: String,
    /// The path as sent.
    pub path: String,
    /// The text after `?`.
    pub query: String,
    /// The headers, names in lower case.
    pub headers: BTreeMap<String, String>,
    /// The body, if it is text.
    pub body: String,
    /// The status of the answer; absent when none was sent.
    pub status: Option<u16>,
}

impl Seen {
    fn bytes(&self) -> usize {
        let headers: usize =
            self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        self.method.len() + self.path.len() + self.query.len() + self.body.len() + headers
    }
}

/// The request log of a mock.
#[derive(Debug)]
pub struct Recorder {
    start: Instant,
    log: Mutex<Log>,
}

#[derive(Debug)]
struct Log {
    seen: VecDeque<Seen>,
    /// The number of the oldest request in `seen`.
    first: usize,
    forgotten: usize,
    bytes: usize,
    most_requests: usize,
    most_bytes: usize,
}

impl Default for Recorder {
    fn default() -> Self {
        Self::with_limits(MOST_REQUESTS, MOST_BYTES)
    }
}

impl Recorder {
    /// A log bounded by the number of requests and by their bytes.
    pub fn with_limits(most_requests: usize, most_bytes: usize) -> Self {
        let seen = VecDeque::new();
        let log = Log { seen, first: 0, forgotten: 0, bytes: 0, most_requests, most_bytes };
        Self { start: Instant::now(), log: Mutex::new(log) }
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Logs a request. Its status follows with [`Recorder::finish`].
    pub fn begin(&self, request: &Request<Bytes>) -> usize {
        let elapsed = Instant::now().saturating_duration_since(self.start);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let headers = request.headers().iter();
        let seen = Seen {
            at_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
            method: request.method().to_string(),
            path: request.uri().path().to_owned(),
            query: request.uri().query().unwrap_or_default().to_owned(),
            headers: headers.map(|(n, v)| (n.as_str().to_owned(), text(v.as_bytes()))).collect(),
            body: text(request.body()),
            status: None,
        };
        let mut log = self.log();
        log.bytes += seen.bytes();
        log.seen.push_back(seen);
        let entry = log.first + log.seen.len() - 1;
        while log.seen.len() > log.most_requests || log.bytes > log.most_bytes {
            let Some(oldest) = log.seen.pop_front() else { break };
            log.bytes -= oldest.bytes();
            log.first += 1;
            log.forgotten += 1;
        }
        entry
    }

    /// Logs the status of the answer.
    pub fn finish(&self, entry: usize, reply: &Reply) {
        let status = match reply {
            Reply::Full(response) | Reply::Truncated(response, _) => {
                Some(response.status().as_u16())
            }
            Reply::Cut => None,
        };
        let mut log = self.log();
        let at = entry.checked_sub(log.first);
        if let Some(seen) = at.and_then(|at| log.seen.get_mut(at)) {
            seen.status = status;
        }
    }

    /// The logged requests.
    pub fn all(&self) -> Vec<Seen> {
        self.log().seen.iter().cloned().collect()
    }

    /// Number of requests that were dropped.
    pub fn forgotten(&self) -> usize {
        self.log().forgotten
    }

    /// Forgets the requests so far.
    pub fn clear(&self) {
        let mut log = self.log();
        log.first += log.seen.len();
        log.seen.clear();
        log.bytes = 0;
        log.forgotten = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(log: &Recorder, path: &str, body: usize) -> usize {
        let body = Bytes::from(vec![b'x'; body]);
        log.begin(&Request::builder().uri(path).body(body).expect("a request"))
    }

    fn done() -> Reply {
        Reply::Full(http::Response::new(Bytes::new()))
    }

    #[test]
    fn the_oldest_go_first_and_answers_find_their_own_request() {
        let log = Recorder::with_limits(3, 1000);
        let entries: Vec<usize> = (0..5).map(|n| ask(&log, &format!("/{n}"), 0)).collect();
        for entry in [0, 3] {
            log.finish(entries[entry], &done());
        }
        let left: Vec<_> = log.all().into_iter().map(|s| (s.path, s.status)).collect();
        let left: Vec<_> = left.iter().map(|(path, status)| (path.as_str(), *status)).collect();
        assert_eq!(left, [("/2", None), ("/3", Some(200)), ("/4", None)]);
        assert_eq!(log.forgotten(), 2);

        let big = ask(&log, "/big", 990);
        assert_eq!(log.all().len(), 1, "bytes count as well");
        log.clear();
        let next = ask(&log, "/next", 0);
        log.finish(big, &done());
        assert_eq!(log.all()[0].status, None, "not the answer of a forgotten request");
        log.finish(next, &done());
        assert_eq!((log.all()[0].status, log.forgotten()), (Some(200), 0));
        ask(&log, "/huge", 2000);
        assert!(log.all().is_empty());
    }
}
