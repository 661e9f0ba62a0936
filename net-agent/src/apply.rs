// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The only module that writes to NAPI. Each write: read the record again, ask the pure rules
//! about that copy, take a turn, look once more at node, holds and identity, then one request
//! with `If-Match`. An outcome that is not known is read, never resent.

use std::sync::Arc;
use std::time::Duration;

use sdc_clients::http::{Precondition, Versioned};
use sdc_clients::napi::{BelongsToType, Napi, Nic, NicUpdate};
use sdc_clients::vmapi::Vmapi;
use sdc_clients::vminfod::Vminfod;
use sdc_clients::{Error, MacAddr};

use crate::inventory::LocalVm;
use crate::pace::Pace;
use crate::plan::backfill::{self, Upkeep, Wish};
use crate::plan::reap::{self, Basis, Facts, Judgement, Reading, Ruling, Verdict};
use crate::plan::{describe, state};
use crate::shared::Shared;
use crate::status::Count;

/// Rounds of read, decide, write before a record is left to the next pass.
const ROUNDS: u32 = 5;

/// How one record came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Written or deleted, or already as it should be.
    Done,
    /// Left alone for good reason.
    Left(String),
    /// Not now: something has to change first.
    Deferred(String),
    /// A request failed: try again.
    Failed(String),
}

/// The clients of one agent.
#[derive(Clone)]
pub struct Clients {
    /// NAPI, every request paced.
    pub napi: Napi,
    /// NAPI for writes, whose turn is taken by hand.
    pub napi_writes: Napi,
    /// VMAPI, paced; none when the operator chose so.
    pub vmapi: Option<Vmapi>,
    /// vminfod.
    pub vminfod: Vminfod,
    /// The budget.
    pub pace: Arc<Pace>,
}

/// The writer.
#[derive(Clone)]
pub struct Apply {
    shared: Arc<Shared>,
    clients: Clients,
}

enum Fresh {
    Record(Box<Versioned<Nic>>),
    Missing,
}

impl Apply {
    /// A writer over these clients.
    pub fn new(shared: Arc<Shared>, clients: Clients) -> Self {
        Self { shared, clients }
    }

    /// Makes the record of a local VM's address say what the node says (backfill, state, mirror).
    pub async fn keep_up(&self, mac: MacAddr, vm: &str, mirror: bool) -> Outcome {
        let mut verdict = None;
        for round in 0..ROUNDS {
            if round > 0 {
                self.pause(round).await;
            }
            if let Some(hold) = self.shared.held(vm) {
                return self.deferred(mac, vm, &format!("held: {}", hold.reason));
            }
            let fresh = match self.read(mac).await {
                Ok(Fresh::Record(fresh)) => fresh,
                Ok(Fresh::Missing) => {
                    self.shared.status.count(Count::Missing);
                    return self.left(mac, vm, "NAPI has no record of it");
                }
                Err(failed) => return failed,
            };
            let judge = |verdict: Option<&Verdict>| {
                self.shared.look(|inventory| {
                    let policy = &self.shared.policy;
                    backfill::upkeep(&fresh.value, &inventory.view, verdict, mirror, policy)
                })
            };
            let mut upkeep = judge(verdict.as_ref());
            if upkeep == Upkeep::AskVmapi {
                verdict = Some(self.ask(vm).await);
                upkeep = judge(verdict.as_ref());
                if let Some(Verdict::NoAnswer(why)) = &verdict {
                    return Outcome::Failed(why.clone());
                }
            }
            let wish = match upkeep {
                Upkeep::Agrees => return Outcome::Done,
                Upkeep::AskVmapi => return self.left(mac, vm, "its cn_uuid is another node's"),
                Upkeep::Leave(why) => {
                    if fresh.value.belongs_to_uuid != vm {
                        self.shared.status.count(Count::ForeignOwner);
                    }
                    return self.left(mac, vm, &why);
                }
                Upkeep::Write(wish) => wish,
            };
            let still = || judge(verdict.as_ref()) == Upkeep::Write(wish.clone());
            match self.put(mac, vm, &fresh, &wish, "upkeep", still).await {
                Some(outcome) => return outcome,
                None => continue,
            }
        }
        Outcome::Failed(format!("{mac} changed under {ROUNDS} attempts in a row"))
    }

