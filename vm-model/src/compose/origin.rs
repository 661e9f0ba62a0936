// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The source of each field of a VM object, for `/why` and `vminfod why`.
//!
//! The table knows fields and not objects: it names zoneadm for `state`, even if a transition in the
//! configuration of a zone overrides it.

use crate::origin::Origin;

/// Fields by source.
const TABLE: &[(Origin, &str)] = &[
    (Origin::Zoneadm, "zonename uuid brand zone_state zonepath zoneid zonedid hvm state"),
    (Origin::Times, "last_modified"),
    (Origin::LastExited, "exit_status exit_timestamp"),
    (Origin::Sysinfo, "server_uuid datacenter_name platform_buildstamp headnode_id"),
    (Origin::Kstat, "boot_timestamp init_restarts pid"),
    (Origin::Config, "customer_metadata internal_metadata routes tags"),
    (
        Origin::Datasets,
        "quota zfs_root_compression zfs_root_recsize zfs_filesystem_limit zfs_snapshot_limit \
         zfs_filesystem zpool indestructible_zoneroot indestructible_delegated \
         zfs_data_compression zfs_data_recsize snapshots free_space missing",
    ),
    (
        Origin::ZoneXml,
        "autoboot vm_autoboot limit_priv fs_allowed alias app_svc_dependent archive_on_delete \
         bhyve_extra_opts billing_id boot bootrom com1 com2 cpu_type create_timestamp image_uuid \
         default_gateway disk_driver dns_domain do_not_inventory docker failed firewall_enabled \
         flexible_disk_size hostname init_name internal_metadata_namespaces kernel_version \
         maintain_resolvers nic_driver owner_uuid package_name package_version provisioning \
         qemu_extra_opts qemu_opts ram resolvers restart_init spice_opts spice_password \
         spice_port tmpfs transition transition_to transition_expire vcpus vga virtio_txburst \
         virtio_txtimer v vnc_password vnc_port zlog_max_size zlog_mode zlog_name cpu_shares \
         zfs_io_priority cpu_cap max_lwps max_msg_ids max_sem_ids max_shm_ids \
         max_physical_memory max_locked_memory max_swap max_shm_memory datasets filesystems nics \
         disks pci_devices device",
    ),
];

/// The fields of a disk that come from its dataset; the others come from the configuration.
const DISK_FROM_DATASET: &str =
    "zfs_filesystem zpool size compression refreservation block_size missing";

/// Returns the name of the source ([`Origin::name`]) of a field such as `quota`, or of a part of a
/// field such as `nics.0.ip`, `disks.*.size` or `tags.role`. `None` if no VM object has the field.
pub fn source_of(field: &str) -> Option<&'static str> {
    let mut parts = field.split('.');
    let (top, last) = (parts.next().unwrap_or_default(), parts.next_back());
    if top == "disks" && last.is_some_and(|last| has(DISK_FROM_DATASET, last)) {
        return Some(Origin::Datasets.name());
    }
    let row = TABLE.iter().find(|(_, fields)| has(fields, top));
    row.map(|(origin, _)| origin.name())
}

/// Returns all fields that a VM object can have, each with the name of its source.
pub fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    TABLE
        .iter()
        .flat_map(|(origin, fields)| fields.split_whitespace().map(|field| (field, origin.name())))
}

fn has(fields: &str, name: &str) -> bool {
    fields.split_whitespace().any(|field| field == name)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::fields;
    use super::*;

    #[test]
    fn fields_of_the_configuration_have_it_as_their_source() {
        for field in fields::names() {
            let source = source_of(field);
            // Overridden by zoneadm's row.
            let expected =
                if matches!(field, "zonename" | "brand") { "zoneadm" } else { "zone_xml" };
            assert_eq!(source, Some(expected), "{field}");
        }
    }

    #[test]
    fn a_field_has_one_source() {
        let mut seen = HashSet::new();
        for (field, source) in all() {
            assert!(seen.insert(field), "{field} is listed twice");
            assert_eq!(source_of(field), Some(source));
        }
        for (field, source) in [
            ("nics.0.ip", Some("zone_xml")),
            ("disks.0.path", Some("zone_xml")),
            ("disks.*.size", Some("zfs")),
            ("tags.role", Some("config")),
            ("snapshots.0.name", Some("zfs")),
            ("bogus", None),
            ("", None),
        ] {
            assert_eq!(source_of(field), source, "{field}");
        }
    }
}
