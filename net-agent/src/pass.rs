// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The pass task: RFD 58's reap and everything that has to come before it, in this order: NAPI's
//! list, the node's view, backfill and states (awaited), a first look, a pause, a second look on a
//! view of its own, VMAPI's verdicts, the brake, the deletes. Candidates that a guard defers are
//! looked at again in rounds until they are decided or the next list replaces them.

mod backfill; // what the plan wants written

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use daemon::agent::{Mode, State};
use daemon::timing::HOUR;
use futures_util::StreamExt as _;
use jiff::SignedDuration;
use sdc_clients::MacAddr;
use tokio::time::Instant;

use crate::apply;
use crate::brake::{BrakeOf, Clearance, Tripped};
use crate::changes::{missed, wake_departures};
use crate::listing::{self, ListError, NicListing};
use crate::outcome::Outcome;
use crate::parts::Parts;
use crate::plan::reap::Basis;
use crate::plan::{Action, Decision, Inputs, Plan, Reason, Verdict, compare};
use crate::status::{Count, Own, Task, history};
use crate::view::{LocalView, ViewError};
use crate::{moved, own_nics, unlisted};

use backfill::{AT_ONCE, Unwritten, backfill};

/// A verdict that is older than this at its delete is asked for again.
const VERDICT_GOOD: Duration = Duration::from_secs(30);