    /// Makes the record of one of the node's own addresses right: claim, `running`.
    pub async fn keep_up_own(&self, mac: MacAddr) -> Outcome {
        let Some(identity) = self.shared.identity() else {
            return Outcome::Failed("waiting for vminfod's /sysinfo".to_owned());
        };
        let vm = self.shared.policy.cn_uuid.clone();
        for round in 0..ROUNDS {
            if round > 0 {
                self.pause(round).await;
            }
            let fresh = match self.read(mac).await {
                Ok(Fresh::Record(fresh)) => fresh,
                Ok(Fresh::Missing) => return self.left(mac, &vm, "NAPI has no record of it"),
                Err(failed) => return failed,
            };
            let wish = match state::of_own_nic(&fresh.value, &identity, &self.shared.policy) {
                Upkeep::Write(wish) => wish,
                Upkeep::Leave(why) => return self.left(mac, &vm, &why),
                Upkeep::Agrees | Upkeep::AskVmapi => return Outcome::Done,
            };
            match self.put(mac, &vm, &fresh, &wish, "own-nic", || true).await {
                Some(outcome) => return outcome,
                None => continue,
            }
        }
        Outcome::Failed(format!("{mac} changed under {ROUNDS} attempts in a row"))
    }

    /// Deletes one leaked record behind the whole predicate. `verdict` is VMAPI's answer if it
    /// was just asked.
    pub async fn reap(
        &self,
        mac: MacAddr,
        vm: &str,
        basis: Basis,
        mut verdict: Option<Verdict>,
    ) -> Outcome {
        for round in 0..ROUNDS {
            if round > 0 {
                self.pause(round).await;
                verdict = None;
            }
            if let Some(hold) = self.shared.held(vm) {
                return self.deferred(mac, vm, &format!("held: {}", hold.reason));
            }
            let fresh = match self.read(mac).await {
                Ok(Fresh::Record(fresh)) => fresh,
                Ok(Fresh::Missing) => {
                    self.shared.status.count(Count::AlreadyGone);
                    return Outcome::Done;
                }
                Err(failed) => return failed,
            };
            if fresh.value.belongs_to_uuid != vm {
                let owner = &fresh.value.belongs_to_uuid;
                return self.left(mac, vm, &format!("it belongs to {owner} now"));
            }
            let mut judgement = self.judge(&fresh, basis, verdict.as_ref());
            if judgement.ruling == Ruling::AskVmapi {
                verdict = Some(self.ask(vm).await);
                judgement = self.judge(&fresh, basis, verdict.as_ref());
            }
            if let Some(outcome) = self.refused(mac, vm, &judgement) {
                return outcome;
            }
            if !matches!(basis, Basis::Pass { .. })
                && let Some(why) = self.shared.scale_of_one(gone(verdict.as_ref())).brake()
            {
                self.shared.status.brake(Some(why.clone()));
                return self.deferred(mac, vm, &format!("G10: {why}"));
            }
            let turn = self.clients.pace.turn().await;
            if let Some(outcome) = self.absent(mac, vm, basis).await {
                return outcome;
            }
            if let Some(why) = self.shared.mute() {
                return self.muted(mac, vm, &why, "delete");
            }
            let last = self.judge(&fresh, basis, verdict.as_ref());
            if let Some(outcome) = self.refused(mac, vm, &last) {
                return outcome;
            }
            if matches!(basis, Basis::Witnessed | Basis::LeftVm)
                && !self.shared.is_departed(mac, vm)
            {
                return self.left(mac, vm, "it came back");
            }
            let Some(etag) = fresh.etag.clone().filter(|etag| !etag.is_empty()) else {
                return self.left(mac, vm, "G9: no etag");
            };
            let answer =
                self.clients.napi_writes.delete_nic(mac, Precondition::IfMatch(etag.clone())).await;
            drop(turn);
            let rule = match basis {
                Basis::Pass { .. } => "reap",
                Basis::Witnessed => "vm-deleted",
                Basis::LeftVm => "nic-removed",
            };
            match &answer {
                Ok(()) => {
                    self.shared.deleted();
                    self.shared.status.count(Count::Reaped);
                    audit(mac, vm, rule, Some(&etag), "deleted", "DELETE", &reasons(&last));
                    return Outcome::Done;
                }
                Err(err) if err.is_not_found_resource() => {
                    self.shared.status.count(Count::AlreadyGone);
                    audit(mac, vm, rule, Some(&etag), "already gone", "DELETE", "");
                    return Outcome::Done;
                }
                Err(err) => {
                    audit(mac, vm, rule, Some(&etag), "failed", "DELETE", &err.to_string());
                    if let Some(outcome) = self.conflict(err) {
                        return outcome;
                    }
                }
            }
        }
        Outcome::Failed(format!("{mac} changed under {ROUNDS} attempts in a row"))
    }

