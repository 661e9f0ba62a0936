// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The statements of `docs/contract/vmadm.md`, a row for each that one payload shows. What the real vmadm answered to
//! 536 payloads is compared by `conform vmadm-validate`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::memory::Limits;
use super::update::Subject;
use super::{Image, Surroundings, Tag, create, judge, receive, update, volumes};
use crate::payload::Payload;
use crate::refusal::Refusal;

const VM: &str = "0c000000-0000-4000-8000-000000000001";
const ZONE: &str = "0a000000-0000-4000-8000-000000000001";
const LINUX: &str = "0a000000-0000-4000-8000-000000000002";
const DISK: &str = "0a000000-0000-4000-8000-000000000004";
/// The names of these in rows, and that of an image which the node lacks.
const NAMES: [(&str, &str); 5] = [
    ("zones/VM/", "zones/0c000000-0000-4000-8000-000000000001/"),
    ("ZONE", ZONE),
    ("LINUX", LINUX),
    ("DISK", DISK),
    ("NONE", "0a000000-0000-4000-8000-00000000000f"),
];

fn around() -> Surroundings {
    let image = |kind: &str, size| Image { kind: kind.to_string(), size, ..Image::default() };
    let images =
        [(ZONE, "zone-dataset", None), (LINUX, "lx-dataset", None), (DISK, "zvol", Some(10240))];
    let tag = |name: &str, mtu| (name.to_string(), Tag { mtu });
    let other = json!({
        "uuid": "0e000000-0000-4000-8000-000000000001", "vnc_port": 61000,
        "nics": [{"mac": "02:08:20:0e:00:01", "nic_tag": "admin", "ips": ["10.88.88.200/24"]}],
    });
    let count = AtomicUsize::new(1);
    Surroundings {
        pools: vec!["zones".to_string(), "tank".to_string()],
        images: images
            .into_iter()
            .map(|(uuid, kind, size)| (uuid.to_string(), image(kind, size)))
            .collect::<BTreeMap<_, _>>(),
        tags: [tag("admin", Some(1500)), tag("sdc_overlay", None)].into_iter().collect(),
        vms: other.as_object().cloned().into_iter().collect(),
        reserves: |size| size,
        new_uuid: Box::new(move || {
            format!("a5a5a5a5-0000-4000-8000-{:012}", count.fetch_add(1, Ordering::Relaxed))
        }),
    }
}

/// The VM that is changed: stopped, with a NIC and, if it is a guest, a disk.
fn subject(brand: &str) -> Subject {
    let nic = json!({"mac": "02:08:20:0c:00:01", "nic_tag": "admin", "ips": ["10.88.88.5/24"], "model": "virtio"});
    let disk = json!({"path": format!("/dev/zvol/rdsk/zones/{VM}/disk0"), "model": "virtio"});
    let mib = Some(1024);
    Subject {
        uuid: VM.to_string(),
        brand: brand.to_string(),
        pool: "zones".to_string(),
        rests: true,
        state: "stopped (installed)".to_string(),
        limits: Limits { ram: mib, physical: mib, locked: mib, swap: mib, tmpfs: None },
        nics: nic.as_object().cloned().into_iter().collect(),
        disks: disk.as_object().cloned().into_iter().collect(),
        ..Subject::default()
    }
}

/// Does what the first word says, to a VM of the brand that the second one names.
fn done(what: &str, given: &str) -> Result<Payload, Refusal> {
    let given: Payload = serde_json::from_str(given).unwrap();
    let (verb, brand) = what.split_once(' ').unwrap();
    let mut around = around();
    if verb == "update" {
        let mut own = Payload::from_iter([("uuid".to_string(), json!(VM))]);
        own.insert("nics".to_string(), json!(subject(brand).nics));
        around.vms.push(own);
        return update::update(&subject(brand), &given, &mut around);
    }
    if verb == "running" {
        let vm = Subject { rests: false, state: "running (running)".to_string(), ..subject(brand) };
        return update::update(&vm, &given, &mut around);
    }
    let mut vm =
        Payload::from_iter([("uuid".to_string(), json!(VM)), ("brand".to_string(), json!(brand))]);
    match brand {
        "kvm" | "bhyve" => vm.extend([("ram".to_string(), json!(1024))]),
        _ => vm.extend([("image_uuid".to_string(), json!(ZONE))]),
    }
    vm.extend(given);
    match verb {
        "create" => create::create(&vm, &mut around),
        _ => receive::receive(&vm, &mut around),
    }
}

