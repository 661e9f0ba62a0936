// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Many small pieces as few large ones: each is a chunk on the wire.

use bytes::{Bytes, BytesMut};

/// Size from which a piece is sent. A reader that stalls holds one of them.
const ENOUGH: usize = 64 << 10;

/// Joins pieces up to about 64 KiB. A piece that is large enough by itself is not copied.
pub(super) fn joined(
    pieces: impl Iterator<Item = Bytes> + Send,
) -> impl Iterator<Item = Bytes> + Send {
    let mut pieces = pieces.peekable();
    std::iter::from_fn(move || {
        let first = pieces.next()?;
        if first.len() >= ENOUGH || pieces.peek().is_none() {
            return Some(first);
        }
        let mut buffer = BytesMut::with_capacity(ENOUGH + first.len());
        buffer.extend_from_slice(&first);
        while let Some(piece) = pieces.next_if(|piece| buffer.len() + piece.len() <= ENOUGH) {
            buffer.extend_from_slice(&piece);
        }
        Some(buffer.freeze())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joins_small_pieces_and_keeps_large_ones() {
        let sizes = [1, ENOUGH - 1, 1, 1, ENOUGH * 2, 5, 0, 6];
        let pieces = sizes.map(|size| Bytes::from(vec![b'x'; size]));
        let joined: Vec<usize> = joined(pieces.into_iter()).map(|piece| piece.len()).collect();
        assert_eq!(joined, [ENOUGH, 2, ENOUGH * 2, 11]);
    }
}
