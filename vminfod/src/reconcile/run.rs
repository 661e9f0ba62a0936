// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The `select!` over what wakes the reconciler.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::engine::Reconciler;
use super::tasks::Done;
use super::vms::exists;
use crate::sources::watched::{ZonePlace, Zones};

/// The most VMs that one turn of the loop handles.
const TURN: usize = 16;

impl Reconciler {
    /// Runs until the shutdown. Call [`Reconciler::first_load`] before.
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
            // They are taken in one order, so that a simulated run can be repeated; none is starved,
            // since each turn takes all signals and begins all that is due.
            tokio::select! {
                biased;
                () = shutdown.wait() => return,
                done = self.tasks.next() => self.done(done),
                Some(ask) = self.seams.asks.recv() => self.asked(ask),
                () = inbox.news() => {}
                () = sleep_until(deadline) => {}
            }
        }
    }

    fn done(&mut self, done: Done) {
        match done {
            Done::Vm(name, result) => self.vm_read(&name, result),
            Done::Dataset(name, result) => self.dataset_read(&name, result),
            Done::Datasets(began, result) => self.datasets_read(began, result),
            Done::Snapshots(result) => self.snapshots_read(result),
            Done::Sysinfo(result) => self.sysinfo_read(result),
            Done::Node(result) => self.refreshed(result),
            Done::Sweep(seen) => self.swept(seen),
            Done::Zones(result) => self.zones_listed(result),
            Done::ZonesRead(differing) => differing.answer(&self.vms),
            Done::Nothing => {}
        }
    }

    /// Begins the readings that are due.
    fn begin_due(&mut self) {
        let now = Instant::now();
        for _ in 0..TURN {
            let Some(name) = self.vms.queue.take(now) else { break };
            self.begin_reading(&name, now);
        }
        self.begin_node_wide(now);
    }

    fn deadline(&self, now: Instant) -> Instant {
        let deadlines = [
            self.vms.queue.next_due(),
            self.datasets.deadline(now),
            self.datasets.between_due().filter(|_| self.are_datasets_unannounced()),
            self.sysinfo.deadline(),
            self.sweep.deadline(now),
            self.refresh.deadline(now),
        ];
        let next = deadlines.into_iter().flatten().min();
        next.unwrap_or_else(|| now + Duration::from_secs(3600))
    }

    /// Sends the list of zones to the file watcher, if it changed.
    fn publish_zones(&mut self) {
        if !self.vms.take_moved() {
            return;
        }
        let zones = self.vms.known().map(|(name, parts)| {
            let zonepath = Arc::clone(&parts.zone.zonepath);
            (Arc::clone(name), ZonePlace { zonepath, exists: exists(parts) })
        });
        let zones: Zones = Arc::new(zones.collect());
        self.seams.zones.send_if_modified(|current| {
            let differs = *current != zones;
            *current = zones;
            differs
        });
    }
}
