// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The format. Pure.
//!
//! Numbers are big-endian. A MAC is BLAKE3 with a key that is derived from the token's secret, one for each
//! purpose, so that nothing that one end sends can be taken for something else. That of a frame is made of the hash of
//! its content and of its head. The hash is POLYVAL (RFC 8452) at a point that is secret, too: two contents of one
//! length have the same hash for at most one point of 2^115, and BLAKE3 lets nobody see a hash. It takes 0.6 of
//! BLAKE3's time.

use polyval::Polyval;
use polyval::universal_hash::{KeyInit as _, UniversalHash as _};
use subtle::ConstantTimeEq as _;

use super::refused::Refused;

/// The most bytes of a dataset in one frame.
pub const FRAME: usize = 64 << 10;
/// Bytes of a MAC.
pub(super) const MAC: usize = 32;
/// Bytes of POLYVAL's key.
const POINT: usize = 16;
/// Kind, number, length.
pub(super) const HEAD: usize = 1 + 8 + 4;
/// Number of frames, number of bytes.
const TOTALS: usize = 8 + 8;
/// The longest content: a last frame's.
pub(super) const LONGEST: usize = FRAME + TOTALS;
/// Magic, id, MAC.
pub(super) const OPENING: usize = MAGIC.len() + ID + MAC;
/// Bytes of a token's id.
pub(super) const ID: usize = 16;
const MAGIC: &[u8; 8] = b"VMSTRM\0\x02";
const DATA: u8 = 1;
const LAST: u8 = 2;

/// The keys of one stream.
#[derive(Clone)]
pub(super) struct Keys {
    opening: [u8; 32],
    /// Has taken in nothing yet.
    contents: Polyval,
    frames: [u8; 32],
    receipt: [u8; 32],
}

impl Keys {
    /// Derives the keys from a token's secret.
    pub(super) fn of(secret: &[u8; 32]) -> Keys {
        let key = |purpose| blake3::derive_key(purpose, secret);
        Keys {
            opening: key("vm migration 2026 stream opening"),
            contents: Polyval::new_from_slice(&key("vm migration 2026 stream contents")[..POINT])
                .expect("invariant: so long is its key"),
            frames: key("vm migration 2026 stream frames"),
            receipt: key("vm migration 2026 stream receipt"),
        }
    }

    /// The bytes that open a stream.
    pub(super) fn opening(&self, id: &[u8; ID]) -> Vec<u8> {
        let text = [&MAGIC[..], id].concat();
        [&text[..], mac(&self.opening, &[&text]).as_bytes()].concat()
    }

    /// Whether the opening was made with these keys.
    pub(super) fn opens(&self, opening: &[u8; OPENING]) -> bool {
        let (text, sent) = opening.split_at(OPENING - MAC);
        is_same(&mac(&self.opening, &[text]), sent)
    }

    /// The MAC of a frame. Its content is in parts, of which all but the last are whole blocks. The head has its
    /// length, so that the zeros that fill its last block are not taken for content.
    fn frame(&self, content: &[&[u8]], head: &[u8]) -> blake3::Hash {
        let mut hash = self.contents.clone();
        content.iter().for_each(|part| hash.update_padded(part));
        mac(&self.frames, &[&hash.finalize(), head])
    }

    /// The target's word that it took this many frames and bytes.
    pub(super) fn receipt(&self, frames: u64, bytes: u64) -> [u8; MAC] {
        *mac(&self.receipt, &[&frames.to_be_bytes(), &bytes.to_be_bytes()]).as_bytes()
    }

    /// Whether the receipt is for this many frames and bytes.
    pub(super) fn is_receipt(&self, sent: &[u8; MAC], frames: u64, bytes: u64) -> bool {
        bool::from(self.receipt(frames, bytes).ct_eq(sent))
    }
}

fn mac(key: &[u8; 32], parts: &[&[u8]]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_keyed(key);
    parts.iter().for_each(|part| {
        hasher.update(part);
    });
    hasher.finalize()
}

/// Compares in a time that does not depend on where they differ.
fn is_same(made: &blake3::Hash, sent: &[u8]) -> bool {
    bool::from(made.as_bytes()[..].ct_eq(sent))
}

/// Reads the id of an opening.
pub(super) fn id_of(opening: &[u8; OPENING]) -> Result<[u8; ID], Refused> {
    let rest = opening.strip_prefix(&MAGIC[..]).ok_or(Refused::Opening)?;
    rest[..ID].try_into().map_err(|_| Refused::Opening)
}

/// A frame but for its data: what goes before them, and after.
pub(super) struct Sealed {
    pub(super) head: Vec<u8>,
    pub(super) mac: [u8; MAC],
}

impl Sealed {
    /// The whole frame.
    #[cfg(test)]
    pub(super) fn with(&self, data: &[u8]) -> Vec<u8> {
        [&self.head[..], data, &self.mac].concat()
    }
}

pub(super) struct Sealer {
    keys: Keys,
    frames: u64,
    bytes: u64,
}

impl Sealer {
    pub(super) fn new(keys: Keys) -> Sealer {
        Sealer { keys, frames: 0, bytes: 0 }
    }

