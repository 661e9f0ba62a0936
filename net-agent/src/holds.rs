// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The operator's holds: VMs, or the whole node, whose NICs are left alone. They are kept in a small
//! file in the state directory, which is read again before each write. A file that cannot be
//! understood counts as a hold on the whole node. A hold ends by two clocks, the node's and NAPI's
//! (`Gate::time`), and stays in the file until it is replaced or released: the commands know only
//! the node's clock, which may be wrong.

use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use daemon::disk::{self, stamp};

/// Bytes of a holds file: some thousand holds.
const LONGEST: usize = 1 << 20;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// The VM, or none for the whole node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vm: Option<String>,
    /// Why, in the operator's words.
    pub reason: String,
    /// Who placed it; files of older versions do not say.
    #[serde(default)]
    pub by: String,
    /// Since when.
    #[serde(with = "stamp")]
    pub since: Timestamp,
    /// Until when; none: until released.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "stamp::optional")]
    pub until: Option<Timestamp>,
}

impl Hold {
    fn in_force(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

/// All holds at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holds {
    /// The holds, oldest first.
    pub holds: Vec<Hold>,
}

impl Holds {
    /// Reads the text of the file.
    /// Fails if it is not what [`HoldsFile`] writes.
    pub fn parse(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }

    /// Returns a hold that covers this VM now; one on the node covers every VM.
    pub fn covering(&self, vm: &str, now: Timestamp) -> Option<&Hold> {
        self.holds
            .iter()
            .find(|hold| hold.in_force(now) && hold.vm.as_deref().is_none_or(|held| held == vm))
    }

    /// Returns the holds in force.
    pub fn in_force(&self, now: Timestamp) -> impl Iterator<Item = &Hold> {
        self.holds.iter().filter(move |hold| hold.in_force(now))
    }
}

/// Why the holds could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum HoldsError {
    /// The file system refused.
    #[error("holds file {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is not a holds file.
    #[error("holds file {}: everything is held until it is repaired or removed: {source}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Line and column.
        source: serde_json::Error,
    },
}

#[derive(Clone, Debug)]
pub struct HoldsFile {
    path: PathBuf,
}

impl HoldsFile {
    /// The file of this state directory.
    pub fn new(state_dir: &Path) -> Self {
        Self { path: state_dir.join("holds.json") }
    }

