// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! MAC addresses: read in every spelling the field uses, written in one.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::quoted::quoted;

/// A 48-bit link-layer address.
///
/// Reads twelve bare hex digits, or six octets of one or two digits between
/// `:` or `-` (one kind only), in any case. Prints as `aa:bb:cc:dd:ee:ff`.
///
/// ```
/// let mac: sdc_clients::MacAddr = "90-B8-D0-1-2-F".parse().unwrap();
/// assert_eq!(mac.to_string(), "90:b8:d0:01:02:0f");
/// assert_eq!(mac.bare(), "90b8d001020f");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddr([u8; 6]);

/// The text is not a MAC address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a MAC address: {}", quoted(text))]
pub struct ParseMacError {
    text: String,
}

impl MacAddr {
    /// The address made of these octets.
    pub const fn new(octets: [u8; 6]) -> MacAddr {
        MacAddr(octets)
    }

    /// The octets, first on the wire first.
    pub const fn octets(&self) -> [u8; 6] {
        self.0
    }

    /// Twelve lower-case hex digits, as NAPI of every age takes in a path.
    pub fn bare(&self) -> String {
        let [a, b, c, d, e, f] = self.0;
        format!("{a:02x}{b:02x}{c:02x}{d:02x}{e:02x}{f:02x}")
    }

    fn parse(text: &str) -> Option<MacAddr> {
        let mut octets = [0u8; 6];
        let bytes = text.as_bytes();
        if bytes.len() == 12 && bytes.iter().all(u8::is_ascii_hexdigit) {
            for (octet, pair) in octets.iter_mut().zip(bytes.chunks(2)) {
                *octet = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
            }
            return Some(MacAddr(octets));
        }
        let separator = if text.contains(':') { ':' } else { '-' };
        let mut parts = text.split(separator);
        for octet in &mut octets {
            let part = parts.next()?;
            let digits = matches!(part.len(), 1 | 2) && part.bytes().all(|b| b.is_ascii_hexdigit());
            *octet = digits.then(|| u8::from_str_radix(part, 16).ok())??;
        }
        parts.next().is_none().then_some(MacAddr(octets))
    }
}

impl FromStr for MacAddr {
    type Err = ParseMacError;

    fn from_str(text: &str) -> Result<MacAddr, ParseMacError> {
        MacAddr::parse(text).ok_or_else(|| ParseMacError { text: text.chars().take(64).collect() })
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MacAddr({self})")
    }
}

impl Serialize for MacAddr {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MacAddr {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<MacAddr, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_spelling_of_the_field() {
        let wanted = MacAddr::new([0x90, 0xb8, 0xd0, 0x01, 0x02, 0x0f]);
        for text in [
            "90b8d001020f",
            "90B8D001020F",
            "90:b8:d0:01:02:0f",
            "90-B8-d0-01-02-0F",
            "90:b8:d0:1:2:f",
            "90-b8-d0-1-02-f",
        ] {
            assert_eq!(text.parse(), Ok(wanted), "{text}");
        }
    }

    #[test]
    fn what_is_no_mac() {
        for text in [
            "",
            ":",
            ":::::",
            "90b8d001020",
            "90b8d001020fa",
            "90b8d001020g",
            "90:b8:d0:01:02",
            "90:b8:d0:01:02:0f:",
            ":90:b8:d0:01:02:0f",
            "90:b8:d0:01:02:0f:aa",
            "90:b8-d0:01-02:0f",
            "90:b8:d0:01:02:00f",
            "+0:b8:d0:01:02:0f",
            " 90b8d001020f",
            "90b8d001020f ",
            "9é:b8:d0:1:2:3",
            "éééééé",
        ] {
            assert!(text.parse::<MacAddr>().is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn prints_what_it_reads(octets: [u8; 6]) {
            let mac = MacAddr::new(octets);
            prop_assert_eq!(mac.to_string().parse(), Ok(mac));
            prop_assert_eq!(mac.bare().parse(), Ok(mac));
            let json = serde_json::to_string(&mac).unwrap();
            prop_assert_eq!(serde_json::from_str::<MacAddr>(&json).unwrap(), mac);
            prop_assert_eq!(json, format!("\"{mac}\""));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[0-9a-fA-F:é-]{0,20}") {
            if let Ok(mac) = text.parse::<MacAddr>() {
                prop_assert_eq!(mac.to_string().len(), 17);
            }
        }
    }
}
