// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Event streams: some lead of the daemon's own, then its journal from there on.
//!
//! A listener is a cursor. Must never send a line in two halves or a blank line, and must never
//! hold more than one take of the ring in memory.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use tokio::sync::watch;

use super::body::Body;
use super::server::Counts;
use super::{now_iso, query};
use crate::journal::{Entry, Journal, Read};
use crate::tasks::Shutdown;

/// How much of the journal is taken at once.
const TAKE: usize = 256 << 10;

/// Where a stream begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// With a snapshot.
    Now,
    /// After this event, with a `resume` line.
    After(u64),
}

/// Why a stream cannot be resumed: the span that can. A 410.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("events {oldest} to {newest} are kept")]
pub struct Gone {
    /// Oldest event still kept.
    pub oldest: u64,
    /// Newest event.
    pub newest: u64,
}

impl Start {
    /// Reads `?epoch=E&since=N`; without both of them a stream begins with a snapshot.
    ///
    /// # Errors
    /// Another epoch, no number, or an event that is not kept any more or has not been yet.
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
            _ => Err(Gone { oldest, newest }),
        }
    }
}

impl Gone {
    /// The body of the 410: `{"code":"Gone","epoch","oldest","newest"}`.
    pub fn body(&self, epoch: &str) -> serde_json::Value {
        serde_json::json!({"code": "Gone", "epoch": epoch, "oldest": self.oldest, "newest": self.newest})
    }
}

/// The first line of a resumed stream: the event it goes on after, and the newest there is, with
/// which the listener has caught up. The epoch is hex digits.
pub fn resume_line(epoch: &str, since: u64, newest: u64) -> Bytes {
    let date = now_iso();
    Bytes::from(format!(
        "{{\"type\":\"resume\",\"date\":\"{date}\",\"epoch\":\"{epoch}\",\"seq\":{since},\"newest\":{newest}}}\n"
    ))
}

/// What a listener sees of an event: a whole line, or nothing. May keep state of its own.
pub type Lens = Box<dyn FnMut(Entry) -> Option<Bytes> + Send>;

/// What a stream is made of.
pub struct Follow<K> {
    /// The events.
    pub journal: Arc<Journal>,
    /// The last event that the lead contains.
    pub cursor: u64,
    /// What the listener sees of an event; `None`: its line.
    pub lens: Option<Lens>,
    /// Kept until the stream ends: the listener's entry in a list, say.
    pub keep: K,
    /// Where a cut is counted.
    pub counts: Arc<Counts>,
    /// Ends the stream.
    pub shutdown: Shutdown,
}

struct Stage<K> {
    follow: Follow<K>,
    newest: watch::Receiver<u64>,
    lines: VecDeque<Bytes>,
}

/// Opens a stream: `lead`, one or more whole lines in pieces, then every event after the cursor.
/// It ends at a line boundary, at the shutdown or when its next event has left the ring.
pub fn open<K: Send + 'static>(
    lead: impl Stream<Item = Bytes> + Send + 'static,
    follow: Follow<K>,
) -> Body {
    let newest = follow.journal.subscribe();
    let stage = Stage { follow, newest, lines: VecDeque::new() };
    Body::lasting(lead.chain(stream::unfold(stage, next)))
}

async fn next<K: Send>(mut stage: Stage<K>) -> Option<(Bytes, Stage<K>)> {
    loop {
        if let Some(line) = stage.lines.pop_front() {
            return Some((line, stage));
        }
        // Between lines is the only place where a stream may end.
        let follow = &mut stage.follow;
        if follow.shutdown.is_triggered() {
            return None;
        }
        stage.newest.mark_unchanged();
        match follow.journal.read(follow.cursor, TAKE) {
            Read::Lines { lines, cursor } => {
                follow.cursor = cursor;
                stage.lines = match &mut follow.lens {
                    None => lines.into_iter().map(|entry| entry.line).collect(),
                    Some(lens) => lines.into_iter().filter_map(lens).collect(),
                };
            }
            Read::Gone => {
                Counts::add(&follow.counts.fell_behind);
                tracing::warn!(
                    cursor = follow.cursor,
                    "listener fell behind the journal: disconnected"
                );
                return None;
            }
            Read::Empty => {
                // Who waits holds nothing.
                stage.lines = VecDeque::new();
                // Both arms are cancel-safe: they only observe.
                tokio::select! {
                    changed = stage.newest.changed() => if changed.is_err() { return None },
                    () = follow.shutdown.wait() => return None,
                }
            }
        }
    }
}
