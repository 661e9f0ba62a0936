// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A long answer in pieces, made while it is sent: each is a chunk on the wire.

use bytes::Bytes;

/// Size from which a piece is sent. A reader that stalls holds one of them.
const ENOUGH: usize = 64 << 10;
/// Most parts of a piece are smaller: what is left of its buffer when it has enough.
const PART: usize = 16 << 10;

/// Returns pieces of about 64 KiB. `write` appends the next part, and returns false if there is none.
pub(super) fn pieces(
    mut write: impl FnMut(&mut Vec<u8>) -> bool + Send,
) -> impl Iterator<Item = Bytes> + Send {
    let mut is_open = true;
    std::iter::from_fn(move || {
        let mut piece = Vec::with_capacity(ENOUGH + PART);
        while is_open && piece.len() < ENOUGH {
            is_open = write(&mut piece);
        }
        (!piece.is_empty()).then(|| Bytes::from(piece))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joins_small_parts_and_ends_a_piece_after_a_large_one() {
        let sizes = [1, ENOUGH - 1, 1, 1, ENOUGH * 2, 5, 0, 6];
        let mut parts = sizes.map(|size| vec![b'x'; size]).into_iter();
        let write = |piece: &mut Vec<u8>| {
            let part = parts.next();
            part.iter().for_each(|part| piece.extend_from_slice(part));
            part.is_some()
        };
        let joined: Vec<usize> = pieces(write).map(|piece| piece.len()).collect();
        assert_eq!(joined, [ENOUGH, 2 + ENOUGH * 2, 11]);
    }
}
