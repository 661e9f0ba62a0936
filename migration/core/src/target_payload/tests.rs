// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

#![allow(clippy::unwrap_used)]

use pretty_assertions::assert_eq;

use super::*;

/// The jobs of begin, each with the VM's object.
fn jobs() -> Vec<Value> {
    let text = recordings::text("migrate-jobs.jsonl").unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let jobs: Vec<Value> = lines.map(|line| line["job"].clone()).collect();
    jobs.into_iter().filter(|job| job["task"] == "migrate-begin").collect()
}

#[test] // R4
fn the_payload_of_every_recorded_vm_is_hidden_and_has_its_nics() {
    let jobs = jobs();
    assert!(jobs.len() >= 10, "{}", jobs.len());
    for job in jobs {
        let vm = job["vm"].as_object().unwrap();
        let payload = target_payload(vm).unwrap();
        let networks = job["filteredNetworks"]["networks"].as_array().unwrap();
        let nics = payload["nics"].as_array().unwrap();
        assert_eq!(nics.len(), networks.len());
        for (nic, network) in nics.iter().zip(networks) {
            let want = [&network["mac"], &network["ipv4_uuid"], &network["primary"]];
            assert_eq!([&nic["mac"], &nic["network_uuid"], &nic["primary"]], want);
        }
        for field in
            ["uuid", "owner_uuid", "brand", "billing_id", "alias", "quota", "max_swap", "tags"]
        {
            assert_eq!(payload[field], vm[field], "{field}");
        }
        assert_eq!(payload["autoboot"], json!(false));
        assert_eq!(payload["do_not_inventory"], json!(true));
        assert_eq!(payload["vm_migration_target"], json!(true));
        let made = |key: &&String| {
            carried::row(key).is_some_and(|row| matches!(row.how, How::Made | How::Streamed))
        };
        assert_eq!(payload.keys().find(made), None);
    }
}

const IMAGE: &str = "0a000000-0000-4000-8000-000000000001";
const UUID: &str = "0c000000-0000-4000-8000-000000000001";

fn payload(brand: &str, fields: Value) -> Result<Value, Vec<Unfit>> {
    let mut vm = json!({"uuid": UUID, "brand": brand, "image_uuid": IMAGE});
    vm.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    target_payload(vm.as_object().unwrap()).map(Value::Object)
}

#[test] // R4, M75
fn what_the_target_must_not_have_is_left_out() {
    let made = payload(
        "joyent",
        json!({
            "indestructible_zoneroot": true, "indestructible_delegated": true, "zoneid": 7, "pid": 9,
            "snapshots": [{"name": "a"}], "datasets": ["zones/u/data"], "package_name": null, "quota": 10.25,
            "zfs_root_recsize": 1_048_576, "zfs_root_compression": "zstd", "zfs_snapshot_limit": 9,
            "routes": {"10.2.2.0/24": "nics[5]"}, "transition": "stopping", "v": 1, "ram": 1024,
            "state": "running", "autoboot": true, "tags": {"a": 1, "b": {"c": 2}}, "resolvers": [],
            "firewall_enabled": false, "max_physical_memory": 256.5, "max_swap": 100, "tmpfs": 300,
        }),
    );
    let want = json!({
        "brand": "joyent", "image_uuid": IMAGE, "max_physical_memory": 257, "max_swap": 257, "quota": 11,
        "tmpfs": 257, "uuid": UUID, "customer_metadata": {}, "internal_metadata": {}, "tags": {"a": 1},
        "nics": [], "delegate_dataset": true,
        "autoboot": false, "do_not_inventory": true, "vm_migration_target": true,
    });
    assert_eq!(made.unwrap(), want);
}

