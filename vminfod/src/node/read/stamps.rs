// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Takes the stamps of the files that a VM object is made of.
//!
//! A stamp is taken before its file is read. A file that is replaced while it is read has another
//! stamp at the next look and is read again, never the other way round.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{FileType, Stat};
use vm_model::origin::Origin;
use vm_model::parts::{FILES, Stamps};

use crate::node::error::{Fault, LoadError};
use crate::node::root::{Root, version};

/// Seconds: a file that changed less than this before it was read may change again within the same
/// time stamp.
const YOUNG: i64 = 2;

/// The files in the order of their stamps.
pub fn files(root: &Root, zonename: &str, zonepath: &str) -> [PathBuf; FILES] {
    [
        root.zone_xml(zonename),
        root.lastexited(zonepath),
        root.config_file(zonepath, "metadata"),
        root.config_file(zonepath, "tags"),
        root.config_file(zonepath, "routes"),
    ]
}

/// Takes the stamps of one zone's files; it may block.
/// Errors: a file exists and its status cannot be read.
pub fn read(root: &Root, zonename: &str, zonepath: &str) -> Result<Stamps, LoadError> {
    let now = now();
    let mut stamps = Stamps::default();
    for (at, (path, version)) in
        files(root, zonename, zonepath).iter().zip(&mut stamps.versions).enumerate()
    {
        let stat = match root.lstat(path) {
            Ok(stat) => stat,
            Err(error) if error.is_absent() => continue,
            Err(error) => {
                return Err(LoadError::new(Origin::Times, Fault::Read(error)).in_file(path));
            }
        };
        *version = digest(&stat);
        stamps.young |= u8::from(is_young(&stat, now)) << at;
        stamps.last_modified = stamps.last_modified.max(time_of(&stat));
    }
    Ok(stamps)
}

/// The stamp of a file that is not a zone's; `None` if its status cannot be read.
pub fn of(root: &Root, path: &Path) -> Option<u64> {
    root.lstat(path).ok().map(|stat| digest(&stat))
}

/// A digest of what differs between two versions of a file; never 0.
pub fn digest(stat: &Stat) -> u64 {
    let mut state = DefaultHasher::new();
    version(stat).hash(&mut state);
    state.finish().max(1)
}

fn now() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

/// Returns true also for a time in the future: the clock was set back.
fn is_young(stat: &Stat, now: i64) -> bool {
    stat.st_mtime.max(stat.st_ctime) > now.saturating_sub(YOUNG)
}

/// The modification time that counts: that of a regular file, and never 0.
fn time_of(stat: &Stat) -> Option<i64> {
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    Some(stat.st_mtime).filter(|time| is_file && *time != 0)
}

#[cfg(test)]
mod tests {
    use std::fs::{File, FileTimes};
    use std::time::Duration;

    use vm_model::parts::{CONFIG, TAGS, XML};

    use super::*;

    #[test]
    fn replaced_file_has_another_stamp() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        std::fs::create_dir_all(root.config_dir("/zones/z")).unwrap();
        let tags = root.config_file("/zones/z", "tags");
        assert_eq!(files(&root, "z", "/zones/z").iter().position(|path| *path == tags), Some(TAGS));
        let write = |text: &str| {
            let temp = dir.path().join("new");
            std::fs::write(&temp, text).unwrap();
            let old = SystemTime::now() - Duration::from_secs(1000);
            let times = FileTimes::new().set_modified(old);
            File::options().write(true).open(&temp).unwrap().set_times(times).unwrap();
            std::fs::rename(&temp, &tags).unwrap();
        };
        let look = || read(&root, "z", "/zones/z").unwrap();
        assert_eq!(look(), Stamps::default());
        write("{}");
        let first = look();
        assert!(first.has(TAGS) && !first.has(XML) && first.last_modified.is_some());
        // Its modification time is old, but the file itself was made just now.
        assert!(!first.confirmed_by(&look()));
        write("{}");
        assert!(first.differs(&look(), TAGS) && !first.differs(&look(), XML));
        let mut kept = look();
        kept.keep(&first, CONFIG);
        assert!(!kept.differs(&first, TAGS));
        std::fs::remove_file(&tags).unwrap();
        assert!(first.differs(&look(), TAGS));
        assert_eq!(of(&root, &tags), None);
        assert!(Stamps::default().confirmed_by(&Stamps::default()));
    }
}
