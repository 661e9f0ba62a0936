// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The system's chance, and digests.

use ring::digest::SHA256;
use ring::rand::{SecureRandom as _, SystemRandom};

use crate::invalid::Invalid;

/// Returns so many random bytes as hexadecimal text.
/// Fails with [`Invalid::NoChance`].
pub fn secret<const N: usize>() -> Result<String, Invalid> {
    Ok(hex(&bytes::<N>()?))
}

pub(crate) fn bytes<const N: usize>() -> Result<[u8; N], Invalid> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| Invalid::NoChance)?;
    Ok(bytes)
}

/// Returns the SHA-256 of these bytes as hexadecimal text: a fingerprint.
pub fn digest(bytes: &[u8]) -> String {
    hex(ring::digest::digest(&SHA256, bytes).as_ref())
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads hexadecimal text.
pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok())
        .collect()
}