    /// VMAPI's verdict; never with `sync=true`, which could itself mark VMs destroyed.
    pub async fn ask(&self, vm: &str) -> Verdict {
        let Some(vmapi) = &self.clients.vmapi else {
            return Verdict::NoAnswer("no VMAPI is configured".to_owned());
        };
        match vmapi.get_vm(vm).await {
            Ok(found) if found.uuid == vm => {
                let macs = found.other.get("nics").and_then(|nics| nics.as_array()).map(|nics| {
                    nics.iter()
                        .filter_map(|nic| nic.get("mac").and_then(|mac| mac.as_str())?.parse().ok())
                        .collect()
                });
                Verdict::of(&found.state, found.server_uuid.as_deref(), macs)
            }
            Ok(found) => Verdict::NoAnswer(format!("it answered about {}", found.uuid)),
            // Any web server says 404; only VMAPI says it in these words.
            Err(err) if err.is_not_found_resource() && err.code() == Some("ResourceNotFound") => {
                Verdict::Unknown
            }
            Err(err) => {
                let text = daemon::log::chain(&err);
                self.shared.status.failed(text.clone());
                Verdict::NoAnswer(text)
            }
        }
    }

    fn judge(&self, fresh: &Versioned<Nic>, basis: Basis, verdict: Option<&Verdict>) -> Judgement {
        let hold = self.shared.held(&fresh.value.belongs_to_uuid);
        self.shared.look(|inventory| {
            reap::judge(
                &fresh.value,
                &Facts {
                    local: &inventory.view,
                    now: fresh.date,
                    verdict,
                    hold: hold.as_ref(),
                    basis,
                    reading: Reading::Fresh(fresh.etag.as_deref()),
                    policy: &self.shared.policy,
                },
            )
        })
    }

    fn refused(&self, mac: MacAddr, vm: &str, judgement: &Judgement) -> Option<Outcome> {
        let why = match judgement.obstacle() {
            None => return None,
            Some(evidence) => format!("{}: {}", evidence.guard, evidence.said),
        };
        Some(match judgement.ruling {
            Ruling::Delete => return None,
            Ruling::Keep => self.left(mac, vm, &why),
            Ruling::Defer | Ruling::AskVmapi => self.deferred(mac, vm, &why),
        })
    }

    /// The point check right before a delete: none when vminfod has just looked and the VM (or
    /// the NIC) is not there.
    async fn absent(&self, mac: MacAddr, vm: &str, basis: Basis) -> Option<Outcome> {
        match self.clients.vminfod.vm(vm, true).await {
            Err(err) if err.is_not_found_resource() => None,
            Err(err) => {
                let text = format!("vminfod: {}", daemon::log::chain(&err));
                Some(self.deferred(mac, vm, &text))
            }
            Ok(object) => match LocalVm::read(&object) {
                Some((here, true)) if basis == Basis::LeftVm && !here.hidden && !here.has(mac) => {
                    None
                }
                _ => Some(self.left(mac, vm, "the VM is on this node after all")),
            },
        }
    }

    /// One conditional PUT. None: read again and decide again.
    async fn put(
        &self,
        mac: MacAddr,
        vm: &str,
        fresh: &Versioned<Nic>,
        wish: &Wish,
        rule: &str,
        still: impl Fn() -> bool,
    ) -> Option<Outcome> {
        let etag = fresh.etag.clone().filter(|etag| !etag.is_empty());
        let only_fixes = !wish.foreign && wish.owner_uuid.is_none() && !wish.primary;
        let condition = match &etag {
            Some(etag) => Precondition::IfMatch(etag.clone()),
            // A NAPI without etags (RFD 58's time): state and an absent cn_uuid only (R14).
            None if only_fixes && wish.claim.is_none() => Precondition::None,
            None => return Some(self.left(mac, vm, "NAPI sent no etag")),
        };
        let what = describe(wish);
        let turn = self.clients.pace.turn().await;
        if let Some(why) = self.shared.mute() {
            return Some(self.muted(mac, vm, &why, &what));
        }
        if let Some(hold) = self.shared.held(vm) {
            return Some(self.deferred(mac, vm, &format!("held: {}", hold.reason)));
        }
        if !still() {
            return None;
        }
        if etag.is_none() {
            self.shared.status.count(Count::Unconditional);
        }
        let answer = self.clients.napi_writes.update_nic(mac, &update(wish), condition).await;
        drop(turn);
        let etag = etag.as_deref();
        match answer {
            Ok(_) => {
                self.tally(wish);
                audit(mac, vm, rule, etag, "updated", &what, "");
                Some(Outcome::Done)
            }
            Err(err) if err.is_not_found_resource() => {
                audit(mac, vm, rule, etag, "gone", &what, "");
                Some(self.left(mac, vm, "its record went away"))
            }
            Err(err) => {
                audit(mac, vm, rule, etag, "failed", &what, &err.to_string());
                self.conflict(&err)
            }
        }
    }

