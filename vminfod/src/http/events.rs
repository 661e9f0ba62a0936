// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `/events`: the snapshot as one `ready` line (RFD 39: `ack`), then the journal from there on. Types
//! that deployed clients do not know are sent only where they were asked for.

use std::sync::Arc;

use bytes::Bytes;
use daemon::Shutdown;
use daemon::http::events::{self, Follow, resume_line};
use daemon::http::{Body, Counts, Registered, Start, now_iso};
use futures_util::{Stream, stream};

use super::filter::Filter;
use super::rewrite::{Format, rewrite};
use super::vms::Shown;
use crate::store::Published;

/// What a listener asked for.
#[derive(Debug)]
pub(super) struct Query {
    pub(super) start: Start,
    pub(super) format: Format,
    pub(super) filter: Option<Filter>,
}

/// Opens a stream.
pub(super) fn open(
    published: &Published,
    asked: Query,
    listener: Registered,
    counts: Arc<Counts>,
    shutdown: Shutdown,
) -> Body {
    let Query { start, format, filter } = asked;
    let uuid = listener.uuid.clone();
    let follow = |cursor, filter| Follow {
        journal: Arc::clone(&published.journal),
        cursor,
        rewrite: rewrite(format, filter),
        keep: listener,
        counts,
        shutdown,
    };
    let epoch = &published.epoch;
    let snapshot = published.snapshot();
    let seq = match start {
        Start::Now => snapshot.seq,
        Start::After(since) => since,
    };
    match (format, start) {
        (Format::Rfd39, _) => {
            let line = format!(
                "{{\"ts\":\"{}\",\"type\":\"ack\",\"seq\":{seq},\"epoch\":\"{epoch}\"}}\n",
                now_iso()
            );
            events::open(stream::iter([Bytes::from(line)]), follow(seq, filter))
        }
        (Format::Shipped, Start::After(_)) => {
            events::open(stream::iter([resume_line(epoch, seq, snapshot.seq)]), follow(seq, filter))
        }
        (Format::Shipped, Start::Now) => {
            let shown = Shown { snapshot, filter: filter.clone() };
            events::open(ready(shown, &uuid, epoch, seq), follow(seq, filter))
        }
    }
}

/// Returns the `ready` line in pieces: `vms` is a string that contains the array's JSON.
fn ready(
    shown: Shown,
    uuid: &str,
    epoch: &str,
    seq: u64,
) -> impl Stream<Item = Bytes> + Send + use<> {
    let head =
        format!("{{\"type\":\"ready\",\"date\":\"{}\",\"uuid\":\"{uuid}\",\"vms\":\"", now_iso());
    let tail = format!("\",\"seq\":{seq},\"epoch\":\"{epoch}\"}}\n");
    let vms = shown.pieces().map(|piece| escaped(&piece));
    let once = |text: String| std::iter::once(Bytes::from(text));
    stream::iter(once(head).chain(vms).chain(once(tail)))
}

/// Escapes ASCII JSON for a JSON string: two characters need it.
fn escaped(json: &[u8]) -> Bytes {
    let mut piece = Vec::with_capacity(json.len() + json.len() / 8 + 1);
    for byte in json {
        if matches!(byte, b'"' | b'\\') {
            piece.push(b'\\');
        }
        piece.push(*byte);
    }
    Bytes::from(piece)
}
