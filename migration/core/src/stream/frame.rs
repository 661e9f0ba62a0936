// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The format. Pure.
//!
//! Numbers are big-endian. The connection proves that nothing was changed, repeated or left out on the way; what the
//! frames add is the end: a stream is whole only if its last frame has come, with the total that has come.

use super::refused::Refused;

/// The most bytes of a dataset in one frame. With its head it fills records of TLS, of 16 KiB each.
pub const FRAME: usize = (64 << 10) - HEAD;
/// Kind, number, length.
pub(super) const HEAD: usize = 1 + 8 + 4;
/// Number of frames, number of bytes.
pub(super) const TOTALS: usize = 8 + 8;
/// The longest content: a last frame's.
pub(super) const LONGEST: usize = FRAME + TOTALS;
/// Magic, id.
pub(super) const OPENING: usize = MAGIC.len() + ID;
/// Bytes of a token's id.
pub(super) const ID: usize = 16;
const MAGIC: &[u8; 8] = b"VMSTRM\0\x03";
const DATA: u8 = 1;
const LAST: u8 = 2;

/// Returns the bytes that open the stream of this token.
pub(super) fn opening(id: &[u8; ID]) -> [u8; OPENING] {
    let mut opening = [0; OPENING];
    let (magic, rest) = opening.split_at_mut(MAGIC.len());
    magic.copy_from_slice(MAGIC);
    rest.copy_from_slice(id);
    opening
}

/// Reads the id of an opening.
pub(super) fn id_of(opening: &[u8; OPENING]) -> Result<[u8; ID], Refused> {
    let rest = opening.strip_prefix(&MAGIC[..]).ok_or(Refused::Opening)?;
    rest.try_into().map_err(|_| Refused::Opening)
}

/// The target's receipt for this many frames and bytes.
pub(super) fn receipt(frames: u64, bytes: u64) -> [u8; TOTALS] {
    let mut totals = [0; TOTALS];
    totals[..8].copy_from_slice(&frames.to_be_bytes());
    totals[8..].copy_from_slice(&bytes.to_be_bytes());
    totals
}

#[derive(Default)]
pub(super) struct Framer {
    frames: u64,
    bytes: u64,
}

impl Framer {
    /// Makes what goes before the data of the next frame, which are not copied.
    pub(super) fn frame(&mut self, data: &[u8], is_last: bool) -> Vec<u8> {
        let number = self.frames;
        self.frames += 1;
        self.bytes += data.len() as u64;
        let totals = if is_last { &receipt(self.frames, self.bytes)[..] } else { &[] };
        let length = u32::try_from(totals.len() + data.len()).expect("invariant: frames are short");
        let mut head = Vec::with_capacity(HEAD + totals.len());
        head.push(if is_last { LAST } else { DATA });
        head.extend(number.to_be_bytes());
        head.extend(length.to_be_bytes());
        head.extend(totals);
        head
    }

    /// Frames and bytes so far.
    pub(super) fn totals(&self) -> (u64, u64) {
        (self.frames, self.bytes)
    }
}

/// The head of a frame that may come next.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    pub(super) length: usize,
    is_last: bool,
}

/// The bytes of a frame that is right.
#[derive(Debug)]
pub(super) struct Piece<'a> {
    pub(super) data: &'a [u8],
    pub(super) is_last: bool,
}

#[derive(Default)]
pub(super) struct Checker {
    frames: u64,
    bytes: u64,
}

impl Checker {
    /// Reads a head, before any of the content is.
    pub(super) fn head(&self, bytes: [u8; HEAD]) -> Result<Head, Refused> {
        let expected = self.frames;
        let (kind, rest) = (bytes[0], &bytes[1..]);
        let found = rest[..8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        let length = rest[8..].iter().fold(0, |number, byte| number << 8 | u32::from(*byte));
        let is_last = kind == LAST;
        if !is_last && kind != DATA {
            return Err(Refused::Kind { number: expected });
        }
        if found != expected {
            return Err(Refused::Order { expected, found });
        }
        let (least, most) = if is_last { (TOTALS, LONGEST) } else { (1, FRAME) };
        if !(least..=most).contains(&(length as usize)) {
            return Err(Refused::Length { number: found, length });
        }
        Ok(Head { length: length as usize, is_last })
    }

    /// Checks the content of a frame and returns what may be fed to the receiver.
    pub(super) fn check<'a>(
        &mut self,
        head: &Head,
        content: &'a [u8],
    ) -> Result<Piece<'a>, Refused> {
        let (totals, data) = content.split_at(if head.is_last { TOTALS } else { 0 });
        self.frames += 1;
        self.bytes += data.len() as u64;
        if head.is_last && totals != receipt(self.frames, self.bytes) {
            let stated = totals[8..].iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
            return Err(Refused::Total { stated, came: self.bytes });
        }
        Ok(Piece { data, is_last: head.is_last })
    }

    /// The number of the frame that comes next.
    pub(super) fn next(&self) -> u64 {
        self.frames
    }

    /// The receipt for what came.
    pub(super) fn receipt(&self) -> [u8; TOTALS] {
        receipt(self.frames, self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_last_frame_with_other_numbers_is_refused() {
        for (frames, bytes, want) in [(0, 0, Ok(3)), (0, 5, Err(8)), (1, 0, Err(3))] {
            let mut framer = Framer { frames, bytes };
            let mut head = framer.frame(b"all", true);
            // Under the number that is expected.
            head[1..9].fill(0);
            let (head, totals) = head.split_at(HEAD);
            let mut checker = Checker::default();
            let read = checker.head(head.try_into().unwrap()).unwrap();
            let content = [totals, b"all"].concat();
            let checked = checker.check(&read, &content).map(|piece| piece.data.len());
            assert_eq!(checked, want.map_err(|stated| Refused::Total { stated, came: 3 }));
        }
    }

    #[test]
    fn a_frame_fills_its_records() {
        let whole = Framer::default().frame(&[0; FRAME], false).len() + FRAME;
        assert_eq!(whole % (16 << 10), 0);
    }
}