#[test] // M75
fn each_brand_gets_what_it_takes() {
    let fields = json!({
        "vcpus": 2, "ram": 1024, "tmpfs": 256, "package_name": "p", "com1": "/dev/zconsole", "qemu_opts": "-x",
        "kernel_version": "4.3", "docker": true, "bootrom": "uefi", "fs_allowed": "ufs", "cpu_type": "host",
    });
    for (brand, want) in [
        ("joyent", &["fs_allowed", "package_name", "tmpfs"][..]),
        ("joyent-minimal", &["docker", "fs_allowed", "package_name", "tmpfs"]),
        ("lx", &["docker", "fs_allowed", "kernel_version", "package_name", "tmpfs"]),
        ("kvm", &["cpu_type", "package_name", "qemu_opts", "ram", "vcpus"]),
        ("bhyve", &["bootrom", "com1", "ram", "vcpus"]),
    ] {
        let made = payload(brand, fields.clone()).unwrap();
        let mut has: Vec<&str> = made.as_object().unwrap().keys().map(String::as_str).collect();
        has.retain(|key| fields.get(*key).is_some());
        has.sort_unstable();
        assert_eq!(has, want, "{brand}");
    }
    assert_eq!(payload("lx", json!({})).unwrap()["kernel_version"], "");
}

#[test] // M75
fn disks_are_what_the_guest_sees_of_them() {
    let disks = json!([
        {"path": "/dev/zvol/rdsk/zones/u/disk0", "zfs_filesystem": "zones/u/disk0", "zpool": "zones",
         "size": 10240, "image_uuid": IMAGE, "image_size": 10240, "boot": true, "model": "virtio", "media": "disk",
         "block_size": 8192, "refreservation": 10240, "compression": "zstd", "pci_slot": "0:4:0", "uuid": UUID},
        {"path": "/zones/u/root/i.iso", "media": "cdrom", "model": "ahci", "missing": true},
        {"path": "/dev/zvol/rdsk/zones/u/disk1", "size": 2047.5, "model": "nvme", "block_size": 4096},
    ]);
    let fields = json!({"disks": disks, "flexible_disk_size": 20480});
    assert_eq!(
        payload("bhyve", fields).unwrap()["disks"],
        json!([
            {"boot": true, "image_uuid": IMAGE, "media": "disk", "model": "virtio", "pci_slot": "0:4:0",
             "uuid": UUID, "zpool": "zones", "size": 10240, "image_size": 10240},
            {"media": "cdrom", "model": "ahci", "path": "/zones/u/root/i.iso"},
            {"model": "nvme", "size": 2048, "block_size": 4096},
        ])
    );
    // Of kvm's the guest sees neither slot nor uuid.
    let disk = json!({"size": 1024, "model": "ide", "pci_slot": "0:4:0", "uuid": UUID});
    let made = payload("kvm", json!({"disks": [disk]})).unwrap();
    assert_eq!(made["disks"], json!([{"model": "ide", "size": 1024}]));
    // A clone is as large as its image until the stream comes.
    let disk = json!({"size": 512, "image_uuid": IMAGE, "image_size": 1024, "model": "virtio"});
    let fields = json!({"disks": [disk], "flexible_disk_size": 2048});
    let want = json!([{"image_uuid": IMAGE, "model": "virtio", "image_size": 1024}]);
    assert_eq!(payload("bhyve", fields).unwrap()["disks"], want);
}

#[test] // R4, M75
fn mounts_are_given_as_at_a_creation() {
    let volume = "72d83477-859f-4f9c-9103-d343b65592eb";
    let mounts = json!([
        {"source": format!("/zones/{UUID}/volumes/{volume}"), "target": "/data", "type": "lofs"},
        {"source": format!("/zones/{UUID}/hosts"), "target": "/etc/hosts", "type": "lofs"},
        {"source": "/opt/custom", "target": "/opt", "type": "lofs", "options": ["ro"], "x": 1},
    ]);
    let fields =
        json!({"docker": true, "filesystems": mounts, "zonepath": format!("/zones/{UUID}")});
    let want = json!([
        {"source": volume, "target": "/data", "type": "lofs"},
        {"options": ["ro"], "source": "/opt/custom", "target": "/opt", "type": "lofs"},
    ]);
    assert_eq!(payload("lx", fields.clone()).unwrap()["filesystems"], want);
    assert_eq!(payload("kvm", fields).unwrap().get("filesystems"), None);
}

