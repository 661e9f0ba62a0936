// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The protocol of the `fswatcher` helper: which requests it is sent, and what its lines mean.
//!
//! ```text
//!  wanted ─► asked ──SUCCESS──► watched ──event──► signal ──final──► asked
//!              └────FAIL──────► missing ──its directory changed──────► asked
//! ```
//!
//! Files are watched, and their directories. The event of a directory never signals a VM: it only has
//! the missing files in it requested again. Does no I/O.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde::Deserialize;
use vm_model::stale::ZoneFile;

use super::signal::Signal;
use crate::node::root::Root;

/// The zones whose files are watched, by name.
pub type Zones = Arc<BTreeMap<Arc<str>, ZonePlace>>;

/// Where a zone's files are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZonePlace {
    /// The zone's directory.
    pub zonepath: Arc<str>,
    /// One bit for each file that existed when the zone was last read: a new file is requested again.
    pub exists: u8,
}

/// The config files of a zone, without `.json`.
pub const CONFIG_FILES: [&str; 3] = ["metadata", "tags", "routes"];

/// More zones than this whose watches are new: all stamps are compared in one look.
const FEW: usize = 16;

/// An invalid line of the helper, or its report of a failure.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Complaint {
    /// It is not a line of fswatcher.
    #[error("not a line of fswatcher: {0}")]
    Garbage(String),
    /// A watch was lost: which one is unknown.
    #[error("fswatcher: {0}")]
    Lost(String),
}

/// A line of the helper; keys that do not matter here are left out.
#[derive(Deserialize)]
struct HelperLine {
    r#type: String,
    #[serde(default)]
    pathname: Option<String>,
    #[serde(default)]
    r#final: bool,
    #[serde(default)]
    key: u64,
    #[serde(default)]
    result: Option<String>,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    data: Option<StatusData>,
}

#[derive(Deserialize)]
struct StatusData {
    pid: Option<u32>,
}

/// One path that is watched, or should be.
#[derive(Debug, Default)]
struct Watched {
    /// What its change means; nothing for a directory.
    signals: Vec<Signal>,
    /// The last request for it; only its answer counts. 0: none is open.
    key: u64,
    /// It did not exist, or its watch ended: an answer of success is a change.
    is_missing: bool,
}

/// The watched files and the requests under way.
#[derive(Debug, Default)]
pub struct WatchList {
    paths: BTreeMap<Arc<str>, Watched>,
    /// Paths that do not exist, in a directory that is watched …
    missing: BTreeSet<Arc<str>>,
    /// … and in one that is not: no event comes when they appear.
    orphans: BTreeSet<Arc<str>>,
    zones: Zones,
    /// Requests without an answer, by key; `None` for one that is not about a path.
    asked: HashMap<u64, Option<Arc<str>>>,
    last_key: u64,
    /// Zones whose files were not watched before.
    unwatched: BTreeSet<Arc<str>>,
    /// What is to be written to the helper.
    out: Vec<u8>,
    is_ready: bool,
    pid: Option<u32>,
}

impl WatchList {
    /// Returns true once the helper said that it is ready.
    pub fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// The process id of the helper, from its status.
    pub fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// How many requests have no answer yet.
    pub fn unanswered(&self) -> usize {
        self.asked.len()
    }

    /// The paths that are watched, and the missing ones; sorted.
    pub fn presence(&self) -> (Vec<String>, Vec<String>) {
        let files = self.paths.iter().filter(|(_, watched)| !watched.signals.is_empty());
        let (mut watching, mut missing) = (Vec::new(), Vec::new());
        for (path, watched) in files {
            let list = if watched.is_missing { &mut missing } else { &mut watching };
            list.push(path.to_string());
        }
        (watching, missing)
    }

