// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The single-instance lock: a locked file. The kernel releases the lock when the process ends, so it
//! cannot be stale. Only its owner may open the file: a user who may read it could hold a shared lock on it, and keep
//! every program from starting.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read as _, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, test_kill_process};

/// Why the lock was not taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// A copy that lives holds it.
    #[error("another instance runs already (process {owner} holds {})", path.display())]
    Held {
        /// The lock file.
        path: PathBuf,
        /// The process.
        owner: i32,
    },
    /// A process that is no copy of the program holds it.
    #[error("a process that is not a running copy holds {}: see `fuser {}`", path.display(), path.display())]
    Foreign {
        /// The lock file.
        path: PathBuf,
    },
    /// The lock file cannot be made or locked.
    #[error("cannot take the lock {}: {source}", path.display())]
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

/// What came of one attempt.
enum Attempt {
    Taken(Lock),
    Blocked {
        /// The process that wrote its id last, if it lives.
        owner: Option<i32>,
        inode: u64,
        /// Others could open the file.
        was_open: bool,
    },
}

impl Lock {
    /// Takes the lock without waiting. The file contains the owner's pid. A file that others could open, and that no
    /// living copy holds, is replaced.
    pub fn take(path: &Path) -> Result<Self, LockError> {
        let blocked = match attempt(path)? {
            Attempt::Taken(lock) => return Ok(lock),
            Attempt::Blocked { owner: None, inode, was_open: true } => inode,
            Attempt::Blocked { owner, .. } => return Err(held(path, owner)),
        };
        // One at a time, and only the file that was found blocked.
        let guard = attempt(&path.with_extension("guard"))?;
        match (guard, attempt(path)?) {
            (Attempt::Taken(_guard), Attempt::Blocked { owner: None, inode, .. })
                if inode == blocked =>
            {
                let io = |source| LockError::Io { path: path.to_owned(), source };
                std::fs::remove_file(path).map_err(io)?;
                match attempt(path)? {
                    Attempt::Taken(lock) => Ok(lock),
                    Attempt::Blocked { owner, .. } => Err(held(path, owner)),
                }
            }
            (_, Attempt::Taken(lock)) => Ok(lock),
            (_, Attempt::Blocked { owner, .. }) => Err(held(path, owner)),
        }
    }
}

fn held(path: &Path, owner: Option<i32>) -> LockError {
    let path = path.to_owned();
    match owner {
        Some(owner) => LockError::Held { path, owner },
        None => LockError::Foreign { path },
    }
}

fn attempt(path: &Path) -> Result<Attempt, LockError> {
    let attempt = || {
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).read(true).write(true).mode(0o600);
        let mut file = options.open(path)?;
        let found = file.metadata()?;
        let was_open = found.mode() & 0o077 != 0;
        if was_open {
            file.set_permissions(Permissions::from_mode(0o600))?;
        }
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let (owner, inode) = (owner(&mut file), found.ino());
                return Ok(Attempt::Blocked { owner, inode, was_open });
            }
            Err(err) => return Err(err.into()),
        }
        file.set_len(0)?;
        writeln!(file, "{}", std::process::id())?;
        Ok(Attempt::Taken(Lock { file }))
    };
    attempt().map_err(|source| LockError::Io { path: path.to_owned(), source })
}

/// Returns the process that wrote its id into the file, if it lives.
fn owner(file: &mut File) -> Option<i32> {
    let mut text = String::new();
    file.take(32).read_to_string(&mut text).ok()?;
    let pid = text.trim().parse().ok()?;
    let is_alive = match test_kill_process(Pid::from_raw(pid)?) {
        Ok(()) => true,
        Err(error) => error == rustix::io::Errno::PERM,
    };
    is_alive.then_some(pid)
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

    #[test]
    fn no_other_user_may_open_it_and_a_holder_of_an_open_one_keeps_no_program_from_starting() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        // As an earlier version left it: every user may read it, and one process holds a shared lock on it.
        std::fs::write(&path, "999999999\n").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let stranger = File::open(&path).unwrap();
        flock(&stranger, FlockOperation::NonBlockingLockShared).unwrap();
        let lock = Lock::take(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(matches!(Lock::take(&path), Err(LockError::Held { .. })));
        drop((lock, stranger));
        // One that a living copy holds is not replaced, whatever its mode.
        let _lock = Lock::take(&path).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(Lock::take(&path), Err(LockError::Held { .. })));
        assert!(matches!(Lock::take(&path), Err(LockError::Held { .. })));
    }
}
