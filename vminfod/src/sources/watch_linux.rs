// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! File changes by inotify. Directories are watched, never files, so that a file that is renamed
//! over, removed or created later is one and the same case; and the parents of a zone's
//! directories are watched too, so that a zonepath that appears (or is another one) is armed.
//!
//! What is below a zonepath may be a file system that hangs, so it is never asked here, but in a
//! thread that may ([`Root::on_files`]).
//!
//! A file that is being written is signalled when it is closed, or when its writer pauses: half a
//! JSON text would look like all metadata removed.

mod ask;
mod dirs;
mod places;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use inotify::{EventMask, Inotify as Kernel, WatchDescriptor, WatchMask, Watches};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use self::ask::Answer;
use self::dirs::{Dir, Dirs};
use self::places::{Meaning, Places};
use super::watch::{Order, Watch, WatchError, Zones, zone_config_signal};
use super::{Signal, ZoneFile};
use crate::root::Root;

/// A writer that neither writes nor closes for this long has written what there is.
const PAUSE: Duration = Duration::from_millis(300);

/// The watcher.
#[derive(Debug, Default)]
pub struct Inotify;

impl Watch for Inotify {
    fn follow(&self, order: Order) -> BoxFuture<'static, Result<(), WatchError>> {
        Box::pin(follow(order))
    }
}

async fn follow(mut order: Order) -> Result<(), WatchError> {
    let kernel = Kernel::init()?;
    let mut armed = Armed::new(order.root.clone(), kernel.watches());
    let mut events = kernel.into_event_stream(vec![0; 64 << 10])?;
    armed.want(&order.zones.borrow_and_update().clone());
    while let Some(Ok(answers)) = armed.asked.join_next().await {
        armed.answered(answers);
    }
    (order.health)(true);
    loop {
        let pause = sleep_until(armed.next_pause());
        // All arms are cancel-safe: events stay in the kernel, a changed list stays changed, ended
        // tasks stay in their set.
        let signals = tokio::select! {
            event = events.next() => match event {
                None => return Ok(()),
                Some(event) => {
                    let event = event?;
                    armed.event(&event.wd, event.mask, event.name.as_deref())
                }
            },
            changed = order.zones.changed() => {
                if changed.is_err() {
                    return Ok(());
                }
                let zones = order.zones.borrow_and_update().clone();
                armed.want(&zones);
                Vec::new()
            }
            Some(answers) = armed.asked.join_next() => {
                answers.map(|answers| armed.answered(answers)).unwrap_or_default()
            }
            () = pause => armed.paused(),
        };
        signals.into_iter().for_each(|signal| order.inbox.put(signal));
    }
}

struct Armed {
    root: Root,
    kernel: Watches,
    zones: Zones,
    dirs: Dirs,
    places: Places,
    configs: PathBuf,
    sysinfo: PathBuf,
    /// Files written to and not closed: when to take them as they are.
    open: BTreeMap<(PathBuf, String), Instant>,
    /// What is being asked of zones' file systems, which may never answer.
    asked: JoinSet<Vec<Answer>>,
    /// Zones whose file systems did not answer: when to ask them again.
    silent: BTreeMap<String, Instant>,
}

impl Armed {
    fn new(root: Root, kernel: Watches) -> Self {
        let (configs, sysinfo) = (root.path("/etc/zones"), root.sysinfo());
        let mut armed = Self {
            root,
            kernel,
            zones: Zones::default(),
            dirs: Dirs::default(),
            places: Places::default(),
            configs,
            sysinfo,
            open: BTreeMap::new(),
            asked: JoinSet::new(),
            silent: BTreeMap::new(),
        };
        armed.arm_fixed();
        armed
    }

    /// The two directories every node has, with the ways to them.
    fn arm_fixed(&mut self) -> bool {
        let mut news = false;
        for dir in [self.configs.clone(), parent(&self.sysinfo)] {
            for dir in self.ways(&dir) {
                news |= self.arm(&dir);
            }
        }
        news
    }

    /// From the root down to `dir`, both included.
    fn ways(&self, dir: &Path) -> Vec<PathBuf> {
        let top = self.root.dir();
        let mut ways: Vec<PathBuf> =
            dir.ancestors().take_while(|at| at.starts_with(top)).map(Path::to_owned).collect();
        ways.reverse();
        ways
    }

    fn dirs_of(&self, zonepath: &str) -> Vec<PathBuf> {
        self.ways(&self.root.path(zonepath).join("config"))
    }

    /// Takes a new list of zones, and watches those that are new or moved.
    fn want(&mut self, zones: &Zones) {
        let before = std::mem::replace(&mut self.zones, zones.clone());
        self.places = Places::of(zones);
        let new = zones.iter().filter(|(zone, zonepath)| before.get(*zone) != Some(*zonepath));
        self.arm_zones(new.map(|(zone, zonepath)| (zone.clone(), zonepath.clone())).collect());
        self.silent.retain(|zone, _| zones.contains_key(&**zone));
        self.prune();
    }

    /// What a name in a directory means, to whom.
    fn meanings(&self, dir: &Path, name: &str) -> Vec<(String, Meaning)> {
        self.below_root(dir).map(|dir| self.places.meanings(dir, name)).unwrap_or_default()
    }

