// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Splits a stream of bytes into lines of a bounded length. It holds at most one line besides the piece it
//! was given, and nothing between two lines.

use bytes::{Buf as _, Bytes, BytesMut};

/// A line is longer than allowed: it is left out up to its end.
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
    /// The line that is being received is left out.
    skips: bool,
}

impl Lines {
    /// A splitter of lines of at most `cap` bytes.
    pub fn new(cap: usize) -> Lines {
        Lines { buffer: BytesMut::new(), searched: 0, cap, skips: false }
    }

    /// Takes the next piece of the stream.
    pub fn push(&mut self, piece: &[u8]) {
        self.buffer.extend_from_slice(piece);
    }

    /// The next complete line without its end, or `None` until more comes.
    /// Empty lines are returned as such.
    pub fn next_line(&mut self) -> Result<Option<Bytes>, LineTooLong> {
        let rest = self.buffer.get(self.searched..).unwrap_or_default();
        let end = rest.iter().position(|b| *b == b'\n');
        let Some(at) = end else {
            self.searched = self.buffer.len();
            // One more than the cap, for a carriage return that may be the end.
            let is_long = self.searched > self.cap.saturating_add(1);
            if is_long || self.skips || self.buffer.is_empty() {
                (self.buffer, self.searched) = (BytesMut::new(), 0);
            }
            let is_news = is_long && !self.skips;
            self.skips |= is_long;
            return if is_news { Err(LineTooLong { cap: self.cap }) } else { Ok(None) };
        };
        let line = self.buffer.split_to(self.searched + at);
        self.buffer.advance(1);
        self.searched = 0;
        match std::mem::take(&mut self.skips) {
            true => self.next_line(),
            false => self.whole(line).map(Some),
        }
    }

    /// The stream ended: returns the line that has begun, which has no end.
    pub fn finish(&mut self) -> Option<Result<Bytes, LineTooLong>> {
        let rest = std::mem::take(&mut self.buffer);
        (!rest.is_empty()).then(|| self.whole(rest))
    }

    fn whole(&self, mut line: BytesMut) -> Result<Bytes, LineTooLong> {
        if line.last() == Some(&b'\r') {
            line.truncate(line.len() - 1);
        }
        if line.len() > self.cap { Err(LineTooLong { cap: self.cap }) } else { Ok(line.freeze()) }
    }

    /// Bytes of a line that has begun and not ended.
    pub fn pending(&self) -> usize {
        self.buffer.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(lines: &mut Lines) -> Vec<Bytes> {
        std::iter::from_fn(|| lines.next_line().unwrap()).collect()
    }

    #[test]
    fn ends_and_halves() {
        let mut lines = Lines::new(100);
        lines.push(b"one\ntwo\r\n\nthr");
        assert_eq!(all(&mut lines), ["one", "two", ""]);
        assert_eq!(lines.pending(), 3);
        lines.push(b"ee\r");
        assert!(all(&mut lines).is_empty());
        lines.push(b"\n");
        assert_eq!(all(&mut lines), ["three"]);
        assert_eq!(lines.pending(), 0);
    }

    #[test]
    fn a_line_is_capped_whether_it_ends_or_not() {
        let mut lines = Lines::new(4);
        lines.push(b"four\r\nfour\n");
        assert_eq!(all(&mut lines), ["four", "four"]);
        lines.push(b"five5\n");
        assert_eq!(lines.next_line(), Err(LineTooLong { cap: 4 }));
        let mut lines = Lines::new(4);
        lines.push(b"fives6");
        assert_eq!(lines.next_line(), Err(LineTooLong { cap: 4 }));
    }

    #[test]
    fn an_endless_line_is_left_out() {
        const CAP: usize = 1 << 10;
        let mut lines = Lines::new(CAP);
        let mut too_long = 0;
        for _ in 0..20 {
            lines.push(&[b'x'; CAP / 8]);
            assert!(lines.buffer.capacity() <= 3 * CAP);
            too_long += usize::from(lines.next_line().is_err());
        }
        assert_eq!(too_long, 1);
        lines.push(b"yz\n{}\r\n");
        assert_eq!((all(&mut lines), lines.finish()), (vec![Bytes::from("{}")], None));
        lines.push(b"half");
        assert!(all(&mut lines).is_empty());
        assert_eq!(lines.finish(), Some(Ok("half".into())));
        assert_eq!(lines.buffer.capacity(), 0, "an idle connection holds nothing");
    }

    proptest! {
        #[test]
        fn cuts_make_no_difference(
            texts in prop::collection::vec("[^\r\n]{0,20}", 0..8),
            cuts in prop::collection::vec(1usize..9, 1..40),
        ) {
            let whole: String = texts.iter().map(|text| format!("{text}\n")).collect();
            let mut rest = whole.as_bytes();
            let mut lines = Lines::new(200);
            let mut found = Vec::new();
            let mut cuts = cuts.iter().cycle();
            while !rest.is_empty() {
                let (piece, tail) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
                lines.push(piece);
                found.extend(all(&mut lines));
                rest = tail;
            }
            let found: Vec<&str> = found.iter().map(|line| std::str::from_utf8(line).unwrap()).collect();
            prop_assert_eq!(found, texts);
        }
    }
}
