// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The loop around dirty … store: take what is stale, read it, compose, diff, commit; retry what
//! failed; never stop for one bad VM.
//!
//! ```text
//!  inbox ──► stale parts ──due──► reading (a task per VM) ──► judge ──► compose ──► store
//!               ▲  ▲                        │ failed
//!    sweep ─────┘  └──── back-off ◄─────────┘
//!    refresh ──► a whole node ──► the same judge, compose, store
//! ```
//!
//! One task owns all of it. A signal that comes while its part is being read makes the part stale
//! again, and it is read again: nothing is ever paused.

pub mod alarm;
mod asks;
pub mod board;
mod datasets;
mod held;
mod node_wide;
mod readings;
mod refresh;
mod signals;
mod sweeping;
pub mod vm_load;
mod why;
mod work;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use daemon::Shutdown;
use sdc_clients::Jitter;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::alarm::{Alarm, Wait};
use self::asks::{Ask, Waiter};
pub use self::asks::{Asks, Held};
use self::board::Board;
use self::datasets::DatasetWork;
use self::held::Brought;
use self::vm_load::{Kstats, LoadFault, Loaded, datasets_of};
use self::why::Reads;
pub use self::why::{SourceWhy, Why};
use crate::config::Config;
use crate::dirty::{Stale, Trace};
use crate::heap;
use crate::load::datasets::Row;
use crate::load::zoneadm::Listed;
use crate::load::{Ctx, Datasets, LoadError, Node, Sysinfo};
use crate::sources::Signal;
use crate::sources::inbox::Inbox;
use crate::sources::watch::Zones;
use crate::store::{Outcome, Store};
use crate::sweep::{Files, Look};
use crate::vm::Parts;

/// Looks after a kernel event that showed no change: it may post before it stores.
const LOOKS: [Duration; 3] =
    [Duration::from_millis(50), Duration::from_millis(200), Duration::from_millis(1000)];
/// Names held at most; more can only be nonsense from a source.
const NAMES_CAP: usize = 50_000;

/// One VM, or a name that may turn out to be one.
#[derive(Default)]
struct Vm {
    parts: Option<Parts>,
    stale: Stale,
    due: Option<Instant>,
    /// Its reading is due before its fold ends ([`held`]).
    early: bool,
    asked: Option<Instant>,
    /// What is being read now.
    reading: Option<Box<Reading>>,
    /// What the kernel said since the last reading began.
    trace: Trace,
    /// A kernel event has not shown its effect yet: how many looks there were after it.
    looks: Option<u8>,
    /// Failed attempts in a row.
    failures: u32,
    waiters: Vec<Waiter>,
    /// Parts that something announced since the last sweep.
    announced: Stale,
    /// When the last readings of its sources began.
    reads: Reads,
}

/// A reading under way.
struct Reading {
    stale: Stale,
    trace: Trace,
    looks: Option<u8>,
    waiters: Vec<Waiter>,
    began: Instant,
    /// What it brings is not taken in before this.
    until: Instant,
    /// What it brought before that.
    brought: Option<Brought>,
}

/// What a finished task brought.
enum Done {
    Vm(String, Result<Loaded, LoadFault>),
    Dataset(String, Result<Vec<Row>, LoadError>),
    Sysinfo(Result<Sysinfo, LoadError>),
    Node(Instant, Box<Result<Node, String>>),
    Sweep(Box<Look>),
}

/// What a task was for, in case it panics.
enum Purpose {
    Vm(String),
    Dataset(String),
    Sysinfo,
    Node,
    Sweep,
}