    fn below_root<'a>(&self, dir: &'a Path) -> Option<&'a str> {
        dir.strip_prefix(self.root.dir()).ok()?.to_str()
    }

    /// Watches a directory as it is now; says whether it is another one than before.
    fn arm(&mut self, dir: &Path) -> bool {
        let watched = self.kernel.add(dir, mask());
        self.note(dir, watched)
    }

    fn note(&mut self, path: &Path, watched: std::io::Result<WatchDescriptor>) -> bool {
        // All that is watched is below the root, by a path of UTF-8.
        let Some(dir) = self.dir(path) else { return false };
        match watched {
            Ok(wd) => {
                if self.dirs.watch(&dir) == Some(&wd) {
                    return false;
                }
                self.disarm(&dir);
                self.dirs.insert(dir, wd);
                true
            }
            Err(error) => {
                if error.kind() != std::io::ErrorKind::NotFound {
                    tracing::warn!(dir = %path.display(), %error, "directory cannot be watched: the sweep looks at it");
                }
                self.disarm(&dir)
            }
        }
    }

    fn dir(&self, path: &Path) -> Option<Dir> {
        let below = self.below_root(path)?;
        Some(Dir::of(below, |base| self.places.zonepath(base)))
    }

    fn disarm(&mut self, dir: &Dir) -> bool {
        let Some((wd, is_free)) = self.dirs.remove(dir) else { return false };
        if is_free {
            let _gone_already = self.kernel.remove(wd);
        }
        true
    }

    /// Drops the directories that no zone needs any more.
    fn prune(&mut self) {
        let fixed: Vec<Dir> = [&*self.configs, &*parent(&self.sysinfo)]
            .iter()
            .flat_map(|dir| self.ways(dir))
            .filter_map(|dir| self.dir(&dir))
            .collect();
        let is_idle = |dir: &Dir| !self.places.need(&dir.below()) && !fixed.contains(dir);
        let idle: Vec<Dir> = self.dirs.all().filter(is_idle).collect();
        for dir in idle {
            self.disarm(&dir);
        }
    }

    fn event(
        &mut self,
        wd: &WatchDescriptor,
        mask: EventMask,
        name: Option<&OsStr>,
    ) -> Vec<Signal> {
        if mask.contains(EventMask::Q_OVERFLOW) {
            return vec![Signal::Everything];
        }
        if mask.contains(EventMask::IGNORED) {
            // The directory went; its parent's event arms whatever comes in its place.
            self.dirs.forget(wd);
            return Vec::new();
        }
        let Some(name) = name.and_then(OsStr::to_str) else { return Vec::new() };
        let dirs = self.dirs.of(wd).into_iter();
        let paths: Vec<PathBuf> = dirs.map(|dir| self.root.dir().join(dir.below())).collect();
        paths.iter().flat_map(|dir| self.named(dir, name, mask)).collect()
    }

    fn next_pause(&self) -> Instant {
        let never = Instant::now() + Duration::from_secs(3600);
        self.open.values().chain(self.silent.values()).min().copied().unwrap_or(never)
    }

    /// Takes the files whose writers paused as they are, and asks anew where nothing was answered.
    fn paused(&mut self) -> Vec<Signal> {
        self.ask_silent();
        let now = Instant::now();
        let due: Vec<_> =
            self.open.iter().filter(|(_, at)| **at <= now).map(|(file, _)| file.clone()).collect();
        due.into_iter()
            .flat_map(|(dir, name)| self.named(&dir, &name, EventMask::CLOSE_WRITE))
            .collect()
    }

    fn named(&mut self, dir: &Path, name: &str, mask: EventMask) -> Vec<Signal> {
        let path = dir.join(name);
        let meanings = self.meanings(dir, name);
        let config = zone_config_signal(name).filter(|_| dir == self.configs);
        let is_sysinfo = path == self.sysinfo;
        let concerns = !meanings.is_empty() || config.is_some() || is_sysinfo;
        let file = (dir.to_owned(), name.to_owned());
        if mask.contains(EventMask::MODIFY) {
            if concerns {
                self.open.insert(file, Instant::now() + PAUSE);
            }
            return Vec::new();
        }
        self.open.remove(&file);
        let mut signals = Vec::new();
        let moved =
            EventMask::CREATE | EventMask::DELETE | EventMask::MOVED_FROM | EventMask::MOVED_TO;
        if mask.intersects(moved)
            && (self.configs.starts_with(&path) || self.sysinfo.starts_with(&path))
            && self.arm_fixed()
        {
            signals.push(Signal::Everything);
        }
        // A new file beside the one it will replace is not even looked at: whoever makes it holds
        // the directory, and the event that matters would wait.
        if !concerns {
            return signals;
        }
        // A file just created is empty: its close will tell. A link is complete at once.
        if mask.contains(EventMask::CREATE)
            && !mask.contains(EventMask::ISDIR)
            && (self.ask_for_link(&path, &meanings) || !is_link(&path))
        {
            return signals;
        }
        signals.extend(config);
        if is_sysinfo {
            signals.push(Signal::Sysinfo);
        }
        for (zone, meaning) in meanings {
            match meaning {
                Meaning::File(file) => signals.push(Signal::File(zone, file)),
                Meaning::Way if mask.intersects(moved) => {
                    if let Some((zone, zonepath)) = self.zones.get_key_value(&*zone) {
                        self.arm_zones(vec![(Arc::clone(zone), Arc::clone(zonepath))]);
                    }
                }
                Meaning::Way => {}
            }
        }
        signals
    }
}

fn mask() -> WatchMask {
    WatchMask::CLOSE_WRITE
        | WatchMask::MODIFY
        | WatchMask::CREATE
        | WatchMask::DELETE
        | WatchMask::MOVED_FROM
        | WatchMask::MOVED_TO
        | WatchMask::ATTRIB
        | WatchMask::ONLYDIR
}

fn all_files(zone: &str) -> [Signal; 2] {
    [ZoneFile::Config, ZoneFile::LastExited].map(|file| Signal::File(zone.to_owned(), file))
}

fn is_link(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|stat| stat.is_symlink() || stat.nlink() > 1)
}

fn parent(path: &Path) -> PathBuf {
    path.parent().unwrap_or(path).to_owned()
}

#[cfg(test)]
mod tests;
