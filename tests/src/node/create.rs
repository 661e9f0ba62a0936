// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Making a node: its directories, its commands, its pool, and VMs of every brand. The same seed
//! gives the same node. It posts nothing: nobody follows a node that is being made.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use serde_json::{Value, json};

use super::datasets::Datasets;
use super::payload::{self, Payload};
use super::state::{Zone, ZoneKstat, ZoneState, Zones};
use super::{Node, NodeError, NodeInfo, TOOLS, files};

/// When generated VMs were born, in seconds since 1970.
const BORN: i64 = 1_750_000_000;
const GIB: u64 = 1 << 30;

/// How a node is made.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    /// Where; the directory must not exist or be empty.
    pub dir: PathBuf,
    /// How many VMs.
    pub vms: u32,
    /// Decides everything that is random.
    pub seed: u64,
    /// The node's UUID; from the seed if absent.
    pub cn_uuid: Option<String>,
    /// Where its vminfod will listen.
    pub vminfod_url: Option<String>,
    /// The testbed program that the commands are links to; this program if absent.
    pub program: Option<PathBuf>,
    /// How long a zone stays in each state on its way, in milliseconds.
    pub pace_ms: u64,
}

impl CreateOptions {
    /// Twelve VMs, seed 1.
    pub fn new(dir: impl Into<PathBuf>) -> CreateOptions {
        CreateOptions {
            dir: dir.into(),
            vms: 12,
            seed: 1,
            cn_uuid: None,
            vminfod_url: None,
            program: None,
            pace_ms: 0,
        }
    }
}

/// Brand, docker, and whether it runs: the mix of the generated VMs.
const MIX: [(&str, bool, bool); 12] = [
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

fn uuid(rng: &mut impl Rng) -> String {
    uuid::Builder::from_random_bytes(rng.random()).into_uuid().to_string()
}

fn mac(rng: &mut impl Rng) -> String {
    let b: [u8; 5] = rng.random();
    match rng.random_bool(0.5) {
        true => format!("90:b8:d0:{:02x}:{:02x}:{:02x}", b[0], b[1], b[2]),
        false => format!("b2:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}", b[0], b[1], b[2], b[3], b[4]),
    }
}

/// What the VMs of a node have in common.
struct Site {
    owners: Vec<String>,
    images: Vec<String>,
    disk_images: Vec<String>,
    networks: Vec<String>,
}

impl Site {
    /// The same on every node: several nodes share owners and networks.
    fn new() -> Site {
        let mut rng = StdRng::seed_from_u64(0x51fe);
        let mut some = |n: usize| (0..n).map(|_| uuid(&mut rng)).collect::<Vec<_>>();
        Site { owners: some(4), images: some(3), disk_images: some(2), networks: some(3) }
    }
}

fn pick<'a>(rng: &mut impl Rng, from: &'a [String]) -> &'a str {
    from.get(rng.random_range(0..from.len().max(1))).map_or("", String::as_str)
}

