// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Records of what is here: `cn_uuid`, state, owner, primary, and the claim of the node's own
//! NICs. One conditional PUT per decision, and only of what differs.

use sdc_clients::MacAddr;
use sdc_clients::http::{Precondition, Versioned};
use sdc_clients::napi::{BelongsToType, Nic, NicUpdate};

use super::{Apply, Fresh, Outcome, ROUNDS, audit};
use crate::plan::backfill::{self, Upkeep, Wish};
use crate::plan::verdict::Verdict;
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
