// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Names of buckets, fields and keys.

use crate::error::Invalid;
use crate::limits;

/// What the store knows of a bucket's records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schema {
    /// Name of the bucket.
    pub bucket: &'static str,
    /// Rises whenever the fields change; the store then makes the indices anew, and refuses writes of
    /// programs that know an older version.
    pub version: u32,
    /// Top-level fields with one value each, by which records can be found and ordered.
    pub fields: &'static [&'static str],
    /// Top-level fields with lists, by whose items records can be found.
    pub lists: &'static [&'static str],
}

impl Schema {
    /// Checks the names.
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        name(self.bucket)?;
        self.fields.iter().chain(self.lists).try_for_each(|field| name(field))
    }

    /// The fields as one text, for comparison with what the store knows.
    pub(crate) fn fields_text(&self) -> String {
        format!("{};{}", self.fields.join(","), self.lists.join(","))
    }
}

/// Checks the name of a bucket, a field, a lease or its holder.
pub(crate) fn name(name: &str) -> Result<(), Invalid> {
    let is_fit = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    let is_name = (1..=limits::NAME).contains(&name.len()) && name.chars().all(is_fit);
    if is_name { Ok(()) } else { Err(Invalid::Name(clipped(name))) }
}

/// Checks a key.
pub(crate) fn key(key: &str) -> Result<(), Invalid> {
    let is_key = (1..=limits::KEY).contains(&key.len()) && !key.chars().any(char::is_control);
    if is_key { Ok(()) } else { Err(Invalid::Key(clipped(key))) }
}

/// The beginning of a text that may be of any length.
fn clipped(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_and_keys_are_printable() {
        for (text, is_name, is_key) in [
            ("vmapi_vm_migrations", true, true),
            ("vm/6e35c9fb", true, true),
            ("", false, false),
            ("a b", false, true),
            ("größe", false, true),
            ("a\0b", false, false),
            ("a\nb", false, false),
            (&"x".repeat(64), true, true),
            (&"x".repeat(65), false, true),
            (&"ü".repeat(128), false, true),
            (&"ü".repeat(129), false, false),
        ] {
            assert_eq!((name(text).is_ok(), key(text).is_ok()), (is_name, is_key), "{text:?}");
        }
        assert_eq!(key(&"\n".repeat(9000)).unwrap_err(), Invalid::Key("\n".repeat(80)));
    }
}
