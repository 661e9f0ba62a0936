// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What a sweep found: differences that no event announced become stale parts, a count and one
//! log line each.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Engine;
use crate::dirty::Stale;
use crate::heap;
use crate::load::zoneadm::Listed;
use crate::load::{LoadError, Origin};
use crate::sources::ZoneFile;
use crate::sources::sysevent::Channel;
use crate::sweep::{Files, Look};

/// What each file of a zone is, in the order of [`crate::load::times::files`].
const FILES: [ZoneFile; 5] =
    [ZoneFile::Xml, ZoneFile::LastExited, ZoneFile::Config, ZoneFile::Config, ZoneFile::Config];
/// Sweeps in a row that find unannounced zone changes before the source is started anew.
const MISSES: u32 = 2;

impl Engine {
    /// Plans the next sweep.
    pub(super) fn plan_sweep(&mut self) {
        let again = std::mem::take(&mut self.sweep_again);
        let pace = pace(self.config.sweep, self.config.sweep_vms, self.vms.len());
        let pause = if again { self.config.fold } else { self.jitter.around(pace, 0.1) };
        self.sweep_due = Instant::now() + pause;
    }

    /// A sweep has ended.
    pub(super) fn swept(&mut self, look: Look) {
        self.sweeping = false;
        let is_whole = look.rows.is_some();
        if is_whole {
            self.plan_sweep();
            self.board.edit(|view| view.counters.sweeps += 1);
        }
        // What was signalled up to now is announced.
        let pending = self.inbox.take();
        if !pending.is_empty() {
            self.take(pending);
        }
        if let Some(listed) = look.rows {
            self.take_list(listed);
        }
        self.compare_files(&look.files, look.unseen);
        self.files = Arc::new(look.files.compared());
        self.board.edit(|view| view.watch.files = Arc::clone(&self.files));
        if is_whole {
            self.vms.values_mut().for_each(|vm| vm.announced = Stale::NONE);
        }
        // It costs a millisecond; what a look at all files had would else stay until a refresh.
        heap::give_back();
    }

    fn take_list(&mut self, listed: Result<Arc<Listed>, LoadError>) {
        match listed {
            Ok(rows) => {
                self.board.well("sweep");
                let is_same = self.rows_agree && Arc::ptr_eq(&rows, &self.listed);
                let misses = if is_same { 0 } else { self.compare_rows(&rows) };
                self.judge_source(misses);
                self.keep_list(rows);
            }
            Err(error) => {
                if self.board.trouble("sweep", error.source_name(), error.to_string()) {
                    tracing::warn!(reason = %error, "sweep failed");
                }
            }
        }
    }

    /// Keeps a list to compare the next one with; rows that are parts of a VM are shared with it.
    pub(super) fn keep_list(&mut self, rows: Arc<Listed>) {
        if !Arc::ptr_eq(&rows, &self.listed) {
            self.rows_agree = false;
            let known = |name: &str| Some(&self.vms.get(name)?.parts.as_ref()?.zone);
            self.listed = Arc::new(rows.sharing(known));
        }
    }