/// The loop and all it owns.
pub struct Engine {
    config: Config,
    ctx: Ctx,
    store: Store,
    board: Board,
    inbox: Arc<Inbox>,
    jitter: Jitter,
    shutdown: Shutdown,
    /// Boxed: the table has room for nearly twice as many as there are.
    vms: HashMap<Arc<str>, Box<Vm>>,
    /// VM uuid → zone name, where it is another one.
    names: HashMap<String, String>,
    due: BTreeSet<(Instant, String)>,
    /// Readings that have ended before the fold of their signals: when to take them in.
    held: BTreeSet<(Instant, String)>,
    alarm: Alarm,
    /// Commits that are not in the log yet: VM, what it was, sequence number.
    committed: Vec<(String, Outcome, u64)>,
    /// VM readings under way.
    readings: usize,
    datasets: Datasets,
    dataset_work: DatasetWork,
    sysinfo: Arc<Sysinfo>,
    sysinfo_stale: bool,
    sysinfo_reading: bool,
    /// The last refresh brought another sysinfo.
    sysinfo_differs: bool,
    sysinfo_retry: Option<Instant>,
    kstats: Arc<Kstats>,
    tasks: JoinSet<Done>,
    purposes: HashMap<tokio::task::Id, Purpose>,
    refresh_due: Instant,
    refreshing: bool,
    refresh_failures: u32,
    refreshed_at: Instant,
    node_waiters: Vec<Waiter>,
    node_reading_waiters: Vec<Waiter>,
    sweep_due: Instant,
    sweeping: bool,
    sweep_again: bool,
    /// What happened to the files of many zones is unknown until somebody looks.
    unseen: bool,
    /// The last look at all files.
    files: Arc<Files>,
    /// Zones that were read anew since it began.
    read_since: HashSet<Arc<str>>,
    /// The last list of all zones.
    listed: Arc<Listed>,
    /// It says of each zone what the VM's own row says, and of no other.
    rows_agree: bool,
    /// Refreshes since one read every file.
    unread_refreshes: u32,
    misses: u32,
    restart_zones: Arc<Notify>,
    asks: mpsc::Receiver<Ask>,
    zones: watch::Sender<Zones>,
    zones_changed: bool,
}

/// What the engine is made from.
pub struct Seams {
    /// Reads the node.
    pub ctx: Ctx,
    /// Signals of the sources.
    pub inbox: Arc<Inbox>,
    /// Requests of HTTP.
    pub asks: mpsc::Receiver<Ask>,
    /// Tells the file watcher which zones there are.
    pub zones: watch::Sender<Zones>,
    /// Asks for a fresh source of zone events.
    pub restart_zones: Arc<Notify>,
    /// The only chance there is.
    pub jitter: Jitter,
    /// Ends the loop.
    pub shutdown: Shutdown,
}

impl Engine {
    /// An engine that has read nothing yet.
    pub fn new(config: Config, seams: Seams, board: Board) -> Self {
        let now = Instant::now();
        Self {
            store: Store::new(config.journal),
            config,
            ctx: seams.ctx,
            board,
            inbox: seams.inbox,
            jitter: seams.jitter,
            shutdown: seams.shutdown,
            vms: HashMap::new(),
            names: HashMap::new(),
            due: BTreeSet::new(),
            held: BTreeSet::new(),
            alarm: Alarm::none(),
            committed: Vec::new(),
            readings: 0,
            datasets: Datasets::default(),
            dataset_work: DatasetWork::default(),
            sysinfo: Arc::default(),
            sysinfo_stale: false,
            sysinfo_reading: false,
            sysinfo_differs: false,
            sysinfo_retry: None,
            kstats: Arc::default(),
            tasks: JoinSet::new(),
            purposes: HashMap::new(),
            refresh_due: now,
            refreshing: false,
            refresh_failures: 0,
            refreshed_at: now,
            node_waiters: Vec::new(),
            node_reading_waiters: Vec::new(),
            sweep_due: now,
            sweeping: false,
            sweep_again: false,
            unseen: false,
            files: Arc::default(),
            read_since: HashSet::new(),
            listed: Arc::default(),
            rows_agree: false,
            unread_refreshes: 0,
            misses: 0,
            restart_zones: seams.restart_zones,
            asks: seams.asks,
            zones: seams.zones,
            zones_changed: false,
        }
    }

