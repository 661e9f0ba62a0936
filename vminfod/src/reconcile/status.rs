// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The state of the reconciler for `/status`, `/sysinfo` and `/ready`. No decision depends on it.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use daemon::metrics::Durations;
use indexmap::IndexMap;
use sdc_clients::vminfod::Incomplete;
use serde_json::Value;
use tokio::time::Instant;

use crate::sources::fswatcher::Watching;

/// While the zfs event source is down or silent, filesystems and volumes are listed this often.
pub const UNANNOUNCED: Duration = Duration::from_secs(60);
/// A listing of one dataset that takes this long is slow: an ordinary one takes a few milliseconds.
pub const SLOW: Duration = Duration::from_millis(250);
/// How many refresh errors and log entries are kept.
const KEEP: usize = 5;

/// What a failure makes incomplete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Concerns {
    /// Nothing that `/vms` shows.
    Nothing,
    /// The VM of this zone: it is not shown, or as it was read before.
    Zone(Arc<str>),
    /// The list of zones.
    Listing,
}

/// A failing part of the node.
#[derive(Clone, Debug)]
pub struct Trouble {
    /// What it makes incomplete.
    pub concerns: Concerns,
    /// Which source failed.
    pub source: String,
    pub message: String,
    /// When it began.
    pub since: Instant,
    /// Failed attempts so far.
    pub attempts: u32,
}

/// A refresh that found differences.
#[derive(Clone, Debug)]
pub struct RefreshEntry {
    /// When it began.
    pub started: Instant,
    /// When it ended.
    pub ended: Instant,
    /// Zone name, `create`, `modify` or `delete`.
    pub vm_changes: Vec<(String, &'static str)>,
}

/// Counts since start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Loads of one VM.
    pub loads: u64,
    pub load_failures: u64,
    pub refreshes: u64,
    pub sweeps: u64,
    /// Files that a refresh did not read because nothing about them had changed.
    pub confirmed: u64,
    /// Reboots shown although both readings said `running`.
    pub reboots_shown: u64,
}

/// Everything the status page reads.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The full refresh under way.
    pub refresh: Option<Refresh>,
    /// Readings under way by zone name: when the signal came, when it began.
    pub pending: IndexMap<String, (Instant, Instant)>,
    /// VMs to read: when they are due, and when the first signal came.
    pub due: HashMap<Arc<str>, (Instant, Instant)>,
    /// When the last refresh ended, failed or not, and how long it took.
    pub last_refresh: Option<(Instant, Duration)>,
    /// The last failures of a refresh.
    pub refresh_errors: VecDeque<(String, Instant)>,
    /// The last refreshes that found something.
    pub refresh_log: VecDeque<RefreshEntry>,
    /// Current failures, by zone or source name.
    pub errors: IndexMap<String, Trouble>,
    pub counters: Counters,
    /// From the start of each reading of a VM to its end.
    pub load_times: Durations,
    /// The same from the first signal.
    pub latencies: Durations,
    /// The differences that no event had announced, by what differed.
    pub unannounced: BTreeMap<&'static str, u64>,
    /// Restarts by source.
    pub restarts: BTreeMap<&'static str, u64>,
    /// Sources that run now, by name.
    pub sources: IndexMap<&'static str, bool>,
    /// The last refresh is too old.
    pub stale: bool,
    /// The zfs event source runs, but the last refreshes found changes that it had not announced.
    pub are_datasets_silent: bool,
    /// When the last good listing of the filesystems and volumes began.
    pub datasets_listed: Option<Instant>,
    /// The listings of single datasets under way, and since when.
    pub listings: BTreeMap<String, Instant>,
    /// The datasets whose last listing was slow, and how long it took.
    pub slow: BTreeMap<String, Duration>,
    /// The longest time between two refreshes.
    pub refresh_every: Duration,
    /// There is no zone index, and zoneadm lists no zone.
    pub is_blind: bool,
    /// Zones whose snapshots were never listed.
    pub without_snapshots: BTreeSet<Arc<str>>,
}