    fn compare_rows(&mut self, rows: &Arc<Listed>) -> u32 {
        let mut misses = 0;
        let mut odd: Vec<(String, &'static str)> = Vec::new();
        let mut known = 0;
        for row in rows.iter() {
            match self.vms.get(&row.zonename).and_then(|vm| vm.parts.as_ref()) {
                // Most are the very same.
                Some(parts) if Arc::ptr_eq(&parts.zone, row) || parts.zone == *row => known += 1,
                Some(_) => {
                    known += 1;
                    odd.push((row.zonename.to_string(), "its zoneadm row differs"));
                }
                None => odd.push((row.zonename.to_string(), "it is new")),
            }
        }
        if rows.lacks_some(known, self.vms.values().filter(|vm| vm.parts.is_some()).count()) {
            let listed: HashSet<&str> = rows.iter().map(|row| &*row.zonename).collect();
            let gone = self
                .vms
                .iter()
                .filter(|(name, vm)| vm.parts.is_some() && !listed.contains(&***name));
            odd.extend(gone.map(|(name, _)| (name.to_string(), "it is not listed any more")));
        }
        self.rows_agree = odd.is_empty() && Arc::ptr_eq(rows, &self.listed);
        for (name, what) in odd {
            // An announced change is on its way already, or was too late for this look.
            if self.unannounced(&name, Stale::ZONEADM, Origin::Zoneadm, what) {
                misses += 1;
            }
            self.mark(&name, Stale::ON_ZONE_EVENT, Instant::now() + self.config.fold);
        }
        misses
    }

    /// Counts and logs a difference, unless something announced it.
    fn unannounced(&self, name: &str, part: Stale, class: Origin, what: &str) -> bool {
        let vm = self.vms.get(name);
        let announced = vm.is_some_and(|vm| {
            vm.announced.has(part)
                || vm.stale.has(part)
                || vm.reading.as_ref().is_some_and(|r| r.stale.has(part))
                || vm.failures > 0
        });
        if announced {
            return false;
        }
        self.board.unannounced(class.name());
        tracing::warn!(
            vm = name,
            class = class.name(),
            what,
            "sweep found what no event announced"
        );
        true
    }

    fn judge_source(&mut self, misses: u32) {
        self.misses = if misses > 0 { self.misses + 1 } else { 0 };
        if self.misses >= MISSES {
            self.misses = 0;
            self.board.restarted(Channel::Zones.name());
            // Where no child waits for it, the permit starts the next one anew: harmless.
            self.restart_zones.notify_one();
        }
    }

    /// Whatever is not of the version that was read is to be read again. Where a look saw what the last
    /// one did and nothing was read since, that was judged then.
    fn compare_files(&mut self, files: &Files, unseen: bool) {
        let mut odd: Vec<(String, Stale)> = Vec::new();
        for (name, zonepath, stamps) in files.changed() {
            let Some(vm) = self.vms.get(name) else { continue };
            let Some(parts) = &vm.parts else { continue };
            // Who would have been told of a change may go by the stamp of a file that was young.
            let is_known = parts.stamps == *stamps && !unseen || parts.stamps.confirmed_by(stamps);
            if is_known || parts.zone.zonepath != *zonepath {
                continue;
            }
            let mut stale = if unseen { Stale::FILES | Stale::TIMES } else { Stale::NONE };
            for (at, file) in FILES.into_iter().enumerate() {
                if parts.stamps.differs(stamps, at) {
                    stale |= Stale::on_file(file);
                }
            }
            // One that fails is tried again at its own pace, one that is due anyway is on its way.
            let comes = vm.failures > 0 && vm.due.is_some() || vm.stale.covers(stale);
            if stale.is_none() || comes {
                continue;
            }
            let file = FILES.into_iter().find(|file| stale.has(Stale::on_file(*file)));
            if let Some(file) = file.filter(|_| !unseen) {
                self.unannounced(name, stale, origin_of(file), "one of its files changed");
            }
            odd.push((name.to_string(), stale));
        }
        // What is known of these may be old, and a reading of their own says so.
        let silent = files.hanging.iter().filter(|name| {
            self.vms.get(name.as_str()).is_some_and(|vm| vm.failures == 0 && vm.reading.is_none())
        });
        odd.extend(silent.map(|name| (name.clone(), Stale::FILES | Stale::TIMES)));
        let when = Instant::now() + self.config.fold;
        for (name, stale) in odd {
            self.mark(&name, stale, when);
        }
        if files.sysinfo != self.files.sysinfo {
            self.sysinfo_stale = true;
        }
    }
}

/// The time between sweeps. Each costs in proportion to the VMs; from a number on the share of a core
/// that they take stays the same instead.
fn pace(sweep: Duration, steady: usize, vms: usize) -> Duration {
    sweep.mul_f64((vms as f64 / steady.max(1) as f64).max(1.0))
}

/// The source that a file is.
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
    use super::*;

    #[test]
    fn sweeps_take_no_larger_share_of_a_core_however_many_vms_there_are() {
        let ten = Duration::from_secs(10);
        for (vms, seconds) in [(0, 10), (1, 10), (3000, 10), (6000, 20), (50_000, 166)] {
            assert_eq!(pace(ten, 3000, vms).as_secs(), seconds, "{vms} VMs");
        }
        assert_eq!(pace(ten, usize::MAX, 50_000), ten);
        // Whoever wants them more often gets them.
        assert_eq!(pace(ten / 10, 3000, 6000), ten / 5);
    }
}
