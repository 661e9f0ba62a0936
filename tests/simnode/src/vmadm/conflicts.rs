// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What no two VMs of a node may have: a MAC, a virtual router's number, an address on one network, a VNC port.

use serde_json::Value;

use super::addresses;
use super::nics::mac;
use super::refusal::Refusal;
use super::surroundings::Surroundings;
use crate::payload::{self, Payload};

const CONFLICT: &str = "Conflict detected with another vm, please check the MAC, IP, and VRID";

/// Checks the NICs and the port of a payload against every VM of the node, the VM itself among them: a change
/// that repeats tag and address of its NIC conflicts with itself.
pub(crate) fn check(
    new: &[&Payload],
    changed: &[&Payload],
    vnc_port: Option<&Value>,
    around: &Surroundings,
) -> Result<(), Refusal> {
    let others = || around.vms.iter().flat_map(|vm| super::forms::objects(vm, "nics"));
    let taken_port = |port: i64| {
        port > 0
            && around.vms.iter().any(|vm| vm.get("vnc_port").and_then(Value::as_i64) == Some(port))
    };
    let conflicts = vnc_port.and_then(Value::as_i64).is_some_and(taken_port)
        || new.iter().any(|nic| others().any(|other| same(nic, other, "mac") || meets(nic, other)))
        || changed.iter().any(|nic| others().any(|other| meets(nic, other)));
    if conflicts { Refusal::rule(CONFLICT) } else { Ok(()) }
}

/// The two have the same MAC or router.
fn same(nic: &Payload, other: &Payload, field: &str) -> bool {
    match field {
        "mac" => {
            let of = |nic: &Payload| payload::text(nic, "mac").and_then(mac);
            of(nic).is_some() && of(nic) == of(other)
        }
        _ => nic.contains_key(field) && nic.get(field) == other.get(field),
    }
}

/// The two have an address in common, or a router while they are two.
fn meets(nic: &Payload, other: &Payload) -> bool {
    let vlan = |nic: &Payload| {
        nic.get("vlan_id").map_or(0, |id| super::forms::printed(id).parse().unwrap_or(0_u16))
    };
    let same_network = nic.contains_key("nic_tag")
        && nic.get("nic_tag") == other.get("nic_tag")
        && vlan(nic) == vlan(other);
    let theirs = addresses::ips(other);
    let mut ours = addresses::ips(nic).into_iter().filter(|ip| !addresses::is_dynamic(ip));
    same_network && ours.any(|ip| theirs.contains(&ip))
        || same(nic, other, "vrrp_vrid") && !same(nic, other, "mac")
}
