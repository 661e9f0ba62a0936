// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Event streams: a lead of the daemon's own, then its journal from there on. Each listener is a
//! cursor; it gets whole lines and holds at most one read of the ring.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use http::StatusCode;
use serde_json::json;
use tokio::sync::watch;

use super::limits::Counts;
use super::query;
use super::reply::{now_iso, reply_json};
use crate::journal::{Entry, Journal, Read};
use crate::tasks::Shutdown;

/// How many bytes of the journal are read at once.
const TAKE: usize = 256 << 10;

/// Where a stream begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// With a snapshot.
    Now,
    /// After this event, with a `resume` line.
    After(u64),
}

/// A stream cannot be resumed; these events can still be read. Answered with 410.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("events {oldest} to {newest} are kept")]
pub struct Gone {
    /// This start of the daemon.
    pub epoch: String,
    /// Oldest event still kept.
    pub oldest: u64,
    pub newest: u64,
}

impl IntoResponse for Gone {
    fn into_response(self) -> Response {
        let Self { epoch, oldest, newest } = self;
        let body = json!({"code": "Gone", "epoch": epoch, "oldest": oldest, "newest": newest});
        reply_json(StatusCode::GONE, &body)
    }
}

impl Start {
    /// Reads `?epoch=E&since=N`; without both of them a stream begins with a snapshot.
    pub fn of(text: Option<&str>, epoch: &str, journal: &Journal) -> Result<Self, Gone> {
        let (Some(asked), Some(since)) = (query::value(text, "epoch"), query::value(text, "since"))
        else {
            return Ok(Self::Now);
        };
        let (oldest, newest) = journal.span();
        match since.parse::<u64>() {
            Ok(since) if asked == epoch && since <= newest && since.saturating_add(1) >= oldest => {
                Ok(Self::After(since))
            }
            _ => Err(Gone { epoch: epoch.to_owned(), oldest, newest }),
        }
    }
}

/// Returns the first line of a resumed stream: the event it continues after, and the newest one, at
/// which the listener has caught up.
pub fn resume_line(epoch: &str, since: u64, newest: u64) -> Bytes {
    let date = now_iso();
    Bytes::from(format!(
        "{{\"type\":\"resume\",\"date\":\"{date}\",\"epoch\":\"{epoch}\",\"seq\":{since},\"newest\":{newest}}}\n"
    ))
}

/// Returns the line that a listener gets for an event, or `None` for none. May keep state.
pub type Rewrite = Box<dyn FnMut(Entry) -> Option<Bytes> + Send>;

/// What a stream is made of.
pub struct Follow<K> {
    pub journal: Arc<Journal>,
    /// The last event that the lead contains.
    pub cursor: u64,
    /// Rewrites events for this listener; `None` sends their lines as they are.
    pub rewrite: Option<Rewrite>,
    /// Dropped when the stream ends: the listener's entry in a list, for example.
    pub keep: K,
    /// Counts a listener that fell behind.
    pub counts: Arc<Counts>,
    /// Ends the stream.
    pub shutdown: Shutdown,
}

struct Stage<K> {
    follow: Follow<K>,
    newest: watch::Receiver<u64>,
    lines: VecDeque<Bytes>,
}

/// Opens a stream: `lead`, one or more whole lines in pieces, then every event after the cursor, each
/// a chunk. It ends at a line boundary, at the shutdown or when its next event has left the ring.
pub fn open<K: Send + 'static>(
    lead: impl Stream<Item = Bytes> + Send + 'static,
    follow: Follow<K>,
) -> Body {
    let newest = follow.journal.subscribe();
    let stage = Stage { follow, newest, lines: VecDeque::new() };
    Body::from_stream(lead.chain(stream::unfold(stage, next)).map(Ok::<_, Infallible>))
}

async fn next<K: Send>(mut stage: Stage<K>) -> Option<(Bytes, Stage<K>)> {
    loop {
        if let Some(line) = stage.lines.pop_front() {
            return Some((line, stage));
        }
        // A stream may end here only: between two lines.
        let follow = &mut stage.follow;
        if follow.shutdown.is_triggered() {
            return None;
        }
        stage.newest.mark_unchanged();
        match follow.journal.read(follow.cursor, TAKE) {
            Read::Lines { lines, cursor } => {
                follow.cursor = cursor;
                stage.lines = match &mut follow.rewrite {
                    None => lines.into_iter().map(|entry| entry.line).collect(),
                    Some(rewrite) => lines.into_iter().filter_map(rewrite).collect(),
                };
            }
            Read::Gone => {
                Counts::add(&follow.counts.fell_behind);
                tracing::warn!(
                    cursor = follow.cursor,
                    "disconnected a listener that fell behind the journal"
                );
                return None;
            }
            Read::Empty => {
                // A waiting listener holds no buffer.
                stage.lines = VecDeque::new();
                // Both arms are cancel-safe: they only observe.
                tokio::select! {
                    biased;
                    changed = stage.newest.changed() => if changed.is_err() { return None },
                    () = follow.shutdown.wait() => return None,
                }
            }
        }
    }
}
