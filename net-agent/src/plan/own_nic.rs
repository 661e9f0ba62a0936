// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! NICs that no VM has: the node's own, which are records of its MACs and `server` records of this
//! node, and `other` records with this node's `cn_uuid` (R11). A record that booter made for the admin
//! user is claimed.

use daemon::agent::Identity;
use sdc_clients::napi::{BelongsToType, Nic, NicState};

use super::reason::Reason;
use super::upkeep::Upkeep;
use super::wish::Wish;
use crate::config::Policy;

/// Returns what to write.
pub(crate) fn upkeep(nic: &Nic, identity: &Identity, policy: &Policy) -> Upkeep {
    let mut wish = Wish::default();
    match &nic.belongs_to_type {
        BelongsToType::Server if nic.belongs_to_uuid == policy.cn_uuid => {}
        BelongsToType::Other if identity.macs.contains(&nic.mac) => {
            if policy.admin_uuid.as_deref() == Some(nic.belongs_to_uuid.as_str()) {
                wish.claim = Some(policy.cn_uuid.clone());
            }
        }
        BelongsToType::Other if nic.cn_uuid.as_ref() == Some(&policy.cn_uuid) => {}
        BelongsToType::Other => return Upkeep::Leave(Reason::OtherNotHere),
        _ => return Upkeep::Leave(Reason::belongs_to(nic)),
    }
    if nic.state == NicState::Provisioning {
        wish.state = Some(NicState::Running);
    }
    Upkeep::of(wish)
}
