// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Draws keys: the seed stays in a file of its owner, the public key goes to the servers.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use nkeys::KeyPair;

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The seed cannot be encoded.
    #[error("the key has no seed: {0}")]
    Seed(#[from] nkeys::error::Error),
}

/// Draws a user's key, writes its seed to a new file with mode 0600, and returns the public key.
/// Fails if the file exists, or cannot be written.
pub fn draw(path: &Path) -> Result<String, KeyError> {
    let key = KeyPair::new_user();
    let seed = key.seed()?;
    let write = || {
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(path)?;
        writeln!(file, "{seed}")?;
        file.sync_all()
    };
    write().map_err(|source| KeyError::File { path: path.to_owned(), source })?;
    Ok(key.public_key())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn a_key_is_its_owners_and_replaces_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let public = draw(&path).unwrap();
        assert!(public.starts_with('U') && public.len() == 56, "{public}");
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let seed = std::fs::read_to_string(&path).unwrap();
        assert_eq!(KeyPair::from_seed(seed.trim()).unwrap().public_key(), public);
        assert!(draw(&path).is_err());
    }
}
