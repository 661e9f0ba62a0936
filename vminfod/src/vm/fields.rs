// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the configuration gives: one table per element, from the name in the file to the field.

use serde_json::Value;

use super::convert::{mib, number_value, to_number};
use super::draft::{Draft, Field};
use super::rules::{Rule, Table, put_attributes, put_pair};
use super::{ComposeError, disks, nics, set, state};
use crate::load::ZoneXml;
use crate::load::zone_xml::{Attributes, What, attribute};

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

/// The fields that the tables of this module give, for the table of origins to be held to.
#[cfg(test)]
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    let tables = [ZONE, ATTRS].into_iter().flatten().map(|(_, field, _)| *field);
    tables.chain(RCTLS.iter().map(|(_, _, field, _)| *field))
}

/// Name of the rctl, its action, field, and whether it is bytes shown as MiB.
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

/// Fields that come from elsewhere than the configuration, about.
const OTHERS: usize = 32;

/// Everything the configuration says, in the order it says it.
pub(super) fn from_xml(xml: &ZoneXml) -> Result<Draft, ComposeError> {
    let mut vm = Draft::with_capacity(xml.attributes.len() + xml.items.len() + OTHERS);
    put_attributes(&mut vm, ZONE, &xml.attributes);
    for item in &xml.items {
        match &item.what {
            What::Attr(pair) => put_pair(&mut vm, ATTRS, pair)?,
            What::Rctl { name, attributes } => put_rctl(&mut vm, name.as_deref(), attributes),
            What::Dataset(name) => {
                vm.push("datasets", Field::Plain(name.as_deref().into()));
            }
            What::Filesystem { attributes, options } => {
                vm.push("filesystems", Field::Object(filesystem(attributes, options)));
            }
            What::Network { attributes, net_attrs } => {
                vm.push("nics", Field::Object(nics::nic(attributes, net_attrs)?));
            }
            What::Device { attributes, net_attrs } => {
                // A leftover of the deployed reader that clients have come to see.
                set(&mut vm, "device", Value::Null);
                let device = disks::device(attributes, net_attrs)?;
                let list =
                    if device.text("model") == Some("passthru") { "pci_devices" } else { "disks" };
                vm.push(list, Field::Object(device));
            }
        }
    }
    defaults(&mut vm, xml);
    state::split_transition(&mut vm);
    Ok(vm)
}

fn defaults(vm: &mut Draft, xml: &ZoneXml) {
    super::absent(vm, "nics", Field::List(Vec::new()));
    if matches!(xml.brand(), "kvm" | "bhyve") {
        super::absent(vm, "disks", Field::List(Vec::new()));
    }
    if xml.brand() == "kvm" {
        match vm.remove("vm_autoboot") {
            Some(field) => vm.put("autoboot", field),
            None => drop(vm.remove("autoboot")),
        }
    }
    sort(vm, "nics", nics::rank);
    sort(vm, "disks", disks::rank);
    // Only where every target is a number is there an order to speak of.
    let target = |entry: &Draft| entry.text("target").map_or(f64::NAN, to_number);
    let mut all = vm.list("filesystems").iter().filter_map(Field::as_object);
    if all.all(|entry| !target(entry).is_nan()) {
        sort(vm, "filesystems", target);
    }
}

fn sort(vm: &mut Draft, name: &str, rank: impl Fn(&Draft) -> f64) {
    if let Some(Field::List(list)) = vm.get_mut(name) {
        let rank = |entry: &Field| entry.as_object().map_or(f64::NAN, &rank);
        list.sort_by(|a, b| rank(a).total_cmp(&rank(b)));
    }
}

fn put_rctl(vm: &mut Draft, name: Option<&str>, attributes: &Attributes) {
    let (privilege, action) = (attribute(attributes, "priv"), attribute(attributes, "action"));
    let known = RCTLS.iter().find(|(n, a, ..)| {
        Some(*n) == name && Some(*a) == action && privilege == Some("privileged")
    });
    if let Some((_, _, field, bytes)) = known {
        let limit = attribute(attributes, "limit");
        let value =
            if *bytes { mib(limit.map_or(f64::NAN, to_number)) } else { number_value(limit) };
        set(vm, field, value);
    }
}

fn filesystem(attributes: &Attributes, options: &[Option<String>]) -> Draft {
    let mut entry = Draft::with_capacity(attributes.len() + 1);
    put_attributes(&mut entry, FILESYSTEM, attributes);
    if !options.is_empty() {
        set(&mut entry, "options", options.to_vec());
    }
    entry
}
