// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The sweep: every few seconds one `zoneadm list`, and a stat of each file of each VM. It finds changes
//! that no event announced.
//!
//! Events are a shortcut and not the truth: the system may drop one, a helper may die, a file may be written in place.
//! So what costs little is compared all the time, and what a sweep finds is read as if an event had named it. Sweeps
//! that find something again and again show that an event source is deaf: it is started again.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::time::Instant;
use vm_model::origin::Origin;
use vm_model::parse::zoneadm::ZoneRow;
use vm_model::parts::{FILES, Parts, Stamps};
use vm_model::stale::{Stale, ZoneFile};

use super::vms::{Vm, Vms};
use crate::node::blocking::threads;
use crate::node::read::{stamps, zoneadm};
use crate::node::root::{ReadError, Root};
use crate::node::{Ctx, LoadError};
use crate::sources::watched::Zones;

/// What each file of a zone is, in the order of its stamps.
const FILE_OF: [ZoneFile; FILES] =
    [ZoneFile::Xml, ZoneFile::LastExited, ZoneFile::Config, ZoneFile::Config, ZoneFile::Config];
/// Sweeps in a row with unannounced changes after which the event source is started again.
const MISSES: u32 = 2;

/// What is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The list of zones, and all files.
    All,
    /// All files, because they were not watched before.
    Files,
    /// The list of zones, if the stamp of the index differs.
    Index,
}

impl Scope {
    /// Returns its name in logs.
    pub fn name(self) -> &'static str {
        match self {
            Scope::All => "all",
            Scope::Files => "files",
            Scope::Index => "index",
        }
    }
}

/// Zone, zonepath, and the stamps of its files.
pub type Files = (Arc<str>, Arc<str>, Result<Stamps, ReadError>);

/// What a comparison found.
#[derive(Debug)]
pub struct Comparison {
    /// What was looked at.
    pub scope: Scope,
    /// zoneadm's rows; `None`: they were not asked for.
    pub rows: Option<Result<Vec<Arc<ZoneRow>>, LoadError>>,
    /// The stamps of the files of each zone.
    pub files: Vec<Files>,
    /// The stamp of the sysinfo file; outer `None`: it was not looked at.
    pub sysinfo: Option<Option<u64>>,
    /// The stamp of the zone index.
    pub index: Option<u64>,
}

/// Compares the node; `index` is the stamp of the zone index at the last comparison.
pub async fn compare(ctx: &Ctx, scope: Scope, zones: Zones, index: Option<u64>) -> Comparison {
    let stamp = async |path: std::path::PathBuf| {
        let place = path.display().to_string();
        let stamp = ctx.root.on_files(&place, move |root| stamps::of(root, &path)).await;
        stamp.ok().flatten()
    };
    let is_index = async {
        let now = stamp(ctx.root.zone_index()).await;
        let is_wanted = scope == Scope::All || scope == Scope::Index && now != index;
        let rows = if is_wanted {
            Some(zoneadm::list(ctx).await.map(|listing| listing.rows))
        } else {
            None
        };
        (now, rows)
    };
    if scope == Scope::Index {
        let (index, rows) = is_index.await;
        return Comparison { scope, rows, files: Vec::new(), sysinfo: None, index };
    }
    let ((index, rows), files, sysinfo) =
        tokio::join!(is_index, files(&ctx.root, zones), stamp(ctx.root.sysinfo()));
    Comparison { scope, rows, files, sysinfo: Some(sysinfo), index }
}

async fn files(root: &Root, zones: Zones) -> Vec<Files> {
    let list: Arc<[(Arc<str>, Arc<str>)]> =
        zones.iter().map(|(zone, place)| (Arc::clone(zone), Arc::clone(&place.zonepath))).collect();
    let places = list.iter().map(|(_, path)| Arc::clone(path)).collect();
    let own = Arc::clone(&list);
    let look = move |root: &Root, at: usize| {
        own.get(at).and_then(|(zone, path)| stamps::read(root, zone, path).ok())
    };
    let looks = root.on_each(places, threads(), look).await;
    let seen = list.iter().zip(looks);
    seen.filter_map(|((zone, path), look)| {
        Some((Arc::clone(zone), Arc::clone(path), look.transpose()?))
    })
    .collect()
}

/// When to look, and what is known from the last look.
#[derive(Debug)]
pub struct Sweep {
    due: Instant,
    is_running: bool,
    /// The files were not watched until now.
    is_unwatched: bool,
    /// The zone index may have changed.
    is_index_stale: bool,
    index: Option<u64>,
    pub zones: Misses,
    pub files: Misses,
}

/// Sweeps in a row with changes that an event source did not announce.
#[derive(Debug, Default)]
pub struct Misses(u32);

impl Misses {
    /// Counts a sweep that found so many; returns true if the source is to be started again.
    pub fn judge(&mut self, found: usize) -> bool {
        self.0 = if found > 0 { self.0 + 1 } else { 0 };
        let is_deaf = self.0 >= MISSES;
        if is_deaf {
            self.0 = 0;
        }
        is_deaf
    }
}

/// A difference that a look found.
#[derive(Debug, PartialEq, Eq)]
pub struct Difference {
    pub name: Arc<str>,
    /// What is to be read.
    pub stale: Stale,
    /// The source to count it for, if no event announced it.
    pub missed: Option<Origin>,
}

impl Sweep {
    /// The first sweep is due at this time.
    pub fn new(due: Instant) -> Self {
        Self {
            due,
            is_running: false,
            is_unwatched: false,
            is_index_stale: false,
            index: None,
            zones: Misses::default(),
            files: Misses::default(),
        }
    }

