// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What happens by the clock, and whose turn it is.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use store::Fence;
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use super::ending::is_busy;
use super::order::Failed;
use crate::command::message;
use crate::records::Stored;
use crate::state::Service;
use crate::through::Through;
use migration_core::limits::{Settings, Turn, turns};
use migration_core::machine::{Action, Call, admit, start};
use migration_core::record::{Phase, Record, State};
use migration_core::schedule::{Due, due};
use migration_core::time::Time;

/// What the last sync took is what the next one is expected to take, at least this.
const SHORTEST_SYNC_MS: i64 = 10_000;

/// Between two sweeps the clock may go ahead by so much more than time passes, in ms.
const AHEAD_MS: i64 = 60_000;
/// After a jump nothing is done by the clock for so long.
const UNSTEADY: Duration = Duration::from_secs(3600);

/// What is kept between two sweeps.
#[derive(Debug, Default)]
pub struct Sweeps {
    /// The limits that the agents have received.
    rates: BTreeMap<Uuid, u32>,
    /// What the clock showed at the last sweep, and when that was.
    last: Option<(Time, Instant)>,
    unsteady: Option<Instant>,
}

impl Sweeps {
    /// Returns true if the clock seems right. One that jumps ahead would finalize, abort
    /// and switch before their time.
    fn is_steady(&mut self, now: Time) -> bool {
        if let Some((before, at)) = self.last.replace((now, Instant::now())) {
            let passed = i64::try_from(at.elapsed().as_millis()).unwrap_or(i64::MAX);
            let ahead_ms = now.since(before).saturating_sub(passed);
            if ahead_ms > AHEAD_MS {
                tracing::error!(
                    ahead_ms,
                    "the clock jumped ahead: no migration begins, is finalized or aborted by time for an hour"
                );
                self.unsteady = Some(Instant::now() + UNSTEADY);
            }
        }
        self.unsteady.is_none_or(|until| until <= Instant::now())
    }
}

/// Sweeps the records that are not over: starts those whose turn it is, and does what is due. Returns those that run.
pub async fn sweep(
    service: &Service,
    fence: &Fence,
    sweeps: &mut Sweeps,
) -> Result<Vec<Uuid>, Failed> {
    let settings = service.settings.read().await?;
    let now = service.clock.now();
    let is_steady = sweeps.is_steady(now);
    let mut all = service.records.open_ones().await?;
    all.retain(|kept| kept.record.intent.older.is_none());
    for kept in &mut all {
        if is_steady && let Some(action) = by_clock(&kept.record, &settings, now) {
            keep(service, fence, kept, |record| take(record, action, now)).await?;
        }
    }
    let records: Vec<&Record> = all.iter().map(|kept| &kept.record).collect();
    let ready: Vec<Uuid> = turns(records, &settings)
        .into_iter()
        .filter_map(|(id, turn)| (turn == Turn::Now).then_some(id))
        .collect();
    for kept in all.iter_mut().filter(|kept| ready.contains(&kept.record.id)) {
        keep(service, fence, kept, |record| {
            let (phase, job) =
                (record.phase, record.intent.job.take().unwrap_or_else(Uuid::new_v4));
            start(record, phase, message(phase), job, now);
        })
        .await?;
    }
    let running: Vec<&Record> =
        all.iter().map(|kept| &kept.record).filter(|record| is_busy(record)).collect();
    limit(service, &settings, &running, &mut sweeps.rates).await;
    Ok(running.iter().map(|record| record.id).collect())
}

/// Changes a record; one that was changed by others meanwhile is left to a later pass.
async fn keep(
    service: &Service,
    fence: &Fence,
    kept: &mut Stored,
    change: impl FnOnce(&mut Record),
) -> Result<(), Failed> {
    let before = kept.clone();
    change(&mut kept.record);
    match service.records.write(kept, Some(fence)).await.map_err(Failed::from) {
        Err(Failed::Lost) => {
            *kept = before;
            Ok(())
        }
        done => done,
    }
}

/// What the clock asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ByClock {
    Begin(Phase),
    Late,
    Finalize,
    Abort,
}

