// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The properties of a payload: of which kind each is, and which brands take it in a create and in an update.
//! What is not in here, no brand takes.

use super::kinds::{Items, Kind};
use crate::payload::BRANDS;

/// What a payload is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A new VM.
    Create,
    /// A change of one that is there.
    Update,
    /// A VM that another node sends.
    Receive,
    /// Any other word: no property is for it.
    Other,
}

impl Action {
    /// The action that a word names.
    pub fn of(word: &str) -> Action {
        match word {
            "create" => Action::Create,
            "update" => Action::Update,
            "receive" => Action::Receive,
            _ => Action::Other,
        }
    }
}

/// What a VM that arrives keeps besides what a new one is given.
const RECEIVED: [&str; 3] = ["create_timestamp", "v", "datasets"];

/// A set of brands, in the order of their list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Brands(u8);

const NONE: Brands = Brands(0);
const ALL: Brands = Brands(0b11_1111);
const OS: Brands = Brands(0b00_1111);
const LX: Brands = Brands(0b00_1000);
const DOCKER: Brands = Brands(0b00_1010);
const HVM: Brands = Brands(0b11_0000);
const KVM: Brands = Brands(0b01_0000);
const BHYVE: Brands = Brands(0b10_0000);
const NOT_BHYVE: Brands = Brands(0b01_1111);

impl Brands {
    /// Returns true if the brand is among them.
    pub fn has(self, brand: &str) -> bool {
        BRANDS.iter().position(|known| *known == brand).is_some_and(|bit| self.0 >> bit & 1 == 1)
    }
}

pub struct Property {
    pub name: &'static str,
    pub kind: Kind,
    create: Brands,
    update: Brands,
}

impl Property {
    /// Returns true if the brand takes it.
    pub fn is_taken(&self, action: Action, brand: &str) -> bool {
        match action {
            Action::Create => self.create.has(brand),
            Action::Update => self.update.has(brand),
            Action::Receive => self.create.has(brand) || RECEIVED.contains(&self.name),
            Action::Other => false,
        }
    }
}

const fn is(name: &'static str, kind: Kind, create: Brands, update: Brands) -> Property {
    Property { name, kind, create, update }
}

const BOOLEAN: Kind = Kind::Boolean;
const TEXT: Kind = Kind::Text;
const FLAT: Kind = Kind::Flat;
const LIST: Kind = Kind::List(Items::Any);
const OBJECTS: Kind = Kind::Objects { strict: false };
const DISKS: Kind = Kind::Objects { strict: true };
const COUNT: Kind = Kind::Integer(0, i64::MAX);