    /// None when the answer means "read again".
    fn conflict(&self, err: &Error) -> Option<Outcome> {
        if err.is_precondition_failed() || err.may_have_applied() {
            self.shared.status.count(Count::Conflicts);
            return None;
        }
        self.shared.status.failed(daemon::log::chain(err));
        Some(Outcome::Failed(daemon::log::chain(err)))
    }

    async fn read(&self, mac: MacAddr) -> Result<Fresh, Outcome> {
        match self.clients.napi.get_nic(mac).await {
            Ok(fresh) if fresh.value.mac == mac => Ok(Fresh::Record(Box::new(fresh))),
            Ok(fresh) => Err(Outcome::Failed(format!("asked for {mac}, got {}", fresh.value.mac))),
            Err(err) if err.is_not_found_resource() => Ok(Fresh::Missing),
            Err(err) => {
                let text = daemon::log::chain(&err);
                self.shared.status.failed(text.clone());
                Err(Outcome::Failed(text))
            }
        }
    }

    async fn pause(&self, round: u32) {
        let window = self.shared.config.conflict_retry;
        let most = window.min.saturating_mul(1 << round.min(16)).min(window.max);
        let wait = self.shared.draw(|jitter| jitter.uniform(most / 2, most));
        tokio::time::sleep(wait.max(Duration::from_millis(1))).await;
    }

    fn tally(&self, wish: &Wish) {
        let status = &self.shared.status;
        for (set, what) in [
            (wish.cn_uuid.is_some(), Count::Backfilled),
            (wish.state.is_some(), Count::StateFixed),
            (wish.claim.is_some(), Count::Claimed),
            (wish.owner_uuid.is_some() || wish.primary, Count::Mirrored),
        ] {
            if set {
                status.count(what);
            }
        }
    }

    fn left(&self, mac: MacAddr, vm: &str, why: &str) -> Outcome {
        self.shared.status.count(Count::Skipped);
        tracing::info!(%mac, vm, reason = why, "left alone");
        Outcome::Left(why.to_owned())
    }

    fn deferred(&self, mac: MacAddr, vm: &str, why: &str) -> Outcome {
        self.shared.status.count(Count::Deferred);
        tracing::info!(%mac, vm, reason = why, "deferred");
        Outcome::Deferred(why.to_owned())
    }

    fn muted(&self, mac: MacAddr, vm: &str, why: &str, what: &str) -> Outcome {
        if self.shared.config.mode == crate::config::Mode::Report {
            self.shared.status.count(Count::Reported);
            tracing::info!(%mac, vm, action = what, reason = why, "would write");
            return Outcome::Left(why.to_owned());
        }
        self.deferred(mac, vm, why)
    }
}

fn gone(verdict: Option<&Verdict>) -> bool {
    matches!(verdict, Some(Verdict::Gone(_)))
}

fn update(wish: &Wish) -> NicUpdate {
    NicUpdate {
        cn_uuid: wish.cn_uuid.clone(),
        state: wish.state.clone(),
        belongs_to_type: wish.claim.as_ref().map(|_| BelongsToType::Server),
        belongs_to_uuid: wish.claim.clone(),
        owner_uuid: wish.owner_uuid.clone(),
        primary: wish.primary.then_some(true),
        check_owner: wish.owner_uuid.as_ref().map(|_| false),
    }
}

fn reasons(judgement: &Judgement) -> String {
    let all: Vec<_> =
        judgement.evidence.iter().map(|e| format!("{}: {}", e.guard, e.said)).collect();
    all.join("; ")
}

/// One line per write, for the record.
fn audit(
    mac: MacAddr,
    vm: &str,
    rule: &str,
    etag: Option<&str>,
    outcome: &str,
    request: &str,
    why: &str,
) {
    tracing::info!(audit = true, %mac, vm, rule, etag = etag.unwrap_or(""), outcome, request, why, "write");
}