    pub fn plan(&mut self, due: Instant) {
        self.due = due;
    }

    /// Asks for a look at all files: they were not watched before.
    pub fn mark_unwatched(&mut self) {
        self.is_unwatched = true;
    }

    /// Asks for a look at the zone index.
    pub fn mark_index(&mut self) {
        self.is_index_stale = true;
    }

    /// Begins the look that is due; returns its scope and the last stamp of the index.
    pub fn begin(&mut self, now: Instant) -> Option<(Scope, Option<u64>)> {
        if self.is_running {
            return None;
        }
        let scope = if self.is_index_stale {
            self.is_index_stale = false;
            Scope::Index
        } else if self.is_unwatched {
            self.is_unwatched = false;
            Scope::Files
        } else if self.due <= now {
            Scope::All
        } else {
            return None;
        };
        self.is_running = true;
        Some((scope, self.index))
    }

    /// When [`Sweep::begin`] will begin a look.
    pub fn deadline(&self, now: Instant) -> Option<Instant> {
        let at = if self.is_unwatched || self.is_index_stale { now } else { self.due };
        (!self.is_running).then_some(at)
    }

    pub fn ended(&mut self, index: Option<u64>) {
        self.is_running = false;
        self.index = index;
    }

    /// A look has failed as a whole.
    pub fn failed(&mut self) {
        self.is_running = false;
        self.index = None;
    }
}

/// Compares zoneadm's rows with those of the VMs.
pub fn compare_rows(vms: &Vms, rows: &[Arc<ZoneRow>]) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut differs = |name: &Arc<str>| {
        let is_announced = vms.get(name).is_some_and(|vm| is_announced(vm, Stale::ZONEADM));
        let missed = (!is_announced).then_some(Origin::Zoneadm);
        let (name, stale) = (Arc::clone(name), Stale::ON_ZONE_EVENT);
        found.push(Difference { name, stale, missed });
    };
    for row in rows {
        if vms.parts(&row.zonename).is_none_or(|parts| parts.zone != *row) {
            differs(&row.zonename);
        }
    }
    let listed: HashSet<&str> = rows.iter().map(|row| &*row.zonename).collect();
    vms.known().filter(|(name, _)| !listed.contains(&***name)).for_each(|(name, _)| differs(name));
    found
}

/// Compares the stamps of files with those of the versions that were read. With `is_unwatched` no event
/// can have announced a change.
pub fn compare_files(vms: &Vms, files: &[Files], is_unwatched: bool) -> Vec<Difference> {
    let mut found = Vec::new();
    for (name, zonepath, seen) in files {
        let Some((vm, parts)) = vms.get(name).and_then(|vm| Some((vm, vm.parts.as_ref()?))) else {
            continue;
        };
        if parts.zone.zonepath != *zonepath {
            continue;
        }
        let (stale, file) = match seen {
            Ok(stamps) => differing(parts, stamps, is_unwatched),
            // Its file system hangs: a reading shows that in /status.
            Err(_) if vm.is_failing() || vm.reading.is_some() => continue,
            Err(_) => (Stale::FILES | Stale::TIMES, None),
        };
        // A failing VM is read again after its back-off.
        let comes = vm.is_failing() && vms.queue.due(name).is_some() || vm.stale.contains(stale);
        if stale.is_empty() || comes {
            continue;
        }
        let missed = file.filter(|_| !is_unwatched && !is_announced(vm, stale)).map(origin_of);
        found.push(Difference { name: Arc::clone(name), stale, missed });
    }
    found
}

fn differing(parts: &Parts, seen: &Stamps, is_unwatched: bool) -> (Stale, Option<ZoneFile>) {
    let mut stale = Stale::empty();
    let mut first = None;
    for (at, file) in FILE_OF.into_iter().enumerate() {
        // A file that was young when it was read may have changed since.
        let is_young = is_unwatched && parts.stamps.young & (1 << at) != 0;
        if parts.stamps.differs(seen, at) || is_young {
            stale |= Stale::on_file(file);
            first = first.or(Some(file));
        }
    }
    (stale, first)
}

/// Returns true if an event announced a change of these parts, or they are read anyway.
fn is_announced(vm: &Vm, parts: Stale) -> bool {
    vm.announced.intersects(parts) || vm.is_stale(parts) || vm.is_failing()
}

fn origin_of(file: ZoneFile) -> Origin {
    match file {
        ZoneFile::Xml => Origin::ZoneXml,
        ZoneFile::Config => Origin::Config,
        ZoneFile::LastExited => Origin::LastExited,
        ZoneFile::Receiving => Origin::Receiving,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn runs_one_look_at_a_time_urgent_ones_first() {
        let now = Instant::now();
        let mut sweep = Sweep::new(now + Duration::from_secs(10));
        assert_eq!(sweep.begin(now), None);
        sweep.mark_index();
        sweep.mark_unwatched();
        assert_eq!(sweep.begin(now), Some((Scope::Index, None)));
        assert_eq!((sweep.begin(now), sweep.deadline(now)), (None, None));
        sweep.ended(Some(7));
        assert_eq!(sweep.begin(now), Some((Scope::Files, Some(7))));
        sweep.failed();
        assert_eq!(sweep.deadline(now), Some(now + Duration::from_secs(10)));
        assert_eq!(sweep.begin(now + Duration::from_secs(10)), Some((Scope::All, None)));
    }

    #[test]
    fn two_sweeps_with_findings_restart_the_source() {
        let mut misses = Misses::default();
        assert!(!misses.judge(3) && !misses.judge(0) && !misses.judge(1));
        assert!(misses.judge(1) && !misses.judge(1));
    }
}
