// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The fields for listing, filtering and sorting: names, headers, widths. Pure.

use serde_json::Value;

use super::regexp::Regexp;
use super::value::at;
use super::vm::Vm;

/// Name, header, least width.
const FIELDS: &[(&str, &str, usize)] = &[
    ("alias", "ALIAS", 10),
    ("autoboot", "AUTOBOOT", 8),
    ("billing_id", "BILLING_ID", 36),
    ("boot_timestamp", "BOOT_TIMESTAMP", 24),
    ("brand", "BRAND", 14),
    ("cpu_cap", "CPU_CAP", 7),
    ("cpu_shares", "CPU_SHARE", 9),
    ("cpu_type", "CPU_TYPE", 8),
    ("create_timestamp", "CREATE_TIMESTAMP", 24),
    ("dns_domain", "DOMAIN", 32),
    ("do_not_inventory", "DNI", 5),
    ("docker", "DOCKER", 6),
    ("exit_status", "EXIT", 4),
    ("exit_timestamp", "EXIT_TIMESTAMP", 24),
    ("firewall_enabled", "FIREWALL_ENABLED", 16),
    ("flexible_disk_size", "FLEX_DISK_SIZE", 14),
    ("free_space", "FREE_SPACE", 14),
    ("hostname", "HOSTNAME", 32),
    ("hvm", "HVM", 5),
    ("image_uuid", "IMAGE_UUID", 36),
    ("indestructible_delegated", "INDESTR_DATA", 12),
    ("indestructible_zoneroot", "INDESTR_ROOT", 12),
    ("max_locked_memory", "MAX_LOCKED", 10),
    ("max_lwps", "MAX_LWP", 7),
    ("max_physical_memory", "MAX_PHYS", 8),
    ("max_swap", "MAX_SWAP", 8),
    ("owner_uuid", "OWNER_UUID", 36),
    ("package_name", "PACKAGE_NAME", 32),
    ("package_version", "PACKAGE_VER", 11),
    ("pid", "PID", 6),
    ("qemu_extra_opts", "QEMU_EXTRA_OPTS", 15),
    ("quota", "QUOTA", 5),
    ("ram", "RAM", 7),
    ("state", "STATE", 16),
    ("tmpfs", "TMPFS", 5),
    ("type", "TYPE", 4),
    ("uuid", "UUID", 36),
    ("vcpus", "VCPUS", 5),
    ("zfs_io_priority", "IO_PRIORITY", 11),
    ("zone_state", "ZONE_STATE", 10),
    ("zoneid", "ZONEID", 6),
    ("zonename", "ZONENAME", 12),
    ("zonepath", "ZONEPATH", 40),
    ("zpool", "ZPOOL", 12),
];

/// Filter keys of disks and nics. As in the shipped program the dots match any character, and a nic's
/// key may have a prefix.
const DISK_KEY: &str =
    "^disks.([0-9]+|\\*).(boot|image_name|image_size|image_uuid|size|media|model|zpool)$";
const NIC_KEY: &str =
    "nics.([0-9]+|\\*).(dhcp_server|gateway|interface|ip|mac|model|netmask|nic_tag|vlan_id)$";
/// Width of columns that are members of a list or object.
const MEMBER_WIDTH: usize = 20;

/// A column of a listing, or a sort key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Name as given.
    pub name: String,
    /// Text in the header line.
    pub header: String,
    /// Least width in UTF-16 units.
    pub width: usize,
}

impl Column {
    /// The column of this name.
    pub fn named(name: &str) -> Option<Column> {
        if let Some((_, header, width)) = FIELDS.iter().find(|(field, ..)| *field == name) {
            let (header, width) = ((*header).to_owned(), *width);
            return Some(Column { name: name.to_owned(), header, width });
        }
        let parts: Vec<&str> = name.split('.').collect();
        let known = match parts.as_slice() {
            ["disks" | "nics" | "pci_devices", index, _] => is_digits(index),
            ["customer_metadata" | "internal_metadata" | "routes" | "tags", _] => true,
            _ => false,
        };
        known.then(|| Column {
            name: name.to_owned(),
            header: name.to_uppercase(),
            width: MEMBER_WIDTH,
        })
    }

    /// The property it belongs to.
    pub fn property(&self) -> &str {
        self.name.split('.').next().unwrap_or_default()
    }

    /// Its value in one VM.
    pub fn of<'a>(&self, vm: &'a Vm) -> Option<&'a Value> {
        match self.name.split_once('.') {
            Some((first, rest)) => at(vm.object.get(first)?, rest),
            None => vm.object.get(&self.name),
        }
    }
}

/// Returns true for a key with `*`, which only filters may have.
pub fn is_wildcard(name: &str) -> bool {
    ["disks.*", "filesystems.*", "nics.*"].iter().any(|start| name.starts_with(start))
}

/// Returns true if filters may use this key.
pub fn is_filter_key(key: &str) -> bool {
    FIELDS.iter().any(|(field, ..)| *field == key)
        || ["tags.", "customer_metadata.", "internal_metadata."]
            .iter()
            .any(|start| key.starts_with(start))
        || [DISK_KEY, NIC_KEY]
            .iter()
            .any(|pattern| Regexp::new(pattern, false).is_ok_and(|regexp| regexp.is_match(key)))
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns() {
        for (name, header, width) in [
            ("alias", "ALIAS", 10),
            ("zfs_io_priority", "IO_PRIORITY", 11),
            ("nics.0.ip", "NICS.0.IP", 20),
            ("disks.12.anything", "DISKS.12.ANYTHING", 20),
            ("pci_devices.0.path", "PCI_DEVICES.0.PATH", 20),
            ("tags.Role", "TAGS.ROLE", 20),
            ("routes.x", "ROUTES.X", 20),
        ] {
            let column = Column::named(name).unwrap();
            assert_eq!((column.header.as_str(), column.width), (header, width), "{name}");
        }
        for name in [
            "",
            "bogus",
            "resolvers.0",
            "server_uuid",
            "tags.a.b",
            "tags",
            "nics.x.ip",
            "nics.0",
            "nics..ip",
            "nics.*.ip",
            "Alias",
            "filesystems.0.source",
        ] {
            assert_eq!(Column::named(name), None, "{name}");
        }
        assert_eq!(FIELDS.len(), 44);
    }

    #[test]
    fn filter_keys() {
        for key in [
            "uuid",
            "type",
            "nics.*.ip",
            "nics.10.mac",
            "foonics.0.ip",
            "disks.*.size",
            "nicsx0yip",
            "disksx0yboot",
            "nics00.ip",
            "tags.x",
            "tags.a.b",
            "tags.",
            "internal_metadata.k",
        ] {
            assert!(is_filter_key(key), "{key}");
        }
        for key in [
            "",
            "alias!",
            "resolvers.0",
            "disks.*.path",
            "datacenter_name",
            "foodisks.0.size",
            "nics.0.ips",
            "nics.0.ip ",
            "nics.*0.ip",
            "nics.ip",
            "routes.x",
            "tags",
            "nics",
        ] {
            assert!(!is_filter_key(key), "{key}");
        }
    }
}
