// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! JSON text with the numbers that Node prints.

use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter};

use super::number::{number_text, whole};

static WRITTEN: AtomicUsize = AtomicUsize::new(0);

/// Returns how many texts [`write_ascii`] has written since the program began. Tests use it to show
/// that an object is serialised once.
pub fn serialisations() -> usize {
    WRITTEN.load(Ordering::Relaxed)
}

/// Returns the compact JSON text of a value, in ASCII.
pub fn to_ascii<T: Serialize + ?Sized>(value: &T) -> String {
    let mut text = Vec::new();
    write_ascii(&mut text, value);
    String::from_utf8(text).unwrap_or_else(|_| "null".to_owned())
}

/// Appends the compact JSON text of a value, in ASCII.
pub fn write_ascii<T: Serialize + ?Sized>(text: &mut Vec<u8>, value: &T) {
    WRITTEN.fetch_add(1, Ordering::Relaxed);
    let before = text.len();
    let mut serializer = serde_json::Serializer::with_formatter(&mut *text, Ascii);
    // Writing to memory cannot fail, but a map whose keys are not strings can: it prints as null.
    if value.serialize(&mut serializer).is_err() {
        text.truncate(before);
        text.extend_from_slice(b"null");
    }
}

/// Numbers as Node prints them, and all text in ASCII.
struct Ascii;

impl Formatter for Ascii {
    fn write_f64<W: ?Sized + Write>(&mut self, out: &mut W, n: f64) -> io::Result<()> {
        match whole(n) {
            Some(whole) => CompactFormatter.write_i64(out, whole),
            None => out.write_all(number_text(n).as_bytes()),
        }
    }

    fn write_i64<W: ?Sized + Write>(&mut self, out: &mut W, n: i64) -> io::Result<()> {
        self.write_f64(out, n as f64)
    }

    fn write_u64<W: ?Sized + Write>(&mut self, out: &mut W, n: u64) -> io::Result<()> {
        self.write_f64(out, n as f64)
    }

    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        out: &mut W,
        text: &str,
    ) -> io::Result<()> {
        if text.is_ascii() {
            return out.write_all(text.as_bytes());
        }
        let mut rest = text;
        while let Some(at) = rest.find(|c: char| !c.is_ascii()) {
            let (plain, from) = rest.split_at(at);
            out.write_all(plain.as_bytes())?;
            let mut chars = from.chars();
            let mut units = [0; 2];
            for unit in chars.next().map(|c| &*c.encode_utf16(&mut units)).unwrap_or_default() {
                write!(out, "\\u{unit:04x}")?;
            }
            rest = chars.as_str();
        }
        out.write_all(rest.as_bytes())
    }

    fn write_raw_fragment<W: ?Sized + Write>(&mut self, out: &mut W, text: &str) -> io::Result<()> {
        // Outside its strings a text has nothing else than ASCII.
        self.write_string_fragment(out, text)
    }
}
