// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The pass: RFD 58's reap with everything that has to come before it. In this order, and never
//! another: NAPI's list, the node's view, backfill and state (awaited), a first look, a pause, a
//! second look on a view of its own, VMAPI's verdicts, the brake, and only then deletes. What a
//! guard puts off stays in the round until it is decided or the next list replaces it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use jiff::{SignedDuration, Timestamp};
use sdc_clients::MacAddr;

use crate::agent::Agent;
use crate::apply::Outcome;
use crate::config::{Mode, Window};
use crate::inventory::LocalView;
use crate::lanes::Due;
use crate::plan::reap::Basis;
use crate::plan::verdict::Verdict;
use crate::plan::{Action, Decision, Inputs, Plan, plan};
use crate::remote::{self, ListError, RemoteView};
use crate::status::{Count, EMPTIED, history};

/// Requests of a pass that wait at once; the pace bounds them all the same.
const AT_ONCE: usize = 4;
/// A verdict that waited longer than this for its delete is asked for again.
const VERDICT_GOOD: Duration = Duration::from_secs(30);

/// What a pass left to decide.
#[derive(Debug, Default)]
struct Open {
    remote: RemoteView,
    /// When the list was read, on the agent's clock.
    read: Duration,
    first_looks: BTreeMap<MacAddr, Duration>,
    /// Why the first of them is not decided.
    why: String,
    /// Candidates that the list began with, less those deleted since: what was decided otherwise
    /// still counts for the brake.
    candidates: usize,
}

impl Open {
    /// NAPI's list with NAPI's time moved on to now.
    fn aged(&self, now: Duration) -> RemoteView {
        let passed = SignedDuration::try_from(now.saturating_sub(self.read)).unwrap_or_default();
        let date = self.remote.date.and_then(|date| date.checked_add(passed).ok());
        RemoteView { date, ..self.remote.clone() }
    }
}

#[derive(Debug)]
enum Failed {
    Unsupported(String),
    Other(String),
}

impl Agent {
    /// Passes for ever: one per start, and one per `relist`.
    pub(crate) async fn passes(&self) {
        let status = &self.shared.status;
        let Window { min, max } = self.shared.config.startup_delay;
        let delay = self.shared.draw(|jitter| jitter.uniform(min, max));
        status.waiting("pass", Some(format!("startup delay, {} s", delay.as_secs())));
        tokio::time::sleep(delay).await;
        let mut failures = 0;
        loop {
            self.ready("pass").await;
            match self.pass().await {
                Ok(open) => {
                    failures = 0;
                    let number = status.passed();
                    tracing::info!(number, open = open.remote.nics.len(), "pass done");
                    self.rounds(open).await;
                }
                Err(Failed::Unsupported(why)) => {
                    status.step(history::BACKED_OFF);
                    let middle = self.shared.config.unsupported_backoff;
                    let wait = self.shared.draw(|jitter| jitter.around(middle, 0.25));
                    tracing::warn!(reason = why, wait_s = wait.as_secs(), "no reap for now");
                    status.waiting("pass", Some(why));
                    tokio::time::sleep(wait).await;
                }
                Err(Failed::Other(why)) => {
                    tracing::warn!(reason = why, "the pass is void");
                    status.failed(why.clone());
                    status.waiting("pass", Some(format!("retrying: {why}")));
                    tokio::time::sleep(self.backoff(&mut failures)).await;
                }
            }
        }
    }

    async fn pass(&self) -> Result<Open, Failed> {
        let (shared, status) = (&self.shared, &self.shared.status);
        let again = status.passes() > 0;
        let config = &shared.config;
        // NAPI is asked only when the node answers; what it says is judged by a later view.
        self.view().await?;
        let read = shared.clock();
        let list = remote::list(&self.clients.napi, &config.cn_uuid, config.fallback).await;
        let remote = list.map_err(|err| match err {
            ListError::Unsupported(_) => Failed::Unsupported(err.to_string()),
            other => Failed::Other(daemon::log::chain(&other)),
        })?;
        status.set(Count::Listed, remote.listed);
        let mut open = Open { remote, read, ..Open::default() };
        let mut view = self.view().await?;
        if config.mode == Mode::On && self.add_unlisted(&mut open.remote, &view, !again).await {
            // The records first, then the view that they are judged by.
            view = self.view().await?;
        }
        let first = self.compared(&open, &view, &BTreeMap::new());
        open.candidates = first.decisions.iter().filter(|d| d.is_candidate()).count();
        status.planned(&first);
        status.step(if config.mode == Mode::On { history::REAP } else { history::SKIPPED });
        let missing = self.backfill(&first).await;
        self.doubt_an_empty_list(open.remote.listed, missing);
        if again {
            // Once each: a record that NAPI cannot serve must not hold up the reap.
            let own = shared.identity().map(|i| i.macs.into_iter().collect());
            self.own_nics_of(own.unwrap_or_default()).await;
        }
        keep_candidates(&mut open, &first, view.taken);
        shared.note_open(&open.first_looks);
        if !open.remote.nics.is_empty() {
            let pause = config.second_look;
            status.waiting("pass", Some(format!("second look, in {} s", pause.as_secs_f64())));
            tokio::time::sleep(pause).await;
            self.ready("pass").await;
            self.round(&mut open).await?;
        }
        Ok(open)
    }

