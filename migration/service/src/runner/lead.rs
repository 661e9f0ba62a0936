// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! One service of a data centre does the rounds and runs the timers: the one that holds the lease.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use store::{Fence, Store};
use tokio::time::{Instant, sleep, sleep_until};
use uuid::Uuid;

use super::ask::ask;
use super::drive::drive;
use super::evacuate::evacuate;
use super::order::Failed;
use super::returned::watch;
use super::silent::listen;
use super::tickets::release_left;
use super::timers::{Sweeps, sweep};
use super::twins::look;
use crate::state::Service;

/// Between two removals of old history.
const PRUNE: Duration = Duration::from_secs(3600);
/// The lease's name.
const NAME: &str = "migration-service";
/// Between two sweeps of the records.
const PAUSE: Duration = Duration::from_secs(1);

/// How long a lease runs after it was renewed, unless another time is set.
pub const TERM: Duration = Duration::from_secs(15);

/// Does the rounds whenever this service holds the lease. Never returns; dropping it stops the service where it
/// is, and another one, or the next start, goes on from the records.
///
/// Each write of a round is fenced by the lease's number, so that what is still under way when the lease is
/// lost changes no record.
pub async fn lead(service: Service, store: Store, term: Duration) {
    store.lead(NAME, term, |fence| Box::pin(led(&service, fence, term))).await;
}

/// Does all that one instance does, for as long as it leads.
async fn led(service: &Service, fence: Fence, term: Duration) {
    // No arm holds what another needs: those that are dropped stop where they are.
    tokio::select! {
        () = seen(service, term / 3) => {}
        () = watch(service, &fence) => {}
        () = listen(service, &fence) => {}
        () = ask(service, &fence) => {}
        () = worked(service, &fence) => {}
        () = pruned(service, &fence) => {}
        () = evacuate(service, &fence) => {}
        () = release_left(service) => {}
        () = look(service, &fence) => {}
    }
}

/// Writes down again and again that a service runs the timers. A late one shows an old time until the next.
async fn seen(service: &Service, pause: Duration) {
    loop {
        if let Err(error) = service.records.news.put_seen(service.clock.now()).await {
            tracing::warn!(reason = %error, "cannot record the leader's heartbeat in the store");
        }
        sleep(pause).await;
    }
}

/// Removes from the history, and from the aborted migrations, what is older than it is kept.
async fn pruned(service: &Service, fence: &Fence) {
    loop {
        if let Err(error) =
            service.records.prune(service.history_keep, service.clock.now(), fence).await
        {
            tracing::warn!(reason = %error, "cannot delete the expired entries of the history; trying again");
        }
        sleep(PRUNE).await;
    }
}

/// What has ended.
enum Ended {
    /// The rounds of a record.
    Driven(Uuid),
    /// A sweep of all records, and those that run.
    Swept(Result<Vec<Uuid>, Failed>, Sweeps),
}

/// Sweeps the records, and does the rounds of those that run, until the lease is found to be lost.
async fn worked(service: &Service, fence: &Fence) {
    let mut running: FuturesUnordered<BoxFuture<'_, Ended>> = FuturesUnordered::new();
    let mut known = BTreeSet::new();
    let mut sweeps = Some(Sweeps::default());
    let mut next = Instant::now();
    loop {
        if next <= Instant::now()
            && let Some(mut sweeps) = sweeps.take()
        {
            running.push(Box::pin(async move {
                let swept = sweep(service, fence, &mut sweeps).await;
                Ended::Swept(swept, sweeps)
            }));
        }
        // All arms are cancel-safe: futures stay in the set, and a notice that is not taken stays.
        tokio::select! {
            Some(ended) = running.next() => match ended {
                Ended::Driven(id) => drop(known.remove(&id)),
                Ended::Swept(swept, kept) => {
                    (sweeps, next) = (Some(kept), Instant::now() + PAUSE);
                    match swept {
                        Ok(busy) => {
                            for id in busy.into_iter().filter(|id| known.insert(*id)) {
                                running.push(Box::pin(async move {
                                    drive(service.clone(), fence.clone(), id).await;
                                    Ended::Driven(id)
                                }));
                            }
                        }
                        Err(Failed::Fenced) => return,
                        Err(why) => tracing::warn!(reason = %why, "cannot list the migration records; trying again"),
                    }
                }
            },
            () = service.wake.notified() => next = Instant::now(),
            () = sleep_until(next), if sweeps.is_some() => {}
        }
    }
}
