// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The reconciler: what it owns, what it is connected to, and when it repeats a reading.

use std::sync::Arc;
use std::time::Duration;

use daemon::Shutdown;
use sdc_clients::Jitter;
use sdc_clients::retry::{Backoff, Policy};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;

use super::asks::Ask;
use super::datasets::NodeDatasets;
use super::listing::Listing;
use super::refresh::Refresh;
use super::status::Status;
use super::sweep::Sweep;
use super::sysinfo::NodeSysinfo;
use super::tasks::Tasks;
use super::vms::Vms;
use super::witness::Departed;
use crate::config::Config;
use crate::node::Ctx;
use crate::sources::inbox::Inbox;
use crate::sources::watched::Zones;
use crate::store::{Published, Store};

/// What the reconciler is connected to.
pub struct Seams {
    /// Reads the node.
    pub ctx: Ctx,
    /// Receives signals of the sources.
    pub inbox: Arc<Inbox>,
    /// Receives requests from HTTP.
    pub asks: mpsc::Receiver<Ask>,
    /// The zones whose files are watched.
    pub zones: watch::Sender<Zones>,
    /// Restarts the source of zone events.
    pub restart_zones: Arc<Notify>,
    /// Restarts the file watcher.
    pub restart_files: Arc<Notify>,
    /// The only source of randomness.
    pub jitter: Jitter,
    /// Ends the loop.
    pub shutdown: Shutdown,
}

/// The loop and its state.
pub struct Reconciler {
    pub(super) config: Config,
    pub(super) seams: Seams,
    pub(super) store: Store,
    pub(super) status: Status,
    pub(super) vms: Vms,
    pub(super) departed: Departed,
    pub(super) datasets: NodeDatasets,
    pub(super) sysinfo: NodeSysinfo,
    pub(super) sweep: Sweep,
    pub(super) listing: Listing,
    pub(super) refresh: Refresh,
    pub(super) tasks: Tasks,
}

impl Reconciler {
    /// Returns a reconciler that has not read anything yet.
    pub fn new(config: Config, seams: Seams, status: Status) -> Self {
        let now = Instant::now();
        status.edit(|view| view.refresh_every = config.refresh.1);
        Self {
            store: Store::new(config.ring_bytes),
            vms: Vms::new(config.fold, config.concurrency, status.clone()),
            departed: Departed::default(),
            datasets: NodeDatasets::new(config.fold, now),
            sysinfo: NodeSysinfo::default(),
            sweep: Sweep::new(now),
            listing: Listing::default(),
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