/// The properties of a VM.
pub const PROPERTIES: [Property; 106] = [
    is("brand", TEXT, ALL, NONE),
    is("uuid", Kind::Uuid, ALL, NONE),
    is("zonename", TEXT, ALL, NONE),
    is("zpool", Kind::Pool, ALL, NONE),
    is("zfs_storage_pool_name", Kind::Pool, NOT_BHYVE, NONE),
    is("image_uuid", Kind::Uuid, ALL, NONE),
    is("dataset_uuid", Kind::Uuid, OS, NONE),
    is("zone_dataset_uuid", Kind::Uuid, HVM, NONE),
    is("kernel_version", TEXT, LX, LX),
    is("alias", TEXT, ALL, ALL),
    is("hostname", TEXT, ALL, ALL),
    is("billing_id", TEXT, ALL, ALL),
    is("owner_uuid", TEXT, ALL, ALL),
    is("zfs_root_compression", TEXT, ALL, ALL),
    is("autoboot", BOOLEAN, ALL, ALL),
    is("archive_on_delete", BOOLEAN, ALL, ALL),
    is("do_not_inventory", BOOLEAN, ALL, ALL),
    is("firewall_enabled", BOOLEAN, ALL, ALL),
    is("indestructible_zoneroot", BOOLEAN, ALL, ALL),
    is("indestructible_delegated", BOOLEAN, ALL, ALL),
    is("limit_priv", LIST, ALL, ALL),
    is("resolvers", Kind::List(Items::Address), ALL, ALL),
    is("internal_metadata_namespaces", Kind::List(Items::Namespace), ALL, ALL),
    is("cpu_cap", COUNT, ALL, ALL),
    is("cpu_shares", COUNT, ALL, ALL),
    is("ram", COUNT, ALL, ALL),
    is("quota", COUNT, ALL, ALL),
    is("max_physical_memory", COUNT, ALL, ALL),
    is("max_locked_memory", COUNT, ALL, ALL),
    is("max_shm_memory", COUNT, ALL, ALL),
    is("max_lwps", COUNT, ALL, ALL),
    is("max_msg_ids", COUNT, ALL, ALL),
    is("max_sem_ids", COUNT, ALL, ALL),
    is("max_shm_ids", COUNT, ALL, ALL),
    is("zfs_io_priority", COUNT, ALL, ALL),
    is("zfs_snapshot_limit", COUNT, ALL, ALL),
    is("zfs_filesystem_limit", COUNT, ALL, ALL),
    is("zfs_root_recsize", COUNT, ALL, ALL),
    is("max_swap", Kind::Integer(256, i64::MAX), ALL, ALL),
    is("customer_metadata", FLAT, ALL, NONE),
    is("internal_metadata", FLAT, ALL, NONE),
    is("tags", FLAT, ALL, NONE),
    is("routes", FLAT, ALL, NONE),
    is("package_name", TEXT, NOT_BHYVE, NOT_BHYVE),
    is("package_version", TEXT, NOT_BHYVE, NOT_BHYVE),
    is("dns_domain", TEXT, OS, OS),
    is("init_name", TEXT, OS, OS),
    is("zfs_data_compression", TEXT, OS, OS),
    is("fs_allowed", LIST, OS, OS),
    is("restart_init", BOOLEAN, OS, OS),
    is("maintain_resolvers", BOOLEAN, OS, OS),
    is("tmpfs", COUNT, OS, OS),
    is("zlog_max_size", COUNT, OS, OS),
    is("zfs_data_recsize", COUNT, OS, OS),
    is("mdata_exec_timeout", COUNT, OS, NONE),
    is("nowait", BOOLEAN, OS, NONE),
    is("delegate_dataset", BOOLEAN, OS, NONE),
    is("docker", BOOLEAN, DOCKER, DOCKER),
    is("nics", OBJECTS, ALL, NONE),
    is("add_nics", OBJECTS, NONE, ALL),
    is("update_nics", OBJECTS, NONE, ALL),
    is("remove_nics", LIST, NONE, ALL),
    is("disks", DISKS, HVM, NONE),
    is("add_disks", DISKS, NONE, HVM),
    is("update_disks", DISKS, NONE, HVM),
    is("remove_disks", LIST, NONE, HVM),
    is("filesystems", OBJECTS, OS, NONE),
    is("add_filesystems", OBJECTS, NONE, NOT_BHYVE),
    is("update_filesystems", OBJECTS, NONE, NOT_BHYVE),
    is("remove_filesystems", LIST, NONE, ALL),
    is("pci_devices", OBJECTS, BHYVE, BHYVE),
    is("add_pci_devices", OBJECTS, BHYVE, BHYVE),
    is("update_pci_devices", OBJECTS, NONE, BHYVE),
    is("remove_pci_devices", LIST, NONE, BHYVE),
    is("set_tags", FLAT, NONE, ALL),
    is("set_customer_metadata", FLAT, NONE, ALL),
    is("set_internal_metadata", FLAT, NONE, ALL),
    is("set_routes", FLAT, NONE, ALL),
    is("remove_tags", LIST, NONE, ALL),
    is("remove_customer_metadata", LIST, NONE, ALL),
    is("remove_internal_metadata", LIST, NONE, ALL),
    is("remove_routes", LIST, NONE, ALL),
    is("boot", TEXT, HVM, HVM),
    is("disk_driver", TEXT, HVM, HVM),
    is("nic_driver", TEXT, HVM, HVM),
    is("vnc_password", TEXT, HVM, HVM),
    is("vcpus", Kind::Integer(1, i64::MAX), HVM, HVM),
    is("vnc_port", Kind::Integer(-1, i64::MAX), HVM, HVM),
    is("bootrom", TEXT, BHYVE, BHYVE),
    is("bhyve_extra_opts", TEXT, BHYVE, BHYVE),
    is("com1", TEXT, BHYVE, BHYVE),
    is("com2", TEXT, BHYVE, BHYVE),
    is("flexible_disk_size", COUNT, BHYVE, BHYVE),
    is("cpu_type", TEXT, KVM, KVM),
    is("vga", TEXT, KVM, KVM),
    is("qemu_opts", TEXT, KVM, KVM),
    is("qemu_extra_opts", TEXT, KVM, KVM),
    is("spice_opts", TEXT, KVM, KVM),
    is("spice_password", TEXT, KVM, KVM),
    is("spice_port", Kind::Integer(-1, i64::MAX), KVM, KVM),
    is("virtio_txburst", COUNT, KVM, KVM),
    is("virtio_txtimer", COUNT, KVM, KVM),
    is("datasets", LIST, NONE, NONE),
    is("transition", FLAT, NONE, NONE),
    is("create_timestamp", Kind::Any, NONE, NONE),
    is("v", Kind::Any, NONE, NONE),
];