fn by_clock(record: &Record, settings: &Settings, now: Time) -> Option<ByClock> {
    let last = record.progress_history.last();
    let since = last.and_then(|entry| entry.finished_timestamp).map(|at| now.since(at));
    let is_after = |seconds: Option<u32>| {
        seconds.zip(since).is_some_and(|(seconds, ms)| ms >= i64::from(seconds) * 1000)
    };
    match record.state {
        State::Scheduled => {
            let took = last.and_then(|entry| entry.duration_ms).unwrap_or(0);
            let leeway = i64::from(settings.schedule_leeway) * 1000;
            match due(record, took.max(SHORTEST_SYNC_MS), leeway, now)? {
                Due::Wait(_) => None,
                Due::Sync => Some(ByClock::Begin(Phase::Sync)),
                Due::Switch => Some(ByClock::Begin(Phase::Switch)),
                Due::Late if record.error.is_none() => Some(ByClock::Late),
                Due::Late => None,
            }
        }
        State::Successful if !record.intent.finalize && is_after(settings.auto_finalize_after) => {
            Some(ByClock::Finalize)
        }
        State::Paused if is_after(settings.max_paused) => Some(ByClock::Abort),
        _ => None,
    }
}

/// Does what the clock asks for, if the state machine admits it.
fn take(record: &mut Record, action: ByClock, now: Time) {
    let by = match action {
        ByClock::Finalize => Some("auto_finalize_after"),
        ByClock::Abort => Some("max_paused"),
        // The caller who set the time asked for it.
        ByClock::Begin(_) | ByClock::Late => None,
    };
    if let Some(setting) = by {
        record.intent.asker = Some(Through::itself(setting).asker(None, now));
    }
    let admits = |record: &Record, action| admit(Some(record), Call::new(action)).is_ok();
    match action {
        ByClock::Begin(phase) => start(record, phase, message(phase), Uuid::new_v4(), now),
        ByClock::Late => {
            tracing::error!(
                vm = %record.vm_uuid,
                id = %record.id,
                "a scheduled switch missed its time and does not start by itself; order it with \
                 `sdc-migrate switch VM`, or set another time"
            );
            record.error =
                Some("The time of the switch has passed: it does not start by itself".into());
        }
        ByClock::Finalize if admits(record, Action::Finalize) => record.intent.finalize = true,
        ByClock::Abort if admits(record, Action::Abort) => {
            start(record, Phase::Abort, message(Phase::Abort), Uuid::new_v4(), now);
        }
        ByClock::Finalize | ByClock::Abort => {}
    }
}

/// Tells the agents of the migrations that run the limit of their streams, when it has changed.
async fn limit(
    service: &Service,
    settings: &Settings,
    running: &[&Record],
    rates: &mut BTreeMap<Uuid, u32>,
) {
    let nodes = running.iter().flat_map(|record| {
        std::iter::once(record.source_server_uuid).chain(record.target_server_uuid)
    });
    let nodes: std::collections::BTreeSet<Uuid> = nodes.collect();
    rates.retain(|cn, _| nodes.contains(cn));
    let orders = nodes.into_iter().filter_map(|cn| {
        let own = settings.of_cn.get(&cn).and_then(|own| own.zfs_send_mbps_limit);
        let mbps = own.unwrap_or(settings.zfs_send_mbps_limit);
        let is_set = rates.get(&cn) == Some(&mbps);
        (!is_set).then_some(async move {
            let order = timeout(Duration::from_secs(2), service.agents.rate(cn, mbps));
            matches!(order.await, Ok(Ok(()))).then_some((cn, mbps))
        })
    });
    let set: Vec<Option<(Uuid, u32)>> = join_all(orders.collect::<Vec<_>>()).await;
    rates.extend(set.into_iter().flatten());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)] // M59
    async fn for_an_hour_after_the_clock_went_ahead_nothing_is_done_by_it() {
        let (mut sweeps, mut ms) = (Sweeps::default(), 0);
        let mut sweep = async |seconds: u64, jump: i64| {
            tokio::time::advance(Duration::from_secs(seconds)).await;
            ms += i64::try_from(seconds).unwrap() * 1000 + jump * 1000;
            sweeps.is_steady(Time::from_millis(ms))
        };
        assert!(sweep(1, 0).await && sweep(7200, 0).await, "no sweep for two hours");
        assert!(sweep(1, 30).await, "it is set right");
        assert!(sweep(1, -86_400).await, "what is due is late");
        for jump in [3600, 86_400] {
            assert!(!sweep(1, jump).await && !sweep(1, 0).await && !sweep(3500, 0).await);
            assert!(sweep(200, 0).await);
        }
    }
}
