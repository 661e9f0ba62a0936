// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Sample VMs: payloads of every brand, as a provisioner sends them. The same seed gives the same
//! payload. No I/O.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use serde_json::{Value, json};

use crate::error::NodeError;
use crate::files;
use crate::payload::{self, Payload};
use crate::vmadm::Image;

/// Creation time of generated VMs, in seconds since 1970.
pub(crate) const BORN: i64 = 1_750_000_000;

/// Brand, docker, and whether it runs: the mix of the generated VMs.
pub(crate) const MIX: [(&str, bool, bool); 12] = [
    ("joyent", false, true),
    ("joyent-minimal", false, true),
    ("lx", false, true),
    ("lx", true, true),
    ("kvm", false, true),
    ("bhyve", false, true),
    ("builder", false, false),
    ("joyent-minimal", false, false),
    ("bhyve", false, false),
    ("joyent", false, true),
    ("lx", false, false),
    ("kvm", false, false),
];
const ROLES: [&str; 8] = ["web", "db", "cache", "queue", "mail", "dns", "ci", "proxy"];

pub(crate) fn uuid(rng: &mut impl Rng) -> String {
    uuid::Builder::from_random_bytes(rng.random()).into_uuid().to_string()
}

pub(crate) fn mac(rng: &mut impl Rng) -> String {
    let b: [u8; 5] = rng.random();
    match rng.random_bool(0.5) {
        true => format!("90:b8:d0:{:02x}:{:02x}:{:02x}", b[0], b[1], b[2]),
        false => format!("b2:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}", b[0], b[1], b[2], b[3], b[4]),
    }
}

/// What the VMs of a node have in common.
pub(crate) struct Site {
    pub(crate) owners: Vec<String>,
    pub(crate) images: Vec<String>,
    pub(crate) disk_images: Vec<String>,
    pub(crate) networks: Vec<String>,
}

impl Site {
    /// The same on every node: several nodes share owners and networks.
    pub(crate) fn new() -> Site {
        let mut rng = StdRng::seed_from_u64(0x51fe);
        let mut some = |n: usize| (0..n).map(|_| uuid(&mut rng)).collect::<Vec<_>>();
        Site { owners: some(4), images: some(3), disk_images: some(2), networks: some(3) }
    }

    /// The images of a brand's VMs: the last one is of Linux.
    fn images_of(&self, brand: &str) -> &[String] {
        let linux = self.images.len().saturating_sub(1);
        self.images.get(if brand == "lx" { linux..linux + 1 } else { 0..linux }).unwrap_or_default()
    }

    /// The images with what their manifests say.
    pub(crate) fn manifests(&self) -> BTreeMap<String, Image> {
        let of = |kind: &str, size: Option<u64>| Image {
            kind: kind.to_string(),
            size,
            ..Image::default()
        };
        let zones =
            self.images_of("joyent").iter().map(|image| (image.clone(), of("zone-dataset", None)));
        let linux =
            self.images_of("lx").iter().map(|image| (image.clone(), of("lx-dataset", None)));
        let disks = self.disk_images.iter().map(|image| (image.clone(), of("zvol", Some(10_240))));
        zones.chain(linux).chain(disks).collect()
    }
}

fn pick<'a>(rng: &mut impl Rng, from: &'a [String]) -> &'a str {
    from.get(rng.random_range(0..from.len().max(1))).map_or("", String::as_str)
}

