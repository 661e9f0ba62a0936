// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Records of what is here: `cn_uuid`, state, owner, primary, and the claim of the node's own
//! NICs. One conditional PUT per decision, and only of what differs.

use sdc_clients::MacAddr;
use sdc_clients::http::{Precondition, Versioned};
use sdc_clients::napi::{BelongsToType, Nic, NicUpdate};

use super::{Apply, Fresh, Outcome, ROUNDS, audit};
use crate::plan::backfill;
use crate::plan::verdict::Verdict;
use crate::plan::wish::{Upkeep, Wish};
use crate::plan::{describe, state};
use crate::status::Count;

impl Apply {
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
                    self.left(mac, vm, "NAPI has no record of it");
                    return Outcome::Missing;
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
            if wish.foreign
                && let Some(why) =
                    backfill::made_elsewhere(&fresh.value, fresh.date, &self.shared.policy)
            {
                return self.deferred(mac, vm, &why);
            }
            let still = || judge(verdict.as_ref()) == Upkeep::Write(wish.clone());
            match self.put(mac, vm, &fresh, &wish, "upkeep", still).await {
                Some(outcome) => return outcome,
                None => continue,
            }
        }
        Outcome::Failed(format!("{mac} changed under {ROUNDS} attempts in a row"))
    }

    /// Gives a record without `cn_uuid` ours, when its VM was destroyed on this node by VMAPI's
    /// own word: RFD 58 wants such records reaped too, and no list would ever show them.
    pub async fn adopt(&self, mac: MacAddr, vm: &str) -> Outcome {
        let gone = || {
            self.shared.look(|inventory| {
                let view = &inventory.view;
                let hidden = view.lately_hidden.contains(vm) || view.hidden_unknown;
                view.complete && !hidden && !view.has_vm(vm) && view.holders(mac).next().is_none()
            })
        };
        for round in 0..ROUNDS {
            if round > 0 {
                self.pause(round).await;
            }
            if let Some(hold) = self.shared.held(vm) {
                return self.deferred(mac, vm, &format!("held: {}", hold.reason));
            }
            let fresh = match self.read(mac).await {
                Ok(Fresh::Record(fresh)) => fresh,
                Ok(Fresh::Missing) => return self.left(mac, vm, "NAPI has no record of it"),
                Err(failed) => return failed,
            };
            let zone = fresh.value.belongs_to_type == BelongsToType::Zone;
            if !zone || fresh.value.belongs_to_uuid != vm {
                return self.left(mac, vm, "it is another's now");
            }
            match fresh.value.cn_uuid.as_deref() {
                None | Some("") => {}
                Some(cn) if cn == self.shared.policy.cn_uuid => return Outcome::Done,
                Some(cn) => return self.left(mac, vm, &format!("its cn_uuid is {cn}")),
            }
            if !gone() {
                return self.left(mac, vm, "the VM or the address is here, or may be");
            }
            if !self.destroyed_here(vm).await {
                return self.deferred(mac, vm, "VMAPI does not place the destroyed VM here");
            }
            let cn_uuid = Some(self.shared.policy.cn_uuid.clone());
            // As with another node's cn_uuid: never without an etag.
            let wish = Wish { cn_uuid, foreign: true, ..Wish::default() };
            if let Some(outcome) = self.put(mac, vm, &fresh, &wish, "adopt", gone).await {
                return outcome;
            }
        }
        Outcome::Failed(format!("{mac} changed under {ROUNDS} attempts in a row"))
    }

    async fn destroyed_here(&self, vm: &str) -> bool {
        let Some(vmapi) = &self.clients.vmapi else { return false };
        let here = Some(self.shared.policy.cn_uuid.as_str());
        vmapi.get_vm(vm).await.is_ok_and(|found| {
            matches!(found.state.as_str(), "destroyed" | "failed")
                && found.server_uuid.as_deref() == here
        })
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
