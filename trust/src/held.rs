// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What a program holds, as its file has it: one JSON file of mode 0600 that is replaced as a whole.

use std::io;
use std::path::Path;

use rcgen::{CertificateParams, KeyPair};
use serde::{Deserialize, Serialize};

use crate::certificate::{About, authority_name, der};
use crate::exchange::Known;
use crate::invalid::Invalid;

/// Bytes of the file: some hundred thousand revoked certificates.
const LONGEST: usize = 16 << 20;

/// A program's key and certificate, and what it knows of those of others, in PEM.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The private key.
    pub(crate) key: String,
    /// The certificate; none yet while its request waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
    /// The authorities, and what is revoked.
    #[serde(flatten)]
    pub known: Known,
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Held")
    }
}

/// Makes a key, and a program that holds nothing else.
/// Fails with [`Invalid::Made`].
pub fn new_key() -> Result<Held, Invalid> {
    let key = KeyPair::generate().map_err(Invalid::Made)?.serialize_pem();
    Ok(Held { key, certificate: None, known: Known::default() })
}

impl Held {
    /// Returns a signing request of its key.
    /// Fails with [`Invalid::Made`].
    pub fn request(&self) -> Result<String, Invalid> {
        let key = KeyPair::from_pem(&self.key).map_err(Invalid::Made)?;
        let made = CertificateParams::default().serialize_request(&key).map_err(Invalid::Made)?;
        made.pem().map_err(Invalid::Made)
    }

    /// Returns the names of the authorities that it knows.
    pub fn knows(&self) -> Vec<String> {
        let names = self.known.roots.iter().map(|root| authority_name(&der(root)?));
        names.filter_map(Result::ok).collect()
    }

    /// Returns what its certificate says.
    /// Fails with [`Invalid::Certificate`], also where there is none.
    pub fn about(&self) -> Result<About, Invalid> {
        About::read(&der(self.certificate.as_deref().unwrap_or_default())?)
    }

    /// Reads the file; none where there is none. Blocks.
    /// Fails with [`Invalid::File`], also where others may read it.
    pub fn read(path: &Path) -> Result<Option<Held>, Invalid> {
        read_private(path)
    }

    /// Replaces the file. Blocks.
    /// Fails with [`Invalid::File`].
    pub fn write(&self, path: &Path) -> Result<(), Invalid> {
        let written = daemon::disk::write_atomically(path, self, LONGEST);
        written.map_err(|source| Invalid::File { path: path.to_owned(), source })
    }
}

/// Reads a JSON file that only its owner may read; none where there is none. Blocks.
/// Fails with [`Invalid::File`].
pub fn read_private<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Option<T>, Invalid> {
    let wrong = |source| Invalid::File { path: path.to_owned(), source };
    match bytes_of(path, LONGEST).map_err(wrong)? {
        Some(bytes) => {
            serde_json::from_slice(&bytes).map(Some).map_err(|error| wrong(error.into()))
        }
        None => Ok(None),
    }
}

/// Reads a file of at most `most` bytes that only its owner may read; none where there is none. Blocks.
pub(crate) fn bytes_of(path: &Path, most: usize) -> io::Result<Option<Vec<u8>>> {
    use std::os::unix::fs::MetadataExt as _;
    let mode = match std::fs::metadata(path) {
        Ok(about) => about.mode() & 0o777,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if mode & 0o077 != 0 {
        let why = format!("its mode is {mode:03o}; only its owner may have access");
        return Err(io::Error::other(why));
    }
    daemon::disk::read(path, most).map(Some)
}
