// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The rows. Which brand takes what, and what an update may unset, are `vmadm`'s rules.

use super::row::How::{Derived, Given, Later, Made, Members, Once, Refused, Streamed, Warned};
use super::row::Kind::{Bool, List, Other, Text, Uuid, Whole};
use super::row::Unset::{Empty, False, Null, Stays, True};
use super::row::{Brands, How, Kind, Row};

const ALL: Brands = Brands::ALL;
const OS: Brands = Brands::OS;
const LX: Brands = Brands::LX;
const DOCKER: Brands = Brands::DOCKER;
const KVM: Brands = Brands::KVM;
const BHYVE: Brands = Brands::BHYVE;
const HVM: Brands = Brands::HVM;
const NOT_BHYVE: Brands = Brands::NOT_BHYVE;

const fn row(key: &'static str, brands: Brands, kind: Kind, how: How) -> Row {
    Row { key, brands, kind, how }
}

/// The keys of an object.
pub const TOP: [Row; 117] = [
    row("alias", ALL, Text, Given(Null)),
    row("app_svc_dependent", ALL, Other, Warned), // vmadm neither creates nor updates it
    row("archive_on_delete", ALL, Bool, Given(False)),
    row("autoboot", ALL, Bool, Later),
    row("bhyve_extra_opts", BHYVE, Text, Given(Null)),
    row("billing_id", ALL, Text, Given(Null)),
    row("boot", HVM, Text, Given(Null)),
    row("boot_timestamp", ALL, Other, Made),
    row("bootrom", BHYVE, Text, Given(Null)),
    row("brand", ALL, Text, Once),
    row("com1", BHYVE, Text, Given(Stays)), // an update that names neither sets both
    row("com2", BHYVE, Text, Given(Stays)),
    row("cpu_cap", ALL, Whole(0), Given(Null)),
    row("cpu_shares", ALL, Whole(0), Given(Null)),
    row("cpu_type", KVM, Text, Given(Null)),
    row("create_timestamp", ALL, Text, Later), // by zonecfg: vmadm's create has its own
    row("customer_metadata", ALL, Other, Members),
    row("datacenter_name", ALL, Other, Made),
    row("datasets", ALL, Other, Derived),
    row("default_gateway", ALL, Text, Warned),
    row("device", ALL, Other, Made),
    row("disk_driver", HVM, Text, Given(Null)),
    row("disks", ALL, Other, Derived),
    row("dns_domain", OS, Text, Given(Null)),
    row("do_not_inventory", ALL, Bool, Later),
    row("docker", DOCKER, Bool, Given(False)),
    row("exit_status", ALL, Other, Made),
    row("exit_timestamp", ALL, Other, Made),
    row("failed", ALL, Other, Made),
    row("filesystems", ALL, Other, Derived),
    row("firewall_enabled", ALL, Bool, Given(False)),
    row("flexible_disk_size", BHYVE, Whole(0), Given(Null)),
    row("free_space", ALL, Other, Made),
    row("fs_allowed", OS, List, Given(Empty)),
    row("headnode_id", ALL, Other, Made),
    row("hostname", ALL, Text, Given(Null)),
    row("hvm", ALL, Other, Made),
    row("image_uuid", ALL, Uuid, Once),
    row("indestructible_delegated", ALL, Bool, Later),
    row("indestructible_zoneroot", ALL, Bool, Later),
    row("init_name", OS, Text, Given(Null)),
    row("init_restarts", ALL, Other, Made),
    row("internal_metadata", ALL, Other, Members),
    row("internal_metadata_namespaces", ALL, List, Given(Empty)),
    row("kernel_version", LX, Text, Given(Null)),
    row("last_modified", ALL, Other, Made),
    row("limit_priv", ALL, List, Given(Stays)), // absent, it is the brand's default
    row("maintain_resolvers", OS, Bool, Given(False)),
    row("max_locked_memory", ALL, Whole(0), Given(Stays)),
    row("max_lwps", ALL, Whole(0), Given(Null)),
    row("max_msg_ids", ALL, Whole(0), Given(Null)),
    row("max_physical_memory", ALL, Whole(0), Given(Stays)),
    row("max_sem_ids", ALL, Whole(0), Given(Null)),
    row("max_shm_ids", ALL, Whole(0), Given(Null)),
    row("max_shm_memory", ALL, Whole(0), Given(Stays)),
    row("max_swap", ALL, Whole(0), Given(Stays)),
    row("missing", ALL, Other, Made),
    row("nic_driver", HVM, Text, Given(Null)),
    row("nics", ALL, Other, Derived),
    row("owner_uuid", ALL, Text, Given(Null)),
    row("package_name", NOT_BHYVE, Text, Given(Null)),
    row("package_version", NOT_BHYVE, Text, Given(Null)),
    row("pci_devices", ALL, Other, Refused), // hardware of one node
    row("pid", ALL, Other, Made),
    row("platform_buildstamp", ALL, Other, Made),
    row("provisioning", ALL, Other, Made),
    row("qemu_extra_opts", KVM, Text, Given(Null)),
    row("qemu_opts", KVM, Text, Given(Null)),
    row("quota", ALL, Whole(0), Given(Null)),
    row("ram", HVM, Whole(0), Given(Stays)),
    row("resolvers", ALL, List, Given(Empty)),
    row("restart_init", OS, Bool, Given(True)),
    row("routes", ALL, Other, Streamed), // create refuses some that objects have
    row("server_uuid", ALL, Other, Made),
    row("snapshots", ALL, Other, Streamed),
    row("spice_opts", KVM, Text, Given(Null)),
    row("spice_password", KVM, Text, Given(Null)),
    row("spice_port", KVM, Whole(-1), Given(Null)),
    row("state", ALL, Other, Made),
    row("tags", ALL, Other, Members),
    row("tmpfs", OS, Whole(0), Given(Null)),
    row("transition", ALL, Other, Made),
    row("transition_expire", ALL, Other, Made),
    row("transition_to", ALL, Other, Made),
    row("uuid", ALL, Uuid, Once),
    row("v", ALL, Other, Made),
    row("vcpus", HVM, Whole(1), Given(Null)),
    row("vga", KVM, Text, Given(Null)),
    row("virtio_txburst", KVM, Whole(0), Given(Null)),
    row("virtio_txtimer", KVM, Whole(0), Given(Null)),
    row("vm_autoboot", ALL, Other, Made),
    row("vnc_password", HVM, Text, Given(Null)),
    row("vnc_port", HVM, Whole(-1), Given(Null)),
    row("zfs_data_compression", ALL, Other, Streamed),
    row("zfs_data_recsize", ALL, Other, Streamed),
    row("zfs_filesystem", ALL, Other, Made),
    row("zfs_filesystem_limit", ALL, Other, Streamed),
    row("zfs_io_priority", ALL, Whole(0), Given(Null)),
    row("zfs_root_compression", ALL, Other, Streamed),
    row("zfs_root_recsize", ALL, Other, Streamed),
    row("zfs_snapshot_limit", ALL, Other, Streamed),
    row("zlog_max_size", OS, Whole(0), Given(Null)),
    row("zlog_mode", ALL, Other, Made),
    row("zlog_name", ALL, Other, Made),
    row("zone_state", ALL, Other, Made),
    row("zonedid", ALL, Other, Made),
    row("zoneid", ALL, Other, Made),
    row("zonename", ALL, Other, Made),
    row("zonepath", ALL, Other, Made),
    row("zpool", ALL, Text, Once),
    // VMAPI's record has these besides.
    row("delegate_dataset", ALL, Other, Derived),
    row("destroyed", ALL, Other, Made),
    row("image", ALL, Other, Made),
    row("networks", ALL, Other, Made),
    row("package", ALL, Other, Made),
    row("type", ALL, Other, Made),
    row("role_tags", ALL, Other, Made),
];

