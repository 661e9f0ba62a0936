// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The cheap look at everything every few seconds: one `zoneadm list` and a stat of each watched
//! file, compared with the look before. It finds what no event announced.
//!
//! Reads only stamps, never contents; must never change anything itself.

use std::collections::{BTreeMap, HashMap};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::load::{Ctx, LoadError, ZoneRow, zoneadm};
use crate::root::Root;
use crate::sources::ZoneFile;
use crate::sources::files::CONFIG_FILES;

/// What tells one version of a file from another: device, inode, size, times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        let stat = std::fs::metadata(path).ok()?;
        Some(Self {
            device: stat.dev(),
            inode: stat.ino(),
            size: stat.size(),
            modified: (stat.mtime(), stat.mtime_nsec()),
            changed: (stat.ctime(), stat.ctime_nsec()),
        })
    }
}

/// The files of one zone that matter, with what each is.
pub fn files_of(root: &Root, zone: &str, zonepath: &str) -> Vec<(ZoneFile, PathBuf)> {
    let mut files = vec![
        (ZoneFile::Xml, root.zone_xml(zone)),
        (ZoneFile::LastExited, root.lastexited(zonepath)),
    ];
    files.extend(CONFIG_FILES.map(|name| (ZoneFile::Config, root.config_file(zonepath, name))));
    files
}

/// Stamps of all watched files; an absent file has none.
#[derive(Clone, Debug, Default)]
pub struct Stamps {
    files: HashMap<PathBuf, Option<Stamp>>,
}

/// One look.
#[derive(Debug)]
pub struct Look {
    /// zoneadm's rows.
    pub rows: Result<Vec<ZoneRow>, LoadError>,
    /// The stamps.
    pub stamps: Stamps,
}

/// Looks at the node. `zones`: name → zonepath.
pub async fn look(ctx: &Ctx, zones: BTreeMap<String, String>) -> Look {
    let root = ctx.root.clone();
    let stats = tokio::task::spawn_blocking(move || {
        let mut stamps = Stamps::default();
        for (zone, zonepath) in &zones {
            for (_, path) in files_of(&root, zone, zonepath) {
                let stamp = Stamp::of(&path);
                stamps.files.insert(path, stamp);
            }
        }
        let sysinfo = root.sysinfo();
        let stamp = Stamp::of(&sysinfo);
        stamps.files.insert(sysinfo, stamp);
        stamps
    });
    let (rows, stamps) = tokio::join!(zoneadm::list(ctx), stats);
    Look { rows, stamps: stamps.unwrap_or_default() }
}

impl Stamps {
    /// Is this file another one than at the look before? `None`: it was not looked at then.
    pub fn changed(&self, before: &Self, path: &Path) -> Option<bool> {
        let was = before.files.get(path)?;
        Some(self.files.get(path).is_some_and(|is| is != was))
    }

    /// Files that exist, and files that do not.
    pub fn presence(&self) -> (Vec<String>, Vec<String>) {
        let mut sorted: Vec<_> =
            self.files.iter().map(|(path, stamp)| (path.display().to_string(), stamp)).collect();
        sorted.sort_by(|a, b| a.0.cmp(&b.0));
        let (there, missing): (Vec<_>, Vec<_>) =
            sorted.into_iter().partition(|(_, stamp)| stamp.is_some());
        let names = |list: Vec<(String, _)>| list.into_iter().map(|(name, _)| name).collect();
        (names(there), names(missing))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamps(root: &Root) -> Stamps {
        let mut stamps = Stamps::default();
        for (_, path) in files_of(root, "z", "/zones/z") {
            stamps.files.insert(path.clone(), Stamp::of(&path));
        }
        stamps
    }

    #[test]
    fn any_replacement_shows() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        std::fs::create_dir_all(dir.path().join("zones/z/config")).unwrap();
        let file = root.config_file("/zones/z", "tags");
        std::fs::write(&file, "{}").unwrap();
        let first = stamps(&root);
        assert_eq!(stamps(&root).changed(&first, &file), Some(false));
        let temp = dir.path().join("new");
        std::fs::write(&temp, "{}").unwrap();
        std::fs::rename(&temp, &file).unwrap();
        let second = stamps(&root);
        assert_eq!(second.changed(&first, &file), Some(true));
        std::fs::remove_file(&file).unwrap();
        assert_eq!(stamps(&root).changed(&second, &file), Some(true));
        assert_eq!(second.changed(&Stamps::default(), &file), None);
        assert_eq!((second.presence().0.len(), second.presence().1.len()), (1, 4));
    }
}
