// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The data centre's secret, and the MACs that are made with it.

use std::fmt;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The fewest bytes of a secret, and the most that are read.
const SHORTEST: usize = 32;
const LONGEST: u64 = 4096;

/// A nonce of the request.
pub(super) const NONCE: &str = "x-signed-nonce";
/// A nonce of the client, drawn for each request.
pub(super) const FRESH: &str = "x-signed-fresh";
/// The MAC of the request or of the answer.
pub(super) const MAC: &str = "x-signed-mac";
/// A nonce for another request.
pub(super) const NEXT: &str = "x-signed-next";

/// A secret that the services and agents of a data centre share.
#[derive(Clone)]
pub struct Secret([u8; 32]);

/// Why there is no secret.
#[derive(Debug, thiserror::Error)]
pub enum NoSecret {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Others than its owner may read or write the file.
    #[error("{}: its mode is {mode:03o}; only its owner may have access", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// It is shorter than a secret may be.
    #[error("a secret has at least {SHORTEST} bytes")]
    Short,
}

impl Secret {
    /// Makes a secret of a text; white space around it does not count.
    ///
    /// # Errors
    /// [`NoSecret::Short`] below 32 bytes.
    pub fn of(text: &[u8]) -> Result<Secret, NoSecret> {
        let text = text.trim_ascii();
        if text.len() < SHORTEST {
            return Err(NoSecret::Short);
        }
        Ok(Secret(blake3::derive_key("sdc 2026 data centre secret", text)))
    }

    /// Reads a secret from a file that only its owner may read. Blocks.
    ///
    /// # Errors
    /// [`NoSecret`].
    pub fn read(path: &Path) -> Result<Secret, NoSecret> {
        let unreadable = |source| NoSecret::Unreadable { path: path.to_owned(), source };
        let about = std::fs::metadata(path).map_err(unreadable)?;
        if !about.is_file() {
            return Err(unreadable(io::Error::other("it is not a regular file")));
        }
        let mode = about.mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(NoSecret::Open { path: path.to_owned(), mode });
        }
        let mut text = Vec::new();
        let file = std::fs::File::open(path).map_err(unreadable)?;
        file.take(LONGEST).read_to_end(&mut text).map_err(unreadable)?;
        Secret::of(&text)
    }

    /// Returns a key for this purpose and these bytes. It tells nothing of the secret or of other keys.
    pub fn key(&self, purpose: &str, bytes: &[u8]) -> [u8; 32] {
        *blake3::keyed_hash(&blake3::derive_key(purpose, &self.0), bytes).as_bytes()
    }

    /// The MAC of a request.
    pub(super) fn of_request(&self, parts: [&[u8]; 6]) -> blake3::Hash {
        self.mac("sdc 2026 signed request", &parts)
    }

    /// The MAC of an answer.
    pub(super) fn of_answer(&self, parts: [&[u8]; 5]) -> blake3::Hash {
        self.mac("sdc 2026 signed answer", &parts)
    }

    fn mac(&self, purpose: &str, parts: &[&[u8]]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&blake3::derive_key(purpose, &self.0));
        for part in parts {
            // With its length, so that no two lists of parts have the same bytes.
            hasher.update(&(part.len() as u64).to_be_bytes());
            hasher.update(part);
        }
        hasher.finalize()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Compares in a time that does not depend on where they differ.
pub(super) fn is_same(made: &blake3::Hash, sent: &str) -> bool {
    blake3::Hash::from_hex(sent).is_ok_and(|sent| sent == *made)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_that_others_may_read_is_no_secret() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        let read = || Secret::read(&path).map_err(|error| error.to_string());
        assert!(read().unwrap_err().contains("No such file"));
        std::fs::write(&path, format!("  {}\n", "s".repeat(32))).unwrap();
        for (mode, is_good) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false)] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(read().is_ok(), is_good, "{mode:o}");
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(&path, "short\n").unwrap();
        assert_eq!(read().unwrap_err(), "a secret has at least 32 bytes");
    }

    #[test]
    fn keys_differ_by_secret_purpose_and_bytes() {
        let (one, two) = (Secret::of(&[1; 32]).unwrap(), Secret::of(&[2; 32]).unwrap());
        let keys = [one.key("a", b"x"), one.key("a", b"y"), one.key("b", b"x"), two.key("a", b"x")];
        for (at, key) in keys.iter().enumerate() {
            assert!(!keys[at + 1..].contains(key));
        }
        assert_eq!(format!("{one:?}"), "Secret");
    }
}