    /// Makes the next frame of these data, which are not copied.
    pub(super) fn seal(&mut self, data: &[u8], is_last: bool) -> Sealed {
        let number = self.frames;
        self.frames += 1;
        self.bytes += data.len() as u64;
        let totals = if is_last {
            [self.frames.to_be_bytes(), self.bytes.to_be_bytes()].concat()
        } else {
            Vec::new()
        };
        let length = u32::try_from(totals.len() + data.len()).expect("invariant: frames are short");
        let mut head = Vec::with_capacity(HEAD + totals.len());
        head.push(if is_last { LAST } else { DATA });
        head.extend(number.to_be_bytes());
        head.extend(length.to_be_bytes());
        let mac = *self.keys.frame(&[&totals, data], &head).as_bytes();
        head.extend(totals);
        Sealed { head, mac }
    }

    /// Frames and bytes so far.
    pub(super) fn totals(&self) -> (u64, u64) {
        (self.frames, self.bytes)
    }
}

/// The head of a frame that may come next.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    bytes: [u8; HEAD],
    pub(super) length: usize,
    is_last: bool,
}

/// The bytes of a frame that is right.
#[derive(Debug)]
pub(super) struct Piece<'a> {
    pub(super) data: &'a [u8],
    pub(super) is_last: bool,
}

pub(super) struct Checker {
    keys: Keys,
    frames: u64,
    bytes: u64,
}

impl Checker {
    pub(super) fn new(keys: Keys) -> Checker {
        Checker { keys, frames: 0, bytes: 0 }
    }

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
        Ok(Head { bytes, length: length as usize, is_last })
    }

    /// Checks the content of a frame and returns what may be fed to the receiver.
    pub(super) fn check<'a>(
        &mut self,
        head: &Head,
        content: &'a [u8],
        sent: &[u8],
    ) -> Result<Piece<'a>, Refused> {
        let number = self.frames;
        if !is_same(&self.keys.frame(&[content], &head.bytes), sent) {
            return Err(Refused::Changed { number });
        }
        let (totals, data) = content.split_at(if head.is_last { TOTALS } else { 0 });
        self.frames += 1;
        self.bytes += data.len() as u64;
        if head.is_last && totals != [self.frames.to_be_bytes(), self.bytes.to_be_bytes()].concat()
        {
            let said = totals[8..].iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
            return Err(Refused::Total { said, came: self.bytes });
        }
        Ok(Piece { data, is_last: head.is_last })
    }

    /// The number of the frame that comes next.
    pub(super) fn next(&self) -> u64 {
        self.frames
    }

    /// The receipt for what came.
    pub(super) fn receipt(&self) -> [u8; MAC] {
        self.keys.receipt(self.frames, self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_last_frame_with_other_numbers_is_refused_though_its_mac_is_right() {
        for (frames, bytes, said) in [(0, 5, 8), (0, 0, 3), (1, 0, 3)] {
            let keys = Keys::of(&[7; 32]);
            let (mut sealer, mut checker) = (Sealer::new(keys.clone()), Checker::new(keys));
            (sealer.frames, sealer.bytes) = (0, bytes);
            let mut frame = sealer.seal(b"all", true).with(b"all");
            if frames > 0 {
                // Sealed as if frames had gone before, under the number that is expected.
                frame[HEAD + 7] += frames;
                let (text, _) = frame.split_at(frame.len() - MAC);
                let (head, content) = text.split_at(HEAD);
                let right = sealer.keys.frame(&[content], head);
                frame = [text, right.as_bytes()].concat();
            }
            let head = checker.head(frame[..HEAD].try_into().unwrap()).unwrap();
            let (content, mac) = frame[HEAD..].split_at(head.length);
            let checked = checker.check(&head, content, mac).map(|piece| piece.data.to_vec());
            let want = if frames == 0 && bytes == 0 {
                Ok(b"all".to_vec())
            } else {
                Err(Refused::Total { said, came: 3 })
            };
            assert_eq!(checked, want);
        }
    }

    #[test]
    fn zeros_that_fill_a_block_are_no_content() {
        let keys = Keys::of(&[7; 32]);
        let (mut sealer, mut checker) = (Sealer::new(keys.clone()), Checker::new(keys));
        let frame = sealer.seal(b"a", false).with(b"a");
        let mut longer = frame[..HEAD].to_vec();
        longer[HEAD - 1] = 2;
        let head = checker.head(longer.try_into().unwrap()).unwrap();
        let checked = checker.check(&head, b"a\0", &frame[HEAD + 1..]).map(|piece| piece.is_last);
        assert_eq!(checked, Err(Refused::Changed { number: 0 }));
    }

    #[test]
    fn each_purpose_has_its_own_key() {
        let keys = Keys::of(&[7; 32]);
        assert!(keys.is_receipt(&keys.receipt(1, 2), 1, 2));
        assert!(!keys.is_receipt(&keys.receipt(1, 2), 2, 1));
        assert_ne!(keys.opening, keys.frames);
        assert_ne!(keys.frames, keys.receipt);
        assert!(keys.opens(&keys.opening(&[3; ID]).try_into().unwrap()));
        assert!(!Keys::of(&[8; 32]).opens(&keys.opening(&[3; ID]).try_into().unwrap()));
    }
}
