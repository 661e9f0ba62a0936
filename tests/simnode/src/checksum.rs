// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A checksum of 64 bits (FNV-1a). A change of one byte always changes it.

const SEED: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0100_0000_01b3;

/// The checksum of everything that was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Checksum(u64);

impl Default for Checksum {
    fn default() -> Self {
        Checksum(SEED)
    }
}

impl Checksum {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.0 =
            bytes.iter().fold(self.0, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(PRIME));
    }

    pub(crate) fn value(self) -> u64 {
        self.0
    }

    /// The checksum of these bytes.
    pub(crate) fn of(bytes: &[u8]) -> u64 {
        let mut sum = Checksum::default();
        sum.add(bytes);
        sum.value()
    }
}
