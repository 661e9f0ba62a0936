// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Splits what is read from a socket into lines, which end with LF or CR LF and have a bounded length.
//! A longer one is dropped up to its end, and reported.

/// Longest line that is kept, in bytes; of a longer one only the fact remains.
pub const LINE_CAP: usize = 1 << 20;

/// A piece of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// A line without its end. May be empty.
    Whole(Vec<u8>),
    /// A line was longer than allowed and is lost.
    TooLong,
}

/// The splitter. It holds only the line that has begun: an idle connection costs no buffer.
#[derive(Debug, Default)]
pub struct Lines {
    pub(super) begun: Vec<u8>,
    skipping: bool,
}

impl Lines {
    /// Takes the next bytes and gives each line that they end.
    pub fn push(&mut self, bytes: &[u8], mut give: impl FnMut(Line)) {
        let mut rest = bytes;
        while let Some(at) = rest.iter().position(|byte| *byte == b'\n') {
            let (piece, tail) = rest.split_at(at);
            rest = tail.get(1..).unwrap_or_default();
            self.take(piece);
            give(self.end());
        }
        self.take(rest);
    }

    /// The stream ended: a line without an end is a line too.
    pub fn finish(&mut self) -> Option<Line> {
        (self.skipping || !self.begun.is_empty()).then(|| self.end())
    }

    fn take(&mut self, piece: &[u8]) {
        if self.skipping || piece.is_empty() {
            return;
        }
        // One more than the cap, for a carriage return that may be the end.
        if self.begun.len() + piece.len() > LINE_CAP + 1 {
            self.skipping = true;
            self.begun = Vec::new();
        } else {
            self.begun.extend_from_slice(piece);
        }
    }

    fn end(&mut self) -> Line {
        if std::mem::take(&mut self.skipping) {
            return Line::TooLong;
        }
        let mut line = std::mem::take(&mut self.begun);
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        if line.len() > LINE_CAP { Line::TooLong } else { Line::Whole(line) }
    }
}
