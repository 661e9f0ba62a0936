// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A refresh: how it begins, and how what it read is committed.

use std::sync::Arc;

use daemon::tasks::caught;
use tokio::time::Instant;
use vm_model::origin::Origin;
use vm_model::parts::{FILES, Parts};
use vm_model::reboot::{Trace, Verdict};
use vm_model::stale::Stale;

use super::asks::{Waiter, answer, waiter};
use super::engine::Reconciler;
use super::refresh::Taking;
use super::status::{Concerns, Phase};
use super::tasks::{Done, Like};
use super::vms::Reasons;
use crate::node::LoadError;
use crate::node::blocking::threads;
use crate::node::load::{self, Known, Node};
use crate::store::Outcome;

/// Threads that read files for a refresh that no request waits for.
const BACKGROUND: usize = 1;

impl Reconciler {
    pub(super) fn begin_refresh(&mut self, reads_all: bool, now: Instant) {
        self.datasets.begin_refresh();
        self.datasets.want_snapshots(now);
        self.status.show_refresh(now, Phase::Reading);
        let settled = self.vms.iter().filter(|(_, vm)| {
            !reads_all && !vm.is_failing() && vm.reading.is_none() && vm.stale.is_empty()
        });
        let known: Known =
            settled.filter_map(|(name, vm)| Some((name.clone(), vm.parts.clone()?))).collect();
        let at_once = if self.refresh.is_asked_for() { threads() } else { BACKGROUND };
        let span = tracing::info_span!("refresh", reads_all);
        self.begin(Like::Nothing, span, move |ctx| async move {
            let node = caught("refresh", load::node(&ctx, known, at_once, None)).await;
            Done::Node(node.map(|read| read.map(Box::new)))
        });
    }

    /// The reading of the whole node has ended.
    pub(super) fn refreshed(&mut self, result: Option<Result<Box<Node>, LoadError>>) {
        let now = Instant::now();
        let began = self.refresh.running().unwrap_or(now);
        match result {
            Some(Ok(mut node)) => {
                self.status.edit(|view| view.stale = false);
                self.take_node(&mut node, began);
                self.status.show_refresh(began, Phase::Committing);
                self.refresh.taking = Some(Taking::new(*node));
            }
            Some(Err(error)) => self.refresh_failed(began, error.to_string()),
            None => self.refresh_failed(began, "the reading panicked".to_owned()),
        }
    }

    fn refresh_failed(&mut self, began: Instant, message: String) {
        let now = Instant::now();
        self.datasets.refresh_failed();
        let pause = self.pause(self.refresh.failures() + 1);
        let waiters = self.refresh.failed(now, pause);
        if self.status.trouble("node", Concerns::Nothing, "refresh", message.clone()) {
            tracing::warn!(reason = %message, "a refresh failed; all objects stay");
        }
        let is_stale = self.refresh.age(now) > self.config.refresh.1 * 2;
        self.status.edit(|view| view.stale = is_stale);
        answer(waiters, &Err(message.clone()));
        self.status.refreshed(began, Err(message));
    }

    /// Commits the next `count` VMs of a refresh; returns true if there was one.
    pub(super) fn take_refreshed(&mut self, count: usize) -> bool {
        let Some(mut taking) = self.refresh.taking.take() else { return false };
        let now = Instant::now();
        let began = self.refresh.running().unwrap_or(now);
        for _ in 0..count {
            let Some((row, parts)) = taking.next(&self.datasets.tables) else {
                let waiters = self.refresh.ended(now);
                self.confirm_missing(&taking, waiters, now);
                let (ms, found) = (began.elapsed().as_millis() as u64, taking.changes.len());
                tracing::debug!(ms, found, "refresh done");
                self.status.refreshed(began, Ok(taking.changes));
                let is_silent = self.datasets.judge();
                self.status.edit(|view| view.are_datasets_silent = is_silent);
                self.plan_refresh();
                return true;
            };
            match parts {
                Ok(parts) => {
                    taking.changes.extend(self.take_parts(&row.zonename, parts, began, now));
                }
                Err(error) => self.note_broken(&row.zonename, error, Reasons::REFRESH),
            }
        }
        self.refresh.taking = Some(taking);
        true
    }

