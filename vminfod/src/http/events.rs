// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `/events`: the snapshot as one `ready` line, then the journal from there on.
//!
//! Must never send a type that deployed clients do not know, unless it was asked for.

use std::sync::Arc;

use bytes::Bytes;
use daemon::Shutdown;
use daemon::http::events::{self, Follow};
use daemon::http::{Body, Counts, Entered, Start, now_iso};
use futures_util::{Stream, stream};

use crate::store::{Published, Snapshot};

/// What is left of the `ready` line.
struct Ready {
    snapshot: Arc<Snapshot>,
    head: Option<Bytes>,
    epoch: String,
    /// Next VM; equal to their number: only the tail is left.
    next: usize,
}

/// Opens a stream; the listener is registered in the same turn in which the snapshot is taken.
pub fn open(
    published: &Published,
    start: Start,
    listener: Entered,
    counts: Arc<Counts>,
    shutdown: Shutdown,
) -> Body {
    let follow = |cursor, keep| Follow {
        journal: Arc::clone(&published.journal),
        cursor,
        lens: None,
        keep,
        counts,
        shutdown,
    };
    match start {
        Start::Now => {
            let snapshot = published.snapshot();
            let follow = follow(snapshot.seq, listener);
            let head = format!(
                "{{\"type\":\"ready\",\"date\":\"{}\",\"uuid\":\"{}\",\"vms\":\"[",
                now_iso(),
                follow.keep.uuid
            );
            let epoch = published.epoch.clone();
            let ready = Ready { snapshot, head: Some(Bytes::from(head)), epoch, next: 0 };
            events::open(ready.pieces(), follow)
        }
        Start::After(since) => {
            let line = events::resume_line(&published.epoch, since);
            events::open(stream::iter([line]), follow(since, listener))
        }
    }
}

impl Ready {
    fn pieces(self) -> impl Stream<Item = Bytes> + Send {
        stream::unfold(self, |mut ready| async move {
            if let Some(head) = ready.head.take() {
                return Some((head, ready));
            }
            (ready.next <= ready.snapshot.vms.len()).then(|| (ready.piece(), ready))
        })
    }

    /// The next VM's text inside the JSON string, or the end of the line.
    fn piece(&mut self) -> Bytes {
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
                let (seq, epoch) = (self.snapshot.seq, &self.epoch);
                Bytes::from(format!("]\",\"seq\":{seq},\"epoch\":\"{epoch}\"}}\n"))
            }
        }
    }
}
