// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What tells this machine from a copy of it: a name that is drawn once, and the key of its digests. Both stay in the
//! state directory.

use std::io;
use std::path::Path;

use daemon::disk;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

const FILE: &str = "machine.json";
const LONGEST: usize = 4096;

/// This machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Its name.
    pub id: Uuid,
    /// The key of its digests: two random uuids.
    key: [Uuid; 2],
}

impl Machine {
    /// Draws a new one.
    pub fn drawn() -> Self {
        Self { id: Uuid::new_v4(), key: [Uuid::new_v4(), Uuid::new_v4()] }
    }

    /// Returns the key of the digests.
    pub fn key(&self) -> Vec<u8> {
        self.key.iter().flat_map(|part| *part.as_bytes()).collect()
    }

    /// Reads the file, or draws and writes one. One that cannot be read is replaced: the node is then compared once.
    /// Fails if it cannot be written.
    pub async fn of(state_dir: &Path) -> io::Result<Self> {
        let path = state_dir.join(FILE);
        let aborted = || io::Error::other("the reading was aborted");
        disk::blocking(move || kept(&path)).await.ok_or_else(aborted)?
    }
}

fn kept(path: &Path) -> io::Result<Machine> {
    let read = disk::read(path, LONGEST).map(|bytes| serde_json::from_slice(&bytes));
    match read {
        Ok(Ok(machine)) => return Ok(machine),
        Ok(Err(reason)) => {
            tracing::warn!(path = %path.display(), %reason, "cannot read this machine's identity; making a new one")
        }
        Err(err) if err.kind() == io::ErrorKind::NotFound => {}
        Err(err) => return Err(err),
    }
    let machine = Machine::drawn();
    disk::write_atomically(path, &machine, LONGEST)?;
    hide(path)?;
    Ok(machine)
}

/// A process that has the key can guess short values.
fn hide(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_machine_is_drawn_once_and_its_key_is_roots() {
        use std::os::unix::fs::MetadataExt as _;
        let dir = tempfile::tempdir().unwrap();
        let first = Machine::of(dir.path()).await.unwrap();
        assert_eq!(Machine::of(dir.path()).await.unwrap(), first);
        let mode = std::fs::metadata(dir.path().join(FILE)).unwrap().mode();
        assert_eq!((mode & 0o777, first.key().len()), (0o600, 32));
        std::fs::write(dir.path().join(FILE), "{").unwrap();
        assert_ne!(Machine::of(dir.path()).await.unwrap(), first);
    }
}