impl View {
    /// The zones that `/vms` does not show as they are.
    pub fn incomplete(&self) -> Incomplete {
        let concerns = || self.errors.values().map(|trouble| &trouble.concerns);
        if self.is_blind || concerns().any(|concerns| *concerns == Concerns::Listing) {
            return Incomplete::Everything;
        }
        let failing = concerns().filter_map(|concerns| match concerns {
            Concerns::Zone(name) => Some(name),
            Concerns::Nothing | Concerns::Listing => None,
        });
        let names = failing.chain(&self.without_snapshots).map(|name| name.to_string());
        Incomplete::of_zones(names)
    }

    /// Returns true if this event source is to run and does not.
    pub fn is_down(&self, source: &str) -> bool {
        self.sources.get(source) == Some(&false)
    }

    /// VMs whose reading is due and has not begun, the first in turn first: zone name, since when.
    pub fn queued(&self) -> Vec<(&str, Instant)> {
        let now = Instant::now();
        let due = self.due.iter().filter(|(_, (at, _))| *at <= now);
        let mut queued: Vec<_> = due.map(|(name, (at, _))| (&**name, *at)).collect();
        queued.sort_by_key(|(_, at)| *at);
        queued
    }

    /// Returns true if all signals are handled: nothing is being read, and only VMs whose reading
    /// failed are due.
    pub fn is_idle(&self) -> bool {
        let is_retry = |name: &Arc<str>| self.errors.contains_key(&**name);
        self.pending.is_empty() && self.refresh.is_none() && self.due.keys().all(is_retry)
    }

    /// A VM is to be read at this time.
    pub fn waits(&mut self, name: &Arc<str>, at: Instant, signalled: Instant) {
        self.due.insert(Arc::clone(name), (at, signalled));
    }

    /// The reading of a VM begins.
    pub fn begins(&mut self, name: &Arc<str>, signalled: Instant, now: Instant) {
        self.counters.loads += 1;
        self.pending.insert(name.to_string(), (signalled, now));
        self.due.remove(name);
    }

    /// The reading of a VM has ended, and its effect can be seen.
    pub fn ends(&mut self, name: &str) {
        if let Some((signalled, began)) = self.pending.shift_remove(name) {
            self.load_times.took(began.elapsed());
            self.latencies.took(signalled.elapsed());
        }
    }

    /// The current phase in the words of the shipped service.
    pub fn phase(&self) -> &'static str {
        match self.refresh {
            None => "working",
            Some(refresh) => refresh.phase.words(),
        }
    }
}

/// A full refresh under way.
#[derive(Clone, Copy, Debug)]
pub struct Refresh {
    /// When it began.
    pub began: Instant,
    /// How far it is.
    pub phase: Phase,
}

/// The steps of a refresh, shown by the names of the shipped service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The commands and files are being read.
    Reading,
    /// What was read is being compared with what is known, and committed where it differs.
    Committing,
}

impl Phase {
    fn words(self) -> &'static str {
        match self {
            Self::Reading => "fetching vm cache data",
            Self::Committing => "synchronizing data",
        }
    }
}

/// The sysinfo file, read and parsed.
#[derive(Debug)]
pub struct SysinfoView {
    /// As ASCII JSON.
    pub json: Bytes,
    /// When it was read.
    pub at: Instant,
}

/// The shared state; cheap to clone.
#[derive(Clone, Debug)]
pub struct Status {
    /// Start of the program.
    pub started: Instant,
    /// The watched files.
    pub watching: Watching,
    view: Arc<Mutex<View>>,
    sysinfo: Arc<ArcSwapOption<SysinfoView>>,
}

impl Default for Status {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            watching: Watching::default(),
            view: Arc::default(),
            sysinfo: Arc::new(ArcSwapOption::empty()),
        }
    }
}

impl Status {
    /// A copy of everything.
    pub fn view(&self) -> View {
        self.lock().clone()
    }

