// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! MD5, for the `content-md5` header that some clients send.

use base64::Engine;

const SHIFTS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];

/// MD5 of the bytes in base64.
pub(super) fn md5_base64(bytes: &[u8]) -> String {
    let mut message = bytes.to_vec();
    message.push(0x80);
    while message.len() % 64 != 56 {
        message.push(0);
    }
    let bits = u64::try_from(bytes.len()).unwrap_or(u64::MAX).wrapping_mul(8);
    message.extend(bits.to_le_bytes());
    let mut state = [0x6745_2301_u32, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    for block in message.chunks_exact(64) {
        let words: Vec<u32> = block
            .chunks_exact(4)
            .map(|w| w.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte)))
            .collect();
        let [mut a, mut b, mut c, mut d] = state;
        for step in 0..64_u32 {
            let (mix, word) = match step / 16 {
                0 => (b & c | !b & d, step),
                1 => (d & b | !d & c, 5 * step + 1),
                2 => (b ^ c ^ d, 3 * step + 5),
                _ => (c ^ (b | !d), 7 * step),
            };
            let word = words.get((word % 16) as usize).copied().unwrap_or_default();
            let shift =
                SHIFTS.get((step / 16) as usize).and_then(|row| row.get((step % 4) as usize));
            let turned = a
                .wrapping_add(mix)
                .wrapping_add(constant(step))
                .wrapping_add(word)
                .rotate_left(shift.copied().unwrap_or_default());
            (a, d, c, b) = (d, c, b, b.wrapping_add(turned));
        }
        for (slot, part) in state.iter_mut().zip([a, b, c, d]) {
            *slot = slot.wrapping_add(part);
        }
    }
    let digest: Vec<u8> = state.iter().flat_map(|word| word.to_le_bytes()).collect();
    base64::engine::general_purpose::STANDARD.encode(digest)
}

/// The step's constant: the fraction of a sine, as the algorithm defines it.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // in 0..2^32 by definition
fn constant(step: u32) -> u32 {
    (f64::from(step + 1).sin().abs() * 4_294_967_296.0) as u32
}

#[cfg(test)]
mod tests {
    use super::md5_base64;

    #[test]
    fn known_digests() {
        assert_eq!(md5_base64(b""), "1B2M2Y8AsgTpgAmY7PhCfg==");
        assert_eq!(md5_base64(br#"{"state":"running"}"#), "3msBBai3o2NiFDFf3TW4EQ==");
    }
}
