// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The reconciler: its parts, and the `select!` over what wakes it.

use std::sync::Arc;
use std::time::Duration;

use daemon::Shutdown;
use sdc_clients::Jitter;
use sdc_clients::retry::{Backoff, Policy};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::asks::Ask;
use super::datasets::NodeDatasets;
use super::refresh::Refresh;
use super::schedule::Schedule;
use super::status::Status;
use super::sweep::Sweep;
use super::sysinfo::NodeSysinfo;
use super::tasks::{Done, Tasks};
use super::vms::Vms;
use crate::config::Config;
use crate::node::Ctx;
use crate::sources::inbox::Inbox;
use crate::sources::watched::{ZonePlace, Zones};
use crate::store::{Published, Store};

/// VMs that are worked on before the loop looks at what else there is.
const TURN: usize = 16;

/// What the reconciler is connected to.
pub struct Seams {
    /// Reads the node.
    pub ctx: Ctx,
    /// Signals of the sources.
    pub inbox: Arc<Inbox>,
    /// Requests of HTTP.
    pub asks: mpsc::Receiver<Ask>,
    /// The zones whose files are watched.
    pub zones: watch::Sender<Zones>,
    /// Asks for a fresh source of zone events.
    pub restart_zones: Arc<Notify>,
    /// Asks for a fresh file watcher.
    pub restart_files: Arc<Notify>,
    /// The only randomness.
    pub jitter: Jitter,
    /// Ends the loop.
    pub shutdown: Shutdown,
}

/// The loop and all it owns.
pub struct Reconciler {
    pub(super) config: Config,
    pub(super) seams: Seams,
    pub(super) store: Store,
    pub(super) status: Status,
    pub(super) vms: Vms,
    pub(super) datasets: NodeDatasets,
    pub(super) sysinfo: NodeSysinfo,
    pub(super) sweep: Sweep,
    pub(super) refresh: Refresh,
    pub(super) tasks: Tasks,
}

impl Reconciler {
    /// A reconciler that has read nothing yet.
    pub fn new(config: Config, seams: Seams, status: Status) -> Self {
        let now = Instant::now();
        let schedule = Schedule::new(config.fold, config.concurrency);
        Self {
            store: Store::new(config.journal),
            vms: Vms::new(schedule, status.clone()),
            datasets: NodeDatasets::new(config.fold, now),
            sysinfo: NodeSysinfo::default(),
            sweep: Sweep::new(now),
            refresh: Refresh::new(now),
            tasks: Tasks::default(),
            config,
            seams,
            status,
        }
    }

    /// The read side of the store.
    pub fn published(&self) -> Arc<Published> {
        self.store.published()
    }

    /// Works until the shutdown. [`Reconciler::first_load`] comes before.
    pub async fn run(mut self) {
        self.plan_refresh();
        self.plan_sweep();
        loop {
            let pending = self.seams.inbox.take();
            if !pending.is_empty() {
                self.signalled(pending);
            }
            self.publish_zones();
            self.begin_due();
            if self.take_refreshed(TURN) {
                tokio::task::yield_now().await;
                continue;
            }
            let deadline = self.deadline(Instant::now());
            let shutdown = self.seams.shutdown.clone();
            let inbox = Arc::clone(&self.seams.inbox);
            // All arms are cancel-safe: signals stay in the inbox, finished tasks in their set,
            // requests in their channel.
            tokio::select! {
                () = shutdown.wait() => return,
                () = inbox.news() => {}
                done = self.tasks.next() => self.done(done),
                Some(ask) = self.seams.asks.recv() => self.asked(ask),
                () = sleep_until(deadline) => {}
            }
        }
    }

    fn done(&mut self, done: Done) {
        match done {
            Done::Vm(name, result) => self.vm_read(&name, result),
            Done::Dataset(name, result) => self.dataset_read(&name, result),
            Done::Snapshots(result) => self.snapshots_read(result),
            Done::Sysinfo(result) => self.sysinfo_read(result),
            Done::Node(result) => self.refreshed(result),
            Done::Sweep(seen) => self.swept(seen),
            Done::Nothing => {}
        }
    }

    /// Begins everything that is due and has room.
    fn begin_due(&mut self) {
        let now = Instant::now();
        for _ in 0..TURN {
            let Some(name) = self.vms.next(now) else { break };
            self.begin_reading(&name, now);
        }
        self.begin_node_wide(now);
    }

    fn deadline(&self, now: Instant) -> Instant {
        let deadlines = [
            self.vms.deadline(),
            self.datasets.deadline(),
            self.sysinfo.deadline(),
            self.sweep.deadline(now),
            self.refresh.deadline(now),
        ];
        let next = deadlines.into_iter().flatten().min();
        next.unwrap_or_else(|| now + Duration::from_secs(3600))
    }

    /// Tells the file watcher which zones there are, if that changed.
    fn publish_zones(&mut self) {
        if !self.vms.take_moved() {
            return;
        }
        let zones = self.vms.known().map(|(name, parts)| {
            let zonepath = Arc::clone(&parts.zone.zonepath);
            (Arc::clone(name), ZonePlace { zonepath, exists: super::vms::exists(parts) })
        });
        let zones: Zones = Arc::new(zones.collect());
        self.seams.zones.send_if_modified(|current| {
            let differs = *current != zones;
            *current = zones;
            differs
        });
    }

    /// The policy of all repeated readings.
    pub(super) fn retry(&self) -> Policy {
        let (initial, max) = self.config.retry;
        Policy { initial, max, multiplier: 2.0, max_attempts: None, max_elapsed: None }
    }

    /// The pause after this many failures in a row of a node-wide reading.
    pub(super) fn pause(&mut self, failures: u32) -> Duration {
        let mut backoff = Backoff::new(&self.retry(), self.seams.jitter.fork());
        let pauses = (0..failures.clamp(1, 32)).filter_map(|_| backoff.next_delay());
        pauses.last().unwrap_or(self.config.retry.1)
    }

    pub(super) fn plan_refresh(&mut self) {
        let (min, max) = self.config.refresh;
        self.refresh.plan(Instant::now() + self.seams.jitter.uniform(min, max));
    }

    pub(super) fn plan_sweep(&mut self) {
        let pause = self.seams.jitter.around(self.config.sweep, 0.1);
        self.sweep.plan(Instant::now() + pause);
    }
}