#[test] // M76
fn what_no_node_would_create_is_refused_with_all_its_reasons() {
    let refused = |brand: &str, fields: Value| -> Vec<String> {
        let unfit = payload(brand, fields).unwrap_err();
        unfit.iter().map(ToString::to_string).collect()
    };
    let mac = "90:b8:d0:00:00:01";
    for (brand, fields, want) in [
        ("sngl", json!({}), &["vmadm creates no instance of the brand \"sngl\""][..]),
        ("joyent", json!({"nics": "x"}), &["vmadm rejects the instance's nics"]),
        ("joyent", json!({"nics": [1]}), &["vmadm rejects the instance's nics"]),
        ("kvm", json!({"disks": [1]}), &["vmadm rejects the instance's disks"]),
        ("joyent", json!({"image_uuid": null}), &["The instance has no image_uuid"]),
        (
            "joyent",
            json!({"uuid": "X", "cpu_cap": -1, "docker": "maybe", "autoboot": 7}),
            &[
                "vmadm rejects the instance's cpu_cap",
                "vmadm rejects the instance's uuid",
                "The instance has no uuid",
            ],
        ),
        (
            "kvm",
            json!({"disks": [
                {"path": "/dev/zvol/rdsk/zones/u-disk0", "model": "nvme"}, {"media": "cdrom", "size": 1},
                {"path": "/x", "media": "floppy", "model": "ide"},
            ]}),
            &[
                "The disk /dev/zvol/rdsk/zones/u-disk0 has a model that the brand does not have",
                "The disk /dev/zvol/rdsk/zones/u-disk0 has neither an image nor a size",
                "The disk 1 has no model",
                "The disk 1 has no path",
                "The disk /x has a path, and is neither a disk nor a CD-ROM",
            ],
        ),
        (
            "bhyve",
            json!({"disks": [
                {"model": "virtio", "size": 1, "boot": true, "pci_slot": "0:4:0"},
                {"model": "virtio", "size": 1, "boot": true, "pci_slot": "0:4:0"},
                {"model": "virtio", "size": 1, "pci_slot": "0:31:0"},
            ]}),
            &[
                "The disk 1 is not the only boot disk",
                "The disk 1 has a pci_slot that is taken",
                "The disk 2 has a pci_slot that is taken",
            ],
        ),
        (
            "kvm",
            json!({"nics": [
                {"mac": mac, "nic_tag": "a", "ip": "10.0.0.1", "model": "virtio"},
                {"mac": mac, "nic_tag": "t&g", "primary": "x"},
                {"mac": "m", "nic_tag": "a", "model": "virtio", "vrrp_vrid": 3},
            ]}),
            &[
                "The NIC 90:b8:d0:00:00:01 has an address without netmask",
                "The NIC 90:b8:d0:00:00:01 has a primary that vmadm rejects",
                "The NIC 90:b8:d0:00:00:01 has no nic_tag",
                "The NIC 90:b8:d0:00:00:01 has no model",
                "The NIC 90:b8:d0:00:00:01 has the MAC of another one",
                "The NIC m is of VRRP, and lacks its MAC or the address of another NIC",
            ],
        ),
    ] {
        assert_eq!(refused(brand, fields), want);
    }
}

/// The recorded nodes whose objects are ordinary ones.
const NODES: [&str; 8] =
    ["basic", "brands", "disks", "nics", "mixed40", "mixed60", "states", "deep"];

/// The recorded objects of the brands that vmadm creates.
pub fn recorded() -> Vec<Map<String, Value>> {
    let dir = recordings::unpacked().unwrap();
    let mut all = Vec::new();
    for node in NODES {
        let file = dir.path().join(format!("cn-{node}/expected/vms.json"));
        let vms: Vec<Map<String, Value>> =
            serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        all.extend(vms);
    }
    all.retain(|vm| text(vm, "brand").is_some_and(|brand| Brands::ALL.has(brand)));
    all
}

#[test] // M75, M76
fn of_the_recorded_objects_most_have_a_payload_and_the_others_their_reasons() {
    let all = recorded();
    let unfit: Vec<Vec<Unfit>> = all.iter().filter_map(|vm| target_payload(vm).err()).collect();
    let mut reasons = std::collections::BTreeMap::<String, usize>::new();
    for why in unfit.iter().filter_map(|unfit| unfit.first()) {
        let name = match why {
            Unfit::Disk { why, .. } => format!("disk {why}"),
            Unfit::Nic { why, .. } => format!("NIC {why}"),
            other => other.to_string(),
        };
        *reasons.entry(name).or_default() += 1;
    }
    assert_eq!((all.len(), all.len() - unfit.len()), (290, 199), "{reasons:#?}");
}
