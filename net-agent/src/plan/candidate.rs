// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The candidate rule (G1–G4): whether a record looks leaked as far as the node can tell. Plan,
//! last check before a delete, and adoption all ask these functions.

use std::collections::BTreeSet;

use sdc_clients::MacAddr;
use sdc_clients::napi::{BelongsToType, Nic};

use super::evidence::Evidence;
use super::guard::{Answer, Guard};
use super::reason::Reason;
use crate::config::Policy;
use crate::view::LocalView;

/// The guards of this rule.
const GUARDS: [Guard; 4] = [Guard::ZoneNic, Guard::CnHere, Guard::VmAbsent, Guard::MacAbsent];

/// The MACs of the node itself, from sysinfo.
pub(crate) type OwnMacs = BTreeSet<MacAddr>;

/// Returns the answers of G1–G4. If `left_vm`, the NIC left a VM that may still be here.
pub(crate) fn evidence(
    nic: &Nic,
    local: &LocalView,
    own: &OwnMacs,
    left_vm: bool,
    policy: &Policy,
) -> [Evidence; 4] {
    [
        zone_nic(nic, policy),
        cn_here(nic, policy),
        vm_absent(&nic.belongs_to_uuid, local, left_vm),
        mac_absent(nic.mac, local, own),
    ]
}

/// Returns true if G1–G4 all passed.
pub(crate) fn is_candidate(evidence: &[Evidence]) -> bool {
    let passed = |guard| evidence.iter().any(|e| e.guard == guard && e.answer == Answer::Pass);
    GUARDS.into_iter().all(passed)
}

fn zone_nic(nic: &Nic, policy: &Policy) -> Evidence {
    let (answer, why) = match &nic.belongs_to_type {
        BelongsToType::Zone if nic.belongs_to_uuid == policy.cn_uuid => {
            (Answer::Never, Reason::NodeItself)
        }
        BelongsToType::Zone => (Answer::Pass, Reason::Kind("zone".to_owned())),
        other => (Answer::Never, Reason::Kind(other.as_str().to_owned())),
    };
    Evidence { guard: Guard::ZoneNic, answer, why }
}

fn cn_here(nic: &Nic, policy: &Policy) -> Evidence {
    let (answer, why) = match nic.cn_uuid.as_deref() {
        Some(cn) if cn == policy.cn_uuid && !cn.is_empty() => (Answer::Pass, Reason::CnHere),
        Some(cn) => (Answer::Never, Reason::CnElsewhere(cn.to_owned())),
        None => (Answer::Never, Reason::NoCn),
    };
    Evidence { guard: Guard::CnHere, answer, why }
}

/// G3 for this VM.
pub(crate) fn vm_absent(vm: &str, local: &LocalView, left_vm: bool) -> Evidence {
    let named = || vm.to_owned();
    let (answer, why) = match local.vms.get(vm).filter(|_| left_vm) {
        Some(stays) if stays.hidden => (Answer::Never, Reason::VmHidden(named())),
        // G4 checks that neither this VM nor another has the MAC.
        Some(_) => (Answer::Pass, Reason::LeftVm(named())),
        None if local.has_vm(vm) => (Answer::Never, Reason::VmHere(named())),
        None if local.lately_hidden.contains(vm) => (Answer::Later, Reason::LatelyHidden(named())),
        None if local.hidden_unknown => (Answer::Later, Reason::HiddenUnknown),
        None if !local.is_complete() => (Answer::Later, incomplete(local)),
        None if local.unread.contains(vm) => {
            (Answer::Later, Reason::Unread { name: named(), more: 0 })
        }
        None => (Answer::Pass, Reason::VmAbsent { vm: named(), vms: local.vms.len() }),
    };
    Evidence { guard: Guard::VmAbsent, answer, why }
}

/// Says what a view lacks. Any NIC may be in a zone that was never read.
fn incomplete(local: &LocalView) -> Reason {
    let mut unknown = local.unknown();
    match unknown.next() {
        Some(name) if local.listed => Reason::Unread { name: name.clone(), more: unknown.count() },
        _ => Reason::ViewIncomplete,
    }
}

/// G4 for this MAC.
pub(crate) fn mac_absent(mac: MacAddr, local: &LocalView, own: &OwnMacs) -> Evidence {
    let (answer, why) = match local.holders(mac).next() {
        None if own.contains(&mac) => (Answer::Never, Reason::MacOfNode),
        Some(vm) => (Answer::Never, Reason::MacHere(vm.uuid.clone())),
        None if !local.is_complete() => (Answer::Later, incomplete(local)),
        None => (Answer::Pass, Reason::MacAbsent),
    };
    Evidence { guard: Guard::MacAbsent, answer, why }
}

/// Returns the guard that forbids to give a record of this VM, which has no `cn_uuid`, to this
/// node, if there is one: the VM must be absent (G3) and the MAC unused (G4).
pub(crate) fn not_adoptable(
    mac: MacAddr,
    vm: &str,
    local: &LocalView,
    own: &OwnMacs,
) -> Option<Evidence> {
    let both = [vm_absent(vm, local, false), mac_absent(mac, local, own)];
    both.into_iter().find(|e| e.answer != Answer::Pass)
}

/// Returns true if this is a zone's record of this VM with this node's `cn_uuid` or none.
pub(crate) fn concerns(nic: &Nic, vm: &str, policy: &Policy) -> bool {
    let cn = nic.cn_uuid.as_deref().unwrap_or_default();
    nic.belongs_to_type == BelongsToType::Zone
        && nic.belongs_to_uuid == vm
        && vm != policy.cn_uuid
        && (cn.is_empty() || cn == policy.cn_uuid)
}
