// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What should a NIC record say about a VM of this node? Pure: record × node → wish. Only of VMs
//! that are shown (not `do_not_inventory`) and running or stopped; only of records that already
//! belong to that VM; a foreign `cn_uuid` only when VMAPI agrees. Never `ip`, never `reserved`,
//! never a wish that changes nothing.

use jiff::{SignedDuration, Timestamp};
use sdc_clients::napi::{BelongsToType, Nic};

use super::reap::Verdict;
use super::wish::{Upkeep, Wish};
use super::{Policy, state};
use crate::inventory::{LocalNic, LocalView, LocalVm};

/// Judges the record of an address that a VM here has. `verdict` is VMAPI's answer, once asked;
/// `mirror` asks for owner and primary too, which only an event of the VM does (a pass writes
/// `cn_uuid` and `state`, nothing else).
pub fn upkeep(
    nic: &Nic,
    local: &LocalView,
    verdict: Option<&Verdict>,
    mirror: bool,
    policy: &Policy,
) -> Upkeep {
    let mut holders = local.holders(nic.mac);
    let Some(vm) = holders.next() else {
        return Upkeep::Leave("no VM here has this address".to_owned());
    };
    if holders.next().is_some() {
        return Upkeep::Leave("two VMs here have this address".to_owned());
    }
    if let Some(why) = unwritable(vm) {
        return Upkeep::Leave(why);
    }
    if nic.belongs_to_type != BelongsToType::Zone || nic.belongs_to_uuid != vm.uuid {
        return Upkeep::Leave(format!(
            "it belongs to {} {}, not to VM {}",
            nic.belongs_to_type.as_str(),
            nic.belongs_to_uuid,
            vm.uuid
        ));
    }
    let mut wish = Wish::default();
    match nic.cn_uuid.as_deref() {
        None | Some("") => wish.cn_uuid = Some(policy.cn_uuid.clone()),
        Some(cn) if cn == policy.cn_uuid => {}
        Some(cn) => match verdict {
            None if policy.ask_vmapi => return Upkeep::AskVmapi,
            Some(verdict) if verdict.places_on(&policy.cn_uuid) => {
                wish.cn_uuid = Some(policy.cn_uuid.clone());
                wish.foreign = true;
            }
            Some(verdict) => return Upkeep::Leave(format!("cn_uuid is {cn}; {verdict}")),
            None => return Upkeep::Leave(format!("cn_uuid is {cn} and there is no VMAPI to ask")),
        },
    }
    wish.state = state::of_zone_nic(&vm.state, &nic.state, policy.mirror_stopped);
    if !mirror {
        return if wish.is_empty() { Upkeep::Agrees } else { Upkeep::Write(wish) };
    }
    if let Some(owner) = vm.owner_uuid.as_ref().filter(|owner| !owner.is_empty())
        && nic.owner_uuid.as_ref().is_some_and(|known| known != owner)
    {
        wish.owner_uuid = Some(owner.clone());
    }
    wish.primary = !nic.primary && vm.nics.iter().any(|own| is_primary(own, nic));
    if wish.is_empty() { Upkeep::Agrees } else { Upkeep::Write(wish) }
}

/// Why another node's `cn_uuid` may not be replaced yet, if so: a record that was made only lately
/// was given that node on purpose, as in RFD 34's migrations, where the target's records exist
/// before the source is hidden.
pub fn made_elsewhere(nic: &Nic, now: Option<Timestamp>, policy: &Policy) -> Option<String> {
    let cn = nic.cn_uuid.as_deref().filter(|cn| !cn.is_empty() && *cn != policy.cn_uuid)?;
    let age = now.zip(nic.created_timestamp).map(|(now, made)| now.duration_since(made));
    match age {
        Some(age) if age >= SignedDuration::try_from(policy.min_age).ok()? => None,
        Some(age) => Some(format!("made for node {cn} only {} s ago", age.as_secs())),
        None => Some(format!("made for node {cn}, nobody knows when")),
    }
}

/// Why no record of this VM may be written, if so.
pub fn unwritable(vm: &LocalVm) -> Option<String> {
    if vm.hidden {
        return Some(format!("VM {} has do_not_inventory", vm.uuid));
    }
    if !matches!(vm.state.as_str(), "running" | "stopped") {
        return Some(format!("VM {} is {}", vm.uuid, vm.state));
    }
    None
}

fn is_primary(own: &LocalNic, nic: &Nic) -> bool {
    own.mac == nic.mac && own.primary
}