    /// Takes what is to be written to the helper.
    pub fn take_requests(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// Asks for the missing paths whose directory is not watched.
    pub fn ask_orphans(&mut self) {
        let orphans: Vec<Arc<str>> = self.orphans.iter().cloned().collect();
        orphans.iter().for_each(|path| self.ask(path));
    }

    /// Sets the list of zones: watches new ones, stops watching those that are not in it.
    pub fn want(&mut self, root: &Root, zones: &Zones) {
        let wanted = wanted(root, zones);
        let idle: Vec<Arc<str>> =
            self.paths.keys().filter(|path| !wanted.contains_key(&**path)).cloned().collect();
        for path in idle {
            self.missing.remove(&path);
            self.orphans.remove(&path);
            if let Some(watched) = self.paths.remove(&path) {
                self.asked.remove(&watched.key);
            }
            let key = self.request("UNWATCH", &path);
            self.asked.insert(key, None);
        }
        for (path, signals) in wanted {
            match self.paths.get_mut(&path) {
                Some(known) => known.signals = signals,
                None => {
                    let watched = Watched { signals, ..Watched::default() };
                    self.paths.insert(Arc::clone(&path), watched);
                    self.ask(&path);
                }
            }
        }
        for (name, place) in zones.iter() {
            match self.zones.get(name) {
                Some(old) if old == place => {}
                Some(old) if old.zonepath == place.zonepath => self.ask_missing(root, place),
                _ => drop(self.unwatched.insert(Arc::clone(name))),
            }
        }
        self.zones = Arc::clone(zones);
    }

    /// Reads a line of the helper and returns its signals.
    /// Errors: the helper has to be started again.
    pub fn line(&mut self, line: &[u8]) -> Result<Vec<Signal>, Complaint> {
        let line: HelperLine =
            serde_json::from_slice(line).map_err(|error| Complaint::Garbage(error.to_string()))?;
        match line.r#type.as_str() {
            // Once: a helper that repeats it must not make the list of requests grow.
            "ready" if !self.is_ready => {
                self.is_ready = true;
                let key = self.request("STATUS", "");
                self.asked.insert(key, None);
                Ok(Vec::new())
            }
            "event" => {
                Ok(line.pathname.map(|path| self.changed(&path, line.r#final)).unwrap_or_default())
            }
            "response" => {
                self.pid = line.data.and_then(|data| data.pid).or(self.pid);
                Ok(self.answered(line.key, line.result.as_deref() == Some("SUCCESS")))
            }
            "error" => Err(Complaint::Lost(line.message.unwrap_or_default())),
            _ => Ok(Vec::new()),
        }
    }

    fn changed(&mut self, path: &str, is_final: bool) -> Vec<Signal> {
        let Some((path, watched)) = self.paths.get_key_value(path) else { return Vec::new() };
        let (path, signals) = (Arc::clone(path), watched.signals.clone());
        if is_final {
            self.paths.get_mut(&path).into_iter().for_each(|watched| watched.is_missing = true);
            self.ask(&path);
        }
        let mut missing = self.missing_below(&path);
        missing.retain(|below| !below.get(path.len() + 1..).unwrap_or_default().contains('/'));
        missing.iter().for_each(|below| self.ask(below));
        signals
    }

    fn missing_below(&self, directory: &str) -> Vec<Arc<str>> {
        let inside = format!("{directory}/");
        let below = self.missing.range(Arc::from(&*inside)..);
        below.take_while(|below| below.starts_with(&inside)).cloned().collect()
    }

    fn answered(&mut self, key: u64, is_success: bool) -> Vec<Signal> {
        let Some(path) = self.asked.remove(&key) else { return Vec::new() };
        let mut signals = Vec::new();
        if let Some(path) = path
            && let Some(watched) = self.paths.get_mut(&path)
        {
            watched.key = 0;
            if !is_success {
                watched.is_missing = true;
                let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
                let is_orphan = !self.paths.contains_key(directory);
                let missing = if is_orphan { &mut self.orphans } else { &mut self.missing };
                missing.insert(path);
            } else if std::mem::take(&mut watched.is_missing) {
                signals.extend(watched.signals.iter().cloned());
                // A new directory may already have files in it.
                self.missing_below(&path).iter().for_each(|below| self.ask(below));
            }
        }
        if self.asked.is_empty() && !self.unwatched.is_empty() {
            let unwatched = std::mem::take(&mut self.unwatched);
            match unwatched.len() {
                0..=FEW => {
                    let zones = unwatched.iter();
                    signals.extend(zones.map(|zone| Signal::Unwatched(zone.to_string())));
                }
                _ => signals.push(Signal::AllUnwatched),
            }
        }
        signals
    }

    fn ask_missing(&mut self, root: &Root, place: &ZonePlace) {
        let paths = zone_paths(root, "", &place.zonepath).into_iter().filter_map(|(path, _)| path);
        let missing: Vec<Arc<str>> = paths.filter(|path| self.missing.contains(path)).collect();
        missing.iter().for_each(|path| self.ask(path));
    }

    fn ask(&mut self, path: &Arc<str>) {
        self.missing.remove(path);
        self.orphans.remove(path);
        let key = self.request("WATCH", path);
        self.asked.insert(key, Some(Arc::clone(path)));
        if let Some(watched) = self.paths.get_mut(path) {
            self.asked.remove(&std::mem::replace(&mut watched.key, key));
        }
    }

    fn request(&mut self, verb: &str, path: &str) -> u64 {
        self.last_key += 1;
        let line = format!("{} {verb} {path}", self.last_key);
        self.out.extend_from_slice(line.trim_end().as_bytes());
        self.out.push(b'\n');
        self.last_key
    }
}

/// All paths to watch, each with the signals of its change.
fn wanted(root: &Root, zones: &Zones) -> BTreeMap<Arc<str>, Vec<Signal>> {
    let mut wanted: BTreeMap<Arc<str>, Vec<Signal>> = BTreeMap::new();
    let mut want = |path: Option<Arc<str>>, signal: Option<Signal>| {
        if let Some(path) = path {
            // Nearly always one: a list that grows by itself has room for four.
            let signals = wanted.entry(path).or_default();
            signals.reserve_exact(usize::from(signal.is_some()));
            signals.extend(signal);
        }
    };
    want(watchable(root.sysinfo()), Some(Signal::Sysinfo));
    want(watchable(root.zone_index()), Some(Signal::Index));
    // A configuration that appears is in no list yet, but then the index changes, too.
    want(watchable(root.path("/etc/zones")), None);
    for (zone, place) in zones.iter() {
        for (path, file) in zone_paths(root, zone, &place.zonepath) {
            want(path, file.map(|file| Signal::File(Arc::clone(zone), file)));
        }
    }
    wanted
}

/// The paths of a zone, directories first: a file that appears while its directory is watched is
/// noticed.
fn zone_paths(
    root: &Root,
    zone: &str,
    zonepath: &str,
) -> Vec<(Option<Arc<str>>, Option<ZoneFile>)> {
    let config = |name: &&str| root.config_file(zonepath, name);
    let mut paths = vec![
        (watchable(root.path(zonepath)), None),
        (watchable(root.config_dir(zonepath)), None),
        (watchable(root.lastexited(zonepath)), Some(ZoneFile::LastExited)),
    ];
    paths.extend(CONFIG_FILES.iter().map(|name| (watchable(config(name)), Some(ZoneFile::Config))));
    if !zone.is_empty() {
        paths.push((watchable(root.zone_xml(zone)), Some(ZoneFile::Xml)));
    }
    paths
}

/// Returns the path for the helper; `None` if it has a blank, at which the helper would end it: only
/// sweeps see that file.
fn watchable(path: std::path::PathBuf) -> Option<Arc<str>> {
    let path = path.to_str()?;
    (!path.contains([' ', '\t', '\n', '\r'])).then(|| path.into())
}

#[cfg(test)]
mod tests;
