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

pub mod board;
mod datasets;
mod readings;
mod refresh;
mod sweeping;
mod syncs;
pub mod vm_load;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use daemon::Shutdown;
use sdc_clients::Jitter;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::board::Board;
use self::datasets::DatasetWork;
pub use self::syncs::Syncs;
use self::syncs::{SyncRequest, Waiter};
use self::vm_load::{Kstats, LoadFault, Loaded, Task, datasets_of};
use crate::config::Config;
use crate::dirty::{Stale, Trace};
use crate::load::datasets::Row;
use crate::load::{Ctx, Datasets, LoadError, Node, Sysinfo, sysinfo};
use crate::sources::Signal;
use crate::sources::files::Zones;
use crate::sources::inbox::{Inbox, Pending};
use crate::store::Store;
use crate::sweep::{Look, Stamps, look};
use crate::vm::Parts;

/// Signals of one VM within this make one commit.
const FOLD: Duration = Duration::from_millis(10);
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
    asked: Option<Instant>,
    /// What is being read now.
    reading: Option<Reading>,
    /// What the kernel said since the last reading began.
    trace: Trace,
    /// A kernel event has not shown its effect yet: how many looks there were after it.
    looks: Option<usize>,
    /// Failed attempts in a row.
    failures: u32,
    waiters: Vec<Waiter>,
    /// Parts that something announced since the last sweep.
    announced: Stale,
    /// When its last reading began.
    read_at: Option<Instant>,
}

/// A reading under way.
struct Reading {
    stale: Stale,
    trace: Trace,
    looks: Option<usize>,
    waiters: Vec<Waiter>,
    began: Instant,
}

/// What a finished task brought.
enum Done {
    Vm(String, Result<Loaded, LoadFault>),
    Dataset(String, Result<Vec<Row>, LoadError>),
    Sysinfo(Result<Sysinfo, LoadError>),
    Node(Instant, Box<Result<Node, LoadError>>),
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
    vms: HashMap<String, Vm>,
    /// VM uuid → zone name.
    names: HashMap<String, String>,
    due: BTreeSet<(Instant, String)>,
    /// VM readings under way.
    readings: usize,
    datasets: Datasets,
    dataset_work: DatasetWork,
    sysinfo: Arc<Sysinfo>,
    sysinfo_stale: bool,
    sysinfo_reading: bool,
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
    stamps: Stamps,
    misses: u32,
    restart_zones: Arc<Notify>,
    syncs: mpsc::Receiver<SyncRequest>,
    zones: watch::Sender<Zones>,
    zones_changed: bool,
}

