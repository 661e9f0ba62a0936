// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The names in a directory, and which of them changed since the last look. A look costs one `stat`
//! while nothing changes; the directory is listed only after its stamp changed, and for one second
//! longer, because two changes within a tick of the file system's clock leave the same stamp.

use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use tokio::time::Instant;

/// A directory is listed at every look for so long after a change.
const UNSETTLED: Duration = Duration::from_secs(1);

/// Device, inode and modification time. A change of the mode is no change.
type Stamp = (u64, u64, i64, i64);

/// The names in one directory. It may be missing, which is the same as empty.
#[derive(Debug)]
pub(super) struct Names {
    dir: PathBuf,
    stamp: Option<Stamp>,
    changed_at: Option<Instant>,
    known: HashMap<String, Stamp>,
}

/// What changed between two looks.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    /// Names that are new or have another file.
    pub(super) came: Vec<String>,
    /// Names that are gone.
    pub(super) went: Vec<String>,
}

impl Names {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self { dir, stamp: None, changed_at: None, known: HashMap::new() }
    }

    /// Returns the changes since the last look; at the first one every name came.
    pub(super) fn scan(&mut self) -> Changes {
        let stamp = fs::metadata(&self.dir).ok().map(stamp_of);
        if stamp != self.stamp {
            (self.stamp, self.changed_at) = (stamp, Some(Instant::now()));
        }
        match self.changed_at {
            None => return Changes::default(),
            Some(at) if at.elapsed() > UNSETTLED => self.changed_at = None,
            Some(_) => {}
        }
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let named = entries.filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            Some((name, stamp_of(entry.metadata().ok()?)))
        });
        let now: HashMap<String, Stamp> = named.collect();
        let before = std::mem::replace(&mut self.known, now);
        let is_new = |(name, stamp): &(&String, &Stamp)| before.get(*name) != Some(*stamp);
        let came = self.known.iter().filter(is_new).map(|(name, _)| name.clone()).collect();
        let is_gone = |name: &String| !self.known.contains_key(name);
        let went = before.keys().filter(|name| is_gone(name)).cloned().collect();
        Changes { came, went }
    }
}

fn stamp_of(stat: Metadata) -> Stamp {
    (stat.dev(), stat.ino(), stat.mtime(), stat.mtime_nsec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_names_that_came_went_or_have_another_file() {
        let top = tempfile::tempdir().unwrap();
        let dir = top.path().join("d");
        let mut names = Names::new(dir.clone());
        let mut look = move || {
            let Changes { mut came, mut went } = names.scan();
            came.sort();
            went.sort();
            (came.join(" "), went.join(" "))
        };
        let changes = |came: &str, went: &str| (came.to_owned(), went.to_owned());
        assert_eq!(look(), changes("", ""));
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("a"), "").unwrap();
        fs::write(dir.join("b"), "").unwrap();
        assert_eq!(look(), changes("a b", ""));
        assert_eq!(look(), changes("", ""));
        // At once, so that the directory's stamp may still be the same.
        fs::write(dir.join("c"), "").unwrap();
        fs::rename(dir.join("c"), dir.join("a")).unwrap();
        fs::remove_file(dir.join("b")).unwrap();
        assert_eq!(look(), changes("a", "b"));
        fs::rename(&dir, top.path().join("away")).unwrap();
        assert_eq!(look(), changes("", "a"));
        fs::rename(top.path().join("away"), &dir).unwrap();
        assert_eq!(look(), changes("a", ""));
    }
}