/// Everything that `wanted` has is in `got`; null stands for absence.
fn has(got: &Value, wanted: &Value) -> bool {
    match (got, wanted) {
        (_, Value::Object(fields)) => fields.iter().all(|(key, value)| match got.get(key) {
            None => value.is_null(),
            Some(got) => has(got, value),
        }),
        (Value::Array(got), Value::Array(wanted)) => {
            got.len() == wanted.len()
                && got.iter().zip(wanted).all(|(got, wanted)| has(got, wanted))
        }
        _ => got == wanted,
    }
}

/// Statement and case, verb and brand, payload, and what comes of it: a part of the VM in JSON, or the beginning of
/// the refusal.
const ROWS: [&str; 102] = [
    r#"P4 true in each form | create joyent | {"autoboot": "true", "firewall_enabled": 1} | {"autoboot": true, "firewall_enabled": true}"#,
    r#"P4 null | create joyent | {"autoboot": null} | Invalid value(s) for: autoboot"#,
    r#"P4 0 | update joyent | {"firewall_enabled": 0} | Invalid value(s) for: firewall_enabled"#,
    r#"P5 a text | create joyent | {"cpu_cap": "50"} | {"cpu_cap": 50}"#,
    r#"P5 a fraction | create joyent | {"quota": 10.5} | Invalid value(s) for: quota"#,
    r#"P5 no number | create joyent | {"quota": "many"} | Invalid value for quota: null:number"#,
    r#"P5 below 256 | create joyent | {"max_swap": -1} | {"max_swap": 256}"#,
    r#"P5 no processor | create kvm | {"vcpus": 0} | Invalid value(s) for: vcpus"#,
    r#"P5 small packets | create joyent | {"nics": [{"nic_tag": "admin", "mtu": 500}]} | Invalid value(s) for: nics.*.mtu"#,
    r#"P5 a VLAN too far | create joyent | {"nics": [{"nic_tag": "admin", "vlan_id": 4096}]} | Invalid value(s) for: nics.*.vlan_id"#,
    r#"P6 a number for a text | create joyent | {"alias": 5} | Invalid value(s) for: alias"#,
    r#"P6 null | create joyent | {"alias": null} | {"alias": null}"#,
    r#"P6 a blank list | create joyent | {"alias": []} | {"brand": "joyent"}"#,
    r#"P6 capitals | create joyent | {"image_uuid": "0A000000-0000-4000-8000-000000000001"} | Invalid value(s) for: image_uuid"#,
    r#"P7 one text | create joyent | {"resolvers": "8.8.8.8,,9.9.9.9"} | {"resolvers": ["8.8.8.8", "9.9.9.9"]}"#,
    r#"P7 null | update joyent | {"resolvers": null} | Invalid value(s) for: resolvers"#,
    r#"P7 a prefix | create joyent | {"resolvers": ["8.8.8.8/24"]} | Invalid value(s) for: resolvers"#,
    r#"P7 a comma | create joyent | {"fs_allowed": ["a,b"]} | Invalid value(s) for: fs_allowed"#,
    r#"P7 namespaces | create joyent | {"internal_metadata_namespaces": ["a b"]} | Invalid value(s) for: internal_metadata_namespaces"#,
    r#"P7 client ids | create joyent | {"nics": [{"nic_tag": "admin", "allowed_dhcp_cids": ["0xabc"]}]} | Invalid value(s) for: nics.*.allowed_dhcp_cids"#,
    r#"P8 a list in a map | create joyent | {"tags": {"a": []}} | Invalid value(s) for: tags"#,
    r#"P8 another pool | create joyent | {"zpool": "other"} | Invalid value(s) for: zpool"#,
    r#"P9 no image | create joyent | {"image_uuid": "NONE"} | Invalid value(s) for: image_uuid"#,
    r#"P9 an image of disks | create joyent | {"image_uuid": "DISK"} | Invalid value(s) for: image_uuid"#,
    r#"P9 lx | create lx | {"image_uuid": "LINUX"} | Missing required properties: kernel_version"#,
    r#"P9 a blank kernel | create lx | {"image_uuid": "LINUX", "kernel_version": ""} | {"brand": "lx"}"#,
    r#"P10 bhyve | create bhyve | {"package_name": "p", "bootrom": "uefi"} | {"package_name": null, "bootrom": "uefi"}"#,
    r#"P10 a zone | create joyent | {"disks": [], "docker": false, "package_name": "p"} | {"disks": null, "docker": null, "package_name": "p"}"#,
    r#"P10 a field | create kvm | {"nics": [{"nic_tag": "admin", "model": "e1000", "nonsense": 1}]} | {"nics": [{"model": "e1000", "nonsense": null}]}"#,
    r#"P11 a creation | create joyent | {"create_timestamp": "x", "v": 7, "state": "running", "datasets": ["zones/x"]} | {"create_timestamp": null, "v": null, "state": null, "datasets": null}"#,
    r#"P11 a change | update joyent | {"create_timestamp": "x", "networks": [], "nics": []} | {"create_timestamp": null, "networks": null, "nics": null}"#,
    r#"P11 a transition | create joyent | {"transition": "stopping"} | Invalid value(s) for: transition"#,
    r#"P12 create_only | create joyent | {"create_only": true} | uncaught exception"#,
    r#"P12 a name | create joyent | {"zonename": "myzone"} | uncaught exception"#,
    r#"P12 an old name | create joyent | {"image_uuid": null, "dataset_uuid": 1} | Invalid value(s) for: image_uuid,dataset_uuid"#,
    r#"P13 a zone | create joyent | {} | {"autoboot": true, "zpool": "zones", "quota": 10, "dns_domain": "local", "vcpus": null, "cpu_shares": 100}"#,
    r#"P13 a guest | create bhyve | {} | {"quota": 1, "vcpus": 1, "owner_uuid": "00000000-0000-0000-0000-000000000000", "com2": "socket,/tmp/vm.ttyb"}"#,
    r#"P13 the primary NIC | create joyent | {"nics": [{"nic_tag": "admin", "mac": "02:08:20:00:00:01"}, {"nic_tag": "admin"}]} | {"nics": [{"primary": true}, {"primary": null}]}"#,
    r#"P14 kvm | create kvm | {} | {"max_physical_memory": 2048, "max_swap": 2048, "tmpfs": null}"#,
    r#"P14 too low | create bhyve | {"max_physical_memory": 1024} | {"max_physical_memory": 1280}"#,
    r#"P14 lowered and raised | create joyent | {"max_physical_memory": 512, "tmpfs": 900, "max_locked_memory": 900, "max_swap": 300} | {"tmpfs": 512, "max_locked_memory": 512, "max_swap": 512}"#,
    r#"P15 docker | create lx | {"docker": true, "kernel_version": "4", "image_uuid": "LINUX"} | {"restart_init": false, "internal_metadata_namespaces": ["docker"], "init_name": "/native/usr/vm/sbin/dockerinit"}"#,
    r#"P16 absence | create joyent | {"firewall_enabled": false} | {"firewall_enabled": ""}"#,
    r#"P16 of the root | create joyent | {"zfs_root_compression": "lz4", "zfs_root_recsize": 0} | {"zfs_data_compression": "off", "zfs_root_recsize": 131072, "zfs_data_recsize": 131072}"#,
    r#"P17 no source | create joyent | {"filesystems": [{"target": "/a"}]} | uncaught exception"#,
    r#"P18 a clone | create kvm | {"disks": [{"image_uuid": "DISK", "size": 20480, "model": "ide"}]} | {"disks": [{"size": 20480, "image_size": 10240}]}"#,
    r#"P18 another size | create kvm | {"disks": [{"image_uuid": "DISK", "image_size": 5, "model": "ide"}]} | Invalid value(s) for: disks.0.image_size"#,
    r#"P18 an image of zones | create kvm | {"disks": [{"image_uuid": "ZONE", "model": "ide"}]} | Invalid value(s) for: disks.0.image_uuid"#,
    r#"P18 no size | create kvm | {"disks": [{"model": "ide"}]} | Missing required properties: disks.0.size"#,
    r#"P19 of a clone | create kvm | {"disks": [{"image_uuid": "DISK", "block_size": 8192, "model": "ide"}]} | setting both .block_size and .image_uuid"#,
    r#"P19 a clone that may grow | create bhyve | {"flexible_disk_size": 20480, "disks": [{"image_uuid": "DISK", "size": 10240, "block_size": 8192, "model": "virtio"}]} | setting both .block_size and .image_uuid"#,
    r#"P19 no power | create kvm | {"disks": [{"size": 10, "block_size": 3000, "model": "ide"}]} | invalid .block_size(3000)"#,
    r#"P20 a path | create kvm | {"disks": [{"path": "/dev/x", "size": 10, "model": "ide"}]} | you cannot specify a path for a disk"#,
    r#"P20 a CD-ROM | create kvm | {"disks": [{"path": "/a.iso", "media": "cdrom", "model": "ide"}]} | {"disks": [{"path": "/a.iso"}]}"#,
    r#"P20 nothing to make | create kvm | {"disks": [{"path": "/dev/x", "nocreate": true, "size": 10, "model": "ide"}]} | {"disks": [{"path": "/dev/x"}]}"#,
    r#"P21 none | create bhyve | {"disks": [{"size": 10}]} | missing .model option for disk"#,
    r#"P21 of the VM | create kvm | {"disk_driver": "scsi", "disks": [{"size": 10}]} | {"disks": [{"model": "scsi"}]}"#,
    r#"P21 another brand's | create bhyve | {"disks": [{"size": 10, "model": "ide"}]} | "ide" is not a valid disk model for bhyve"#,
    r#"P22 two that boot | create bhyve | {"disks": [{"size": 10, "model": "nvme", "boot": true}, {"size": 10, "model": "nvme", "boot": true}]} | multiple boot disks"#,
    r#"P22 reserved | create bhyve | {"disks": [{"size": 10, "model": "nvme", "pci_slot": "0:30:0"}]} | pci_slot "0:30:0" invalid"#,
    r#"P22 slots | create bhyve | {"disks": [{"size": 10, "model": "nvme"}, {"path": "/a", "media": "cdrom", "model": "ahci"}]} | {"disks": [{"pci_slot": "0:4:0", "uuid": "a5a5a5a5-0000-4000-8000-000000000001"}, {"pci_slot": "0:3:0"}]}"#,
    r#"P24 no netmask | create joyent | {"nics": [{"nic_tag": "admin", "ip": "10.0.0.1"}]} | Missing .netmask option for NIC"#,
    r#"P24 an IPv6 gateway | create joyent | {"nics": [{"nic_tag": "admin", "ips": ["fd00::1/64"], "gateways": ["fd00::2"]}]} | Invalid gateway for NIC"#,
    r#"P24 no prefix | create joyent | {"nics": [{"nic_tag": "admin", "ips": ["10.0.0.1"]}]} | Invalid IP for NIC"#,
    r#"P25 twice | create joyent | {"nics": [{"nic_tag": "admin", "mac": "2:8:20:0:0:1"}, {"nic_tag": "admin", "mac": "02:08:20:00:00:01"}]} | Cannot add multiple NICs with the same MAC"#,
    r#"P25 two primary NICs | create joyent | {"nics": [{"nic_tag": "admin", "primary": true}, {"nic_tag": "admin", "primary": true}]} | payload specifies more than 1 primary NIC"#,
    r#"P26 none | create kvm | {"nics": [{"nic_tag": "admin"}]} | missing .model option for NIC"#,
    r#"P26 of the VM | create kvm | {"nic_driver": "any", "nics": [{"nic_tag": "admin"}]} | {"nics": [{"model": "any"}]}"#,
    r#"P27 none | create joyent | {"nics": [{}]} | invalid or missing .nic_tag option for NIC"#,
    r#"P27 of no NIC | create joyent | {"nics": [{"nic_tag": "other"}]} | Invalid nic tag "other""#,
    r#"P27 an overlay's | update joyent | {"update_nics": [{"mac": "02:08:20:0c:00:01", "nic_tag": "sdc_overlay/7"}]} | invalid .nic_tag option for NIC"#,
    r#"P27 small packets | create joyent | {"nics": [{"nic_tag": "admin", "mtu": 1400}]} | nic 0"#,
    r#"P28 alone | create joyent | {"nics": [{"nic_tag": "admin", "vrrp_vrid": 3, "vrrp_primary_ip": "10.0.0.1"}]} | VM cannot contain only VRRP nics"#,
    r#"P28 another MAC | create joyent | {"nics": [{"nic_tag": "admin", "vrrp_vrid": 3, "mac": "02:08:20:00:00:01"}]} | Cannot set both mac and vrrp_vrid"#,
    r#"P29 an address | create joyent | {"nics": [{"nic_tag": "admin", "ips": ["10.88.88.200/24"]}]} | Conflict detected with another vm"#,
    r#"P29 a port | create kvm | {"vnc_port": 61000} | Conflict detected with another vm"#,
    r#"P29 itself | update joyent | {"update_nics": [{"mac": "02:08:20:0c:00:01", "nic_tag": "admin", "ips": ["10.88.88.5/24"]}]} | Conflict detected with another vm"#,
    r#"P30 a gap | create lx | {"kernel_version": "", "image_uuid": "LINUX", "nics": [{"nic_tag": "admin", "interface": "net5"}]} | {"nics": [{"interface": "eth0"}]}"#,
    r#"P31 over DHCP | create joyent | {"routes": {"10.1.0.0/16": "nics[0]"}, "nics": [{"nic_tag": "admin", "ips": ["dhcp"]}]} | Route gateway: "nics[0]" refers to"#,
    r#"P31 a prefix too short | create joyent | {"routes": {"10.0.0.0/7": "10.0.0.1"}} | Invalid route destination"#,
    r#"P32 a record | create joyent | {"zfs_root_recsize": 1048576} | invalid zfs_root_recsize (1048576)"#,
    r#"P32 after a path | create kvm | {"zfs_root_recsize": 1048576, "disks": [{"path": "/x", "size": 1, "model": "ide"}]} | you cannot specify a path for a disk"#,
    r#"P32 after a route | create joyent | {"zfs_root_recsize": 1048576, "routes": {"x": "10.0.0.1"}} | Invalid route destination"#,
    r#"P32 after a NIC | create joyent | {"zfs_root_compression": "zip", "nics": [{}]} | invalid or missing .nic_tag"#,
    r#"P32 a password | create kvm | {"vnc_password": "123456789"} | VNC password is too long"#,
    r#"P33 a text | update joyent | {"alias": null, "quota": null} | {"alias": null, "quota": 0}"#,
    r#"P33 a list | update joyent | {"fs_allowed": null} | Invalid value(s) for: fs_allowed"#,
    r#"P33 swap | update joyent | {"max_swap": null} | uncaught exception"#,
    r#"P34 an unknown NIC | update joyent | {"update_nics": [{"mac": "02:08:20:00:00:09"}]} | There is no existing NIC"#,
    r#"P34 primary | update joyent | {"update_nics": [{"mac": "02:08:20:0c:00:01", "primary": false}]} | invalid value for NIC's primary flag"#,
    r#"P34 gone already | update joyent | {"remove_nics": ["02:08:20:00:00:09"]} | {"remove_nics": ["02:08:20:00:00:09"]}"#,
    r#"P35 running | running bhyve | {"add_disks": [{"size": 10, "model": "nvme"}]} | updates to disks are only allowed when state is "stopped", currently: running (running)"#,
    r#"P35 a size | running bhyve | {"update_disks": [{"path": "/dev/zvol/rdsk/zones/VM/disk0", "size": 20}]} | at least one specified update to disks"#,
    r#"P35 compression | running bhyve | {"update_disks": [{"path": "/dev/zvol/rdsk/zones/VM/disk0", "compression": "lz4"}]} | {"update_disks": [{"compression": "lz4"}]}"#,
    r#"P35 an unknown disk | update bhyve | {"update_disks": [{"path": "/x", "size": 20}]} | uncaught exception"#,
    r#"P36 more | update joyent | {"max_physical_memory": 1100} | {"max_locked_memory": 1100, "max_swap": 1100}"#,
    r#"P37 the consoles | update bhyve | {"autoboot": true} | {"com1": "/dev/zconsole", "com2": "socket,/tmp/vm.ttyb"}"#,
    r#"P37 one of them | update bhyve | {"com1": "/dev/x"} | {"com1": "/dev/x", "com2": null}"#,
    r#"P39 what stays | receive joyent | {"create_timestamp": "2020", "v": 1, "datasets": ["zones/a/data"]} | {"create_timestamp": "2020", "v": 1, "datasets": ["zones/a/data"]}"#,
    r#"P39 what comes later | receive joyent | {"tags": {"a": 1}, "customer_metadata": {"b": null}, "transition": "stopping"} | {"tags": null, "customer_metadata": null, "transition": null}"#,
    r#"P39 disks | receive kvm | {"disks": [{"path": "/dev/x", "image_uuid": "DISK", "block_size": 8192, "size": 10240, "model": "ide", "zfs_filesystem": "zones/x"}]} | {"disks": [{"path": "/dev/x", "nocreate": true, "block_size": null, "zfs_filesystem": null}]}"#,
    r#"P39 an image | receive joyent | {"image_uuid": "NONE"} | Invalid value(s) for: image_uuid"#,
];

