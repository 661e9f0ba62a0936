// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The ring of serialised events: each is serialised once, and every listener reads it with a cursor of
//! its own. Its size does not depend on listeners: one that falls out of the ring must reconnect.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::watch;

/// The bytes that a ring usually keeps.
pub const BYTES: usize = 16 << 20;

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its line, with the newline.
    pub line: Bytes,
    /// What is needed to rewrite the line for other formats; often empty.
    pub note: Bytes,
}

impl Entry {
    fn bytes(&self) -> usize {
        self.line.len() + self.note.len()
    }
}

impl std::ops::Deref for Entry {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.line
    }
}

impl From<Bytes> for Entry {
    fn from(line: Bytes) -> Self {
        Self { line, note: Bytes::new() }
    }
}

/// The result of reading at a cursor.
#[derive(Debug, PartialEq, Eq)]
pub enum Read {
    /// The next events, oldest first, and the cursor after them.
    Lines {
        lines: Vec<Entry>,
        /// The sequence number of the last of them.
        cursor: u64,
    },
    /// Nothing newer yet.
    Empty,
    /// The event after the cursor has left the ring.
    Gone,
}

/// The ring itself.
#[derive(Debug)]
pub struct Journal {
    /// Events beyond this many bytes leave the ring, oldest first. The newest one stays, however large.
    limit: usize,
    ring: Mutex<Ring>,
    newest: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Ring {
    lines: VecDeque<Entry>,
    /// Sequence number of the first line in the ring (of the next one when it is empty).
    first: u64,
    bytes: usize,
}

impl Ring {
    fn newest(&self) -> u64 {
        (self.first + self.lines.len() as u64).saturating_sub(1)
    }
}

impl Journal {
    /// Makes an empty ring; the first event will be number 1.
    pub fn new(limit: usize) -> Self {
        let ring = Ring { first: 1, ..Ring::default() };
        Self { limit, ring: Mutex::new(ring), newest: watch::Sender::new(0) }
    }

    /// Appends the next event and wakes the listeners. There is one writer.
    pub fn push(&self, event: impl Into<Entry>) -> u64 {
        let event = event.into();
        let mut ring = self.lock();
        ring.bytes += event.bytes();
        ring.lines.push_back(event);
        while ring.bytes > self.limit && ring.lines.len() > 1 {
            if let Some(old) = ring.lines.pop_front() {
                ring.bytes -= old.bytes();
                ring.first += 1;
            }
        }
        let newest = ring.newest();
        drop(ring);
        self.newest.send_replace(newest);
        newest
    }

    /// Returns the events after `cursor`, about `max_bytes` at most (one event at least).
    pub fn read(&self, cursor: u64, max_bytes: usize) -> Read {
        let ring = self.lock();
        if cursor >= ring.newest() {
            return Read::Empty;
        }
        let Some(skip) = (cursor + 1).checked_sub(ring.first) else { return Read::Gone };
        let mut lines = Vec::new();
        let mut bytes = 0;
        for line in ring.lines.iter().skip(usize::try_from(skip).unwrap_or(usize::MAX)) {
            if !lines.is_empty() && bytes + line.line.len() > max_bytes {
                break;
            }
            bytes += line.line.len();
            lines.push(line.clone());
        }
        let cursor = cursor + lines.len() as u64;
        Read::Lines { lines, cursor }
    }

    /// Returns a receiver that changes with every event.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// Returns the oldest and the newest sequence number in the ring (oldest > newest: none).
    pub fn span(&self) -> (u64, u64) {
        let ring = self.lock();
        (ring.first, ring.newest())
    }

    /// Returns the size of the events in the ring.
    pub fn bytes(&self) -> usize {
        self.lock().bytes
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        // A panic under the lock cannot leave half an event.
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(n: u64) -> Entry {
        Bytes::from(format!("event {n}\n")).into()
    }

    #[test]
    fn cursors_read_at_their_own_pace() {
        let journal = Journal::new(BYTES);
        assert_eq!(journal.read(0, 1), Read::Empty);
        for n in 1..=5 {
            assert_eq!(journal.push(line(n)), n);
        }
        assert_eq!(journal.read(0, 1), Read::Lines { lines: vec![line(1)], cursor: 1 });
        assert_eq!(journal.read(3, 1000), Read::Lines { lines: vec![line(4), line(5)], cursor: 5 });
        assert_eq!(journal.read(5, 1000), Read::Empty);
        // A snapshot may be one event ahead of the ring for an instant.
        assert_eq!(journal.read(6, 1000), Read::Empty);
    }

    #[test]
    fn memory_is_bounded_and_a_late_cursor_is_gone() {
        let journal = Journal::new(100);
        for n in 1..=1000 {
            journal.push(line(n));
        }
        assert!(journal.bytes() <= 100);
        let (oldest, newest) = journal.span();
        assert_eq!(newest, 1000);
        assert_eq!(journal.read(oldest - 2, 10), Read::Gone);
        assert!(
            matches!(journal.read(oldest - 1, 10), Read::Lines { cursor, .. } if cursor == oldest)
        );
    }

    #[test]
    fn event_larger_than_the_ring_is_the_only_one_in_it() {
        let journal = Journal::new(20);
        for n in 1..=10 {
            journal.push(line(n));
        }
        journal.push(Bytes::from_static(&[b'x'; 100]));
        assert_eq!((journal.span(), journal.bytes()), ((11, 11), 100));
        assert!(matches!(journal.read(10, 1), Read::Lines { cursor: 11, .. }));
        assert_eq!(journal.read(9, 1), Read::Gone);
        journal.push(line(12));
        assert_eq!((journal.span(), journal.bytes()), ((12, 12), 9));
    }
}
