// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Creates a node: directories, links to the commands, a pool, and VMs of every brand. The same
//! seed gives the same node. No sysevent is posted.

use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use jiff::Timestamp;
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use serde_json::{Value, json};

use crate::around;
use crate::checksum::Checksum;
use crate::config;
use crate::datasets::{Datasets, History};
use crate::error::NodeError;
use crate::files;
use crate::new_vm;
use crate::node::{Node, NodeInfo, PLATFORM, TOOLS, Zfs, default_platform, zone_kstats};
use crate::payload::Payload;
use crate::places::NodeKind;
use crate::sample::{self, BORN, MIX, Site, uuid};
use crate::state::{ZoneKstat, ZoneState, Zones};
use crate::vmadm::{self, Image};

const GIB: u64 = 1 << 30;

/// Options of a new node.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    /// The directory; it must be empty or missing.
    pub dir: PathBuf,
    /// How many VMs.
    pub vms: u32,
    /// The slot of its first VM, from which names and addresses follow: nodes of one data centre share none.
    pub slot: usize,
    /// Seed of all random choices.
    pub seed: u64,
    /// The node's UUID; from the seed if absent.
    pub cn_uuid: Option<String>,
    /// Its admin address; from the seed if absent.
    pub admin_ip: Option<Ipv4Addr>,
    /// The base URL of its future vminfod.
    pub vminfod_url: Option<String>,
    /// The program that the commands link to (`testbed` or `simnode`); this program if absent.
    pub program: Option<PathBuf>,
    /// How long a zone stays in each state on its way, in milliseconds.
    pub pace_ms: u64,
    /// What it is.
    pub kind: NodeKind,
}

impl CreateOptions {
    /// Twelve VMs, seed 1.
    pub fn new(dir: impl Into<PathBuf>) -> CreateOptions {
        CreateOptions {
            dir: dir.into(),
            vms: 12,
            slot: 0,
            seed: 1,
            cn_uuid: None,
            admin_ip: None,
            vminfod_url: None,
            program: None,
            pace_ms: 0,
            kind: NodeKind::default(),
        }
    }
}

fn pool(images: &Site) -> Result<Datasets, NodeError> {
    let mut all = Datasets::default();
    all.create("zones")?;
    for (name, mountpoint) in [
        ("archive", ""),
        ("config", "legacy"),
        ("cores", "none"),
        ("opt", "legacy"),
        ("usbkey", "legacy"),
        ("var", "legacy"),
    ] {
        let name = format!("zones/{name}");
        all.create(&name)?;
        if !mountpoint.is_empty() {
            all.set(&name, "mountpoint", mountpoint)?;
        }
    }
    all.create_volume("zones/swap", 16 * GIB)?;
    all.create_volume("zones/dump", 4 * GIB)?;
    for image in &images.images {
        all.import_image(image, None)?;
    }
    for image in &images.disk_images {
        all.import_image(image, Some(10 * GIB))?;
    }
    Ok(all)
}

impl Datasets {
    /// `imgadm import`: the image, a volume of so many bytes or a file system. Its snapshot has the same GUID on each
    /// node.
    pub fn import_image(
        &mut self,
        image: &str,
        volume: Option<u64>,
    ) -> Result<Vec<History>, NodeError> {
        let name = format!("zones/{image}");
        let mut history = match volume {
            Some(size) => self.create_volume(&name, size)?,
            None => self.create(&name)?,
        };
        let snapshot = format!("{name}@final");
        history.extend(self.snapshot(&snapshot, false)?);
        self.need(&snapshot)?.put("guid", Checksum::of(image.as_bytes()).to_string());
        Ok(history)
    }
}

fn sysinfo(cn_uuid: &str, hostname: &str, given: Option<Ipv4Addr>, rng: &mut impl Rng) -> Value {
    let admin: [u8; 3] = rng.random();
    let mac = format!("0c:c4:7a:{:02x}:{:02x}:{:02x}", admin[0], admin[1], admin[2]);
    let ip = Ipv4Addr::new(10, 20, 251, rng.random_range(2..250_u8));
    let ip = given.unwrap_or(ip).to_string();
    json!({
        "Live Image": default_platform(), "System Type": "SunOS", "Boot Time": BORN.to_string(),
        "Datacenter Name": "sim-1", "SDC Version": "7.0", "Manufacturer": "Simulated", "Product": "Testbed",
        "Serial Number": "SIM0001", "VM Capable": true, "Bhyve Capable": true, "HVM API": true,
        "CPU Type": "Simulated CPU", "CPU Virtualization": "vmx", "Admin NIC Tag": "admin", "Admin IP": ip,
        "UUID": cn_uuid, "Hostname": hostname, "CPU Total Cores": 32, "CPU Count": 32,
        "MiB of Memory": "131072", "Zpool": "zones", "Zpool Disks": "c1t0d0", "Zpool Profile": "striped",
        "Zpool Creation": BORN, "Zpool Size in GiB": 1776, "Disks": {"c1t0d0": {"Size in GB": 1920}},
        "Boot Parameters": {"console": "ttyb", "hostname": hostname},
        "Network Interfaces": {
            "ixgbe0": {"MAC Address": mac, "ip4addr": ip, "Link Status": "up", "NIC Names": ["admin", "external"]},
        },
        "Virtual Network Interfaces": {"underlay0": {"MAC Address": mac, "Link Status": "up", "Overlay Nic Tags": ["sdc_overlay"]}}, "Link Aggregations": {},
    })
}

