// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! One conditional PUT.

use daemon::agent::Permit;
use sdc_clients::MacAddr;
use sdc_clients::http::{Precondition, Versioned};
use sdc_clients::napi::Nic;

use super::record::{Audit, conflict, left, refused};
use crate::outcome::Outcome;
use crate::parts::Parts;
use crate::permit::Update;
use crate::plan::{Reason, Wish};
use crate::status::Count;

/// Why a record is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target<'a> {
    pub(super) mac: MacAddr,
    /// The VM, or the node for its own NICs.
    pub(super) vm: &'a str,
    /// The rule's name in the audit log.
    pub(super) rule: &'a str,
    /// On what evidence, in words.
    pub(super) why: &'a str,
}

/// Sends the wish if there is a permit and `still` returns true at that moment. Returns none if the
/// record is to be read and judged again.
pub(super) async fn put(
    parts: &Parts,
    target: Target<'_>,
    fresh: &Versioned<Nic>,
    wish: &Wish,
    still: impl Fn() -> bool,
) -> Option<Outcome> {
    let Target { mac, vm, rule, why } = target;
    let etag = fresh.etag.as_deref().filter(|etag| !etag.is_empty());
    let condition = match etag {
        Some(etag) => Precondition::IfMatch(etag.to_owned()),
        None if wish.only_fixes() => Precondition::None,
        None => return Some(left(parts, Reason::NoEtag)),
    };
    let turn = parts.clients.pace.turn().await;
    let decide = |permit: Permit<'_, Update>| {
        if !still() {
            return Err(());
        }
        if etag.is_none() {
            parts.status.count(Count::Unconditional);
        }
        Ok(parts.clients.writer.update(permit, wish, condition))
    };
    let answer = match parts.gate.write(Update(mac), vm, decide).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(())) => return None,
        Err(refusal) => return Some(refused(parts, refusal, wish)),
    };
    drop(turn);
    let audit = Audit { vm, rule, etag, nic: &fresh.value, wish: Some(wish) };
    match answer {
        Ok(()) => {
            tally(parts, wish);
            audit.write(parts, "updated", why).await;
            Some(Outcome::Done)
        }
        Err(err) if err.is_not_found_resource() => {
            audit.write(parts, "gone", why).await;
            Some(left(parts, Reason::RecordGone))
        }
        Err(err) => {
            audit.write(parts, "failed", &err.to_string()).await;
            conflict(parts, &err, &wish.fields())
        }
    }
}

fn tally(parts: &Parts, wish: &Wish) {
    for (set, what) in [
        (wish.cn_uuid.is_some(), Count::Backfilled),
        (wish.state.is_some(), Count::StateFixed),
        (wish.claim.is_some(), Count::Claimed),
        (wish.owner_uuid.is_some() || wish.primary, Count::Mirrored),
    ] {
        if set {
            parts.status.count(what);
        }
    }
}