/// Why there was no pass.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error(transparent)]
    List(#[from] ListError),
    #[error(transparent)]
    View(#[from] ViewError),
    /// R8: nothing is reaped before the backfill.
    #[error(transparent)]
    Backfill(#[from] Unwritten),
}

/// What a pass has not decided yet.
#[derive(Debug, Default)]
struct Open {
    listing: NicListing,
    read: Duration,
    first_looks: BTreeMap<MacAddr, Duration>,
    /// Why the first of them is not decided.
    first: Option<Reason>,
    /// The candidates of the list, less those deleted since: what was decided otherwise still
    /// counts for the brake.
    candidates: usize,
}

impl Open {
    /// Returns the listing with NAPI's time moved on to now.
    fn aged(&self, now: Duration) -> NicListing {
        let passed = SignedDuration::try_from(now.saturating_sub(self.read)).unwrap_or_default();
        let date = self.listing.date.and_then(|date| date.checked_add(passed).ok());
        NicListing { date, ..self.listing.clone() }
    }

    /// Keeps the records that look leaked and are not decided, and when each was first seen.
    fn keep(&mut self, plan: &Plan, taken: Duration) {
        let open = plan.decisions.iter().filter(|d| d.is_judged() && d.action != Action::Keep);
        let open: BTreeSet<MacAddr> = open.map(|d| d.mac).collect();
        self.listing.nics.retain(|nic| open.contains(&nic.mac));
        self.listing.whole = false;
        self.first_looks.retain(|mac, _| open.contains(mac));
        for mac in open {
            self.first_looks.entry(mac).or_insert(taken);
        }
    }

    /// A record is decided.
    fn remove(&mut self, mac: MacAddr) {
        self.listing.nics.retain(|nic| nic.mac != mac);
        self.first_looks.remove(&mac);
    }
}

/// Passes, for ever: one per start, and one per `relist`.
pub(crate) async fn run(parts: Arc<Parts>) {
    let parts = &*parts;
    let (status, times) = (&parts.status, &parts.config.times);
    let delay = parts.random.within(times.startup_delay);
    status.is(Task::Pass, State::StartupDelay(delay));
    tokio::time::sleep(delay).await;
    let mut retry = parts.retry();
    let mut is_failing = false;
    loop {
        parts.status.ready(Task::Pass, &parts.gate).await;
        let began = Instant::now();
        let outcome = pass(parts, status.passes() + 1).await;
        let was_failing = std::mem::replace(&mut is_failing, outcome.is_err());
        match outcome {
            Ok(open) => {
                retry.reset();
                let number = status.passed(began);
                tracing::info!(number, open = open.listing.nics.len(), "finished a pass");
                rounds(parts, open, number).await;
            }
            Err(Failed::List(err @ ListError::Unsupported(_))) => {
                status.step(history::BACKED_OFF);
                let wait = parts.random.around(times.unsupported_backoff, 0.25);
                let why = daemon::log::chain(&err);
                tracing::warn!(
                    reason = why,
                    wait_s = wait.as_secs(),
                    "no reap until NAPI can list by node"
                );
                status.is(Task::Pass, State::Own(Own::Unsupported(why)));
                tokio::time::sleep(wait).await;
            }
            Err(err) => {
                let why = parts.failed(&err);
                if !was_failing {
                    tracing::warn!(reason = %why, "the pass failed and is repeated until it succeeds");
                }
                status.is(Task::Pass, State::Retrying(why.to_string()));
                tokio::time::sleep(retry.next_delay()).await;
            }
        }
    }
}

#[tracing::instrument(skip(parts))]
async fn pass(parts: &Parts, pass: u64) -> Result<Open, Failed> {
    let (config, status) = (&parts.config, &parts.status);
    let is_first = pass == 1;
    // NAPI is asked only if the node answers; the list is judged by a later view.
    view(parts).await?;
    let read = parts.clock.now();
    let (napi, fallback) = (&parts.clients.napi, config.services.fallback);
    let listing = listing::list(napi, &config.policy.cn_uuid, fallback).await?;
    status.listed(&listing);
    parts.brake.note_list(listing.listed, listing.listed_vms);
    if let Some(first) = listing.unreadable.first.first() {
        let count = listing.unreadable.count;
        tracing::warn!(count, first, "left out records of NAPI's list that cannot be read");
    }
    let mut open = Open { listing, read, ..Open::default() };
    let mut local = view(parts).await?;
    if config.basics.mode == Mode::On
        && unlisted::add(parts, &mut open.listing, &local, is_first).await
    {
        // The records first, then the view that they are judged by.
        local = view(parts).await?;
    }
    let first = compared(parts, &open, &local, &BTreeMap::new()).await;
    open.candidates = first.decisions.iter().filter(|d| d.is_candidate()).count();
    status.planned(first.clone());
    status.step(if config.basics.mode == Mode::On { history::REAP } else { history::SKIPPED });
    let missing = backfill(parts, &first).await?;
    doubt_an_empty_list(parts, open.listing.listed, missing);
    if !is_first {
        // Once each: a record that NAPI cannot serve must not hold up the reap.
        own_nics::once(parts, own_nics::macs(parts).await).await;
    }
    open.keep(&first, local.taken);
    parts.brake.note_candidates(&open.first_looks);
    if !open.listing.nics.is_empty() {
        let pause = config.policy.second_look;
        status.is(Task::Pass, State::Own(Own::SecondLook(pause)));
        tokio::time::sleep(pause).await;
        parts.status.ready(Task::Pass, &parts.gate).await;
        round(parts, &mut open, pass).await?;
    } else {
        refer_to(parts, &open, &local);
    }
    Ok(open)
}

/// Makes the view the reference view of the brake if nothing that it may lack is left undecided.
fn refer_to(parts: &Parts, open: &Open, local: &LocalView) {
    let decided = open.listing.nics.is_empty() && parts.departures.count() == 0;
    if decided && parts.brake.is_on(BrakeOf::Napi).is_none() {
        parts.refer_to(local);
    }
}

/// Looks at what is open once per comparison interval, until the next list.
async fn rounds(parts: &Parts, mut open: Open, pass: u64) {
    let (times, random) = (&parts.config.times, &parts.random);
    // A NAPI that lost its records may have them again long before the day is over.
    let has_lost = parts.brake.is_on(BrakeOf::Napi).is_some();
    let longest = if has_lost { times.unsupported_backoff } else { Duration::MAX };
    let pause = times.relist.min(longest);
    let mut relist = (!pause.is_zero()).then(|| parts.clock.now() + random.around(pause, 0.25));
    loop {
        if open.listing.nics.is_empty() && has_shrunk(parts) {
            // The next pass takes the node as it is, and VMAPI's word counts again.
            let soon = parts.clock.now() + random.around(HOUR, 0.25);
            relist = relist.map(|at| at.min(soon));
        }
        let left = relist.map_or(Duration::MAX, |at| at.saturating_sub(parts.clock.now()));
        let count = open.listing.nics.len();
        let state = match open.first.clone().filter(|_| count > 0) {
            Some(first) => State::Own(Own::Undecided { count, first: Box::new(first) }),
            None => State::Resting,
        };
        parts.status.is(Task::Pass, state);
        let round_due = random.around(times.resync, 0.1);
        // Both arms are cancel-safe: an approval that nobody waited for is kept.
        tokio::select! {
            () = tokio::time::sleep(left.min(round_due)) => {}
            () = parts.brake.approval() => wake_departures(parts),
        }
        if relist.is_some_and(|at| at <= parts.clock.now()) {
            return;
        }
        if open.listing.nics.is_empty() {
            continue;
        }
        parts.status.ready(Task::Pass, &parts.gate).await;
        if let Err(err) = round(parts, &mut open, pass).await {
            parts.failed(&err);
        }
    }
}

/// Returns true if so many VMs of the reference view are gone that VMAPI's word does not count, and
/// all that left is settled.
fn has_shrunk(parts: &Parts) -> bool {
    let settled = parts.departures.count() == 0;
    settled && parts.node.with(|i| parts.reference_in(&i.view)).is_some_and(|of| !of.is_most())
}

/// Looks once at what is open: a fresh view, verdicts, the brake, the deletes.
#[tracing::instrument(skip(parts, open))]
async fn round(parts: &Parts, open: &mut Open, pass: u64) -> Result<(), ViewError> {
    let local = view(parts).await?;
    moved::forget(parts).await;
    // The worker deletes what left while an event said so.
    let departed: BTreeSet<MacAddr> =
        parts.departures.all().into_iter().map(|(mac, _)| mac).collect();
    let mine = |d: &&Decision| !departed.contains(&d.mac);
    let asked = compared(parts, open, &local, &BTreeMap::new()).await;
    let vms = asked.of(Action::AskVmapi).filter(mine).map(|d| d.vm.clone()).collect();
    let verdicts = ask_all(parts, vms).await;
    let decided = compared(parts, open, &local, &verdicts).await;
    if let Some(why) = &decided.brake {
        tracing::error!(reason = %why, "the brake is on: nothing is deleted without approval");
    }
    parts.brake.set(BrakeOf::Pass, decided.brake.clone());
    parts.status.replanned(&decided);
    let deletes: Vec<Decision> = decided.of(Action::Delete).filter(mine).cloned().collect();
    let outcomes = delete_all(parts, &deletes, open, &verdicts).await;
    open.keep(&decided, local.taken);
    let mut blocked = decided.braked();
    for (mac, outcome) in outcomes {
        parts.status.outcome(mac, outcome.clone());
        if outcome == Outcome::Done {
            open.candidates = open.candidates.saturating_sub(1);
        }
        if !outcome.is_open() {
            open.remove(mac);
            blocked.remove(&mac);
        }
    }
    // An approved record that was not deleted after all is blocked again.
    let approved = deletes.into_iter().filter(|d| d.clearance == Clearance::Approved);
    let approved = approved.filter(|d| open.first_looks.contains_key(&d.mac));
    blocked.extend(approved.map(|d| (d.mac, d.vm)));
    parts.brake.set(BrakeOf::Pass, decided.brake.clone().filter(|_| !blocked.is_empty()));
    parts.brake.block(blocked);
    parts.brake.note_candidates(&open.first_looks);
    refer_to(parts, open, &local);
    let deferred: Vec<&Decision> = decided.of(Action::Defer).collect();
    let request = || Reason::Request("a failed request".to_owned());
    open.first = Some(deferred.first().map_or_else(request, |d| d.reason.clone()));
    for Decision { mac, vm, reason, .. } in deferred {
        parts.status.count(Count::Deferred);
        tracing::info!(nic = %mac, vm, %reason, "deferring the record");
    }
    Ok(())
}

async fn delete_all(
    parts: &Parts,
    deletes: &[Decision],
    open: &Open,
    verdicts: &BTreeMap<String, Verdict>,
) -> Vec<(MacAddr, Outcome)> {
    let asked = parts.clock.now();
    let delete = |d: &Decision| {
        let (mac, vm, clearance) = (d.mac, d.vm.clone(), d.clearance);
        let first_look = open.first_looks.get(&mac).copied();
        async move {
            let young = parts.clock.now().saturating_sub(asked) < VERDICT_GOOD;
            let verdict = verdicts.get(&vm).filter(|_| young).cloned();
            let basis = Basis::Pass { first_look, clearance };
            (mac, apply::delete(parts, mac, &vm, basis, verdict).await)
        }
    };
    let deletes: Vec<_> = deletes.iter().map(delete).collect();
    futures_util::stream::iter(deletes).buffer_unordered(AT_ONCE).collect().await
}

/// G10 from the other side: a NAPI that lists no NIC of this node, and knows none of those that are
/// here, has lost its records. Nothing else that it says is ground for a delete.
fn doubt_an_empty_list(parts: &Parts, listed: usize, missing: usize) {
    let here = parts.node.with(|i| i.view.macs().filter(|(_, vm)| !vm.hidden).count());
    let lost = listed == 0 && missing * 2 > here;
    let why = lost.then_some(Tripped::EmptyList { missing, here });
    if let Some(why) = &why {
        tracing::error!(reason = %why, "the brake is on: only what VMAPI confirms is deleted");
    }
    parts.brake.set(BrakeOf::Napi, why);
}

async fn view(parts: &Parts) -> Result<LocalView, ViewError> {
    let fresh = parts.node.read_fresh(&parts.clients.vminfod).await?;
    missed(parts, fresh.differing);
    Ok(fresh.view)
}

/// Looks at a list once, with VMAPI's verdict on every candidate.
pub(crate) async fn look_once(parts: &Parts, listing: NicListing, view: &LocalView) -> Plan {
    let read = parts.clock.now();
    parts.brake.note_list(listing.listed, listing.listed_vms);
    let open = Open { listing, read, ..Open::default() };
    let first = compared(parts, &open, view, &BTreeMap::new()).await;
    let vms = first.decisions.iter().filter(|d| d.is_candidate()).map(|d| d.vm.clone());
    let verdicts = ask_all(parts, vms.collect()).await;
    compared(parts, &open, view, &verdicts).await
}

/// Asks VMAPI about these VMs.
async fn ask_all(parts: &Parts, vms: BTreeSet<String>) -> BTreeMap<String, Verdict> {
    if !parts.config.policy.ask_vmapi {
        return BTreeMap::new();
    }
    let ask = |vm: String| async move {
        let verdict = apply::ask_vmapi(parts, &vm).await;
        (vm, verdict)
    };
    futures_util::stream::iter(vms).map(ask).buffer_unordered(AT_ONCE).collect().await
}

async fn compared(
    parts: &Parts,
    open: &Open,
    local: &LocalView,
    verdicts: &BTreeMap<String, Verdict>,
) -> Plan {
    let holds = parts.holds.read_or_hold_all().await;
    let now = parts.clock.now();
    compare(&Inputs {
        local,
        identity: &parts.gate.identity().unwrap_or_default(),
        listing: &open.aged(now),
        holds: &holds,
        verdicts,
        first_looks: &open.first_looks,
        time: parts.gate.time(),
        scale: parts.scale(local, open.candidates),
        approved: &parts.brake.approved_macs(),
        policy: &parts.config.policy,
    })
}
