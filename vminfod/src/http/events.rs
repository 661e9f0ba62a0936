// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `/events`: the snapshot as one `ready` line, then the journal from there on.
//!
//! A listener is a cursor. Must never send a line in two halves, a blank line or a type that
//! deployed clients do not know, and must never hold more than one piece of it in memory.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use daemon::Shutdown;
use futures_util::{Stream, stream};
use tokio::sync::watch;

use super::body::Body;
use super::listeners::Entered;
use crate::journal::Read;
use crate::store::{Published, Snapshot, now_iso, quoted};

/// How much of the journal is taken at once.
const TAKE: usize = 256 << 10;

/// Where a stream begins.
pub enum From {
    /// With a `ready` line.
    Now,
    /// After this event, with a `resume` line.
    After(u64),
}

/// Why a stream cannot be resumed: the span that can.
#[derive(Debug)]
pub struct Gone {
    /// Oldest event still kept.
    pub oldest: u64,
    /// Newest event.
    pub newest: u64,
}

struct Stage {
    published: Arc<Published>,
    shutdown: Shutdown,
    newest: watch::Receiver<u64>,
    cursor: u64,
    ready: Option<Ready>,
    lines: VecDeque<Bytes>,
    listener: Entered,
}

/// The part of the `ready` line that is still to be sent.
struct Ready {
    snapshot: Arc<Snapshot>,
    /// Next VM; equal to their number: only the tail is left.
    next: usize,
}

/// Opens a stream; the listener is registered in the same turn in which the snapshot is taken.
pub fn open(
    published: Arc<Published>,
    from: &From,
    listener: Entered,
    shutdown: Shutdown,
) -> Result<Body, Gone> {
    let newest = published.journal.subscribe();
    let mut lines = VecDeque::new();
    let (cursor, ready) = match from {
        From::Now => {
            let snapshot = published.snapshot();
            lines.push_back(Bytes::from(format!(
                "{{\"type\":\"ready\",\"date\":\"{}\",\"uuid\":\"{}\",\"vms\":\"[",
                now_iso(),
                listener.uuid
            )));
            (snapshot.seq, Some(Ready { snapshot, next: 0 }))
        }
        From::After(since) => {
            let (oldest, head) = published.journal.span();
            if *since > head || since.saturating_add(1) < oldest {
                return Err(Gone { oldest, newest: head });
            }
            lines.push_back(Bytes::from(format!(
                "{{\"type\":\"resume\",\"date\":\"{}\",\"epoch\":{},\"seq\":{since}}}\n",
                now_iso(),
                quoted(&published.epoch),
            )));
            (*since, None)
        }
    };
    let stage = Stage { published, shutdown, newest, cursor, ready, lines, listener };
    Ok(Body::stream(pieces(stage)))
}

fn pieces(stage: Stage) -> impl Stream<Item = Bytes> + Send {
    stream::unfold(stage, |mut stage| async move {
        loop {
            if let Some(piece) = stage.lines.pop_front() {
                return Some((piece, stage));
            }
            if let Some(ready) = &mut stage.ready {
                let piece = ready.piece(&stage.published.epoch);
                if ready.next > ready.snapshot.vms.len() {
                    stage.ready = None;
                }
                return Some((piece, stage));
            }
            // Between lines is the only place where a stream may end.
            if stage.shutdown.is_triggered() {
                return None;
            }
            stage.newest.mark_unchanged();
            match stage.published.journal.read(stage.cursor, TAKE) {
                Read::Lines { lines, cursor } => {
                    stage.lines = lines.into();
                    stage.cursor = cursor;
                }
                Read::Gone => {
                    tracing::warn!(listener = %stage.listener.uuid, cursor = stage.cursor,
                        "listener fell behind the journal: disconnected");
                    return None;
                }
                Read::Empty => {
                    // Both arms are cancel-safe: they only observe.
                    tokio::select! {
                        changed = stage.newest.changed() => if changed.is_err() { return None },
                        () = stage.shutdown.wait() => return None,
                    }
                }
            }
        }
    })
}

impl Ready {
    /// The next VM's text inside the JSON string, or the end of the line.
    fn piece(&mut self, epoch: &str) -> Bytes {
        let at = self.next;
        self.next += 1;
        match self.snapshot.vms.get_index(at) {
            Some((_, vm)) => {
                let mut piece = Vec::with_capacity(vm.json.len() + vm.json.len() / 8 + 1);
                if at > 0 {
                    piece.push(b',');
                }
                // The text is ASCII JSON already: only these two mean something inside a string.
                for byte in vm.json.iter() {
                    if matches!(byte, b'"' | b'\\') {
                        piece.push(b'\\');
                    }
                    piece.push(*byte);
                }
                Bytes::from(piece)
            }
            None => {
                Bytes::from(format!("]\",\"seq\":{},\"epoch\":\"{epoch}\"}}\n", self.snapshot.seq))
            }
        }
    }
}
