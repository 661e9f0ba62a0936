// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The directories by inotify. Armed are the target and every directory on the way to it, so
//! that one that is made later, removed, renamed or mounted over is the same case as any other:
//! something happened to a name on the way, so walk the way again and look at everything.
//!
//! Armed first and looked at second: what comes between is seen twice, never missed.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::StreamExt;
use inotify::{EventMask, Inotify, WatchDescriptor, WatchMask, Watches};
use tokio::sync::mpsc;
use tokio::time::interval;

use super::{Places, Signal};

/// The ways are walked again this often, whatever the kernel says.
const WALK: Duration = Duration::from_secs(30);

/// Follows until nobody listens.
pub async fn follow(places: &Places, sender: &mpsc::Sender<Signal>) -> io::Result<()> {
    let kernel = Inotify::init()?;
    let mut armed = Armed { places, kernel: kernel.watches(), dirs: HashMap::new() };
    let mut events = kernel.into_event_stream(vec![0; 16 << 10])?;
    armed.walk();
    if sender.send(Signal::Everything).await.is_err() {
        return Ok(());
    }
    let mut walk = interval(WALK);
    loop {
        // Both arms are cancel-safe: events stay in the kernel.
        let signals = tokio::select! {
            event = events.next() => match event {
                None => return Ok(()),
                Some(event) => {
                    let event = event?;
                    armed.event(&event.wd, event.mask, event.name.as_deref())
                }
            },
            // What was mounted over a directory sends no event.
            _ = walk.tick() => if armed.walk() { vec![Signal::Everything] } else { Vec::new() },
        };
        for signal in signals {
            if sender.send(signal).await.is_err() {
                return Ok(());
            }
        }
    }
}

struct Armed<'a> {
    places: &'a Places,
    kernel: Watches,
    /// By descriptor: one directory may be on several ways under several names.
    dirs: HashMap<WatchDescriptor, BTreeSet<PathBuf>>,
}

impl Armed<'_> {
    /// Arms all there is of the ways. The kernel gives the same descriptor for the same
    /// directory, so what is armed already stays so. Says whether anything is another now.
    fn walk(&mut self) -> bool {
        let mut found: HashMap<_, BTreeSet<_>> = HashMap::new();
        for target in [&self.places.control, &self.places.cleared] {
            let mut ways: Vec<&Path> = target.ancestors().collect();
            ways.reverse();
            for dir in ways {
                let mask = WatchMask::CREATE
                    | WatchMask::DELETE
                    | WatchMask::MOVED_FROM
                    | WatchMask::MOVED_TO
                    | WatchMask::DELETE_SELF
                    | WatchMask::MOVE_SELF
                    | WatchMask::ONLYDIR;
                match self.kernel.add(dir, mask) {
                    Ok(watch) => drop(found.entry(watch).or_default().insert(dir.to_owned())),
                    Err(error) => {
                        if error.kind() != io::ErrorKind::NotFound {
                            tracing::warn!(dir = %dir.display(), %error, "directory cannot be watched");
                        }
                        break;
                    }
                }
            }
        }
        let before = std::mem::replace(&mut self.dirs, found);
        let changed = before != self.dirs;
        for watch in before.into_keys().filter(|watch| !self.dirs.contains_key(watch)) {
            let _gone_already = self.kernel.remove(watch);
        }
        changed
    }

    fn event(
        &mut self,
        watch: &WatchDescriptor,
        mask: EventMask,
        name: Option<&OsStr>,
    ) -> Vec<Signal> {
        let gone = EventMask::DELETE_SELF
            | EventMask::MOVE_SELF
            | EventMask::UNMOUNT
            | EventMask::IGNORED
            | EventMask::Q_OVERFLOW;
        let Some(dirs) = self.dirs.get(watch).cloned() else {
            // An echo of a watch that was dropped, or the queue's overflow, which has none.
            return if mask.contains(EventMask::Q_OVERFLOW) { self.again() } else { Vec::new() };
        };
        if mask.intersects(gone) {
            return self.again();
        }
        let Some(name) = name else { return Vec::new() };
        let places = self.places;
        let is_on_a_way = |dir: &PathBuf| {
            let path = dir.join(name);
            places.control.starts_with(&path) || places.cleared.starts_with(&path)
        };
        if dirs.iter().any(is_on_a_way) {
            return self.again();
        }
        let Some(name) = name.to_str().map(str::to_owned) else { return Vec::new() };
        let went = mask.intersects(EventMask::DELETE | EventMask::MOVED_FROM);
        let mut signals = Vec::new();
        if dirs.contains(&places.control) {
            signals.push(if went {
                Signal::Went(name.clone())
            } else {
                Signal::Came(name.clone())
            });
        }
        if dirs.contains(&places.cleared) && !went {
            signals.push(Signal::Cleared(name));
        }
        signals
    }

    fn again(&mut self) -> Vec<Signal> {
        self.walk();
        vec![Signal::Everything]
    }
}
