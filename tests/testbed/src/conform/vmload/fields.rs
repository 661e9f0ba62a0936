// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.
//! Every documented field of a VM object is produced by some recorded node: a field that nothing
//! produces is a field that nothing checks.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Map, Value};
use vminfod::node::load;

use super::recorded::Recorded;

/// The documented fields, those of lists and of `missing` behind a dot.
const DOCUMENTED: &str = "zonename brand autoboot vm_autoboot limit_priv fs_allowed alias archive_on_delete \
    do_not_inventory firewall_enabled maintain_resolvers restart_init docker app_svc_dependent \
    provisioning failed transition state transition_to transition_expire image_uuid v \
    create_timestamp billing_id owner_uuid package_name package_version hostname dns_domain \
    init_name default_gateway kernel_version resolvers internal_metadata_namespaces tmpfs ram \
    vcpus flexible_disk_size bootrom bhyve_extra_opts com1 com2 boot cpu_type vga disk_driver \
    nic_driver qemu_opts qemu_extra_opts spice_opts spice_password vnc_password vnc_port \
    spice_port virtio_txburst virtio_txtimer zlog_name zlog_mode zlog_max_size cpu_shares \
    zfs_io_priority cpu_cap max_lwps max_msg_ids max_sem_ids max_shm_ids max_physical_memory \
    max_locked_memory max_swap max_shm_memory datasets filesystems nics disks pci_devices device \
    uuid zone_state zonepath zoneid zonedid hvm customer_metadata internal_metadata tags routes \
    exit_status exit_timestamp last_modified boot_timestamp init_restarts pid server_uuid \
    datacenter_name platform_buildstamp headnode_id quota zfs_root_compression zfs_root_recsize \
    zfs_filesystem_limit zfs_snapshot_limit zfs_filesystem zpool indestructible_zoneroot \
    zfs_data_compression zfs_data_recsize indestructible_delegated snapshots free_space missing \
    nics.interface nics.mac nics.vlan_id nics.nic_tag nics.ips nics.gateways nics.allowed_ips \
    nics.allowed_dhcp_cids nics.ip nics.netmask nics.gateway nics.model nics.network_uuid \
    nics.vrrp_primary_ip nics.blocked_outgoing_ports nics.mtu nics.vrrp_vrid nics.primary \
    nics.dhcp_server nics.allow_dhcp_spoofing nics.allow_ip_spoofing nics.allow_mac_spoofing \
    nics.allow_restricted_traffic nics.allow_unfiltered_promisc disks.path disks.boot disks.notrim \
    disks.model disks.media disks.image_uuid disks.uuid disks.pci_slot disks.guest_block_size \
    disks.image_size disks.zfs_filesystem disks.zpool disks.size disks.compression \
    disks.refreservation disks.block_size disks.missing pci_devices.path pci_devices.model \
    pci_devices.pci_slot filesystems.source filesystems.target filesystems.raw filesystems.type \
    filesystems.options snapshots.name snapshots.size snapshots.created_at missing.datasets \
    missing.disks missing.filesystems";

/// Those that the one node kept in this repository does not have.
const NOT_KEPT: &str = "vm_autoboot fs_allowed app_svc_dependent provisioning failed transition transition_to \
    transition_expire default_gateway bhyve_extra_opts qemu_opts qemu_extra_opts virtio_txburst \
    virtio_txtimer pci_devices zfs_snapshot_limit indestructible_delegated missing nics.mtu \
    nics.dhcp_server nics.allow_restricted_traffic disks.notrim disks.guest_block_size \
    disks.missing pci_devices.path pci_devices.model pci_devices.pci_slot missing.datasets \
    missing.disks missing.filesystems";

/// Fields whose members are documented one by one.
const NESTED: [&str; 6] = ["nics", "disks", "pci_devices", "filesystems", "snapshots", "missing"];

fn add(fields: &mut BTreeSet<String>, vm: &Map<String, Value>) {
    for (key, value) in vm {
        fields.insert(key.clone());
        let members = match value {
            _ if !NESTED.contains(&key.as_str()) => continue,
            Value::Array(list) => list.as_slice(),
            one => std::slice::from_ref(one),
        };
        let names = members.iter().filter_map(Value::as_object).flat_map(Map::keys);
        fields.extend(names.map(|name| format!("{key}.{name}")));
    }
}

async fn produced(path: &Path) -> BTreeSet<String> {
    let mut fields = BTreeSet::new();
    for dir in super::nodes(path).unwrap() {
        let recorded = Recorded::copy(&dir).unwrap();
        // Nodes that are there for their errors give nothing.
        if let Ok(node) = load::objects(&recorded.ctx()).await {
            node.vms.iter().for_each(|vm| add(&mut fields, vm));
        }
    }
    fields
}

fn words(text: &str) -> BTreeSet<String> {
    text.split(' ').map(str::to_owned).collect()
}

#[tokio::test]
async fn every_documented_field_is_produced_by_a_recorded_node() {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let kept = produced(&crate_dir.join("../../vminfod/tests/fixtures")).await;
    let lacking: BTreeSet<String> = words(DOCUMENTED).difference(&kept).cloned().collect();
    assert_eq!(lacking, words(NOT_KEPT));
    let dir = recordings::unpacked().unwrap();
    let recorded = produced(dir.path()).await;
    let missing: Vec<String> = words(DOCUMENTED).difference(&recorded).cloned().collect();
    assert!(missing.is_empty(), "no recorded node has {missing:?}");
    let unknown: Vec<String> = recorded
        .difference(&words(DOCUMENTED))
        // These may have whatever a disk has.
        .filter(|field| !field.starts_with("pci_devices."))
        .cloned()
        .collect();
    assert!(unknown.is_empty(), "nobody documents {unknown:?}");
}
