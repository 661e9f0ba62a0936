// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The first line of a connection, edited before it is parsed: Node's parser takes characters in a target that
//! hyper's refuses, and people type them into curl. Pure.

use bytes::BytesMut;

/// Edits the first bytes of a connection; returns true once they can go to the HTTP parser.
pub type FirstLine = fn(&mut BytesMut) -> bool;

/// Returns the range of the first line, without empty lines before it; none until it is complete.
pub fn line(held: &BytesMut) -> Option<std::ops::Range<usize>> {
    let start = held.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    let length = held[start..].iter().position(|byte| *byte == b'\n')?;
    Some(start..start + length)
}

/// Escapes these characters with a percent sign wherever they stand in the first line.
pub fn escape(held: &mut BytesMut, characters: &[u8]) -> bool {
    let Some(line) = line(held) else { return false };
    if held[line.clone()].iter().any(|byte| characters.contains(byte)) {
        let rest = held.split_off(line.end);
        let mut edited = BytesMut::with_capacity(held.len() + rest.len() + 32);
        for byte in &held[line.start..] {
            match characters.contains(byte) {
                true => edited.extend_from_slice(format!("%{byte:02X}").as_bytes()),
                false => edited.extend_from_slice(&[*byte]),
            }
        }
        edited.extend_from_slice(&rest);
        *held = edited;
    }
    true
}
