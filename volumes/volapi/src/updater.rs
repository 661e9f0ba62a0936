// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What runs without being asked. Of several instances the one with the lease follows VMAPI and polls jobs;
//! its writes require the lease. Each instance ends what its own earlier runs left.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use sdc_clients::vmapi::{Changefeed, FeedEvent};
use serde_json::{Map, Value};
use store::Fence;

use crate::service::{Count, Service, Trouble};

const LEASE: &str = "volapi.updater";
/// How long the lease holds: where an instance was killed, another or its own next run follows VMs within 20 s.
const TERM: Duration = Duration::from_secs(15);
/// Between passes over what was left, over storage VMs that are stopped and over changes of networks, and over
/// jobs, images and old failures.
const SHORT: Duration = Duration::from_secs(10);
const LONG: Duration = Duration::from_secs(60);
/// After a reading that failed, and how often it is tried before the VMs are listed anew.
const AGAIN: Duration = Duration::from_secs(2);
const TRIES: u32 = 5;

/// The news of VMAPI's records.
#[derive(Debug)]
pub enum News {
    /// These are all VMs that are neither destroyed nor failed; changes follow from here.
    Listed(Vec<Map<String, Value>>),
    /// The record of this VM was written.
    Changed(String),
    /// No change arrives until the next listing.
    Lost(String),
}

/// Where facts about VMs come from.
pub trait Feed: Send {
    /// Returns the next news. Dropping the future loses nothing.
    fn next(&mut self) -> BoxFuture<'_, News>;
}

impl Feed for Changefeed {
    fn next(&mut self) -> BoxFuture<'_, News> {
        Box::pin(async {
            match Changefeed::next(self).await {
                FeedEvent::Listed(vms) => News::Listed(vms),
                FeedEvent::Changed(change) => News::Changed(change.uuid),
                FeedEvent::Lost(error) => News::Lost(error.to_string()),
            }
        })
    }
}

/// Begins to listen.
pub type Listen = Box<dyn Fn() -> Box<dyn Feed> + Send + Sync>;

/// What the updater is doing, for people.
#[derive(Debug, Default)]
pub struct State {
    has_lease: AtomicBool,
    follows: AtomicBool,
    last_listing: Mutex<Option<Timestamp>>,
    last_error: Mutex<Option<String>>,
}

impl State {
    /// Returns true if this instance runs the timers.
    pub fn has_lease(&self) -> bool {
        self.has_lease.load(Ordering::Relaxed)
    }

    /// Returns true while the changefeed delivers changes of VMs.
    pub fn follows(&self) -> bool {
        self.follows.load(Ordering::Relaxed)
    }

    /// Returns when VMAPI's VMs were last listed.
    pub fn last_listing(&self) -> Option<Timestamp> {
        *self.last_listing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what failed last.
    pub fn last_error(&self) -> Option<String> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn listed(&self) {
        let now = Some(daemon::wall::now());
        *self.last_listing.lock().unwrap_or_else(PoisonError::into_inner) = now;
        self.follows.store(true, Ordering::Relaxed);
    }

    fn failed(&self, why: String) {
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
    }
}

/// What is shown while this instance has the lease.
struct Leads<'a>(&'a Updater);

impl Leads<'_> {
    fn begin(updater: &Updater) -> Leads<'_> {
        updater.state.has_lease.store(true, Ordering::Relaxed);
        Leads(updater)
    }
}

impl Drop for Leads<'_> {
    fn drop(&mut self) {
        self.0.state.has_lease.store(false, Ordering::Relaxed);
        self.0.state.follows.store(false, Ordering::Relaxed);
        self.0.service.follower.forget_stopped();
    }
}

/// The updater of one instance.
pub struct Updater {
    /// The service for which it works.
    pub service: Arc<Service>,
    /// What it is doing.
    pub state: Arc<State>,
    /// The source of its news of VMs.
    pub listen: Listen,
}

impl Updater {
    /// Works for ever.
    pub async fn run(self) {
        tokio::join!(self.lead(), self.tidy_own(), self.find_images());
    }

    /// Ends what earlier runs of this instance left, at once and again and again.
    async fn tidy_own(&self) {
        loop {
            self.note("ending what was left", self.service.tidy(None).await);
            self.service.snapshots.until_due(SHORT).await;
        }
    }

    async fn find_images(&self) {
        while !self.service.creates.find_images().await {
            tokio::time::sleep(LONG).await;
        }
    }

    /// Follows VMAPI and runs the timers while it has the lease.
    async fn lead(&self) {
        let store = &self.service.shared.records.store;
        store.lead(LEASE, TERM, |fence| Box::pin(self.led(fence))).await;
    }

    async fn led(&self, fence: Fence) {
        let _leads = Leads::begin(self);
        // Both arms are cancel-safe: a reading that is cut off writes nothing or all.
        tokio::select! {
            () = self.follow(&fence) => {}
            () = self.pass(&fence) => {}
        }
    }

    async fn follow(&self, fence: &Fence) {
        loop {
            let mut feed = (self.listen)();
            self.listen_to(&mut *feed, fence).await;
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Acts on the news, until something fails for good.
    async fn listen_to(&self, feed: &mut dyn Feed, fence: &Fence) {
        loop {
            let news = feed.next().await;
            let mut tries = 0;
            while !self.note("reading VMs", self.act_on(&news, fence).await) {
                tries += 1;
                if tries == TRIES {
                    return;
                }
                tokio::time::sleep(AGAIN).await;
            }
        }
    }

    async fn act_on(&self, news: &News, fence: &Fence) -> Result<(), Trouble> {
        match news {
            News::Listed(vms) => {
                self.service.follower.take_listing(vms, Some(fence)).await?;
                self.state.listed();
            }
            News::Changed(vm) => self.service.follower.follow(vm, Some(fence)).await?,
            News::Lost(why) => {
                tracing::warn!(why, "lost VMAPI's changefeed; VM states may be stale");
                self.service.shared.counts.add(Count::FeedsLost);
                self.state.follows.store(false, Ordering::Relaxed);
                self.state.failed(why.clone());
            }
        }
        Ok(())
    }

    async fn pass(&self, fence: &Fence) {
        let mut rest = Duration::ZERO;
        loop {
            for vm in self.service.follower.degraded() {
                self.note(
                    "reading a stopped storage VM",
                    self.service.follower.follow(&vm, Some(fence)).await,
                );
            }
            self.note(
                "finishing the work that an earlier run left",
                self.service.tidy(Some(fence)).await,
            );
            let changed = self.service.networks.end(Some(fence)).await;
            self.note("finishing network changes", changed);
            if rest.is_zero() {
                rest = LONG;
                self.note(
                    "archiving failed volumes",
                    self.service.archive.take_old(Some(fence)).await,
                );
                self.note(
                    "reading the jobs of reservations",
                    self.service.follower.check_jobs(Some(fence)).await,
                );
            }
            rest = rest.saturating_sub(SHORT);
            tokio::time::sleep(SHORT).await;
        }
    }

    /// Logs and counts a failure; returns whether there was none.
    fn note(&self, what: &str, outcome: Result<(), Trouble>) -> bool {
        let Err(error) = outcome else { return true };
        tracing::warn!(%error, task = what, "a task of the leader failed; it is tried again");
        self.service.shared.counts.add(Count::Errors);
        self.state.failed(format!("{what}: {error}"));
        false
    }
}
