// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The marker beside a socket, and the record that the admin path cleared it (K4, K12, R3).
//!
//! The admin tools clear markers while this daemon may be about to write one, so both sides
//! follow one order and need no lock: **clearing** leaves its stamp first and removes the marker
//! second; **writing** makes the marker first and looks for a new stamp second. Whoever is later
//! finds what the other did, and the marker is gone in every interleaving. Stamps are compared,
//! never their times.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The marker's extension.
pub const MARKER: &str = "shutdown";
/// The largest stamp that is read, in bytes; ours are 36.
const STAMP_CAP: u64 = 256;

/// A socket's marker: its last extension replaced (`a.b.kvmd` → `a.b.shutdown`).
pub fn marker_of(socket: &Path) -> PathBuf {
    socket.with_extension(MARKER)
}

/// Makes an empty marker in one step: never half, never through a link that somebody laid.
///
/// # Errors
/// What the system says; the directory may be gone (K10).
pub fn write(marker: &Path) -> io::Result<()> {
    atomically(marker, b"")
}

/// Removes a marker; that there is none is fine.
///
/// # Errors
/// What the system says.
pub fn remove(marker: &Path) -> io::Result<()> {
    match fs::remove_file(marker) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Writes a whole file in one step.
pub fn atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}", std::process::id()));
    let temporary = path.with_file_name(name);
    let open = || fs::OpenOptions::new().write(true).create_new(true).open(&temporary);
    let write = || {
        let mut file = match open() {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // A process of the same number left it behind when it crashed.
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

/// Can this be an instance's name? It becomes a file's.
pub fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= 200 && !name.starts_with('.') && !name.contains(['/', '\0'])
}

/// The clearings on record.
#[derive(Clone, Debug)]
pub struct Clears {
    dir: PathBuf,
    /// Stamps with the time at which they were first seen here.
    seen: Arc<Mutex<HashMap<String, (String, Instant)>>>,
}

/// A clearing, or that there was none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stamp(Option<String>);

impl Clears {
    /// Clearings kept below `run_dir`.
    pub fn below(run_dir: &Path) -> Self {
        Self { dir: run_dir.join("cleared"), seen: Arc::default() }
    }

    /// Where the stamps are.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The admin path's half: the stamp, then the marker.
    ///
    /// # Errors
    /// What the system says of either file; without its stamp nothing is removed.
    pub fn clear(&self, name: &str, marker: &Path) -> io::Result<()> {
        fs::create_dir_all(&self.dir)?;
        atomically(&self.dir.join(name), uuid::Uuid::new_v4().to_string().as_bytes())?;
        remove(marker)
    }

    /// The latest clearing of an instance.
    pub fn latest(&self, name: &str) -> Stamp {
        let text = fs::File::open(self.dir.join(name)).and_then(|file| {
            let mut text = String::new();
            io::Read::read_to_string(&mut io::Read::take(file, STAMP_CAP), &mut text)?;
            Ok(text)
        });
        Stamp(text.ok())
    }

    /// Notes when a clearing was first seen, for `Clears::outlived`.
    pub fn note(&self, name: &str) {
        let Stamp(Some(stamp)) = self.latest(name) else { return };
        let mut seen = self.lock();
        if seen.get(name).is_none_or(|(known, _)| *known != stamp) {
            seen.insert(name.to_owned(), (stamp, Instant::now()));
        }
    }

    /// Notes all there are.
    pub fn note_all(&self) {
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            if let Some(name) = entry.file_name().to_str().filter(|name| is_name(name)) {
                self.note(name);
            }
        }
    }

    /// May a marker be written for a generation that began when `before` was the latest clearing?
    /// Not if it was cleared since, unless the instance went on living for `window`: then the
    /// clearing was another matter's (the end of a migration, say).
    pub fn allow(&self, name: &str, before: &Stamp, window: Duration) -> bool {
        let latest = self.latest(name);
        latest == *before || self.outlived(name, &latest, window)
    }

    fn outlived(&self, name: &str, stamp: &Stamp, window: Duration) -> bool {
        let seen = self.lock();
        seen.get(name)
            .is_some_and(|(known, at)| stamp.0.as_ref() == Some(known) && at.elapsed() >= window)
    }

    /// Forgets what nobody can need any more: clearings older than `age` of instances that are
    /// not `live`.
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
