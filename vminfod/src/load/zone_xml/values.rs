// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The words that nearly every configuration has, and the way the values of a configuration are kept:
//! one after the other, in fewer bytes than their texts.
//!
//! ```text
//!  values = value*
//!  value  = 02 (end) | 03 02 (not there) | 04 CODE 02 (one of the words below) | piece* 02
//!  piece  = text | 05 and the 16 bytes of a uuid | 06 and the 6 bytes of a MAC address
//! ```
//!
//! Characters below a blank other than line ends and tabs are in no XML document, so no text can
//! contain a byte that means something here.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

const END: u8 = 2;
const NONE: u8 = 3;
const WORD: u8 = 4;
const UUID: u8 = 5;
const MAC: u8 = 6;

/// Texts that nearly every configuration has, each kept as one character, `!` and those after it.
/// Only this process ever reads a code.
const WORDS: &[&str] = &[
    "name",
    "value",
    "brand",
    "zonepath",
    "autoboot",
    "ip-type",
    "exclusive",
    "limitpriv",
    "vm-version",
    "create-timestamp",
    "owner-uuid",
    "billing-id",
    "alias",
    "dataset-uuid",
    "package-name",
    "package-version",
    "resolvers",
    "hostname",
    "dns-domain",
    "tmpfs",
    "true",
    "false",
    "1",
    "priv",
    "privileged",
    "limit",
    "action",
    "deny",
    "none",
    "zone.cpu-shares",
    "zone.zfs-io-priority",
    "zone.cpu-cap",
    "zone.max-lwps",
    "zone.max-msg-ids",
    "zone.max-sem-ids",
    "zone.max-shm-ids",
    "zone.max-physical-memory",
    "zone.max-locked-memory",
    "zone.max-swap",
    "zone.max-shm-memory",
    "physical",
    "mac-addr",
    "vlan-id",
    "global-nic",
    "ip",
    "ips",
    "netmask",
    "network_uuid",
    "nic_tag",
    "gateway",
    "gateways",
    "primary",
    "mtu",
    "admin",
    "external",
    "model",
    "virtio",
    "match",
    "boot",
    "image-uuid",
    "image-size",
    "size",
    "media",
    "disk",
    "firewall-enabled",
    "maintain-resolvers",
    "uuid",
    "pci-slot",
    "vcpus",
    "ram",
    "kernel-version",
    "bootrom",
    "vnc-port",
    "vm-autoboot",
    "cpu-type",
    "restart-init",
    "docker",
    "internal-metadata-namespaces",
    "init-name",
    "net0",
    "net1",
    "joyent",
    "joyent-minimal",
    "lx",
    "kvm",
    "bhyve",
];

static CODES: LazyLock<HashMap<&str, u8>> = LazyLock::new(|| {
    let codes = WORDS.iter().zip(b'!'..);
    codes.map(|(word, code)| (*word, code)).collect()
});

/// The word of a code.
fn word(code: u8) -> &'static str {
    let at = code.checked_sub(b'!').map(usize::from);
    at.and_then(|at| WORDS.get(at)).copied().unwrap_or_default()
}

/// A text as it stands among texts: a word in two characters.
pub(super) fn coded(text: &str) -> Cow<'_, str> {
    match CODES.get(text) {
        Some(code) => String::from_iter([char::from(WORD), char::from(*code)]).into(),
        None => Cow::Borrowed(text),
    }
}

/// Back from [`coded`].
pub(super) fn decoded(field: &str) -> &str {
    match field.as_bytes() {
        [WORD, code] => word(*code),
        _ => field,
    }
}

/// Adds one value.
pub(super) fn push(values: &mut Vec<u8>, text: Option<&str>) {
    match text.map(|text| (CODES.get(text), text)) {
        None => values.push(NONE),
        Some((Some(code), _)) => values.extend([WORD, *code]),
        Some((None, text)) => push_pieces(values, text.as_bytes()),
    }
    values.push(END);
}

fn push_pieces(values: &mut Vec<u8>, text: &[u8]) {
    if let Some(mac) = mac(text) {
        values.push(MAC);
        values.extend(mac);
        return;
    }
    let mut rest = text;
    // Nearly all uuids stand at the end of their texts.
    while let Some((at, uuid)) = first_uuid(rest) {
        values.extend_from_slice(rest.get(..at).unwrap_or_default());
        values.push(UUID);
        values.extend(uuid);
        rest = rest.get(at + 36..).unwrap_or_default();
    }
    values.extend_from_slice(rest);
}

/// The first uuid in lower case, and where it begins.
fn first_uuid(text: &[u8]) -> Option<(usize, [u8; 16])> {
    let last = text.len().checked_sub(36)?;
    (0..=last).find_map(|at| {
        let own = text.get(at..at + 36)?;
        // Where there is no dash there is no need to look at the digits.
        if own.get(8) != Some(&b'-') {
            return None;
        }
        Some((at, uuid(own)?))
    })
}

fn uuid(text: &[u8]) -> Option<[u8; 16]> {
    let mut bytes = [0; 16];
    let mut rest = text;
    for (at, byte) in bytes.iter_mut().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            rest = rest.strip_prefix(b"-")?;
        }
        *byte = pair(&mut rest)?;
    }
    rest.is_empty().then_some(bytes)
}

