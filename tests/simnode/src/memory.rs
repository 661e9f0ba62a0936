// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The memory limits of a VM, which vmadm derives from each other where a payload names only some. Pure.

use serde_json::{Value, json};

use crate::payload::{self, Payload};
use crate::xml::Element;

/// The least swap that a zone can have, in MiB.
const LEAST_SWAP: u64 = 256;

/// What QEMU or bhyve needs besides the guest's memory, in MiB.
fn overhead(brand: &str) -> u64 {
    match brand {
        "kvm" => 1024,
        "bhyve" => 1280,
        _ => 0,
    }
}

/// The limit that follows from `ram`, unless the payload has one. A zone without a hypervisor has no `ram`
/// of its own: there it is a name of the limit.
fn from_ram(changes: &mut Payload, brand: &str) {
    let limit = match payload::is_hvm(brand) {
        true => changes.get("ram").and_then(Value::as_u64).map(|ram| json!(ram + overhead(brand))),
        false => changes.remove("ram"),
    };
    if let Some(limit) = limit {
        changes.entry("max_physical_memory").or_insert(limit);
    }
}

/// Fills in the limits of a new VM.
pub fn complete(vm: &mut Payload, brand: &str) {
    from_ram(vm, brand);
    let physical = vm.entry("max_physical_memory").or_insert(json!(256 + overhead(brand))).clone();
    let swap = physical.as_u64().map_or(physical.clone(), |mib| json!(mib.max(LEAST_SWAP)));
    vm.entry("max_locked_memory").or_insert(physical);
    vm.entry("max_swap").or_insert(swap);
}

/// Adds the limits that move with a new `max_physical_memory`: each keeps its distance to it.
pub fn follow(changes: &mut Payload, zone: &Element) {
    let brand = zone.get("brand").unwrap_or_default();
    from_ram(changes, brand);
    let Some(new) = changes.get("max_physical_memory").and_then(Value::as_u64) else { return };
    let Some(old) = payload::limit(zone, "max_physical_memory") else { return };
    let tmpfs = zone.value("attr", "tmpfs").and_then(|text| text.parse().ok());
    for (key, now, least) in [
        ("max_locked_memory", payload::limit(zone, "max_locked_memory"), 0),
        ("max_swap", payload::limit(zone, "max_swap"), LEAST_SWAP),
        ("tmpfs", tmpfs, 0),
    ] {
        if let Some(now) = now {
            let moved = (new + now).saturating_sub(old).max(least);
            changes.entry(key).or_insert(json!(moved));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(value: Value) -> Payload {
        value.as_object().unwrap().clone()
    }

    fn zone(vm: Value) -> Element {
        payload::zone_xml(&map(vm), "/zones/z", 1).unwrap()
    }

    #[test]
    fn new_vms_have_what_vmadm_writes() {
        for (brand, given, physical, swap) in [
            ("kvm", json!({"ram": 512}), 1536, 1536),
            ("bhyve", json!({"ram": 512}), 1792, 1792),
            ("lx", json!({"ram": 128}), 128, 256),
            ("joyent", json!({}), 256, 256),
            ("joyent", json!({"max_physical_memory": 64, "max_swap": 300}), 64, 300),
        ] {
            let mut vm = map(given);
            complete(&mut vm, brand);
            assert_eq!(
                (&vm["max_physical_memory"], &vm["max_locked_memory"]),
                (&json!(physical), &json!(physical))
            );
            assert_eq!(vm["max_swap"], swap);
            assert_eq!(vm.contains_key("ram"), matches!(brand, "kvm" | "bhyve"));
        }
    }

    #[test]
    fn limits_keep_their_distance() {
        let lx = zone(json!({"uuid": "z", "brand": "lx", "max_physical_memory": 512,
            "max_locked_memory": 512, "max_swap": 1024, "tmpfs": 512}));
        for name in ["ram", "max_physical_memory"] {
            let mut changes = map(json!({name: 128}));
            follow(&mut changes, &lx);
            let all = json!({"max_physical_memory": 128, "max_locked_memory": 128, "max_swap": 640, "tmpfs": 128});
            assert_eq!(Value::Object(changes), all);
        }
        let kvm =
            zone(json!({"uuid": "z", "brand": "kvm", "ram": 512, "max_physical_memory": 1536,
            "max_swap": 1536}));
        let mut changes = map(json!({"ram": 1024, "max_swap": 9999}));
        follow(&mut changes, &kvm);
        assert_eq!(
            Value::Object(changes),
            json!({"ram": 1024, "max_swap": 9999, "max_physical_memory": 2048})
        );
        let mut alias = map(json!({"alias": "a"}));
        follow(&mut alias, &kvm);
        assert_eq!(alias.len(), 1);
    }
}
