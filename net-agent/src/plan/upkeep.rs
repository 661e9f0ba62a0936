// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the record of a zone's NIC should say: `cn_uuid` (R8), state (R10), owner, primary. Only
//! for VMs that are not hidden and are running or stopped, and records that belong to that VM. A
//! foreign `cn_uuid` is replaced only if VMAPI agrees. Never `ip`, never `reserved`.

use jiff::{SignedDuration, Timestamp};
use sdc_clients::napi::{BelongsToType, Nic, NicState};

use super::reason::Reason;
use super::verdict::Verdict;
use super::wish::Wish;
use crate::config::Policy;
use crate::view::{LocalView, LocalVm, VmState};

/// What follows for one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Upkeep {
    Agrees,
    Write(Wish),
    Leave(Reason),
    /// It has another node's `cn_uuid`: VMAPI decides.
    AskVmapi,
}

impl Upkeep {
    /// Returns the wish if it is not empty.
    pub fn of(wish: Wish) -> Self {
        if wish.is_empty() { Self::Agrees } else { Self::Write(wish) }
    }
}

/// Judges the record of a MAC that a VM here has. `verdict` is VMAPI's answer, once asked; with
/// `mirror` owner and primary are compared too, which only an event of the VM asks for.
pub(crate) fn upkeep(
    nic: &Nic,
    local: &LocalView,
    verdict: Option<&Verdict>,
    mirror: bool,
    policy: &Policy,
) -> Upkeep {
    let mut holders = local.holders(nic.mac);
    let vm = match (holders.next(), holders.next()) {
        (None, _) => return Upkeep::Leave(Reason::MacAbsent),
        (Some(_), Some(_)) => return Upkeep::Leave(Reason::TwoHolders),
        (Some(vm), None) => vm,
    };
    if let Some(why) = unwritable(vm) {
        return Upkeep::Leave(why);
    }
    if nic.belongs_to_type != BelongsToType::Zone || nic.belongs_to_uuid != vm.uuid {
        let (kind, owner) = (nic.belongs_to_type.as_str().to_owned(), nic.belongs_to_uuid.clone());
        return Upkeep::Leave(Reason::BelongsElsewhere { kind, owner, vm: vm.uuid.clone() });
    }
    let mut wish = Wish::default();
    match nic.cn_uuid.as_deref() {
        None | Some("") => wish.cn_uuid = Some(policy.cn_uuid.clone()),
        Some(cn) if cn == policy.cn_uuid => {}
        Some(cn) => match verdict {
            None if policy.ask_vmapi => return Upkeep::AskVmapi,
            None => return Upkeep::Leave(Reason::ForeignCnNoVmapi(cn.to_owned())),
            Some(verdict) if verdict.places_on(&policy.cn_uuid) => {
                wish.cn_uuid = Some(policy.cn_uuid.clone());
                wish.foreign = true;
            }
            Some(verdict) => {
                let (cn, verdict) = (cn.to_owned(), verdict.clone());
                return Upkeep::Leave(Reason::ForeignCn { cn, verdict });
            }
        },
    }
    wish.state = state(&vm.state, &nic.state, policy.mirror_stopped);
    if mirror {
        let owner = vm.owner_uuid.as_ref().filter(|owner| !owner.is_empty());
        let known = nic.owner_uuid.as_ref();
        wish.owner_uuid = owner.filter(|owner| known.is_some_and(|known| known != *owner)).cloned();
        wish.primary = !nic.primary && vm.nics.iter().any(|own| own.mac == nic.mac && own.primary);
    }
    Upkeep::of(wish)
}

/// Returns the state to write, if any: RFD 58's `provisioning` → `running`, and as the shipped
/// agent does, `stopped`. Unknown states change nothing, on either side.
fn state(vm: &VmState, nic: &NicState, mirror_stopped: bool) -> Option<NicState> {
    match (vm, nic) {
        (VmState::Running, NicState::Provisioning) => Some(NicState::Running),
        (VmState::Running, NicState::Stopped) if mirror_stopped => Some(NicState::Running),
        (VmState::Stopped, NicState::Provisioning | NicState::Running) if mirror_stopped => {
            Some(NicState::Stopped)
        }
        _ => None,
    }
}

/// Returns why another node's `cn_uuid` may not be replaced yet, if so: a young record was given
/// that node on purpose, as in RFD 34's migrations, where the target's records exist before the
/// source is hidden.
pub(crate) fn made_elsewhere(nic: &Nic, now: Option<Timestamp>, policy: &Policy) -> Option<Reason> {
    let cn = nic.cn_uuid.clone().filter(|cn| !cn.is_empty() && *cn != policy.cn_uuid)?;
    let age = now.zip(nic.created_timestamp).map(|(now, made)| now.duration_since(made));
    match age {
        Some(age) if age >= SignedDuration::try_from(policy.min_age).ok()? => None,
        Some(age) => Some(Reason::MadeElsewhere { cn, age: age.as_secs() }),
        None => Some(Reason::MadeElsewhereUnknown(cn)),
    }
}

/// Returns why no record of this VM may be written, if so.
pub(crate) fn unwritable(vm: &LocalVm) -> Option<Reason> {
    if vm.hidden {
        return Some(Reason::VmHidden(vm.uuid.clone()));
    }
    matches!(vm.state, VmState::Other(_))
        .then(|| Reason::VmState { vm: vm.uuid.clone(), state: vm.state.clone() })
}