/// The fields of a NIC.
pub const NIC: [Property; 24] = [
    is("mac", TEXT, ALL, ALL),
    is("ip", TEXT, ALL, ALL),
    is("netmask", TEXT, ALL, ALL),
    is("gateway", TEXT, ALL, ALL),
    is("interface", TEXT, ALL, ALL),
    is("nic_tag", TEXT, ALL, ALL),
    is("vrrp_primary_ip", TEXT, ALL, ALL),
    is("ips", LIST, ALL, ALL),
    is("gateways", LIST, ALL, ALL),
    is("allowed_ips", LIST, ALL, ALL),
    is("blocked_outgoing_ports", LIST, ALL, ALL),
    is("allowed_dhcp_cids", Kind::List(Items::ClientId), NOT_BHYVE, NOT_BHYVE),
    is("network_uuid", Kind::Uuid, ALL, ALL),
    is("model", TEXT, HVM, HVM),
    is("primary", BOOLEAN, ALL, ALL),
    is("dhcp_server", BOOLEAN, ALL, ALL),
    is("allow_dhcp_spoofing", BOOLEAN, ALL, ALL),
    is("allow_ip_spoofing", BOOLEAN, ALL, ALL),
    is("allow_mac_spoofing", BOOLEAN, ALL, ALL),
    is("allow_restricted_traffic", BOOLEAN, ALL, ALL),
    is("allow_unfiltered_promisc", BOOLEAN, HVM, HVM),
    is("mtu", Kind::Integer(576, 9000), ALL, ALL),
    is("vlan_id", Kind::Integer(0, 4095), ALL, ALL),
    is("vrrp_vrid", Kind::Integer(0, 255), ALL, ALL),
];

/// The fields of a disk; "update" is what `update_disks` takes.
pub const DISK: [Property; 18] = [
    is("boot", BOOLEAN, HVM, HVM),
    is("nocreate", BOOLEAN, HVM, NONE),
    is("notrim", BOOLEAN, BHYVE, BHYVE),
    is("dangerous_allow_shrink", BOOLEAN, NONE, BHYVE),
    is("media", TEXT, HVM, HVM),
    is("model", TEXT, HVM, HVM),
    is("compression", TEXT, HVM, HVM),
    is("path", TEXT, HVM, HVM),
    is("zpool", TEXT, HVM, NONE),
    is("pci_slot", TEXT, BHYVE, BHYVE),
    is("image_name", TEXT, KVM, KVM),
    is("uuid", Kind::Uuid, BHYVE, BHYVE),
    is("image_uuid", Kind::Uuid, HVM, NONE),
    is("refreservation", COUNT, HVM, HVM),
    is("size", COUNT, HVM, BHYVE),
    is("block_size", COUNT, HVM, NONE),
    is("image_size", COUNT, HVM, NONE),
    is("guest_block_size", Kind::GuestBlockSize, BHYVE, BHYVE),
];

/// The fields of a file system.
pub const FILESYSTEM: [Property; 5] = [
    is("source", TEXT, OS, OS),
    is("target", TEXT, OS, OS),
    is("type", TEXT, OS, OS),
    is("raw", TEXT, OS, OS),
    is("options", LIST, OS, OS),
];

/// The fields of a PCI device.
pub const PCI_DEVICE: [Property; 2] =
    [is("path", TEXT, BHYVE, BHYVE), is("pci_slot", TEXT, BHYVE, BHYVE)];

/// The property of this name.
pub fn property(name: &str) -> Option<&'static Property> {
    PROPERTIES.iter().find(|known| known.name == name)
}

/// The fields of the members of a list, the name that they have in answers, and as which action they are judged
/// in a payload that is for `action`.
pub fn fields(list: &str, action: Action) -> Option<(&'static str, &'static [Property], Action)> {
    let (of, by) = match list.split_once('_') {
        Some(("add", of)) => (of, Action::Create),
        Some(("update", of)) => (of, Action::Update),
        _ => (list, Action::Create),
    };
    let action = if action == Action::Other { action } else { by };
    match of {
        "nics" => Some(("nics", &NIC, action)),
        "disks" => Some(("disks", &DISK, action)),
        "filesystems" => Some(("filesystems", &FILESYSTEM, action)),
        "pci_devices" => Some(("pci_devices", &PCI_DEVICE, action)),
        _ => None,
    }
}