/// A payload such as the provisioner sends, of the brand that comes `n`th in the mix.
pub fn payload(rng: &mut impl Rng, n: usize) -> Payload {
    let site = Site::new();
    let (brand, docker, runs) = MIX[n % MIX.len()];
    let role = ROLES[rng.random_range(0..ROLES.len())];
    let ram: u64 = 256 << rng.random_range(0..4_u32);
    let hvm = payload::is_hvm(brand);
    let memory = if hvm { ram + 1024 } else { ram };
    let born =
        jiff::Timestamp::from_second(BORN + 977 * n as i64).map(files::iso).unwrap_or_default();
    let mut nics = Vec::new();
    for i in 0..rng.random_range(1..=2_u8) {
        let ip = format!(
            "10.{}.{}.{}",
            20 + i,
            rng.random_range(0..250_u8),
            rng.random_range(2..250_u8)
        );
        let mut nic = json!({
            "interface": format!("{}{i}", if brand == "lx" { "eth" } else { "net" }),
            "mac": mac(rng), "nic_tag": if i == 0 { "admin" } else { "external" },
            "ip": ip, "ips": [format!("{ip}/16")], "netmask": "255.255.0.0",
            "gateway": format!("10.{}.0.1", 20 + i), "gateways": [format!("10.{}.0.1", 20 + i)],
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
        "uuid": uuid(rng), "brand": brand, "v": 1, "create_timestamp": born,
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
            {"image_uuid": image, "image_size": 10240, "size": 10240, "boot": true, "model": "virtio", "uuid": uuid(rng)},
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
        vm["image_uuid"] = json!(pick(rng, &site.images));
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

/// Where the first VM of a brand comes in the mix.
pub fn place_in_mix(brand: &str) -> Option<usize> {
    MIX.iter().position(|(b, ..)| *b == brand)
}

/// Random numbers for payloads that nobody seeded.
pub fn fresh_rng() -> StdRng {
    StdRng::from_seed(std::array::from_fn(|_| uuid::Uuid::new_v4().as_bytes()[0]))
}

fn pool(images: &Site) -> Result<Datasets, NodeError> {
    let mut all = Datasets::default();
    all.create("zones", &[])?;
    for (name, mountpoint) in [
        ("archive", ""),
        ("config", "legacy"),
        ("cores", "none"),
        ("opt", "legacy"),
        ("usbkey", "legacy"),
        ("var", "legacy"),
    ] {
        let name = format!("zones/{name}");
        all.create(&name, &[])?;
        if !mountpoint.is_empty() {
            all.set(&name, "mountpoint", mountpoint)?;
        }
    }
    all.create_volume("zones/swap", 16 * GIB, &[])?;
    all.create_volume("zones/dump", 4 * GIB, &[])?;
    for image in &images.images {
        all.create(&format!("zones/{image}"), &[])?;
        all.snapshot(&format!("zones/{image}@final"), false)?;
    }
    for image in &images.disk_images {
        all.create_volume(&format!("zones/{image}"), 10 * GIB, &[])?;
        all.snapshot(&format!("zones/{image}@final"), false)?;
    }
    Ok(all)
}

fn sysinfo(cn_uuid: &str, hostname: &str, rng: &mut impl Rng) -> Value {
    let admin: [u8; 3] = rng.random();
    let mac = format!("0c:c4:7a:{:02x}:{:02x}:{:02x}", admin[0], admin[1], admin[2]);
    let ip = format!("10.20.251.{}", rng.random_range(2..250_u8));
    json!({
        "Live Image": "20260601T000000Z", "System Type": "SunOS", "Boot Time": BORN.to_string(),
        "Datacenter Name": "sim-1", "SDC Version": "7.0", "Manufacturer": "Simulated", "Product": "Testbed",
        "Serial Number": "SIM0001", "VM Capable": true, "Bhyve Capable": true, "HVM API": true,
        "CPU Type": "Simulated CPU", "CPU Virtualization": "vmx", "Admin NIC Tag": "admin", "Admin IP": ip,
        "UUID": cn_uuid, "Hostname": hostname, "CPU Total Cores": 32, "CPU Count": 32,
        "MiB of Memory": "131072", "Zpool": "zones", "Zpool Disks": "c1t0d0", "Zpool Profile": "striped",
        "Zpool Creation": BORN, "Zpool Size in GiB": 1776, "Disks": {"c1t0d0": {"Size in GB": 1920}},
        "Boot Parameters": {"console": "ttyb", "hostname": hostname},
        "Network Interfaces": {
            "ixgbe0": {"MAC Address": mac, "ip4addr": ip, "Link Status": "up", "NIC Names": ["admin"]},
        },
        "Virtual Network Interfaces": {}, "Link Aggregations": {},
    })
}

/// Makes a node.
pub fn create(options: &CreateOptions) -> Result<Node, NodeError> {
    let dir =
        std::path::absolute(&options.dir).map_err(|e| NodeError::io("resolve", &options.dir, e))?;
    let occupied = std::fs::read_dir(&dir).is_ok_and(|mut entries| entries.next().is_some());
    if occupied || dir.is_file() {
        return Err(NodeError::refused(format!("{} exists and is not empty", dir.display())));
    }
    if let Some(given) = &options.cn_uuid
        && uuid::Uuid::try_parse(given).is_err()
    {
        return Err(NodeError::invalid("cn-uuid", format!("'{given}' is no UUID")));
    }
    let mut rng = StdRng::seed_from_u64(options.seed);
    let own = uuid(&mut rng);
    let cn_uuid = options.cn_uuid.clone().unwrap_or(own);
    let info = NodeInfo {
        hostname: format!("cn-{}", cn_uuid.get(..4).unwrap_or("sim")),
        cn_uuid,
        vminfod_url: options.vminfod_url.clone(),
        napi_url: None,
        vmapi_url: None,
        pace_ms: options.pace_ms,
    };
    for part in ["root/etc/zones", "root/zones", "root/tmp", "bin", "state/snapshots", "run"] {
        files::make_dir(&dir.join(part))?;
    }
    link_tools(&dir, options.program.clone())?;
    let mut node = Node { dir, info };
    let facts = sysinfo(node.cn_uuid(), &node.info().hostname, &mut rng);
    files::write_json(&node.path("/tmp/.sysinfo.json"), &facts)?;

    let mut all = pool(&Site::new())?;
    let mut zones = Zones::default();
    for n in 0..options.vms as usize {
        let vm = payload(&mut rng, n);
        let (_, _, runs) = MIX[n % MIX.len()];
        place(&node, &vm, runs, BORN + 977 * n as i64, &mut zones, &mut all)?;
    }
    all.age(BORN);
    let guard = node.lock()?;
    guard.save_zones(&zones)?;
    guard.save_datasets(&all)?;
    drop(guard);
    // Last: a directory without it is no node.
    node.set_info(|_| ())?;
    Ok(node)
}

fn link_tools(dir: &std::path::Path, program: Option<PathBuf>) -> Result<(), NodeError> {
    let program = match program {
        Some(program) => {
            std::path::absolute(&program).map_err(|e| NodeError::io("resolve", &program, e))?
        }
        None => {
            std::env::current_exe().map_err(|e| NodeError::io("find this program for", dir, e))?
        }
    };
    for tool in TOOLS {
        let link = dir.join("bin").join(tool);
        std::os::unix::fs::symlink(&program, &link).map_err(|e| NodeError::io("link", &link, e))?;
    }
    Ok(())
}

fn place(
    node: &Node,
    vm: &Payload,
    runs: bool,
    born: i64,
    zones: &mut Zones,
    all: &mut Datasets,
) -> Result<(), NodeError> {
    let zonedid = zones.take_zonedid();
    let mut zone = new_zone(vm, zonedid)?;
    let xml = payload::zone_xml(vm, &zone.zonepath, zonedid)?;
    make_datasets(all, vm)?;
    let zonepath = node.path(&zone.zonepath);
    files::make_dir(&zonepath.join("config"))?;
    let mut written = vec![node.zone_xml(&zone.zonename)];
    files::replace(&node.zone_xml(&zone.zonename), xml.document().as_bytes())?;
    for (name, value) in config_files(vm) {
        let file = zonepath.join("config").join(name);
        files::write_json(&file, &value)?;
        written.push(file);
    }
    if runs {
        let zoneid = zones.take_zoneid();
        zone.state = ZoneState::Running;
        zone.zoneid = Some(zoneid);
        let init_pid = zones.take_pid();
        zone.kstat =
            Some(ZoneKstat { instance: zoneid, init_pid, init_restarts: 0, boot_time: born + 60 });
    } else {
        let file = zonepath.join("lastexited");
        files::write_in_place(&file, format!("{}.000000000 0\n", born + 7200).as_bytes())?;
        written.push(file);
    }
    for file in written {
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(born.unsigned_abs() + 9);
        std::fs::File::options()
            .write(true)
            .open(&file)
            .and_then(|f| f.set_modified(at))
            .map_err(|e| NodeError::io("set the time of", &file, e))?;
    }
    zones.insert(zone);
    Ok(())
}

/// The zone of a payload, installed and not running.
pub(super) fn new_zone(vm: &Payload, zonedid: i64) -> Result<Zone, NodeError> {
    let need =
        |key: &str| payload::text(vm, key).ok_or_else(|| NodeError::invalid(key, "is required"));
    let (uuid, brand) = (need("uuid")?.to_string(), need("brand")?.to_string());
    Ok(Zone {
        zonename: uuid.clone(),
        zonepath: format!("/zones/{uuid}"),
        uuid,
        brand,
        state: ZoneState::Installed,
        zoneid: None,
        zonedid,
        kstat: None,
    })
}

/// The files of a VM's config directory.
pub(super) fn config_files(vm: &Payload) -> [(&'static str, Value); 3] {
    let part = |key: &str| vm.get(key).cloned().unwrap_or_else(|| json!({}));
    let metadata = json!({
        "customer_metadata": part("customer_metadata"),
        "internal_metadata": part("internal_metadata"),
    });
    [("metadata.json", metadata), ("tags.json", part("tags")), ("routes.json", part("routes"))]
}

/// The datasets of a VM: its root, cores, disks and delegated dataset.
fn make_datasets(all: &mut Datasets, vm: &Payload) -> Result<(), NodeError> {
    for change in super::verbs::dataset_steps(all, vm)? {
        change.make(all)?;
    }
    Ok(())
}