/// A payload such as the provisioner sends: the brand is the `kind`th of the mix, the names and
/// addresses follow from the slot.
pub fn payload(rng: &mut impl Rng, kind: usize, n: usize) -> Payload {
    let site = Site::new();
    let (brand, docker, runs) = MIX[kind % MIX.len()];
    let role = ROLES[rng.random_range(0..ROLES.len())];
    let ram: u64 = 256 << rng.random_range(0..4_u32);
    let hvm = payload::is_hvm(brand);
    let memory = if hvm { ram + 1024 } else { ram };
    let born =
        jiff::Timestamp::from_second(BORN + 977 * n as i64).map(files::iso).unwrap_or_default();
    let mut nics = Vec::new();
    for i in 0..rng.random_range(1..=2_u8) {
        let net = 20 + usize::from(i) + 2 * (n / 62_500 % 100);
        let ip = format!("10.{net}.{}.{}", n / 250 % 250, 2 + n % 250);
        let mut nic = json!({
            "interface": format!("{}{i}", if brand == "lx" { "eth" } else { "net" }),
            "mac": mac(rng), "nic_tag": "external",
            "ip": ip, "ips": [format!("{ip}/16")], "netmask": "255.255.0.0",
            "gateway": format!("10.{net}.0.1"), "gateways": [format!("10.{net}.0.1")],
            "network_uuid": site.networks.get(usize::from(i)),
        });
        if i == 0 {
            nic["primary"] = json!(true);
        } else {
            nic["vlan_id"] = json!(1000 + u32::from(i));
        }
        if hvm {
            nic["model"] = json!("virtio");
        }
        nics.push(nic);
    }
    let mut vm = json!({
        "uuid": uuid(rng), "brand": brand, "create_timestamp": born,
        "alias": format!("{role}-{n}"), "hostname": format!("{role}-{n}"),
        "owner_uuid": pick(rng, &site.owners), "billing_id": uuid(rng),
        "package_name": format!("sample-{ram}M"), "package_version": "1.0.0",
        "autoboot": runs, "firewall_enabled": n.is_multiple_of(3),
        "resolvers": ["10.20.0.11", "8.8.8.8"], "dns_domain": "local",
        "cpu_shares": ram / 4, "zfs_io_priority": ram / 8, "cpu_cap": 100 * (1 + n as u64 % 4),
        "max_lwps": 4000, "max_physical_memory": memory, "max_locked_memory": memory, "max_swap": memory * 2,
        "quota": 10 + 5 * (n as u64 % 4), "nics": nics,
        "tags": {"role": role, "slot": n}, "routes": {},
        "customer_metadata": {"root_authorized_keys": format!("ssh-ed25519 AAAA{n:04} op@site\n")},
        "internal_metadata": {"root_pw": format!("{:08x}", rng.random::<u32>())},
    });
    if hvm {
        let image = pick(rng, &site.disk_images);
        vm["ram"] = json!(ram);
        vm["vcpus"] = json!(1 + n % 4);
        vm["disks"] = json!([
            {"image_uuid": image, "image_size": 10240, "boot": true, "model": "virtio", "uuid": uuid(rng)},
            {"size": 20480, "boot": false, "model": "virtio", "uuid": uuid(rng)},
        ]);
        if brand == "bhyve" {
            vm["bootrom"] = json!("uefi");
            vm["com1"] = json!("/dev/zconsole");
            vm["disks"][0]["pci_slot"] = json!("0:4:0");
            vm["disks"][1]["pci_slot"] = json!("0:4:1");
        } else {
            vm["cpu_type"] = json!("host");
            vm["vnc_port"] = json!(0);
        }
    } else {
        let (any, own) = (pick(rng, &site.images), site.images_of(brand));
        let image = own.iter().find(|image| *image == any).or(own.first());
        vm["image_uuid"] = json!(image);
        vm["tmpfs"] = json!(ram);
        vm["maintain_resolvers"] = json!(true);
    }
    if brand == "lx" {
        vm["kernel_version"] = json!("5.10.0");
    }
    if docker {
        vm["docker"] = json!(true);
        vm["restart_init"] = json!(false);
        vm["init_name"] = json!("/native/usr/vm/sbin/dockerinit");
        vm["internal_metadata_namespaces"] = json!(["docker"]);
        vm["internal_metadata"]["docker:cmd"] = json!("[\"/bin/sh\"]");
    }
    if brand == "joyent" {
        vm["delegate_dataset"] = json!(true);
    }
    match vm {
        Value::Object(map) => map,
        _ => Payload::new(),
    }
}

/// An image of which VMs of the brand are made on every node.
pub fn image(brand: &str) -> Option<String> {
    Site::new().images_of(brand).first().cloned()
}

/// A sample VM of a brand (`docker` is an lx one), to be created now.
pub fn fresh(brand: &str, seed: Option<u64>) -> Result<Payload, NodeError> {
    let kind = match brand {
        "docker" => MIX.iter().position(|(_, docker, _)| *docker),
        _ => MIX.iter().position(|(b, ..)| *b == brand),
    };
    let kind = kind.ok_or_else(|| {
        NodeError::invalid(
            "brand",
            format!("'{brand}' is none of {}, docker", payload::BRANDS.join(", ")),
        )
    })?;
    let seed = seed.unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().0);
    let mut rng = StdRng::seed_from_u64(seed);
    // Beyond the slots of generated nodes, so that names and addresses do not meet.
    let slot = rng.random_range(62_500..6_000_000);
    let mut vm = payload(&mut rng, kind, slot);
    vm.insert("autoboot".to_string(), json!(true));
    vm.shift_remove("create_timestamp");
    Ok(vm)
}
