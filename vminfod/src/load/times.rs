// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The stamps of the files a VM object is made of: which version of each was read, and the newest
//! of their modification times.
//!
//! A stamp is taken before its file is read. So a file that is replaced while it is read has
//! another stamp at the next look, and is read again; never the other way round.

use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{FileType, Stat};

use super::{Fault, LoadError, Origin, ZoneRow};
use crate::root::{Root, version};

/// How many files there are.
pub const FILES: usize = 5;
/// Where the XML stands among them.
pub const XML: usize = 0;
/// Where lastexited stands.
pub const LAST_EXITED: usize = 1;
/// Where metadata, tags and routes stand.
pub const CONFIG: std::ops::Range<usize> = METADATA..FILES;
/// The first of them …
pub const METADATA: usize = 2;
/// … the second …
pub const TAGS: usize = 3;
/// … and the third.
pub const ROUTES: usize = 4;

/// A file that changed so lately may change again without another time: in seconds.
const YOUNG: i64 = 2;

/// Which versions of a zone's files something was made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stamps {
    /// For each file a digest of device, inode, size, modification and change time; 0: not there.
    versions: [u64; FILES],
    /// The files that were too young to be known by their stamp, a bit each.
    young: u8,
    /// The newest modification time in whole seconds since 1970. Only regular files count, and a
    /// time of 0 does not.
    pub last_modified: Option<i64>,
}

impl Stamps {
    /// Whether this file was there.
    pub fn has(&self, file: usize) -> bool {
        self.versions.get(file).is_some_and(|version| *version != 0)
    }

    /// Whether these are other versions of a file.
    pub fn differs(&self, other: &Stamps, file: usize) -> bool {
        self.versions.get(file) != other.versions.get(file)
    }

    /// All versions as one number, never 0.
    pub fn digest(&self) -> u64 {
        let mut state = DefaultHasher::new();
        self.versions.hash(&mut state);
        state.finish().max(1)
    }

    /// Whether a later look shows that nothing has to be read again.
    pub fn confirmed_by(&self, later: &Stamps) -> bool {
        self.young == 0 && self.versions == later.versions
    }

    /// Takes over from older stamps what stands for files that were not read again.
    pub fn keep(&mut self, older: &Stamps, files: std::ops::Range<usize>) {
        for file in files {
            if let (Some(mine), Some(theirs)) =
                (self.versions.get_mut(file), older.versions.get(file))
            {
                *mine = *theirs;
                let bit = 1 << file;
                self.young = self.young & !bit | older.young & bit;
            }
        }
    }
}

/// The stamps of a zone's files as they are opened: who reads all of them need not ask for their
/// stamps before.
#[derive(Debug)]
pub(super) struct Opened {
    stamps: Stamps,
    times: [Option<i64>; FILES],
    /// When that began, in seconds since 1970.
    now: i64,
    is_told: bool,
}

impl Opened {
    /// Before the first file is opened.
    pub(super) fn begin() -> Opened {
        let (stamps, times) = Default::default();
        Opened { stamps, times, now: now(), is_told: true }
    }

    /// What an open file is, before it was read; what is not there is noted by nobody.
    pub(super) fn note(&mut self, file: usize, stat: &Stat) {
        let slots = self.stamps.versions.get_mut(file).zip(self.times.get_mut(file));
        if let Some((version, time)) = slots {
            *version = digest(stat);
            self.stamps.young |= u8::from(is_young(stat, self.now)) << file;
            *time = time_of(stat);
        }
    }

    /// What stands there is not what was opened, or could not be.
    pub(super) fn cannot_tell(&mut self) {
        self.is_told = false;
    }

    /// The stamps, if all that was looked for is what stands there.
    pub(super) fn stamps(self) -> Option<Stamps> {
        let last_modified = newest(self.times);
        self.is_told.then_some(Stamps { last_modified, ..self.stamps })
    }
}

/// The files in the order of their stamps.
pub fn files(root: &Root, zonename: &str, zonepath: &str) -> [PathBuf; FILES] {
    let mut paths = std::array::from_fn(|_| PathBuf::new());
    let mut slots = paths.iter_mut();
    let noted: Result<(), std::convert::Infallible> = each(root, zonename, zonepath, |path| {
        if let Some(slot) = slots.next() {
            slot.push(path);
        }
        Ok(())
    });
    let Ok(()) = noted;
    paths
}

/// The same one by one in one buffer: a sweep looks at very many.
fn each<E>(
    root: &Root,
    zonename: &str,
    zonepath: &str,
    mut look: impl FnMut(&Path) -> Result<(), E>,
) -> Result<(), E> {
    look(&root.zone_xml(zonename))?;
    let mut path = root.path(zonepath).into_os_string().into_vec();
    let zone = path.len();
    for file in ["lastexited", "config/metadata.json", "config/tags.json", "config/routes.json"] {
        path.truncate(zone);
        path.push(b'/');
        path.extend_from_slice(file.as_bytes());
        look(Path::new(OsStr::from_bytes(&path)))?;
    }
    Ok(())
}

/// Takes the stamps of one zone's files; where it may block.
pub fn read(root: &Root, row: &ZoneRow) -> Result<Stamps, LoadError> {
    look(root, &row.zonename, &row.zonepath)
}

