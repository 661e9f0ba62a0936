// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The directories that are watched, found by path and by watch. A node has two for each zone, so
//! no path of one is kept: a directory is a zonepath, which others have anyway, or `config` in it.
//!
//! Must never ask the kernel anything.

use std::collections::HashMap;
use std::sync::Arc;

use inotify::WatchDescriptor;

/// A directory below the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dir {
    /// Begins with a slash, as zonepaths do (the root itself is one).
    base: Arc<str>,
    /// It is `config` in there.
    is_config: bool,
}

impl Dir {
    /// The directory of this path below the root (the root itself is empty). `shared`: the text of
    /// a zonepath that is written so.
    pub(super) fn of(below: &str, shared: impl FnOnce(&str) -> Option<Arc<str>>) -> Self {
        let (base, is_config) = match below.strip_suffix("config") {
            Some("") => return Dir { base: "".into(), is_config: true },
            Some(base) if base.ends_with('/') => (base.trim_end_matches('/'), true),
            _ => (below, false),
        };
        let base = shared(base).unwrap_or_else(|| format!("/{base}").into());
        Dir { base, is_config }
    }

    /// Its path below the root.
    pub(super) fn below(&self) -> String {
        let path =
            if self.is_config { format!("{}/config", self.base) } else { self.base.to_string() };
        path.strip_prefix('/').map(str::to_owned).unwrap_or(path)
    }
}

/// All that are watched.
#[derive(Debug, Default)]
pub(super) struct Dirs {
    by_base: HashMap<Arc<str>, Watched>,
    /// By the number of the watch.
    by_watch: HashMap<i32, Own>,
}

#[derive(Debug, Default)]
struct Watched {
    dir: Option<WatchDescriptor>,
    config: Option<WatchDescriptor>,
}

impl Watched {
    fn slot(&mut self, is_config: bool) -> &mut Option<WatchDescriptor> {
        if is_config { &mut self.config } else { &mut self.dir }
    }
}

/// The directories of one watch: nearly always one, others are the same by another path.
#[derive(Debug)]
enum Own {
    One(Dir),
    /// A box takes no more room than one.
    More(Box<[Dir]>),
}

impl Dirs {
    /// The watch of a directory.
    pub(super) fn watch(&self, dir: &Dir) -> Option<&WatchDescriptor> {
        let watched = self.by_base.get(&dir.base)?;
        if dir.is_config { watched.config.as_ref() } else { watched.dir.as_ref() }
    }

    /// The directories of a watch.
    pub(super) fn of(&self, watch: &WatchDescriptor) -> Vec<Dir> {
        match self.by_watch.get(&watch.get_watch_descriptor_id()) {
            Some(Own::One(dir)) => vec![dir.clone()],
            Some(Own::More(dirs)) => dirs.to_vec(),
            None => Vec::new(),
        }
    }

    /// All of them, in no order.
    pub(super) fn all(&self) -> impl Iterator<Item = Dir> {
        self.by_watch.values().flat_map(|own| match own {
            Own::One(dir) => std::slice::from_ref(dir).to_vec(),
            Own::More(dirs) => dirs.to_vec(),
        })
    }

    /// Notes the watch of a directory that has none.
    pub(super) fn insert(&mut self, dir: Dir, watch: WatchDescriptor) {
        let own = match self.by_watch.remove(&watch.get_watch_descriptor_id()) {
            None => Own::One(dir.clone()),
            Some(Own::One(other)) => Own::More([other, dir.clone()].into()),
            Some(Own::More(others)) => Own::More(others.into_iter().chain([dir.clone()]).collect()),
        };
        self.by_watch.insert(watch.get_watch_descriptor_id(), own);
        let watched = self.by_base.entry(dir.base).or_default();
        *watched.slot(dir.is_config) = Some(watch);
    }

    /// Forgets a directory; its watch, and whether no other directory has that.
    pub(super) fn remove(&mut self, dir: &Dir) -> Option<(WatchDescriptor, bool)> {
        let watch = self.take(dir)?;
        let id = watch.get_watch_descriptor_id();
        if let Some(Own::More(dirs)) = self.by_watch.get_mut(&id) {
            *dirs = dirs.iter().filter(|other| *other != dir).cloned().collect();
            if !dirs.is_empty() {
                return Some((watch, false));
            }
        }
        self.by_watch.remove(&id);
        Some((watch, true))
    }

    /// Forgets a watch with its directories.
    pub(super) fn forget(&mut self, watch: &WatchDescriptor) {
        for dir in self.of(watch) {
            self.take(&dir);
        }
        self.by_watch.remove(&watch.get_watch_descriptor_id());
    }

    fn take(&mut self, dir: &Dir) -> Option<WatchDescriptor> {
        let watched = self.by_base.get_mut(&dir.base)?;
        let watch = watched.slot(dir.is_config).take();
        if watched.dir.is_none() && watched.config.is_none() {
            self.by_base.remove(&dir.base);
        }
        watch
    }
}

#[cfg(test)]
mod tests {
    use inotify::{Inotify, WatchMask};

    use super::*;

    #[test]
    fn a_directory_has_its_path_and_shares_that_of_its_zone() {
        for below in [
            "",
            "zones",
            "zones/a",
            "zones/a/config",
            "config",
            "a/config/config",
            "myconfig",
            "a/myconfig",
        ] {
            assert_eq!(Dir::of(below, |_| None).below(), below);
        }
        let zonepath: Arc<str> = "/zones/a".into();
        for below in ["zones/a", "zones/a/config"] {
            let dir = Dir::of(below, |base| (base == "zones/a").then(|| Arc::clone(&zonepath)));
            assert!(Arc::ptr_eq(&dir.base, &zonepath));
            assert_eq!(dir, Dir::of(below, |_| None));
        }
    }

    #[test]
    fn found_by_path_and_by_watch() {
        let temp = tempfile::tempdir().unwrap();
        let mut kernel = Inotify::init().unwrap().watches();
        let mut watch = |name: &str| {
            let path = temp.path().join(name);
            std::fs::create_dir_all(&path).unwrap();
            kernel.add(path, WatchMask::CREATE).unwrap()
        };
        let (one, other) = (watch("one"), watch("other"));
        let dir = |below: &str| Dir::of(below, |_| None);
        let mut dirs = Dirs::default();
        dirs.insert(dir("a"), one.clone());
        dirs.insert(dir("a/config"), other.clone());
        dirs.insert(dir("b/config"), other.clone());
        assert_eq!(dirs.watch(&dir("a")), Some(&one));
        assert_eq!(dirs.watch(&dir("b")), None);
        assert_eq!(dirs.of(&other), [dir("a/config"), dir("b/config")]);
        assert_eq!(dirs.all().count(), 3);
        assert_eq!(dirs.remove(&dir("a/config")), Some((other.clone(), false)));
        assert_eq!(dirs.remove(&dir("a/config")), None);
        assert_eq!(dirs.remove(&dir("b/config")), Some((other.clone(), true)));
        dirs.forget(&one);
        assert!(dirs.watch(&dir("a")).is_none() && dirs.of(&one).is_empty());
        assert!(dirs.by_base.is_empty() && dirs.by_watch.is_empty());
    }
}