    /// Until the next list: rounds over what is still open, one per comparison interval.
    async fn rounds(&self, mut open: Open) {
        let shared = &self.shared;
        // A NAPI that lost its records may have them again long before the day is over.
        let emptied = shared.status.brake_of(EMPTIED).is_some();
        let patience = if emptied { shared.config.unsupported_backoff } else { Duration::MAX };
        let pause = shared.config.relist.min(patience);
        let relist = (!pause.is_zero())
            .then(|| shared.clock() + shared.draw(|jitter| jitter.around(pause, 0.25)));
        loop {
            let round = shared.draw(|jitter| jitter.around(shared.config.resync, 0.1));
            let left = relist.map(|at| at.saturating_sub(shared.clock()));
            let waiting = open.remote.nics.len();
            let text = (waiting > 0).then(|| {
                format!("{waiting} candidates not decided yet, the first by {}", open.why)
            });
            shared.status.waiting("pass", text);
            let pause = match (waiting, left) {
                (0, None) => Duration::MAX,
                (0, Some(left)) => left,
                (_, left) => left.map_or(round, |left| left.min(round)),
            };
            // Both arms are cancel-safe: an approval not waited for is kept.
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = shared.approved.notified() => self.wake_departed(),
            }
            if relist.is_some_and(|at| at <= shared.clock()) {
                return;
            }
            self.ready("pass").await;
            if let Err(Failed::Other(why) | Failed::Unsupported(why)) = self.round(&mut open).await
            {
                shared.status.failed(why);
            }
        }
    }

    /// One look at what is open: a fresh view, verdicts, the brake, deletes.
    async fn round(&self, open: &mut Open) -> Result<(), Failed> {
        let shared = &self.shared;
        let view = self.view().await?;
        let asked = self.compared(open, &view, &BTreeMap::new());
        // What left before our eyes is in the lanes' hands.
        let departed: BTreeSet<MacAddr> =
            shared.all_departed().into_iter().map(|(mac, _)| mac).collect();
        let mine = |d: &&Decision| !departed.contains(&d.mac);
        let vms = asked.of("ask-vmapi").filter(mine).map(|d| d.vm.clone()).collect();
        let verdicts = self.ask_all(vms).await;
        let decided = self.compared(open, &view, &verdicts);
        if let Some(why) = &decided.brake {
            tracing::error!(reason = why, "brake: nothing is deleted");
        }
        self.shared.status.brake("pass", decided.brake.clone());
        self.shared.status.replanned(&decided);
        let deletes: Vec<Decision> = decided.of("delete").filter(mine).cloned().collect();
        let approved = deletes.clone().into_iter().map(|d| (d.mac, d.vm));
        let (first_looks, verdicts) = (&open.first_looks, &verdicts);
        let on_approval = decided.brake.is_some();
        let asked = shared.clock();
        let outcomes: Vec<(MacAddr, Outcome)> = futures_util::stream::iter(deletes)
            .map(|d| async move {
                let first_look = first_looks.get(&d.mac).copied();
                let basis = Basis::Pass { first_look, on_approval };
                let young = shared.clock().saturating_sub(asked) < VERDICT_GOOD;
                let verdict = verdicts.get(&d.vm).filter(|_| young).cloned();
                (d.mac, self.apply.reap(d.mac, &d.vm, basis, verdict).await)
            })
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        keep_candidates(open, &decided, view.taken);
        let mut braked = decided.braked();
        for (mac, outcome) in outcomes {
            shared.status.outcome(mac, outcome.to_string());
            match outcome {
                Outcome::Done => open.candidates = open.candidates.saturating_sub(1),
                outcome if outcome.is_open() => continue,
                _ => {}
            }
            open.remote.nics.retain(|nic| nic.mac != mac);
            open.first_looks.remove(&mac);
            braked.remove(&mac);
        }
        if on_approval {
            // An approved record that was not let go after all is the brake's again.
            braked.extend(approved.filter(|(mac, _)| open.first_looks.contains_key(mac)));
        }
        shared.status.brake("pass", decided.brake.clone().filter(|_| !braked.is_empty()));
        shared.keep_braked(braked);
        shared.note_open(&open.first_looks);
        let first = decided.of("defer").next();
        open.why = first.map_or_else(|| "a request".to_owned(), |d| d.reason.clone());
        for decision in decided.of("defer") {
            self.shared.status.count(Count::Deferred);
            let (mac, vm) = (decision.mac, &decision.vm);
            tracing::info!(%mac, vm, reason = decision.reason, "deferred");
        }
        Ok(())
    }

    /// G10 from the other side: a NAPI that lists no NIC of this node, and knows none of those
    /// that are here, has lost its records. Whatever else it says is no ground for a delete.
    fn doubt_an_empty_list(&self, listed: usize, unknown: usize) {
        let here = self.shared.look(|i| i.view.macs().filter(|(_, vm)| !vm.hidden).count());
        let lost = listed == 0 && unknown * 2 > here;
        let why = lost.then(|| format!("NAPI has no record of {unknown} of the {here} NICs here"));
        if let Some(why) = &why {
            tracing::error!(reason = why, "brake: nothing is deleted that VMAPI has not confirmed");
        }
        self.shared.status.brake(EMPTIED, why);
    }

    /// Writes what the plan wants written, and waits for all of it (R8, D2). Says how many
    /// addresses NAPI turned out not to know.
    async fn backfill(&self, plan: &Plan) -> usize {
        let missing = AtomicUsize::new(0);
        let now = self.shared.clock();
        let wanted: Vec<Decision> =
            plan.decisions.iter().filter(|d| d.evidence.is_empty()).cloned().collect();
        let identity = self.shared.identity().unwrap_or_default();
        futures_util::stream::iter(wanted)
            .for_each_concurrent(AT_ONCE, |d| {
                let own = identity.macs.contains(&d.mac) || d.vm == self.shared.policy.cn_uuid;
                let missing = &missing;
                async move {
                    let outcome = match d.action {
                        Action::Look | Action::Write(_) | Action::AskVmapi if own => {
                            self.apply.keep_up_own(d.mac).await
                        }
                        Action::Look | Action::Write(_) | Action::AskVmapi => {
                            self.apply.keep_up(d.mac, &d.vm, false).await
                        }
                        Action::Defer => Outcome::Deferred(d.reason.clone()),
                        Action::Delete | Action::Keep => return,
                    };
                    self.shared.status.outcome(d.mac, outcome.to_string());
                    if outcome == Outcome::Missing {
                        missing.fetch_add(1, Ordering::Relaxed);
                    }
                    if outcome.is_open() {
                        self.lanes.wake(&d.vm, Due { at: now, upkeep: true, tries: 1 });
                    }
                }
            })
            .await;
        missing.into_inner()
    }

    async fn view(&self) -> Result<LocalView, Failed> {
        let fresh = self.shared.fresh_view(&self.clients.vminfod).await.map_err(Failed::Other)?;
        self.told_by_view(fresh.differing);
        Ok(fresh.view)
    }

    /// One look at a list, with VMAPI's word on every candidate.
    pub(crate) async fn look_once(&self, remote: RemoteView, view: &LocalView) -> Plan {
        let read = self.shared.clock();
        let open = Open { remote, read, ..Open::default() };
        let first = self.compared(&open, view, &BTreeMap::new());
        let vms = first.decisions.iter().filter(|d| d.is_candidate()).map(|d| d.vm.clone());
        let verdicts = self.ask_all(vms.collect()).await;
        self.compared(&open, view, &verdicts)
    }

    /// VMAPI's word on these VMs.
    async fn ask_all(&self, vms: BTreeSet<String>) -> BTreeMap<String, Verdict> {
        if !self.shared.policy.ask_vmapi {
            return BTreeMap::new();
        }
        futures_util::stream::iter(vms)
            .map(|vm| async move {
                let verdict = self.apply.ask(&vm).await;
                (vm, verdict)
            })
            .buffer_unordered(AT_ONCE)
            .collect()
            .await
    }

    fn compared(
        &self,
        open: &Open,
        view: &LocalView,
        verdicts: &BTreeMap<String, Verdict>,
    ) -> Plan {
        let shared = &self.shared;
        let (now, wall) = (shared.clock(), Timestamp::now());
        plan(&Inputs {
            local: view,
            identity: &shared.identity().unwrap_or_default(),
            remote: &open.aged(now),
            holds: &shared.holds.read_or_hold_all(wall),
            verdicts,
            first_looks: &open.first_looks,
            wall,
            candidates: open.candidates,
            recent_deletes: shared.recent_deletes(),
            most_vms: shared.look(|inventory| inventory.most_vms(now)),
            approved: &shared.approved_macs(),
            policy: &shared.policy,
        })
    }
}

/// Keeps the records that look leaked and are not decided; notes a first look for new ones.
fn keep_candidates(open: &mut Open, plan: &Plan, taken: Duration) {
    let open_macs: BTreeSet<MacAddr> = plan
        .decisions
        .iter()
        .filter(|d| !d.evidence.is_empty() && d.action != Action::Keep)
        .map(|d| d.mac)
        .collect();
    open.remote.nics.retain(|nic| open_macs.contains(&nic.mac));
    open.remote.whole = false;
    open.first_looks.retain(|mac, _| open_macs.contains(mac));
    for mac in open_macs {
        open.first_looks.entry(mac).or_insert(taken);
    }
}
