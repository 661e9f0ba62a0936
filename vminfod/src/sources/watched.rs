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

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
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

/// What is watched, or should be. Directories come before what is in them: a file that appears while its
/// directory is watched is noticed. Those whose own directory is not watched come first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    Sysinfo,
    /// `/etc/zones`. A configuration that appears is in no list yet, but then the index changes, too.
    Zones,
    /// The directory of a zone, by its zonepath.
    Home(Arc<str>),
    Index,
    /// The configuration of the zone of this name.
    Xml(Arc<str>),
    ConfigDir(Arc<str>),
    LastExited(Arc<str>),
    /// One of [`CONFIG_FILES`].
    Config(Arc<str>, u8),
}

impl Target {
    /// The paths of a zone, its configuration apart.
    fn of_home(home: &Arc<str>) -> Vec<Target> {
        let own = [Self::Home, Self::ConfigDir, Self::LastExited].into_iter();
        own.map(|of| of(Arc::clone(home))).chain(Self::configs(home)).collect()
    }

    fn configs(home: &Arc<str>) -> impl Iterator<Item = Target> {
        (0..).zip(CONFIG_FILES).map(|(nth, _)| Self::Config(Arc::clone(home), nth))
    }

    fn is_directory(&self) -> bool {
        matches!(self, Self::Zones | Self::Home(_) | Self::ConfigDir(_))
    }

    /// Returns true if its directory is not watched: no event comes when it appears.
    fn is_orphan(&self) -> bool {
        matches!(self, Self::Sysinfo | Self::Zones | Self::Home(_))
    }
}

/// How one of them is watched.
#[derive(Debug, Default)]
struct Watched {
    /// The last request for it; only its answer counts. 0: none is open.
    key: u64,
    /// It did not exist, or its watch ended: an answer of success is a change.
    is_missing: bool,
}

impl Watched {
    /// Returns true if it is missing and not asked for.
    fn is_idle(&self) -> bool {
        self.is_missing && self.key == 0
    }
}

/// The watched files and the requests under way.
#[derive(Debug, Default)]
pub struct WatchList {
    root: Root,
    watched: BTreeMap<Target, Watched>,
    zones: Zones,
    /// The zones by their zonepath.
    homes: BTreeMap<Arc<str>, Vec<Arc<str>>>,
    /// Requests without an answer, by key; `None` for one that is not about a path.
    asked: BTreeMap<u64, Option<Target>>,
    last_key: u64,
    /// Zones whose files were not watched before.
    unwatched: BTreeSet<Arc<str>>,
    /// What is to be written to the helper.
    out: Vec<u8>,
    is_ready: bool,
    pid: Option<u32>,
    /// A path whose directory is not watched may be missing.
    may_have_orphans: bool,
}

impl WatchList {
    /// Nothing is watched yet below this root.
    pub fn new(root: Root) -> Self {
        Self { root, ..Self::default() }
    }

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

    /// The files that are watched, and the missing ones; sorted.
    pub fn presence(&self) -> (Vec<String>, Vec<String>) {
        let mut lists = (Vec::new(), Vec::new());
        for (target, watched) in self.watched.iter().filter(|(target, _)| !target.is_directory()) {
            let list = if watched.is_missing { &mut lists.1 } else { &mut lists.0 };
            list.push(self.path(target).display().to_string());
        }
        lists.0.sort();
        lists.1.sort();
        lists
    }

