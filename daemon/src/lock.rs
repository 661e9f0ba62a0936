// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The single-instance lock: a locked file. The kernel releases the lock when the process ends, so it
//! cannot be stale.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// Why the lock was not taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process holds it.
    #[error("another instance runs already (it holds {})", path.display())]
    Held {
        /// The lock file.
        path: PathBuf,
    },
    /// The lock file cannot be made or locked.
    #[error("lock file {}: {source}", path.display())]
    Io {
        /// The lock file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// A held lock; released when dropped.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

impl Lock {
    /// Takes the lock without waiting. The file contains the owner's pid.
    pub fn take(path: &Path) -> Result<Self, LockError> {
        let io = |source: io::Error| LockError::Io { path: path.to_owned(), source };
        let mut file =
            OpenOptions::new().create(true).truncate(false).write(true).open(path).map_err(io)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(LockError::Held { path: path.to_owned() });
            }
            Err(err) => return Err(io(err.into())),
        }
        file.set_len(0).map_err(io)?;
        writeln!(file, "{}", std::process::id()).map_err(io)?;
        Ok(Self { file })
    }
}

impl Drop for Lock {
    /// Unlocks. Closing the file is not enough while a child between `fork` and `exec` has a copy of the
    /// descriptor.
    fn drop(&mut self) {
        // On an error the last close unlocks.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_held_by_one_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let first = Lock::take(&path).unwrap();
        assert!(matches!(Lock::take(&path), Err(LockError::Held { .. })));
        drop(first);
        Lock::take(&path).unwrap();
    }

    #[test]
    fn a_copied_descriptor_does_not_keep_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let first = Lock::take(&path).unwrap();
        let _copy = first.file.try_clone().unwrap();
        drop(first);
        Lock::take(&path).unwrap();
    }
}