/// What the engine is made from.
pub struct Seams {
    /// Reads the node.
    pub ctx: Ctx,
    /// Signals of the sources.
    pub inbox: Arc<Inbox>,
    /// Requests for fresh readings.
    pub syncs: mpsc::Receiver<SyncRequest>,
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
            readings: 0,
            datasets: Datasets::default(),
            dataset_work: DatasetWork::default(),
            sysinfo: Arc::default(),
            sysinfo_stale: false,
            sysinfo_reading: false,
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
            stamps: Stamps::default(),
            misses: 0,
            restart_zones: seams.restart_zones,
            syncs: seams.syncs,
            zones: seams.zones,
            zones_changed: false,
        }
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
            let pending = self.inbox.take();
            if !pending.is_empty() {
                self.take(pending);
            }
            self.start_due();
            self.tell_watcher();
            let next = self.next_deadline();
            let shutdown = self.shutdown.clone();
            let inbox = Arc::clone(&self.inbox);
            // All arms are cancel-safe: news stay news, finished tasks stay in the set, requests
            // stay in their channel.
            tokio::select! {
                () = shutdown.wait() => return,
                () = inbox.news() => {}
                Some(done) = self.tasks.join_next_with_id() => self.finished(done).await,
                Some(request) = self.syncs.recv() => self.request(request),
                () = tokio::time::sleep_until(next) => {}
            }
        }
    }

    /// Turns signals into stale parts.
    fn take(&mut self, pending: Pending) {
        let now = Instant::now();
        for (name, events) in pending.zones {
            if name == "global" {
                continue;
            }
            let Some(vm) = self.mark(&name, Stale::ON_ZONE_EVENT, now + FOLD) else { continue };
            vm.announced |= Stale::ON_ZONE_EVENT;
            vm.looks = Some(0);
            events.iter().for_each(|event| vm.trace.note(event));
        }
        for (name, file) in pending.files {
            let name = self
                .names
                .get(&name)
                .filter(|_| !self.vms.contains_key(&name))
                .cloned()
                .unwrap_or(name);
            let stale = Stale::on_file(file);
            // A file of a zone that nobody knows says nothing, except that the zone may be new.
            if !self.vms.contains_key(&name) && !stale.has(Stale::XML) {
                continue;
            }
            if let Some(vm) = self.mark(&name, stale, now + FOLD) {
                vm.announced |= stale;
            }
        }
        for event in pending.datasets.into_values() {
            self.dataset_event(event);
        }
        if pending.index {
            // Its news are in zoneadm's list; one that is being read may be too old to have them.
            self.sweep_due = self.sweep_due.min(now + FOLD);
            self.sweep_again = self.sweeping;
        }
        if pending.sysinfo {
            self.sysinfo_stale = true;
        }
        if pending.everything {
            self.refresh_due = self.refresh_due.min(now);
        }
    }

    /// Marks parts of a VM stale and plans its reading.
    fn mark(&mut self, name: &str, stale: Stale, when: Instant) -> Option<&mut Vm> {
        if self.vms.len() >= NAMES_CAP && !self.vms.contains_key(name) {
            return None;
        }
        let vm = self.vms.entry(name.to_owned()).or_default();
        vm.stale |= stale;
        vm.asked.get_or_insert_with(Instant::now);
        // A failing VM's retry may be early: something changed, perhaps for the better.
        if vm.reading.is_none() && vm.due.is_none_or(|due| when < due) {
            if let Some(due) = vm.due.replace(when) {
                self.due.remove(&(due, name.to_owned()));
            }
            self.due.insert((when, name.to_owned()));
        }
        Some(vm)
    }

    /// Starts all that is due and has room.
    fn start_due(&mut self) {
        let now = Instant::now();
        while self.readings < self.config.concurrency {
            let Some((at, name)) = self.due.first().cloned() else { break };
            if at > now {
                break;
            }
            self.due.pop_first();
            self.start_reading(name);
        }
        self.start_datasets();
        if self.sysinfo_stale
            && !self.sysinfo_reading
            && self.sysinfo_retry.is_none_or(|at| at <= now)
        {
            self.sysinfo_stale = false;
            self.sysinfo_reading = true;
            let ctx = self.ctx.clone();
            self.spawn(Purpose::Sysinfo, async move { Done::Sysinfo(sysinfo::load(&ctx).await) });
        }
        if !self.refreshing && (self.refresh_due <= now || !self.node_waiters.is_empty()) {
            self.start_refresh();
        }
        if !self.sweeping && self.sweep_due <= now {
            self.sweeping = true;
            let (ctx, zones) = (self.ctx.clone(), self.zone_paths());
            self.spawn(
                Purpose::Sweep,
                async move { Done::Sweep(Box::new(look(&ctx, zones).await)) },
            );
        }
        let queued: Vec<_> = self
            .due
            .iter()
            .take_while(|(at, _)| *at <= now)
            .map(|(at, name)| (name.clone(), *at))
            .collect();
        self.board.edit(|view| view.queued = queued);
    }

    fn start_reading(&mut self, name: String) {
        let Some(vm) = self.vms.get_mut(&name) else { return };
        vm.due = None;
        let stale = std::mem::take(&mut vm.stale);
        let began = Instant::now();
        let reading = Reading {
            stale,
            trace: std::mem::take(&mut vm.trace),
            looks: vm.looks.take(),
            waiters: std::mem::take(&mut vm.waiters),
            began,
        };
        let asked = vm.asked.take().unwrap_or(began);
        vm.reading = Some(reading);
        self.readings += 1;
        let known = vm.parts.clone();
        let datasets = match &known {
            Some(parts) if stale.has(Stale::DATASETS) => {
                let object = self
                    .store
                    .published()
                    .snapshot()
                    .vms
                    .get(name.as_str())
                    .map(|vm| Arc::clone(&vm.object));
                datasets_of(parts, &self.datasets, object.as_deref())
            }
            _ => Vec::new(),
        };
        let task = Task {
            ctx: self.ctx.clone(),
            kstats: Arc::clone(&self.kstats),
            name: name.clone(),
            known,
            stale,
            datasets,
        };
        self.board.edit(|view| {
            view.counters.loads += 1;
            view.pending.insert(name.clone(), (asked, began));
        });
        self.spawn(Purpose::Vm(name.clone()), async move { Done::Vm(name, task.run().await) });
    }

    fn spawn(&mut self, purpose: Purpose, work: impl Future<Output = Done> + Send + 'static) {
        let handle = self.tasks.spawn(work);
        self.purposes.insert(handle.id(), purpose);
    }

    async fn finished(&mut self, done: Result<(tokio::task::Id, Done), tokio::task::JoinError>) {
        let id = match &done {
            Ok((id, _)) => *id,
            Err(error) => error.id(),
        };
        let purpose = self.purposes.remove(&id);
        match (done, purpose) {
            (Ok((_, Done::Vm(name, result))), _) => self.vm_read(&name, result),
            (Ok((_, Done::Dataset(name, result))), _) => self.dataset_read(&name, result),
            (Ok((_, Done::Sysinfo(result))), _) => {
                self.sysinfo_read(result.map_err(|error| error.to_string()))
            }
            (Ok((_, Done::Node(began, result))), _) => {
                self.node_read(began, result.map_err(|error| error.to_string())).await;
            }
            (Ok((_, Done::Sweep(look))), _) => self.swept(*look),
            (Err(_), Some(Purpose::Vm(name))) => self.vm_read(&name, Err(LoadFault::Panic)),
            (Err(_), Some(Purpose::Dataset(name))) => {
                self.dataset_failed(&name, "the reading panicked".to_owned())
            }
            (Err(_), Some(Purpose::Sysinfo)) => {
                self.sysinfo_read(Err("the reading panicked".to_owned()))
            }
            (Err(_), Some(Purpose::Node)) => {
                self.node_read(Instant::now(), Err("the reading panicked".to_owned())).await
            }
            (Err(_), Some(Purpose::Sweep)) | (Err(_), None) => {
                self.sweeping = false;
                self.plan_sweep();
            }
        }
    }

    fn sysinfo_read(&mut self, result: Result<Sysinfo, String>) {
        self.sysinfo_reading = false;
        match result {
            Ok(sysinfo) => {
                self.sysinfo_retry = None;
                self.board.well("sysinfo");
                self.board.show_sysinfo(sysinfo.value());
                if *self.sysinfo != sysinfo {
                    self.sysinfo = Arc::new(sysinfo);
                    self.compose_all();
                }
            }
            Err(message) => {
                self.sysinfo_stale = true;
                self.sysinfo_retry =
                    Some(Instant::now() + self.jitter.uniform(FOLD, Duration::from_secs(1)));
                if self.board.trouble("sysinfo", "sysinfo", message.clone()) {
                    tracing::warn!(source = "sysinfo", reason = %message, "reading failed: the last good one stays");
                }
            }
        }
    }

    /// Every object is to be composed again from the parts there are.
    fn compose_all(&mut self) {
        let names: Vec<String> = self
            .vms
            .iter()
            .filter(|(_, vm)| vm.parts.is_some())
            .map(|(name, _)| name.clone())
            .collect();
        let now = Instant::now();
        for name in names {
            self.mark(&name, Stale::OBJECT, now);
        }
    }

    fn next_deadline(&self) -> Instant {
        let mut next = Instant::now() + Duration::from_secs(3600);
        let room = self.readings < self.config.concurrency;
        if let Some((at, _)) = self.due.first().filter(|_| room) {
            next = next.min(*at);
        }
        if !self.refreshing {
            next = next.min(self.refresh_due);
        }
        if !self.sweeping {
            next = next.min(self.sweep_due);
        }
        if self.sysinfo_stale && !self.sysinfo_reading {
            next = next.min(self.sysinfo_retry.unwrap_or_else(Instant::now));
        }
        next.min(self.dataset_work.next_retry().unwrap_or(next))
    }

    /// The zones whose files matter, with their zonepaths.
    fn zone_paths(&self) -> BTreeMap<String, String> {
        let known = self.vms.iter().filter_map(|(name, vm)| Some((name, vm.parts.as_ref()?)));
        known.map(|(name, parts)| (name.clone(), parts.zone.zonepath.clone())).collect()
    }

    fn tell_watcher(&mut self) {
        if std::mem::take(&mut self.zones_changed) {
            let zones = self.zone_paths();
            self.zones.send_if_modified(|current| {
                let news = **current != zones;
                *current = Arc::new(zones);
                news
            });
        }
    }

    /// Back-off with full jitter: 0.5 s doubling to 60 s, never at once.
    fn backoff(&mut self, failures: u32) -> Duration {
        let ceiling =
            Duration::from_millis(500).saturating_mul(1 << failures.saturating_sub(1).min(7));
        self.jitter.full(ceiling.min(Duration::from_secs(60))).max(Duration::from_millis(50))
    }

    /// Takes a request for a fresh reading.
    fn request(&mut self, request: SyncRequest) {
        match request.name {
            None => self.node_waiters.push(request.done),
            Some(name) => {
                let name = self
                    .names
                    .get(&name)
                    .filter(|_| !self.vms.contains_key(&name))
                    .cloned()
                    .unwrap_or(name);
                match self.mark(&name, Stale::FRESH, Instant::now()) {
                    Some(vm) => vm.waiters.push(request.done),
                    None => drop(request.done.send(Err("too many names are asked for".to_owned()))),
                }
            }
        }
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

/// A pair for waiting on a reading.
fn waiter() -> (Waiter, oneshot::Receiver<Result<(), String>>) {
    oneshot::channel()
}