    /// Commits one VM of a refresh, unless a newer reading is known or under way.
    fn take_parts(
        &mut self,
        name: &Arc<str>,
        parts: Parts,
        began: Instant,
        now: Instant,
    ) -> Option<(String, &'static str)> {
        let vm = self.vms.get(name);
        let is_newer = vm.is_some_and(|vm| {
            vm.is_stale(Stale::ALL) || vm.reads.last().is_some_and(|at| at >= began)
        });
        if is_newer {
            self.vms.mark(name, Stale::ALL, Reasons::REFRESH, now);
            return None;
        }
        let before = vm.and_then(|vm| vm.parts.as_deref());
        if before.is_some_and(|known| Arc::ptr_eq(&known.xml, &parts.xml)) {
            let files = (0..FILES).filter(|file| parts.stamps.has(*file)).count() as u64;
            self.status.edit(|view| view.counters.confirmed += files);
        }
        let differing = differing(before, &parts);
        let change = if before.is_some() { "modify" } else { "create" };
        let verdict = before.map(|before| Trace::default().judge(&before.zone, &parts.zone, true));
        let away = match verdict {
            Some(Verdict::Show(state)) => Some(state),
            _ => None,
        };
        match self.commit(name, parts, away) {
            Ok(outcome) => {
                if let Some(vm) = self.vms.get_mut(name) {
                    vm.reads.note(Stale::ALL, began);
                    vm.backoff = None;
                }
                self.status.clear_trouble(name);
                if outcome == Outcome::Unchanged {
                    return None;
                }
                for origin in &differing {
                    self.status.unannounced(origin.name());
                }
                if differing.contains(&Origin::Datasets) {
                    self.datasets.missed();
                }
                let sources =
                    differing.iter().map(|origin| origin.name()).collect::<Vec<_>>().join(", ");
                tracing::warn!(
                    vm = &**name,
                    change,
                    sources,
                    "a refresh found a change that no event announced"
                );
                Some((name.to_string(), change))
            }
            Err(fault) => {
                self.note_broken(name, fault, Reasons::RETRY);
                None
            }
        }
    }

    /// Has each VM that the list lacks read by name before it is removed, and each zone that only the
    /// index has before it is shown. Requests that wait for the
    /// refresh wait for these readings too, and for those under way.
    fn confirm_missing(&mut self, taking: &Taking, waiters: Vec<Waiter>, now: Instant) {
        let (listed, unlisted) = (taking.listed(), taking.unlisted());
        let known = self.vms.known().map(|(name, _)| name);
        let missing: Vec<_> = known.filter(|name| !listed.contains(*name)).cloned().collect();
        let unlisted = unlisted.map(|name| Arc::from(&**name));
        for name in missing.into_iter().chain(unlisted) {
            self.vms.mark(&name, Stale::ON_ZONE_EVENT, Reasons::REFRESH, now);
        }
        if waiters.is_empty() {
            return;
        }
        let open: Vec<_> = self
            .vms
            .iter_mut()
            .filter_map(|(_, vm)| {
                let (done, confirmed) = waiter();
                vm.open_list()?.push(done);
                Some(confirmed)
            })
            .collect();
        let confirm = async move {
            for confirmed in open {
                // A zone that fails is shown as it was, if it was, and named incomplete: it holds no other.
                let _named = confirmed.await;
            }
            answer(waiters, &Ok(()));
            Done::Nothing
        };
        self.tasks.spawn(Like::Nothing, confirm);
    }
}

/// The sources whose content differs.
fn differing(before: Option<&Parts>, now: &Parts) -> Vec<Origin> {
    let Some(before) = before else { return vec![Origin::Zoneadm] };
    let mut origins: Vec<Origin> = [
        (Origin::Zoneadm, before.zone != now.zone),
        (Origin::ZoneXml, before.xml != now.xml),
        (Origin::Kstat, before.kstat != now.kstat),
        (Origin::Config, before.config != now.config),
        (Origin::LastExited, before.lastexited != now.lastexited),
        (Origin::Receiving, before.receiving != now.receiving),
        (Origin::Sysinfo, before.sysinfo != now.sysinfo),
        (Origin::Datasets, before.datasets != now.datasets),
    ]
    .into_iter()
    .filter_map(|(origin, differs)| differs.then_some(origin))
    .collect();
    if origins.is_empty() && before.stamps.last_modified != now.stamps.last_modified {
        origins.push(Origin::Times);
    }
    origins
}