    /// Reads it; a missing file means no holds. Blocks.
    /// Fails if it exists and cannot be read or understood.
    pub fn read(&self) -> Result<Holds, HoldsError> {
        let bytes = match disk::read(&self.path, LONGEST) {
            Ok(bytes) => bytes,
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Holds::default()),
            Err(source) => return Err(HoldsError::Io { path: self.path.clone(), source }),
        };
        Holds::parse(&bytes)
            .map_err(|source| HoldsError::Syntax { path: self.path.clone(), source })
    }

    /// Reads it on a thread that may block. A file that cannot be read holds the node.
    pub async fn read_or_hold_all(&self) -> Holds {
        let file = self.clone();
        let read = disk::blocking(move || file.read()).await;
        let why = match read {
            Some(Ok(holds)) => return holds,
            Some(Err(err)) => err.to_string(),
            None => "the holds file cannot be read".to_owned(),
        };
        let (since, until) = (daemon::wall::now(), None);
        Holds { holds: vec![Hold { vm: None, reason: why, by: String::new(), since, until }] }
    }

    /// Adds a hold, replacing one on the same VM. Blocks.
    /// Fails if the file cannot be read or replaced.
    pub fn hold(
        &self,
        vm: Option<String>,
        length: Option<SignedDuration>,
        reason: String,
        by: String,
        now: Timestamp,
    ) -> Result<Hold, HoldsError> {
        let _one_at_a_time = self.lock()?;
        let mut all = self.read()?;
        let until = length.and_then(|length| now.checked_add(length).ok());
        let hold = Hold { vm, reason, by, since: now, until };
        all.holds.retain(|other| other.vm != hold.vm);
        all.holds.push(hold.clone());
        self.write(&all)?;
        Ok(hold)
    }

    /// Moves the end of a hold. Returns it, or none if there is no such hold. Blocks.
    pub fn extend(
        &self,
        vm: Option<&str>,
        length: SignedDuration,
        now: Timestamp,
    ) -> Result<Option<Hold>, HoldsError> {
        let _one_at_a_time = self.lock()?;
        let mut all = self.read()?;
        let Some(hold) = all.holds.iter_mut().find(|hold| hold.vm.as_deref() == vm) else {
            return Ok(None);
        };
        hold.until = now.checked_add(length).ok();
        let extended = hold.clone();
        self.write(&all)?;
        Ok(Some(extended))
    }

    /// Removes a hold. Returns the number of holds removed. Blocks.
    pub fn release(&self, vm: Option<&str>) -> Result<usize, HoldsError> {
        let _one_at_a_time = self.lock()?;
        let mut all = self.read()?;
        let before = all.holds.len();
        all.holds.retain(|hold| hold.vm.as_deref() != vm);
        let released = before - all.holds.len();
        self.write(&all)?;
        Ok(released)
    }

    /// Locks the file against other commands until the result is dropped.
    fn lock(&self) -> Result<std::fs::File, HoldsError> {
        let path = self.path.with_extension("lock");
        let take = || {
            if let Some(dir) = path.parent() {
                disk::make_private(dir)?;
            }
            let mut options = std::fs::OpenOptions::new();
            options.create(true).truncate(false).write(true).mode(0o600);
            let file = options.open(&path)?;
            rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)?;
            Ok(file)
        };
        take().map_err(|source| HoldsError::Io { path: path.clone(), source })
    }

    fn write(&self, holds: &Holds) -> Result<(), HoldsError> {
        disk::write_atomically(&self.path, holds, LONGEST)
            .map_err(|source| HoldsError::Io { path: self.path.clone(), source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn hold_survives_a_restart_and_expires() {
        let dir = tempfile::tempdir().unwrap();
        let file = HoldsFile::new(dir.path());
        assert_eq!(file.read().unwrap(), Holds::default());
        let two_hours = SignedDuration::from_hours(2);
        file.hold(Some("v1".into()), Some(two_hours), "migration".into(), "alice".into(), at(1000))
            .unwrap();
        let again = HoldsFile::new(dir.path()).read().unwrap();
        assert!(again.covering("v1", at(1001)).is_some());
        assert!(again.covering("v2", at(1001)).is_none());
        assert!(again.covering("v1", at(1000 + 7200)).is_none(), "expired");
        let longer = file.extend(Some("v1"), two_hours, at(8000)).unwrap().unwrap();
        assert_eq!(
            (longer.by.as_str(), longer.since, longer.until),
            ("alice", at(1000), Some(at(15_200)))
        );
        assert_eq!(file.extend(Some("v3"), two_hours, at(8000)).unwrap(), None);
        file.hold(None, None, "work".into(), "bob".into(), at(1002)).unwrap();
        assert!(file.read().unwrap().covering("v2", at(9_000_000)).is_some(), "the node");
        assert_eq!(file.release(None).unwrap(), 1);
        assert_eq!(file.release(Some("v1")).unwrap(), 1);
        assert_eq!(file.read().unwrap(), Holds::default());
    }

    #[test]
    fn keeps_all_holds_placed_at_once() {
        let dir = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for n in 0..8 {
                let file = HoldsFile::new(dir.path());
                scope.spawn(move || {
                    file.hold(Some(format!("v{n}")), None, "x".into(), "bob".into(), at(1))
                });
            }
        });
        assert_eq!(HoldsFile::new(dir.path()).read().unwrap().holds.len(), 8);
    }

    #[tokio::test] // C33
    async fn unreadable_file_holds_everything() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("holds.json");
        let file = HoldsFile::new(dir.path());
        std::fs::write(&path, "{").unwrap();
        assert!(file.read().is_err());
        assert!(file.read_or_hold_all().await.covering("any", at(2)).is_some());
        std::fs::write(&path, vec![b' '; LONGEST + 1]).unwrap();
        assert!(file.read().unwrap_err().to_string().contains("larger than"));
        let reason = "x".repeat(LONGEST);
        std::fs::remove_file(&path).unwrap();
        assert!(
            file.hold(None, None, reason, "bob".into(), at(1)).is_err(),
            "what could not be read again"
        );
        std::fs::create_dir(&path).unwrap();
        assert!(file.read().unwrap_err().to_string().contains("not a regular file"));
        assert!(file.read_or_hold_all().await.covering("any", at(2)).is_some());
    }
}
