// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The marker beside a socket, and the record that the admin path cleared it (K4, K12, R3).
//!
//! An admin tool may clear a marker while this daemon writes it. Both follow an order instead of a lock:
//! **clearing** writes its stamp, then removes the marker; **writing** makes the marker, then checks for
//! a new stamp. The later one finds what the other did, so the marker is gone in every interleaving.
//! Stamps are compared as values, not by time.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The marker's extension.
pub const MARKER: &str = "shutdown";
/// Largest stamp that is read, in bytes; they have 36.
const STAMP_CAP: u64 = 256;

/// Returns a socket's marker: its last extension is replaced (`a.b.kvmd` → `a.b.shutdown`).
pub fn marker_of(socket: &Path) -> PathBuf {
    socket.with_extension(MARKER)
}

/// Makes an empty marker in one step, not through a link.
pub fn write(marker: &Path) -> io::Result<()> {
    atomically(marker, b"")
}

/// Removes a marker, if there is one.
pub fn remove(marker: &Path) -> io::Result<()> {
    match fs::remove_file(marker) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Writes a whole file in one step, so that a crash of this process leaves the old one or the new one.
///
/// `daemon::disk::write_atomically` is for a program's own JSON. A marker is empty, and the hypervisor's programs look
/// for it in their directory, which is not made private. Nothing is flushed to the disk: this runs between the end of
/// a connection and its verdict, and `/var/run`, where all of it is, does not survive the node.
pub fn atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}", std::process::id()));
    let temporary = path.with_file_name(name);
    let open = || fs::OpenOptions::new().write(true).create_new(true).open(&temporary);
    let write = || {
        let mut file = match open() {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // Left behind by a crashed process with the same pid.
                fs::remove_file(&temporary)?;
                open()?
            }
            opened => opened?,
        };
        io::Write::write_all(&mut file, bytes)?;
        fs::rename(&temporary, path)
    };
    write().inspect_err(|_| {
        let _best_effort = fs::remove_file(&temporary);
    })
}

/// Returns true if this can be an instance's name, which becomes a file name.
pub fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= 200 && !name.starts_with('.') && !name.contains(['/', '\0'])
}

/// The stamps of the admin path.
#[derive(Clone, Debug)]
pub struct Clears {
    dir: PathBuf,
    /// Stamps, and when this daemon saw them first.
    seen: Arc<Mutex<HashMap<String, (String, Instant)>>>,
}

/// A stamp; none before the first clearing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stamp(Option<String>);

impl Clears {
    /// Keeps stamps below `run_dir`.
    pub fn below(run_dir: &Path) -> Self {
        Self { dir: run_dir.join("cleared"), seen: Arc::default() }
    }

    /// Returns the directory of the stamps.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Clears a marker: writes the stamp, then removes the marker.
    /// Removes nothing if the stamp cannot be written.
    pub fn clear(&self, name: &str, marker: &Path) -> io::Result<()> {
        fs::create_dir_all(&self.dir)?;
        atomically(&self.dir.join(name), uuid::Uuid::new_v4().to_string().as_bytes())?;
        remove(marker)
    }

    /// Returns the latest stamp of an instance.
    pub fn latest(&self, name: &str) -> Stamp {
        let text = fs::File::open(self.dir.join(name)).and_then(|file| {
            let mut text = String::new();
            io::Read::read_to_string(&mut io::Read::take(file, STAMP_CAP), &mut text)?;
            Ok(text)
        });
        Stamp(text.ok())
    }

    /// Notes when a stamp was first seen.
    pub fn note(&self, name: &str) {
        let Stamp(Some(stamp)) = self.latest(name) else { return };
        let mut seen = self.lock();
        if seen.get(name).is_none_or(|(known, _)| *known != stamp) {
            seen.insert(name.to_owned(), (stamp, Instant::now()));
        }
    }

    /// Notes all stamps.
    pub fn note_all(&self) {
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            if let Some(name) = entry.file_name().to_str().filter(|name| is_name(name)) {
                self.note(name);
            }
        }
    }

    /// Returns true if a marker may be written for a generation that began with the stamp `before`: not if
    /// it was cleared since, unless the instance lived on for `window`. Such a clearing had another reason,
    /// for example the end of a migration.
    pub fn allow(&self, name: &str, before: &Stamp, window: Duration) -> bool {
        let latest = self.latest(name);
        latest == *before || self.outlived(name, &latest, window)
    }

    fn outlived(&self, name: &str, stamp: &Stamp, window: Duration) -> bool {
        let seen = self.lock();
        seen.get(name)
            .is_some_and(|(known, at)| stamp.0.as_ref() == Some(known) && at.elapsed() >= window)
    }

    /// Removes stamps older than `age` of instances that are not `live`.
    pub fn sweep(&self, age: Duration, live: impl Fn(&str) -> bool) {
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let old = entry
                .metadata()
                .and_then(|stat| stat.modified())
                .is_ok_and(|at| at.elapsed().is_ok_and(|elapsed| elapsed > age));
            let name = entry.file_name().to_string_lossy().into_owned();
            if old && !live(&name) {
                self.lock().remove(&name);
                let _gone_already = fs::remove_file(entry.path());
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, (String, Instant)>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
