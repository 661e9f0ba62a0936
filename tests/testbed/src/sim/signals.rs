// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Sysevents and file events on their way to vminfod: lost, repeated, late, out of order.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::Instant;

use simnode::fswatcher::Told;
use simnode::in_process::InProcess;
use simnode::tap::Tap;

/// How bad the way is, in percent of all signals.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weather {
    pub lost: u32,
    pub twice: u32,
    /// Arrive up to this much later, and so perhaps after younger ones.
    pub late: Duration,
    /// Arrive with others, at the next multiple of this; zero: alone.
    pub batch: Duration,
}

impl Weather {
    /// Everything arrives, once, at once.
    pub const GOOD: Self = Self { lost: 0, twice: 0, late: Duration::ZERO, batch: Duration::ZERO };
}

/// The weather of one node, with its dice.
#[derive(Clone)]
pub struct Way {
    state: Arc<Mutex<(Weather, StdRng)>>,
    began: Instant,
}

impl Way {
    pub fn new(seed: u64) -> Self {
        let state = (Weather::GOOD, StdRng::seed_from_u64(seed));
        Self { state: Arc::new(Mutex::new(state)), began: Instant::now() }
    }

    pub fn set(&self, weather: Weather) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).0 = weather;
    }

    /// When copies of the next signal arrive.
    fn arrivals(&self) -> Vec<Duration> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (weather, rng) = &mut *state;
        if rng.random_range(0..100) < weather.lost {
            return Vec::new();
        }
        let copies = if rng.random_range(0..100) < weather.twice { 2 } else { 1 };
        let late = u64::try_from(weather.late.as_millis()).unwrap_or(u64::MAX);
        let now = self.began.elapsed();
        let at = |late: Duration| match weather.batch {
            Duration::ZERO => late,
            batch => {
                let past = (now + late).as_millis() % batch.as_millis().max(1);
                late + batch - Duration::from_millis(u64::try_from(past).unwrap_or(0))
            }
        };
        (0..copies).map(|_| at(Duration::from_millis(rng.random_range(0..=late)))).collect()
    }
}

/// Carries the node's sysevents to whoever follows them, for ever.
pub async fn carry(tap: Tap, commands: InProcess, way: Way) {
    loop {
        for event in tap.take() {
            for after in way.arrivals() {
                if after.is_zero() {
                    commands.feed(event.stream, &event.line).await;
                    continue;
                }
                let (commands, event) = (commands.clone(), event.clone());
                tokio::spawn(async move {
                    tokio::time::sleep(after).await;
                    commands.feed(event.stream, &event.line).await;
                });
            }
        }
        tap.news().await;
    }
}

/// Reports the changes of a node's files to its file watcher.
#[derive(Clone)]
pub struct SimWatch {
    files: Told,
    seen: Arc<Mutex<BTreeMap<PathBuf, Stamp>>>,
}

type Stamp = (u64, u64, i64, i64, i64);

impl SimWatch {
    /// No file has been seen yet.
    pub fn new(files: &Told) -> Self {
        Self { files: files.clone(), seen: Arc::default() }
    }

    /// Compares the node's files with those of the last call; what changed is signalled the given way.
    pub fn poll(&self, root: &Path, way: &Way) {
        let mut now = BTreeMap::new();
        for (path, stamp) in stamps(root) {
            now.insert(path, stamp);
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let changed: Vec<PathBuf> = now
            .keys()
            .chain(seen.keys().filter(|path| !now.contains_key(*path)))
            .filter(|path| now.get(*path) != seen.get(*path))
            .cloned()
            .collect();
        *seen = now;
        drop(seen);
        for path in changed {
            for after in way.arrivals() {
                let (files, path) = (self.files.clone(), path.clone());
                tokio::spawn(async move {
                    tokio::time::sleep(after).await;
                    files.changed(&path);
                });
            }
        }
    }
}

fn stamps(root: &Path) -> Vec<(PathBuf, Stamp)> {
    let mut files = vec![root.join("tmp/.sysinfo.json")];
    let names = |dir: PathBuf| {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    files.extend(names(root.join("etc/zones")));
    for zone in names(root.join("zones")) {
        files.push(zone.join("lastexited"));
        files.extend(["metadata", "tags", "routes"].map(|f| zone.join(format!("config/{f}.json"))));
    }
    let stamp = |path: PathBuf| {
        let meta = std::fs::metadata(&path).ok()?;
        let stamp = (meta.ino(), meta.size(), meta.mtime(), meta.mtime_nsec(), meta.ctime_nsec());
        Some((path, stamp))
    };
    files.into_iter().filter_map(stamp).collect()
}