    /// The same with exact times; not where time is simulated.
    pub fn with_alarm(self, alarm: Alarm) -> Self {
        Self { alarm, ..self }
    }

    /// The read side of the store.
    pub fn published(&self) -> Arc<crate::store::Published> {
        self.store.published()
    }

    /// Works until the shutdown. [`Engine::first_load`] comes before.
    pub async fn run(mut self) {
        self.plan_refresh();
        self.plan_sweep();
        loop {
            let began = Instant::now();
            let pending = self.inbox.take();
            if !pending.is_empty() {
                self.take(pending);
            }
            self.take_held();
            self.tell_committed().await;
            self.start_due();
            self.tell_watcher();
            let next = self.next_deadline();
            if self.is_near(next, began) {
                // The rest of the runtime goes on meanwhile.
                tokio::task::yield_now().await;
                continue;
            }
            let shutdown = self.shutdown.clone();
            let inbox = Arc::clone(&self.inbox);
            // All arms are cancel-safe: news stay news, finished tasks stay in the set, requests
            // stay in their channel.
            tokio::select! {
                () = shutdown.wait() => return,
                () = inbox.news() => {}
                Some(done) = self.tasks.join_next_with_id() => {
                    let was_refreshing = self.refreshing;
                    self.finished(done).await;
                    if was_refreshing && !self.refreshing {
                        heap::give_back();
                    }
                }
                Some(request) = self.asks.recv() => self.asked(request),
                () = self.alarm.rings() => {}
                () = tokio::time::sleep_until(next) => {}
            }
        }
    }

    /// Is the next deadline so near that the loop is to stay awake? Else, if it is the end of a
    /// fold, the alarm is set for it.
    fn is_near(&self, next: Instant, began: Instant) -> bool {
        if self.alarm.is_none() {
            return false;
        }
        let wait = Wait::until(next, began, Instant::now(), self.config.fold);
        if let Wait::Alarm(at) = wait {
            self.alarm.set(at);
        }
        wait == Wait::Awake
    }

    fn next_deadline(&self) -> Instant {
        let mut next = Instant::now() + Duration::from_secs(3600);
        let room = self.readings < self.config.concurrency;
        if let Some((at, _)) = self.due.first().filter(|_| room) {
            next = next.min(*at);
        }
        if let Some((at, _)) = self.held.first() {
            next = next.min(*at);
        }
        if !self.refreshing {
            next = next.min(self.refresh_due);
        }
        if !self.sweeping {
            next = if self.unseen { Instant::now() } else { next.min(self.sweep_due) };
        }
        if self.sysinfo_stale && !self.sysinfo_reading {
            next = next.min(self.sysinfo_retry.unwrap_or_else(Instant::now));
        }
        next.min(self.dataset_work.next_retry().unwrap_or(next))
    }

    /// Back-off with full jitter: the ceiling doubles with each failure; never at once.
    fn backoff(&mut self, failures: u32) -> Duration {
        let (min, max) = self.config.retry;
        let ceiling = min.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(max);
        self.jitter.full(ceiling).max(ceiling.min(Duration::from_millis(50)))
    }

    /// Lets a signal count as news of the engine itself.
    fn everything(&self) {
        self.inbox.put(Signal::Everything);
    }
}

/// Answers all who wait.
fn answer(waiters: Vec<Waiter>, result: &Result<(), String>) {
    for waiter in waiters {
        let _asker_may_have_gone: Result<(), _> = waiter.send(result.clone());
    }
}

/// Notes which zone is the VM of this uuid.
fn note_name(names: &mut HashMap<String, String>, uuid: &str, zone: &str) {
    if uuid == zone {
        names.remove(uuid);
    } else {
        names.insert(uuid.to_owned(), zone.to_owned());
    }
}

/// A pair for waiting on a reading.
fn waiter() -> (Waiter, oneshot::Receiver<Result<(), String>>) {
    oneshot::channel()
}