#[test]
fn each_statement_holds_for_a_payload_that_shows_it() {
    let mut wrong = Vec::new();
    for row in ROWS {
        let named = NAMES.iter().fold(row.to_string(), |row, (name, uuid)| row.replace(name, uuid));
        let [name, what, given, wanted] = *named.split(" | ").collect::<Vec<_>>() else {
            panic!("no row: {row}");
        };
        let is_right = match (done(what, given), serde_json::from_str::<Value>(wanted)) {
            (Ok(vm), Ok(fields)) if has(&Value::Object(vm.clone()), &fields) => continue,
            (Err(why), Err(_)) if why.to_string().starts_with(wanted) => continue,
            (Ok(vm), _) => json!(vm).to_string(),
            (Err(why), _) => why.to_string(),
        };
        wrong.push(format!("{name}: expected: {wanted}, got: {is_right}"));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn validated(word: &str, brand: Option<&str>, payload: Value) -> (String, u8) {
    judge::command(word, brand, payload.as_object().unwrap(), &around())
}

#[test]
fn validate_names_what_create_drops_and_not_what_the_second_pass_refuses() {
    // P1, P2
    let disk = json!({"image_uuid": DISK, "size": 20480, "model": "none"});
    let payload = json!({"brand": "kvm", "state": "x", "disks": [disk], "package": 1});
    let (said, status) = validated("create", None, payload);
    let lists: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&lists["bad_values"], status), (&json!([]), 1));
    assert_eq!(lists["bad_properties"], json!(["state", "package", "disks.0.size"]));
    let unmodelled = json!({"brand": "kvm", "disks": [{"size": 1, "model": "none"}]});
    let valid =
        |word: &str, brand: &str| format!("VALID '{word}' payload for {brand} brand VMs.\n");
    assert_eq!(validated("create", None, unmodelled), (valid("create", "kvm"), 0));
    // P3
    let undefined = "{\n  \"bad_brand\": \"undefined\"\n}\n".to_string();
    assert_eq!(validated("create", Some("joyent"), json!({})), (undefined, 1));
    assert_eq!(validated("update", Some("lx"), json!({"ram": 5})), (valid("update", "lx"), 0));
    let dated = json!({"brand": "kvm", "v": 1, "create_timestamp": "x"});
    assert_eq!(validated("receive", None, dated), (valid("receive", "kvm"), 0));
    let (said, status) = validated("frobnicate", None, json!({"brand": "kvm", "ram": 5}));
    let lists: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&lists["bad_properties"], status), (&json!(["brand", "ram"]), 1));
}

