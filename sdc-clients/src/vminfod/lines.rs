// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Lines out of a stream of bytes that may be cut anywhere. Works over bytes,
//! so that a character is never broken, and never holds more than one line of
//! bounded length besides the piece it was given.

use bytes::{Buf as _, Bytes, BytesMut};

/// The line that is being received is longer than allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("line longer than {cap} bytes")]
pub struct LineTooLong {
    /// The allowed length.
    pub cap: usize,
}

/// Splits at `\n`; a `\r` before it goes too.
#[derive(Debug)]
pub struct Lines {
    buffer: BytesMut,
    /// Bytes of the buffer that are known to hold no newline.
    searched: usize,
    cap: usize,
}

impl Lines {
    /// A splitter of lines of at most `cap` bytes.
    pub fn new(cap: usize) -> Lines {
        Lines { buffer: BytesMut::new(), searched: 0, cap }
    }

    /// Takes the next piece of the stream.
    pub fn push(&mut self, piece: &[u8]) {
        self.buffer.extend_from_slice(piece);
    }

    /// The next complete line without its end, or `None` until more comes.
    /// Empty lines are returned as such.
    pub fn next_line(&mut self) -> Result<Option<Bytes>, LineTooLong> {
        let rest = self.buffer.get(self.searched..).unwrap_or_default();
        let Some(at) = rest.iter().position(|b| *b == b'\n') else {
            self.searched = self.buffer.len();
            // One more than the cap, for a carriage return that may be the end.
            return if self.searched > self.cap.saturating_add(1) {
                Err(LineTooLong { cap: self.cap })
            } else {
                Ok(None)
            };
        };
        let mut line = self.buffer.split_to(self.searched + at);
        self.buffer.advance(1);
        self.searched = 0;
        if line.last() == Some(&b'\r') {
            line.truncate(line.len() - 1);
        }
        if line.len() > self.cap {
            return Err(LineTooLong { cap: self.cap });
        }
        Ok(Some(line.freeze()))
    }

    /// Bytes of a line that has begun and not ended.
    pub fn pending(&self) -> usize {
        self.buffer.len()
    }
}
