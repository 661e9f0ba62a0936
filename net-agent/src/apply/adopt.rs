// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Adoption: a record without `cn_uuid` whose VM was destroyed on this node gets this node's. RFD
//! 58 wants such records reaped too, and no list by `cn_uuid` would ever show them.

use sdc_clients::MacAddr;

use super::record::{Attempts, Found, ask_vmapi, deferred, left, read};
use super::update::{Target, put};
use crate::outcome::Outcome;
use crate::parts::Parts;
use crate::plan::{Reason, Wish, candidate};

/// Gives the record of this VM's MAC to this node.
#[tracing::instrument(skip_all, fields(nic = %mac, vm))]
pub(crate) async fn adopt(parts: &Parts, mac: MacAddr, vm: &str) -> Outcome {
    let policy = &parts.config.policy;
    let obstacle = || {
        let own = parts.gate.identity().unwrap_or_default().macs;
        parts.node.with(|inventory| candidate::not_adoptable(mac, vm, &inventory.view, &own))
    };
    let mut attempts = Attempts::new(parts);
    while attempts.next(parts).await {
        if let Err(held) = parts.gate.not_held(vm).await {
            return deferred(parts, held.into());
        }
        let fresh = match read(parts, mac).await {
            Ok(Found::Record(fresh)) => fresh,
            Ok(Found::Missing) => return left(parts, Reason::NoRecord),
            Err(why) => return Outcome::Failed(why),
        };
        if !candidate::concerns(&fresh.value, vm, policy) {
            return left(parts, Reason::belongs_to(&fresh.value));
        }
        if fresh.value.cn_uuid.as_deref() == Some(&policy.cn_uuid) {
            return Outcome::Done;
        }
        if let Some(obstacle) = obstacle() {
            return left(parts, obstacle.reason());
        }
        if !ask_vmapi(parts, vm).await.is_gone_from(&policy.cn_uuid) {
            return deferred(parts, Reason::NotDestroyedHere);
        }
        // As with another node's cn_uuid: never without an etag.
        let cn_uuid = Some(policy.cn_uuid.clone());
        let wish = Wish { cn_uuid, foreign: true, ..Wish::default() };
        let why = format!("VMAPI says that VM {vm} was destroyed on this node");
        let target = Target { mac, vm, rule: "adopt", why: &why };
        let still = || obstacle().is_none();
        if let Some(outcome) = put(parts, target, &fresh, &wish, still).await {
            return outcome;
        }
    }
    Outcome::Failed(Reason::Changed(mac))
}