#[test]
fn volumes_of_a_guest_are_made_in_order() {
    // P17, P23
    let disk = json!({"disks": [{"size": 10, "model": "virtio"}]}).to_string();
    let steps = |what: &str| -> Vec<String> {
        let vm = done(what, &disk).unwrap();
        volumes::before_zone(&vm, &around()).iter().map(ToString::to_string).collect()
    };
    let created = |dataset: &str| format!("zfs create -o volblocksize=8192 -V 10M {dataset}");
    assert_eq!(steps("create kvm"), [created(&format!("zones/{VM}-disk0"))]);
    let (size, quota) = (10 << 20, 1_u64 << 30);
    let (all, own) = (size + quota, quota - (1 << 20));
    let wanted = [
        format!("zfs create zones/{VM}"),
        created(&format!("zones/{VM}/disk0")),
        format!("zfs set refreservation=none refquota={quota} zones/{VM}"),
        format!("zfs set refreservation=auto zones/{VM}/disk0"),
        format!("zfs set quota={all} reservation={all} refreservation={own} zones/{VM}"),
    ];
    assert_eq!(steps("create bhyve"), wanted);
    let mounts =
        json!({"filesystems": [{"source": VM, "target": "/v"}, {"source": "/a", "target": "/a"}]});
    let vm = done("create joyent", &mounts.to_string()).unwrap();
    assert_eq!(volumes::docker_volumes(&vm), [VM]);
}
