// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The fields that come from the zone's configuration.

use serde_json::Value;

use super::rules::{Rule, Table, objects, push, set, set_absent, set_attributes, set_pair, text};
use super::{disks, nics};
use crate::js::{mib, number_value, to_number};
use crate::object::VmObject;
use crate::origin::ParseError;
use crate::parse::zone_xml::{Element, ZoneXml};
use crate::parts::split_transition;

const ZONE: &Table = &[
    ("name", "zonename", Rule::Text),
    ("brand", "brand", Rule::Text),
    ("autoboot", "autoboot", Rule::Bool),
    ("limitpriv", "limit_priv", Rule::Text),
    ("fs-allowed", "fs_allowed", Rule::Text),
];

const ATTRS: &Table = &[
    ("alias", "alias", Rule::Base64),
    ("app-svc-dependent", "app_svc_dependent", Rule::Bool),
    ("archive-on-delete", "archive_on_delete", Rule::Bool),
    ("bhyve-extra-opts", "bhyve_extra_opts", Rule::Text),
    ("billing-id", "billing_id", Rule::Text),
    ("boot", "boot", Rule::Text),
    ("bootrom", "bootrom", Rule::Text),
    ("com1", "com1", Rule::Text),
    ("com2", "com2", Rule::Text),
    ("cpu-type", "cpu_type", Rule::Text),
    ("create-timestamp", "create_timestamp", Rule::Text),
    ("dataset-uuid", "image_uuid", Rule::Text),
    ("default-gateway", "default_gateway", Rule::Text),
    ("disk-driver", "disk_driver", Rule::Text),
    ("dns-domain", "dns_domain", Rule::Text),
    ("do-not-inventory", "do_not_inventory", Rule::Bool),
    ("docker", "docker", Rule::Bool),
    ("failed", "failed", Rule::Text),
    ("firewall-enabled", "firewall_enabled", Rule::Bool),
    ("flexible-disk-size", "flexible_disk_size", Rule::Number),
    ("hostname", "hostname", Rule::Text),
    ("init-name", "init_name", Rule::Text),
    ("internal-metadata-namespaces", "internal_metadata_namespaces", Rule::List),
    ("kernel-version", "kernel_version", Rule::Text),
    ("maintain-resolvers", "maintain_resolvers", Rule::Bool),
    ("nic-driver", "nic_driver", Rule::Text),
    ("owner-uuid", "owner_uuid", Rule::Text),
    ("package-name", "package_name", Rule::Text),
    ("package-version", "package_version", Rule::Text),
    ("provisioning", "provisioning", Rule::Bool),
    ("qemu-extra-opts", "qemu_extra_opts", Rule::Base64),
    ("qemu-opts", "qemu_opts", Rule::Base64),
    ("ram", "ram", Rule::Number),
    ("resolvers", "resolvers", Rule::List),
    ("restart-init", "restart_init", Rule::Bool),
    ("spice-opts", "spice_opts", Rule::Base64),
    ("spice-password", "spice_password", Rule::Base64),
    ("spice-port", "spice_port", Rule::Number),
    ("tmpfs", "tmpfs", Rule::Number),
    ("transition", "transition", Rule::Text),
    ("vcpus", "vcpus", Rule::Number),
    ("vga", "vga", Rule::Text),
    ("virtio-txburst", "virtio_txburst", Rule::Number),
    ("virtio-txtimer", "virtio_txtimer", Rule::Number),
    ("vm-autoboot", "vm_autoboot", Rule::Bool),
    ("vm-version", "v", Rule::Number),
    ("vnc-password", "vnc_password", Rule::Base64),
    ("vnc-port", "vnc_port", Rule::Number),
    ("zlog-max-size", "zlog_max_size", Rule::Number),
    ("zlog-mode", "zlog_mode", Rule::Text),
    ("zlog-name", "zlog_name", Rule::Text),
];

/// Returns the fields that the tables of this module set.
#[cfg(test)]
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    let tables = [ZONE, ATTRS].into_iter().flatten().map(|(_, field, _)| *field);
    tables.chain(RCTLS.iter().map(|(_, _, field, _)| *field))
}

/// The name of a resource control, its action, its field, and whether it is in bytes and shown in MiB.
const RCTLS: &[(&str, &str, &str, bool)] = &[
    ("zone.cpu-shares", "none", "cpu_shares", false),
    ("zone.zfs-io-priority", "none", "zfs_io_priority", false),
    ("zone.cpu-cap", "deny", "cpu_cap", false),
    ("zone.max-lwps", "deny", "max_lwps", false),
    ("zone.max-msg-ids", "deny", "max_msg_ids", false),
    ("zone.max-sem-ids", "deny", "max_sem_ids", false),
    ("zone.max-shm-ids", "deny", "max_shm_ids", false),
    ("zone.max-physical-memory", "deny", "max_physical_memory", true),
    ("zone.max-locked-memory", "deny", "max_locked_memory", true),
    ("zone.max-swap", "deny", "max_swap", true),
    ("zone.max-shm-memory", "deny", "max_shm_memory", true),
];

const FILESYSTEM: &Table = &[
    ("special", "source", Rule::Text),
    ("directory", "target", Rule::Text),
    ("raw", "raw", Rule::Text),
    ("type", "type", Rule::Text),
];

/// Returns the fields of a configuration, in its order.
pub(super) fn from_xml(xml: &ZoneXml) -> Result<VmObject, ParseError> {
    let mut vm = VmObject::new();
    set_attributes(&mut vm, ZONE, xml.zone());
    for element in xml.elements() {
        match element.name() {
            "attr" => set_pair(&mut vm, ATTRS, element)?,
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
    let (name, action) = (rctl.get("name"), value.get("action"));
    let known = RCTLS.iter().find(|(n, a, ..)| {
        Some(*n) == name && Some(*a) == action && value.get("priv") == Some("privileged")
    });
    if let Some((_, _, field, bytes)) = known {
        let limit = value.get("limit");
        let value =
            if *bytes { mib(limit.map_or(f64::NAN, to_number)) } else { number_value(limit) };
        set(vm, field, value);
    }
}

fn filesystem(element: Element<'_>) -> VmObject {
    let mut entry = VmObject::new();
    set_attributes(&mut entry, FILESYSTEM, element);
    for option in element.inside() {
        push(&mut entry, "options", option.get("name"));
    }
    entry
}