impl Node {
    /// Makes a new node with generated VMs; see [`CreateOptions`].
    pub fn create(options: &CreateOptions) -> Result<Node, NodeError> {
        create(options)
    }

    /// `imgadm import`: the dataset of an image, and its manifest.
    pub fn import_image(&self, uuid: &str, image: &Image) -> Result<(), NodeError> {
        let volume = image.size.filter(|_| image.kind == "zvol").map(|mib| mib << 20);
        self.zfs(|all| all.import_image(uuid, volume))?;
        around::keep_manifest(self, uuid, image)
    }
}

fn create(options: &CreateOptions) -> Result<Node, NodeError> {
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
        kind: options.kind,
        platform: default_platform(),
        zfs: Zfs::default(),
    };
    for part in [
        "root/etc/zones",
        "root/zones",
        "root/tmp",
        "root/var/imgadm/images",
        "bin",
        "platform",
        "state/snapshots",
        "run",
    ] {
        files::make_dir(&dir.join(part))?;
    }
    link_tools(&dir, options.program.clone())?;
    let mut node = Node::new(dir, info);
    node.lay_places()?;
    let facts = sysinfo(node.cn_uuid(), &node.info().hostname, options.admin_ip, &mut rng);
    files::write_json(&node.path("/tmp/.sysinfo.json"), &facts)?;

    for (image, manifest) in Site::new().manifests() {
        around::keep_manifest(&node, &image, &manifest)?;
    }
    let mut all = pool(&Site::new())?;
    // The images' snapshots have the same numbers on every node; later ones do not.
    all.salt = Checksum::of(node.cn_uuid().as_bytes());
    let mut zones = Zones::default();
    let mut taken = HashSet::new();
    for n in 0..options.vms as usize {
        let mut vm = sample::payload(&mut rng, n, options.slot + n);
        unique_macs(&mut vm, &mut rng, &mut taken);
        let (_, _, runs) = MIX[n % MIX.len()];
        let vm = made(vm, &all, &facts)?;
        place(&node, &vm, runs, BORN + 977 * n as i64, &mut zones, &mut all)?;
    }
    all.age(BORN);
    let guard = node.lock()?;
    guard.save_zones(&zones)?;
    guard.save_datasets(&all)?;
    drop(guard);
    // Last: without this file the directory is no node.
    node.set_info(|_| ())?;
    Ok(node)
}

/// Replaces MACs that are already taken on this node.
fn unique_macs(vm: &mut Payload, rng: &mut impl Rng, taken: &mut HashSet<String>) {
    for nic in vm.get_mut("nics").and_then(Value::as_array_mut).into_iter().flatten() {
        while !taken.insert(nic["mac"].to_string()) {
            nic["mac"] = json!(sample::mac(rng));
        }
    }
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
    let tools = TOOLS.map(|tool| dir.join("bin").join(tool));
    for link in tools.into_iter().chain(PLATFORM.map(|tool| dir.join("platform").join(tool))) {
        std::os::unix::fs::symlink(&program, &link).map_err(|e| NodeError::io("link", &link, e))?;
    }
    let script = dir.join("bin/kstat");
    files::write_in_place(&script, zone_kstats(&dir.join("platform/kstat")).as_bytes())?;
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, executable)
        .map_err(|e| NodeError::io("set the mode of", &script, e))
}

/// What vmadm made of a payload once, when the VM was made.
fn made(given: Payload, all: &Datasets, sysinfo: &Value) -> Result<Payload, NodeError> {
    let seed = Checksum::of(given["uuid"].to_string().as_bytes());
    let mut rng = StdRng::seed_from_u64(seed);
    let new_uuid = Box::new(move || uuid(&mut rng));
    let images = Site::new().manifests();
    let mut around = around::around(all, images, sysinfo, Vec::new(), new_uuid);
    let born = given.get("create_timestamp").cloned();
    let mut vm = vmadm::create::create(&given, &mut around)?;
    vm.extend([("v".to_string(), json!(1)), ("create_timestamp".to_string(), json!(born))]);
    Ok(vm)
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
    let mut zone = new_vm::zone(vm, zonedid)?;
    let mut xml = config::zone_xml(vm, &zone.zonepath, zonedid)?;
    config::installed(&mut xml, vm);
    new_vm::make_datasets(all, vm, &around::bare())?;
    let zonepath = node.path(&zone.zonepath);
    files::make_dir(&zonepath.join("config"))?;
    let mut written = vec![node.zone_xml(&zone.zonename)];
    files::replace(&node.zone_xml(&zone.zonename), xml.document().as_bytes())?;
    for (name, value) in new_vm::config_files(vm) {
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
        files::touch(&file, Timestamp::from_second(born + 9).unwrap_or_default())?;
    }
    zones.insert(zone);
    Ok(())
}