    /// Calls `edit` with the state.
    pub fn edit<R>(&self, edit: impl FnOnce(&mut View) -> R) -> R {
        edit(&mut self.lock())
    }

    /// The last sysinfo that could be read.
    pub fn sysinfo(&self) -> Option<Arc<SysinfoView>> {
        self.sysinfo.load_full()
    }

    /// Shows a sysinfo that was just read.
    pub fn show_sysinfo(&self, value: &Value) {
        let json = Bytes::from(vm_model::js::to_ascii(value));
        self.sysinfo.store(Some(Arc::new(SysinfoView { json, at: Instant::now() })));
    }

    /// Records a failure; returns true if it is new.
    pub fn trouble(&self, name: &str, concerns: Concerns, source: &str, message: String) -> bool {
        self.edit(|view| match view.errors.get_mut(name) {
            Some(known) => {
                known.attempts = known.attempts.saturating_add(1);
                let news = known.message != message;
                known.message = message;
                known.source = source.to_owned();
                known.concerns = concerns;
                news
            }
            None => {
                let trouble = Trouble {
                    concerns,
                    source: source.to_owned(),
                    message,
                    since: Instant::now(),
                    attempts: 1,
                };
                view.errors.insert(name.to_owned(), trouble);
                true
            }
        })
    }

    /// Clears the failure recorded for `name`; returns whether there was one.
    pub fn clear_trouble(&self, name: &str) -> bool {
        self.edit(|view| view.errors.shift_remove(name).is_some())
    }

    /// Records a file of a VM that counts as empty or unchanged because its content is invalid.
    pub fn doubt(&self, name: &Arc<str>, what: &str) {
        let concerns = Concerns::Zone(Arc::clone(name));
        if self.trouble(&format!("{name} config"), concerns, "config", what.to_owned()) {
            tracing::warn!(vm = &**name, what, "file is invalid: not shown");
        }
    }

    /// Clears what [`Status::doubt`] recorded.
    pub fn clear_doubt(&self, name: &str) {
        self.clear_trouble(&format!("{name} config"));
    }

    /// The datasets of a VM, and their snapshots, are listed or cannot be: it is gone, or has none.
    pub fn has_datasets(&self, name: &str) {
        self.clear_trouble(&format!("{name} zfs"));
        self.edit(|view| view.without_snapshots.remove(name));
    }

    /// Returns true if this event source runs.
    pub fn is_up(&self, source: &str) -> bool {
        self.edit(|view| view.sources.get(source).copied().unwrap_or_default())
    }

    /// Counts a difference that no event had announced.
    pub fn unannounced(&self, class: &'static str) {
        self.edit(|view| *view.unannounced.entry(class).or_default() += 1);
    }

    /// Shows how far a refresh is.
    pub fn show_refresh(&self, began: Instant, phase: Phase) {
        self.edit(|view| view.refresh = Some(Refresh { began, phase }));
    }

    /// Counts a restart of a source.
    pub fn restarted(&self, source: &'static str) {
        self.edit(|view| *view.restarts.entry(source).or_default() += 1);
    }

    /// Notes the end of a refresh.
    pub fn refreshed(&self, started: Instant, result: Result<Vec<(String, &'static str)>, String>) {
        let ended = Instant::now();
        self.edit(|view| {
            view.refresh = None;
            view.last_refresh = Some((ended, ended - started));
            view.counters.refreshes += 1;
            match result {
                Ok(vm_changes) if vm_changes.is_empty() => {}
                Ok(vm_changes) => {
                    push(&mut view.refresh_log, RefreshEntry { started, ended, vm_changes })
                }
                Err(message) => push(&mut view.refresh_errors, (message, ended)),
            }
        });
    }

    fn lock(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn push<T>(ring: &mut VecDeque<T>, item: T) {
    if ring.len() >= KEEP {
        ring.pop_front();
    }
    ring.push_back(item);
}