/// The keys of a NIC. What is unset other than by false goes with the NIC, which is added again without it.
pub const NICS: [Row; 24] = [
    row("allow_dhcp_spoofing", ALL, Bool, Given(False)),
    row("allow_ip_spoofing", ALL, Bool, Given(False)),
    row("allow_mac_spoofing", ALL, Bool, Given(False)),
    row("allow_restricted_traffic", ALL, Bool, Given(False)),
    row("allow_unfiltered_promisc", HVM, Bool, Given(False)),
    row("allowed_dhcp_cids", NOT_BHYVE, List, Given(Stays)),
    row("allowed_ips", ALL, List, Given(Stays)),
    row("blocked_outgoing_ports", ALL, List, Given(Stays)),
    row("dhcp_server", ALL, Bool, Given(False)),
    row("gateway", ALL, Text, Given(Stays)),
    row("gateways", ALL, List, Given(Stays)),
    row("interface", ALL, Other, Made), // by position
    row("ip", ALL, Text, Given(Stays)),
    row("ips", ALL, List, Given(Stays)),
    row("mac", ALL, Text, Once),
    row("model", HVM, Text, Given(Stays)),
    row("mtu", ALL, Whole(576), Given(Stays)),
    row("netmask", ALL, Text, Given(Stays)),
    row("network_uuid", ALL, Uuid, Given(Stays)),
    row("nic_tag", ALL, Text, Once),
    row("primary", ALL, Bool, Given(False)),
    row("vlan_id", ALL, Whole(0), Once),
    row("vrrp_primary_ip", ALL, Text, Given(Stays)),
    row("vrrp_vrid", ALL, Whole(0), Given(Stays)),
];

/// The keys of a disk.
pub const DISKS: [Row; 18] = [
    row("block_size", HVM, Whole(512), Derived), // not beside an image
    row("boot", HVM, Bool, Given(False)),
    row("compression", HVM, Other, Streamed),
    row("guest_block_size", BHYVE, Text, Given(Stays)),
    row("image_name", HVM, Other, Made),
    row("image_size", HVM, Whole(0), Derived), // not without an image
    row("image_uuid", HVM, Uuid, Once),
    row("media", HVM, Text, Once),
    row("missing", HVM, Other, Made),
    row("model", HVM, Text, Given(Stays)),
    row("notrim", BHYVE, Bool, Given(False)),
    row("path", HVM, Text, Derived),    // of a CD-ROM alone
    row("pci_slot", BHYVE, Text, Once), // the guest sees it, and the uuid
    row("refreservation", HVM, Other, Streamed),
    row("size", HVM, Whole(0), Derived),
    row("uuid", BHYVE, Uuid, Once),
    row("zfs_filesystem", HVM, Other, Made),
    row("zpool", HVM, Text, Once),
];

/// The keys of a mount.
pub const FILESYSTEMS: [Row; 5] = [
    row("options", OS, List, Once),
    row("raw", OS, Text, Refused),
    row("source", OS, Text, Derived), // of docker's volumes the uuid
    row("target", OS, Text, Once),
    row("type", OS, Text, Once),
];

/// The keys of a device that is passed through.
pub const PCI_DEVICES: [Row; 4] = [
    row("boot", ALL, Other, Refused),
    row("model", ALL, Other, Refused),
    row("path", ALL, Other, Refused),
    row("pci_slot", ALL, Other, Refused),
];