/// The same for a zone of which no more is known.
pub fn look(root: &Root, zonename: &str, zonepath: &str) -> Result<Stamps, LoadError> {
    let now = now();
    let mut stamps = Stamps::default();
    let mut times = [None; FILES];
    let mut slots = stamps.versions.iter_mut().zip(&mut times).enumerate();
    each(root, zonename, zonepath, |path| {
        let (Some((at, (version, time))), Some(stat)) = (slots.next(), stat(root, path)?) else {
            return Ok(());
        };
        *version = digest(&stat);
        stamps.young |= u8::from(is_young(&stat, now)) << at;
        *time = time_of(&stat);
        Ok::<(), LoadError>(())
    })?;
    stamps.last_modified = newest(times);
    Ok(stamps)
}

/// The stamp of a file that is not a zone's; `None` if it is not there or cannot be looked at.
pub fn of(root: &Root, path: &Path) -> Option<u64> {
    root.lstat(path).ok().map(|stat| digest(&stat))
}

fn stat(root: &Root, path: &Path) -> Result<Option<Stat>, LoadError> {
    match root.lstat(path) {
        Ok(stat) => Ok(Some(stat)),
        Err(error) if error.is_absent() => Ok(None),
        Err(error) => Err(LoadError::new(Origin::Times, Fault::Read(error)).in_file(path)),
    }
}

fn now() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

/// A clock that was set back makes young what is in its future.
fn is_young(stat: &Stat, now: i64) -> bool {
    stat.st_mtime.max(stat.st_ctime) > now.saturating_sub(YOUNG)
}

fn time_of(stat: &Stat) -> Option<i64> {
    (FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile).then_some(stat.st_mtime)
}

fn digest(stat: &Stat) -> u64 {
    let mut state = DefaultHasher::new();
    version(stat).hash(&mut state);
    state.finish().max(1)
}

/// The newest of these times.
pub fn newest(times: impl IntoIterator<Item = Option<i64>>) -> Option<i64> {
    times.into_iter().flatten().filter(|t| *t != 0).max()
}

#[cfg(test)]
mod tests {
    use std::fs::{File, FileTimes};
    use std::time::Duration;

    use super::*;

    #[test]
    fn zero_is_no_time() {
        assert_eq!(newest([Some(5), None, Some(7), Some(0)]), Some(7));
        assert_eq!(newest([Some(0), None]), None);
        assert_eq!(newest([Some(-3), Some(0)]), Some(-3));
    }

    fn row() -> ZoneRow {
        crate::load::zoneadm::parse(
            b"-:z:installed:/zones/z:f8428503-41e2-426e-b0f9-a5d849b545f6:lx:excl:1\n",
        )
        .remove(0)
    }

    #[test]
    fn any_replacement_shows_and_the_young_are_not_trusted() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        std::fs::create_dir_all(root.config_dir("/zones/z")).unwrap();
        let tags = root.config_file("/zones/z", "tags");
        let tags_at = files(&root, "z", "/zones/z").iter().position(|path| *path == tags).unwrap();
        assert!(CONFIG.contains(&tags_at));
        let write = |text: &str| {
            let temp = dir.path().join("new");
            std::fs::write(&temp, text).unwrap();
            let old = SystemTime::now() - Duration::from_secs(1000);
            let times = FileTimes::new().set_modified(old);
            File::options().write(true).open(&temp).unwrap().set_times(times).unwrap();
            std::fs::rename(&temp, &tags).unwrap();
        };
        let look = || read(&root, &row()).unwrap();
        assert_eq!((look(), look().last_modified), (Stamps::default(), None));
        write("{}");
        let first = look();
        assert!(first.has(tags_at) && !first.has(XML));
        assert!(first.last_modified.is_some());
        // Its modification time is old, but the file itself was made just now.
        assert!(!first.confirmed_by(&look()));
        write("{}");
        assert!(first.differs(&look(), tags_at) && !first.differs(&look(), XML));
        let mut kept = look();
        kept.keep(&first, CONFIG);
        assert!(!kept.differs(&first, tags_at));
        std::fs::remove_file(&tags).unwrap();
        assert!(first.differs(&look(), tags_at));
        assert_eq!(of(&root, &tags), None);
        assert!(Stamps::default().confirmed_by(&Stamps::default()));
    }

    #[test]
    fn an_open_file_has_the_stamp_of_the_file_that_stands_there_and_is_young_as_long() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path()).held_open();
        std::fs::create_dir_all(root.config_dir("/zones/z")).unwrap();
        std::fs::create_dir_all(root.path("/etc/zones")).unwrap();
        let paths = files(&root, "z", "/zones/z");
        // Every choice of files that are there.
        for there in 0..1_u32 << FILES {
            let mut opened = Opened::begin();
            for (file, path) in paths.iter().enumerate() {
                let _not_there = std::fs::remove_file(path);
                if there & 1 << file != 0 {
                    std::fs::write(path, file.to_string()).unwrap();
                    opened.note(file, &root.read_unlinked(path, 9).unwrap().stat);
                }
            }
            let stamps = opened.stamps().unwrap();
            let later = read(&root, &row()).unwrap();
            assert_eq!(
                (stamps.versions, stamps.last_modified),
                (later.versions, later.last_modified)
            );
            // What is written now may have the same time: never trusted.
            assert_eq!(stamps.confirmed_by(&later), there == 0);
            // Long after it was written it is.
            let mut old = Opened { now: now() + 1000, ..Opened::begin() };
            for (file, path) in paths.iter().enumerate().filter(|(_, path)| path.exists()) {
                old.note(file, &root.read_unlinked(path, 9).unwrap().stat);
            }
            assert!(old.stamps().unwrap().confirmed_by(&later));
        }
        let mut opened = Opened::begin();
        opened.cannot_tell();
        assert_eq!(opened.stamps(), None);
    }
}
