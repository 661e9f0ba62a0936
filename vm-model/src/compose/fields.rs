// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The fields that come from the zone's configuration.

use serde_json::Value;

use super::rules::{Rule, Table, objects, push, set, set_absent, set_attributes, set_pair, text};
use super::{disks, nics};
use crate::js::{number_value, to_number};
use crate::object::VmObject;
use crate::origin::ParseError;
use crate::parse::zone_xml::{Element, ZoneXml};
use crate::parts::split_transition;

static ZONE: Table = Table::new(&[
    (Rule::Text, "name:zonename brand limitpriv:limit_priv fs-allowed"),
    (Rule::Bool, "autoboot"),
]);

static ATTRS: Table = Table::new(&[
    (Rule::Base64, "alias qemu-extra-opts qemu-opts spice-opts spice-password vnc-password"),
    (
        Rule::Bool,
        "app-svc-dependent archive-on-delete do-not-inventory docker firewall-enabled \
         maintain-resolvers provisioning restart-init vm-autoboot",
    ),
    (
        Rule::Text,
        "bhyve-extra-opts billing-id boot bootrom com1 com2 cpu-type create-timestamp \
         dataset-uuid:image_uuid default-gateway disk-driver dns-domain failed hostname init-name \
         kernel-version nic-driver owner-uuid package-name package-version transition vga \
         zlog-mode zlog-name",
    ),
    (
        Rule::Number,
        "flexible-disk-size ram spice-port tmpfs vcpus virtio-txburst virtio-txtimer vm-version:v \
         vnc-port zlog-max-size",
    ),
    (Rule::List, "internal-metadata-namespaces resolvers"),
]);

/// Resource controls `zone.NAME` with the action `none`.
static SHARES: Table = Table::new(&[(Rule::Number, "cpu-shares zfs-io-priority")]);

/// Those with the action `deny`.
static CAPS: Table = Table::new(&[
    (Rule::Number, "cpu-cap max-lwps max-msg-ids max-sem-ids max-shm-ids"),
    (Rule::Mib, "max-physical-memory max-locked-memory max-swap max-shm-memory"),
]);

/// Fields that the tables of this module do not set.
const OTHERS: &str =
    "transition_to transition_expire datasets filesystems nics disks pci_devices device";

/// Returns the fields that come from a configuration.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    let named =
        [&ZONE, &ATTRS, &SHARES, &CAPS].into_iter().flat_map(|table| table.fields().values());
    named.map(|(field, _)| field.as_str()).chain(OTHERS.split_whitespace())
}

static FILESYSTEM: Table = Table::new(&[(Rule::Text, "special:source directory:target raw type")]);

/// Returns the fields of a configuration, in its order.
pub(super) fn from_xml(xml: &ZoneXml) -> Result<VmObject, ParseError> {
    let mut vm = VmObject::new();
    set_attributes(&mut vm, &ZONE, xml.zone());
    for element in xml.elements() {
        match element.name() {
            "attr" => set_pair(&mut vm, &ATTRS, element)?,
            "rctl" => element.inside().for_each(|value| set_rctl(&mut vm, element, value)),
            "dataset" => push(&mut vm, "datasets", element.get("name")),
            "filesystem" => push(&mut vm, "filesystems", filesystem(element)),
            "network" => push(&mut vm, "nics", nics::nic(element)?),
            _ => {
                // A leftover of the deployed loader's loop, which clients see.
                set(&mut vm, "device", Value::Null);
                let device = disks::device(element)?;
                let is_pci = text(&device, "model") == Some("passthru");
                push(&mut vm, if is_pci { "pci_devices" } else { "disks" }, device);
            }
        }
    }
    defaults(&mut vm, xml);
    transition(&mut vm);
    Ok(vm)
}

/// Adds the fields that every object has, and sorts the lists.
fn defaults(vm: &mut VmObject, xml: &ZoneXml) {
    set_absent(vm, "nics", Value::Array(Vec::new()));
    if matches!(xml.brand(), "kvm" | "bhyve") {
        set_absent(vm, "disks", Value::Array(Vec::new()));
    }
    if xml.brand() == "kvm" {
        match vm.shift_remove("vm_autoboot") {
            Some(value) => set(vm, "autoboot", value),
            None => drop(vm.shift_remove("autoboot")),
        }
    }
    sort(vm, "nics", nics::rank);
    sort(vm, "disks", disks::rank);
    // JavaScript compares targets as numbers: paths, which are none, keep the order of the file.
    let target = |entry: &VmObject| text(entry, "target").map_or(f64::NAN, to_number);
    if objects(vm, "filesystems").all(|entry| !target(entry).is_nan()) {
        sort(vm, "filesystems", target);
    }
}

/// Replaces `transition` by its three parts. A text of another form stays. No transition expires.
fn transition(vm: &mut VmObject) {
    let Some(attr) = text(vm, "transition").map(str::to_owned) else { return };
    let Some([state, to, expire]) = split_transition(&attr) else { return };
    vm.shift_remove("transition");
    set(vm, "state", state);
    set(vm, "transition_to", to);
    set(vm, "transition_expire", number_value(Some(expire)));
}

/// Sorts a list of objects by number; equal ones keep their order.
fn sort(vm: &mut VmObject, name: &str, rank: impl Fn(&VmObject) -> f64) {
    if let Some(Value::Array(list)) = vm.get_mut(name) {
        let rank = |entry: &Value| entry.as_object().map_or(f64::NAN, &rank);
        list.sort_by(|a, b| rank(a).total_cmp(&rank(b)));
    }
}

fn set_rctl(vm: &mut VmObject, rctl: Element<'_>, value: Element<'_>) {
    let table = match (value.get("priv"), value.get("action")) {
        (Some("privileged"), Some("none")) => &SHARES,
        (Some("privileged"), Some("deny")) => &CAPS,
        _ => return,
    };
    let name = rctl.get("name").and_then(|name| name.strip_prefix("zone."));
    if let Some((field, rule)) = name.and_then(|name| table.fields().get(name)) {
        set(vm, field, value.get("limit").map_or(Value::Null, |limit| rule.value(limit)));
    }
}

fn filesystem(element: Element<'_>) -> VmObject {
    let mut entry = VmObject::new();
    set_attributes(&mut entry, &FILESYSTEM, element);
    for option in element.inside() {
        push(&mut entry, "options", option.get("name"));
    }
    entry
}
