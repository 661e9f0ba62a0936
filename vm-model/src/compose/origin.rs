// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The source of each field of a VM object, for `/why` and `vminfod why`.
//!
//! The table knows fields and not objects: it names zoneadm for `state`, even if a transition in the
//! configuration of a zone overrides it.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::fields;
use crate::origin::Origin;

/// Fields by source. All others that a configuration can have are the configuration's.
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
];

static FIELDS: LazyLock<BTreeMap<&str, &str>> = LazyLock::new(|| {
    let zone_xml = fields::names().map(|field| (field, Origin::ZoneXml.name()));
    let others = TABLE
        .iter()
        .flat_map(|(origin, fields)| fields.split_whitespace().map(|field| (field, origin.name())));
    zone_xml.chain(others).collect()
});

/// The fields of a disk that come from its dataset; the others come from the configuration.
const DISK_FROM_DATASET: &str =
    "zfs_filesystem zpool size compression refreservation block_size missing";

/// Returns the name of the source ([`Origin::name`]) of a field such as `quota`, or of a part of a
/// field such as `nics.0.ip`, `disks.*.size` or `tags.role`. `None` if no VM object has the field.
pub fn source_of(field: &str) -> Option<&'static str> {
    let mut parts = field.split('.');
    let (top, last) = (parts.next().unwrap_or_default(), parts.next_back());
    let is_datasets = |last: &str| DISK_FROM_DATASET.split_whitespace().any(|field| field == last);
    if top == "disks" && last.is_some_and(is_datasets) {
        return Some(Origin::Datasets.name());
    }
    FIELDS.get(top).copied()
}

/// Returns all fields that a VM object can have, each with the name of its source.
pub fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    FIELDS.iter().map(|(field, source)| (*field, *source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_has_one_source() {
        let mut named: Vec<&str> = TABLE.iter().flat_map(|(_, fields)| fields.split(' ')).collect();
        let count = named.len();
        named.sort_unstable();
        named.dedup();
        assert_eq!(named.len(), count, "a field is listed twice");
        for (field, source) in [
            ("zonename", Some("zoneadm")),
            ("brand", Some("zoneadm")),
            ("alias", Some("zone_xml")),
            ("image_uuid", Some("zone_xml")),
            ("max_lwps", Some("zone_xml")),
            ("device", Some("zone_xml")),
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
