// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Which `state` should a NIC record have? RFD 58's `provisioning → running`, the shipped agent's
//! mirror of `stopped`, and the node's own (server) NICs with the claim of the one booter made.

use sdc_clients::napi::{BelongsToType, Nic, NicState};

use super::Policy;
use super::wish::{Upkeep, Wish};
use crate::inventory::Identity;

/// A zone's NIC: none when nothing is to change. States we do not know change nothing, on either
/// side.
pub fn of_zone_nic(vm: &str, nic: &NicState, mirror_stopped: bool) -> Option<NicState> {
    match (vm, nic) {
        ("running", NicState::Provisioning) => Some(NicState::Running),
        ("running", NicState::Stopped) if mirror_stopped => Some(NicState::Running),
        ("stopped", NicState::Provisioning | NicState::Running) if mirror_stopped => {
            Some(NicState::Stopped)
        }
        _ => None,
    }
}

/// A record of one of the node's own addresses, or a `server` record of this node.
pub fn of_own_nic(nic: &Nic, identity: &Identity, policy: &Policy) -> Upkeep {
    let ours = identity.macs.contains(&nic.mac);
    let mut wish = Wish::default();
    match &nic.belongs_to_type {
        BelongsToType::Server if nic.belongs_to_uuid == policy.cn_uuid => {}
        BelongsToType::Server => {
            return Upkeep::Leave(format!("it belongs to server {}", nic.belongs_to_uuid));
        }
        BelongsToType::Other if ours => {
            if policy.admin_uuid.as_deref() == Some(nic.belongs_to_uuid.as_str()) {
                wish.claim = Some(policy.cn_uuid.clone());
            }
        }
        BelongsToType::Other => {
            return Upkeep::Leave("an other NIC whose address this node does not have".to_owned());
        }
        kind => {
            return Upkeep::Leave(format!(
                "it belongs to {} {}",
                kind.as_str(),
                nic.belongs_to_uuid
            ));
        }
    }
    if nic.state == NicState::Provisioning {
        wish.state = Some(NicState::Running);
    }
    if wish.is_empty() { Upkeep::Agrees } else { Upkeep::Write(wish) }
}