fn mac(text: &[u8]) -> Option<[u8; 6]> {
    if text.len() != 17 {
        return None;
    }
    let mut bytes = [0; 6];
    let mut rest = text;
    for (at, byte) in bytes.iter_mut().enumerate() {
        if at > 0 {
            rest = rest.strip_prefix(b":")?;
        }
        *byte = pair(&mut rest)?;
    }
    rest.is_empty().then_some(bytes)
}

/// Two hexadecimal digits, small ones only: what is kept must come out as it was.
fn pair(rest: &mut &[u8]) -> Option<u8> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let (high, low, after) = match *rest {
        [high, low, after @ ..] => (digit(*high)?, digit(*low)?, after),
        _ => return None,
    };
    *rest = after;
    Some(high << 4 | low)
}

/// Reads values one after the other.
pub(super) struct Values<'a>(pub(super) &'a [u8]);

impl Values<'_> {
    /// The next value.
    pub(super) fn text(&mut self) -> Option<String> {
        let (mut text, mut is_there) = (Vec::new(), true);
        while let Some(special) = self.piece(&mut text) {
            match special {
                NONE => is_there = false,
                WORD => text
                    .extend(self.take::<1>().map(|[code]| word(code)).unwrap_or_default().bytes()),
                UUID => self.take::<16>().into_iter().for_each(|id| hex(&mut text, &id, b'-')),
                MAC => self.take::<6>().into_iter().for_each(|id| hex(&mut text, &id, b':')),
                _ => break,
            }
        }
        // Only what was a text was kept.
        is_there.then(|| String::from_utf8(text).unwrap_or_default())
    }

    /// Goes past the next value.
    pub(super) fn skip(&mut self) {
        while let Some(special) = self.special() {
            let raw = match special {
                WORD => 1,
                UUID => 16,
                MAC => 6,
                NONE => 0,
                _ => return,
            };
            self.0 = self.0.get(raw..).unwrap_or_default();
        }
    }

    /// Copies the text up to the next byte that means something, and takes that.
    fn piece(&mut self, text: &mut Vec<u8>) -> Option<u8> {
        let whole = self.0;
        let special = self.special();
        let length = whole.len() - self.0.len() - usize::from(special.is_some());
        text.extend_from_slice(whole.get(..length).unwrap_or_default());
        special
    }

    fn special(&mut self) -> Option<u8> {
        let at = self.0.iter().position(|byte| (END..=MAC).contains(byte)).unwrap_or(self.0.len());
        let special = self.0.get(at).copied();
        self.0 = self.0.get(at + 1..).unwrap_or_default();
        special
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }
}

/// Bytes as they are printed, with what stands between them in a uuid or a MAC address.
fn hex(text: &mut Vec<u8>, bytes: &[u8], between: u8) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (at, byte) in bytes.iter().enumerate() {
        let is_gap = if between == b'-' { matches!(at, 4 | 6 | 8 | 10) } else { at > 0 };
        text.extend(is_gap.then_some(between));
        text.extend([byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)]));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const U: &str = "f8428503-41e2-426e-b0f9-a5d849b545f6";

    fn again(texts: &[Option<&str>]) -> usize {
        let mut kept = Vec::new();
        texts.iter().for_each(|text| push(&mut kept, *text));
        let mut values = Values(&kept);
        for text in texts {
            assert_eq!(values.text().as_deref(), *text);
        }
        assert!(values.0.is_empty());
        for (skipped, text) in texts.iter().enumerate() {
            let mut values = Values(&kept);
            (0..skipped).for_each(|_| values.skip());
            assert_eq!(values.text().as_deref(), *text, "after {skipped}");
        }
        kept.len()
    }

    #[test]
    fn ids_take_their_bytes() {
        assert_eq!(again(&[Some(U)]), 18);
        assert_eq!(again(&[Some("b2:91:f9:20:e4:51")]), 8);
        assert_eq!(again(&[None, Some("true"), Some("")]), 2 + 3 + 1);
        again(&[Some(&format!("/zones/{U}")), Some(&format!("{U}{U}-{U}-disk0")), None]);
        again(&[Some(&U.to_uppercase()), Some("b2:91:F9:20:e4:51"), Some("b2:91:f9:20:e4-51")]);
        again(&[Some("\t-\r\n"), Some("--------------------------------------------")]);
    }

    #[test]
    fn every_word_has_a_code_and_comes_back() {
        assert_eq!(CODES.len(), WORDS.len());
        for word in WORDS {
            assert_eq!(coded(word).chars().count(), 2, "{word}");
            assert_eq!(decoded(&coded(word)), *word);
            assert_eq!(again(&[Some(word)]), 3);
        }
        assert_eq!((coded("other"), decoded("other")), ("other".into(), "other"));
    }

    proptest! {
        #[test]
        fn any_text_comes_out(texts in proptest::collection::vec(proptest::option::of("[0-9a-f:\\-\t\n \u{e9}]{0,45}"), 0..6)) {
            let texts: Vec<Option<&str>> = texts.iter().map(Option::as_deref).collect();
            again(&texts);
        }

        #[test]
        fn ids_anywhere(before in "[0-9a-f-]{0,9}", id: [u8; 16], after in "[0-9a-f-]{0,40}") {
            let id = uuid::Uuid::from_bytes(id);
            again(&[Some(&format!("{before}{id}{after}"))]);
        }
    }
}