    /// Takes what is to be written to the helper.
    pub fn take_requests(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// Returns true unless the last look at the paths whose directory is not watched found none missing, and
    /// nothing has happened since.
    pub fn may_have_orphans(&self) -> bool {
        self.may_have_orphans
    }

    /// Asks for the missing paths whose directory is not watched.
    pub fn ask_orphans(&mut self) {
        let all = self.watched.iter().take_while(|(target, _)| target.is_orphan());
        let idle = all.filter(|(_, watched)| watched.is_idle()).map(|(target, _)| target.clone());
        let idle: Vec<Target> = idle.collect();
        self.may_have_orphans = !idle.is_empty();
        self.ask_missing(idle);
    }

    /// Sets the list of zones: watches new ones, stops watching those that are not in it.
    pub fn want(&mut self, zones: &Zones) {
        self.may_have_orphans = true;
        self.homes.clear();
        let mut wanted = BTreeSet::from([Target::Sysinfo, Target::Zones, Target::Index]);
        for (zone, place) in zones.iter() {
            wanted.insert(Target::Xml(Arc::clone(zone)));
            wanted.extend(Target::of_home(&place.zonepath));
            let zones = self.homes.entry(Arc::clone(&place.zonepath)).or_default();
            zones.reserve_exact(1);
            zones.push(Arc::clone(zone));
        }
        wanted.retain(|target| is_watchable(&self.path(target)));
        let idle = self.watched.keys().filter(|target| !wanted.contains(target));
        for target in idle.cloned().collect::<Vec<_>>() {
            if let Some(watched) = self.watched.remove(&target) {
                self.asked.remove(&watched.key);
            }
            let key = self.request("UNWATCH", &self.path(&target));
            self.asked.insert(key, None);
        }
        for target in wanted {
            if !self.watched.contains_key(&target) {
                self.watched.insert(target.clone(), Watched::default());
                self.ask(target);
            }
        }
        for (name, place) in zones.iter() {
            match self.zones.get(name) {
                Some(old) if old == place => {}
                Some(old) if old.zonepath == place.zonepath => {
                    self.ask_missing(Target::of_home(&place.zonepath));
                }
                _ => drop(self.unwatched.insert(Arc::clone(name))),
            }
        }
        self.zones = Arc::clone(zones);
    }

    /// Reads a line of the helper and returns its signals.
    /// Errors: the helper has to be started again.
    pub fn line(&mut self, line: &[u8]) -> Result<Vec<Signal>, Complaint> {
        self.may_have_orphans = true;
        let line: HelperLine =
            serde_json::from_slice(line).map_err(|error| Complaint::Garbage(error.to_string()))?;
        match line.r#type.as_str() {
            // Once: a helper that repeats it must not make the list of requests grow.
            "ready" if !self.is_ready => {
                self.is_ready = true;
                let key = self.request("STATUS", Path::new(""));
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
        let Some(target) = self.target(path) else { return Vec::new() };
        if is_final {
            let watched = self.watched.get_mut(&target);
            watched.into_iter().for_each(|watched| watched.is_missing = true);
            self.ask(target.clone());
        }
        self.ask_missing(self.inside(&target));
        self.signals(&target)
    }

    fn answered(&mut self, key: u64, is_success: bool) -> Vec<Signal> {
        let Some(target) = self.asked.remove(&key) else { return Vec::new() };
        let mut signals = Vec::new();
        if let Some(target) = target
            && let Some(watched) = self.watched.get_mut(&target)
        {
            watched.key = 0;
            if std::mem::replace(&mut watched.is_missing, !is_success) && is_success {
                signals = self.signals(&target);
                // A new directory may already have files in it.
                self.ask_missing(self.inside(&target));
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

    /// Asks for those of them that are known to be missing.
    fn ask_missing(&mut self, targets: Vec<Target>) {
        for target in targets {
            if self.watched.get(&target).is_some_and(Watched::is_idle) {
                self.ask(target);
            }
        }
    }

    fn ask(&mut self, target: Target) {
        let key = self.request("WATCH", &self.path(&target));
        if let Some(watched) = self.watched.get_mut(&target) {
            self.asked.remove(&std::mem::replace(&mut watched.key, key));
        }
        self.asked.insert(key, Some(target));
    }

    fn request(&mut self, verb: &str, path: &Path) -> u64 {
        self.last_key += 1;
        let line = format!("{} {verb} {}", self.last_key, path.display());
        self.out.extend_from_slice(line.trim_end().as_bytes());
        self.out.push(b'\n');
        self.last_key
    }

    /// What its change means; nothing for a directory.
    fn signals(&self, target: &Target) -> Vec<Signal> {
        let of = |home: &str, file| {
            let zones = self.homes.get(home).into_iter().flatten();
            zones.map(|zone| Signal::File(Arc::clone(zone), file)).collect()
        };
        match target {
            Target::Sysinfo => vec![Signal::Sysinfo],
            Target::Index => vec![Signal::Index],
            Target::Xml(zone) => vec![Signal::File(Arc::clone(zone), ZoneFile::Xml)],
            Target::LastExited(home) => of(home, ZoneFile::LastExited),
            Target::Config(home, _) => of(home, ZoneFile::Config),
            Target::Zones | Target::Home(_) | Target::ConfigDir(_) => Vec::new(),
        }
    }

    /// What may be missing in this directory.
    fn inside(&self, directory: &Target) -> Vec<Target> {
        match directory {
            // Each edit of an XML changes this one: the thousands that exist are not copied.
            Target::Zones => {
                let files = self.watched.range(Target::Index..);
                let files =
                    files.take_while(|(it, _)| matches!(it, Target::Index | Target::Xml(_)));
                files.filter(|(_, it)| it.is_idle()).map(|(target, _)| target.clone()).collect()
            }
            Target::Home(home) => {
                vec![Target::ConfigDir(Arc::clone(home)), Target::LastExited(Arc::clone(home))]
            }
            Target::ConfigDir(home) => Target::configs(home).collect(),
            _ => Vec::new(),
        }
    }

    fn path(&self, target: &Target) -> PathBuf {
        let root = &self.root;
        match target {
            Target::Sysinfo => root.sysinfo(),
            Target::Zones => root.path("/etc/zones"),
            Target::Home(home) => root.path(home),
            Target::Index => root.zone_index(),
            Target::Xml(zone) => root.zone_xml(zone),
            Target::ConfigDir(home) => root.config_dir(home),
            Target::LastExited(home) => root.lastexited(home),
            Target::Config(home, nth) => root.config_file(
                home,
                CONFIG_FILES.get(usize::from(*nth)).copied().unwrap_or_default(),
            ),
        }
    }

    /// What is at this path, if it is watched.
    fn target(&self, path: &str) -> Option<Target> {
        let path = Path::new(path);
        let own = Path::new("/").join(path.strip_prefix(self.root.dir()).ok()?);
        let zone = path.file_stem()?.to_str()?.into();
        let fixed = [Target::Sysinfo, Target::Zones, Target::Index, Target::Xml(zone)];
        let homes = own.ancestors().take(3).filter_map(Path::to_str);
        let mut near = fixed.into_iter().chain(homes.flat_map(|it| Target::of_home(&it.into())));
        near.find(|target| self.watched.contains_key(target) && self.path(target) == path)
    }
}

/// Returns false for a path with a blank, at which the helper would end it: only sweeps see that file.
fn is_watchable(path: &Path) -> bool {
    path.to_str().is_some_and(|path| !path.contains([' ', '\t', '\n', '\r']))
}

#[cfg(test)]
mod tests;
