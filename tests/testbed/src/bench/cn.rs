// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A node to measure on: generated files, and commands that print what the node's own commands
//! printed once. They cost a shell and a `cat`, so that their time can be told from the daemon's.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use serde_json::{Value, json};
use tempfile::TempDir;

use vm_model::parse::zoneadm::{self, ZoneRow};
use vminfod::node::root::Root;

use super::limits;
use crate::process;
use simnode::{CreateOptions, Node};

/// The columns that vminfod asks zfs for.
const COLUMNS: &str = "compression,creation,filesystem_limit,mountpoint,name,quota,recsize,refquota,refreservation,\
                       snapshot_limit,type,usedbysnapshots,userrefs,volblocksize,volsize,written,zoned";
const LONG: Duration = Duration::from_secs(60);

/// The node.
pub(super) struct Cn {
    _dir: TempDir,
    node: Node,
    canned: PathBuf,
    /// What `zoneadm list` says of each VM, in its order.
    pub zones: Vec<Zone>,
    /// By the datasets directly below the pool: what `zfs list -d 1` says of each.
    listed: HashMap<String, String>,
    pipes: [File; 2],
}

/// A line of zoneadm.
#[derive(Clone, Debug)]
pub(super) struct Zone {
    pub name: String,
    pub line: String,
}

/// Which stream of sysevents.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stream {
    Zones = 0,
    Datasets = 1,
}

impl Cn {
    /// The rows of zoneadm that the canned list has.
    pub(super) fn rows(&self) -> Vec<ZoneRow> {
        let list: String = self.zones.iter().map(|zone| format!("{}\n", zone.line)).collect();
        zoneadm::parse(list.as_bytes())
    }

    /// A node of so many VMs.
    pub(super) async fn make(vms: u32) -> anyhow::Result<Cn> {
        let dir = tempfile::tempdir().context("no temporary directory")?;
        let options = CreateOptions { vms, ..CreateOptions::new(dir.path().join("cn")) };
        let node = Node::create(&options)?;
        let canned = dir.path().join("canned");
        for sub in ["zone", "one"] {
            std::fs::create_dir_all(canned.join(sub))?;
        }
        let list = printed(&node, "zoneadm", &["list", "-p", "-c"]).await?;
        let columns = ["list", "-H", "-p", "-t", "filesystem,snapshot,volume", "-o", COLUMNS, "-d"];
        let zfs = printed(&node, "zfs", &[&columns[..], &["2"]].concat()).await?;
        let kstat = printed(&node, "kstat", &[]).await?;
        for (name, text) in [("zoneadm.txt", &list), ("zfs.txt", &zfs), ("kstat.txt", &kstat)] {
            std::fs::write(canned.join(name), text)?;
        }
        let at = canned.display();
        let log = format!("#!/bin/sh\nprintf '%s\\n' \"${{0##*/}} $*\" >> {at}/log\n");
        let scripts = [
            (
                "zoneadm",
                format!(
                    "{log}case $1 in -z) exec cat {at}/zone/$2 ;; esac\nexec cat {at}/zoneadm.txt\n"
                ),
            ),
            (
                "zfs",
                format!(
                    "{log}for last; do :; done\ncase $last in 2) exec cat {at}/zfs.txt ;; esac\nexec cat {at}/one/$last.rows\n"
                ),
            ),
            ("kstat", format!("{log}exec cat {at}/kstat.txt\n")),
            (
                "sysevent",
                format!(
                    "{log}case \"$*\" in *com.sun:zones*) exec cat {at}/pipe0 ;; esac\nexec cat {at}/pipe1\n"
                ),
            ),
        ];
        for (name, text) in scripts {
            let path = canned.join(name);
            std::fs::write(&path, text)?;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
        }
        let zone = |line: &str| {
            let name = line.split(':').nth(1).filter(|name| *name != "global")?;
            Some(Zone { name: name.to_owned(), line: line.to_owned() })
        };
        let zones: Vec<Zone> = list.lines().filter_map(zone).collect();
        for zone in &zones {
            std::fs::write(canned.join("zone").join(&zone.name), format!("{}\n", zone.line))?;
        }
        let pipes = [pipe(&canned.join("pipe0"))?, pipe(&canned.join("pipe1"))?];
        let cn = Cn { _dir: dir, node, canned, zones, listed: by_dataset(&zfs), pipes };
        // Else the system writes 44,000 files for 10,000 VMs to its disk half a minute later, beside
        // whatever is measured then; and once more after they were read for the first time, for that
        // is noted in each of them.
        limits::read_and_parse(&Root::new(cn.root()), &cn.rows())?;
        rustix::fs::sync();
        Ok(cn)
    }

    /// Its `/`.
    pub(super) fn root(&self) -> PathBuf {
        self.node.root()
    }

    /// The UUID of the node.
    pub(super) fn uuid(&self) -> &str {
        self.node.cn_uuid()
    }

    /// One of its commands.
    pub(super) fn tool(&self, name: &str) -> PathBuf {
        self.canned.join(name)
    }

    /// How vminfod is to serve it; a file with these settings and the given ones.
    pub(super) fn config(&self, more: Value) -> anyhow::Result<PathBuf> {
        let tool = |name: &str| self.tool(name).to_string_lossy().into_owned();
        let mut config = json!({
            "root": self.root().to_string_lossy(),
            "listen": "127.0.0.1:0",
            "commands": {
                "zoneadm": tool("zoneadm"), "zfs": tool("zfs"),
                "kstat": tool("kstat"), "sysevent": tool("sysevent"),
            },
        });
        if let (Value::Object(config), Value::Object(more)) = (&mut config, more) {
            config.extend(more);
        }
        let path = self.canned.join("vminfod.json");
        std::fs::write(&path, config.to_string())?;
        Ok(path)
    }

    /// Makes both streams of events ready for the next daemon.
    pub(super) fn arm(&mut self) -> anyhow::Result<()> {
        for pipe in &mut self.pipes {
            let mut stale = [0; 65536];
            while pipe.read(&mut stale).is_ok_and(|count| count > 0) {}
            pipe.write_all(b"{\"date\":\"2026-01-05T10:00:00.000Z\",\"type\":\"ready\"}\n")?;
        }
        Ok(())
    }

    /// Sends lines of events, waiting while the pipe is full.
    pub(super) async fn post(&mut self, stream: Stream, lines: &[u8]) -> anyhow::Result<()> {
        let mut rest = lines;
        let pipe = &mut self.pipes[stream as usize];
        while !rest.is_empty() {
            match pipe.write(rest) {
                Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                    tokio::task::yield_now().await;
                }
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    /// The commands that were run since the last call, a line each.
    pub(super) fn ran(&self) -> anyhow::Result<Vec<String>> {
        let path = self.canned.join("log");
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        File::create(&path)?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// Writes what zfs says of one VM's root dataset from now on: its quota is so many GiB.
    pub(super) fn set_quota(&self, zone: &str, gib: u64) -> anyhow::Result<()> {
        let dataset = format!("zones/{zone}");
        let Some(own) = self.listed.get(&dataset) else { bail!("{dataset} is not listed") };
        let mut rows = String::new();
        for line in own.lines() {
            let mut cells: Vec<&str> = line.split('\t').collect();
            let bytes = (gib << 30).to_string();
            if let [_, _, _, _, name, quota, _, refquota, ..] = cells.as_mut_slice()
                && *name == dataset
            {
                (*quota, *refquota) = (&bytes, &bytes);
            }
            rows += &(cells.join("\t") + "\n");
        }
        let path = self.canned.join("one").join(format!("{dataset}.rows"));
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        // In one step: a listing may be reading it.
        let temp = path.with_extension("new");
        std::fs::write(&temp, rows)?;
        Ok(std::fs::rename(&temp, &path)?)
    }

    /// What zoneadm says of one zone's state from now on, when asked for it by name.
    pub(super) fn set_state(&self, zone: &Zone, state: &str) -> anyhow::Result<()> {
        let mut fields: Vec<&str> = zone.line.split(':').collect();
        if let Some(field) = fields.get_mut(2) {
            *field = state;
        }
        let path = self.canned.join("zone").join(&zone.name);
        let temp = self.canned.join("zone.new");
        std::fs::write(&temp, fields.join(":") + "\n")?;
        Ok(std::fs::rename(&temp, &path)?)
    }

    /// The zones whose root dataset is listed, the first so many.
    pub(super) fn with_dataset(&self, count: usize) -> Vec<String> {
        let has = |zone: &&Zone| self.listed.contains_key(&format!("zones/{}", zone.name));
        self.zones.iter().filter(has).take(count).map(|zone| zone.name.clone()).collect()
    }

    /// Replaces a zone's tags in one step, as vmadm does; the moment before that step.
    pub(super) fn set_tags(&self, zone: &str, text: &str) -> anyhow::Result<SystemTime> {
        let path = self.node.path(&format!("/zones/{zone}/config/tags.json"));
        let temp = path.with_extension("json.new");
        std::fs::write(&temp, text)?;
        let before = SystemTime::now();
        std::fs::rename(&temp, &path)?;
        Ok(before)
    }
}

/// The rows of each dataset directly below the pool and of what is directly below that. Looked for
/// once: to look through them all before each event would empty the daemon's caches.
fn by_dataset(zfs: &str) -> HashMap<String, String> {
    let mut listed: HashMap<String, String> = HashMap::new();
    for line in zfs.lines() {
        let name = line.split('\t').nth(4).unwrap_or_default();
        let Some((pool, below)) = name.split_once('/') else { continue };
        let at = below.find(['/', '@']).unwrap_or(below.len());
        if below.get(at + 1..).is_some_and(|rest| rest.contains(['/', '@'])) {
            continue;
        }
        let dataset = name.get(..pool.len() + 1 + at).unwrap_or(name);
        *listed.entry(dataset.to_owned()).or_default() += &format!("{line}\n");
    }
    listed
}

/// The line that announces a change of this zone's state.
pub(super) fn zone_event(zone: &str) -> String {
    let data = json!({
        "zonename": zone, "newstate": "initialized", "oldstate": "ready", "zoneid": 1,
        "when": 1_767_607_201_188_431_227_u64,
    });
    let event = json!({
        "date": "2026-01-05T10:00:00.000Z", "type": "event", "vendor": "sun.com",
        "publisher": "kernel", "class": "status", "subclass": "change", "pid": 0, "data": data,
        "channel": "com.sun:zones:status",
    });
    format!("{event}\n")
}

/// The line that announces a change of this dataset.
pub(super) fn zfs_event(dataset: &str) -> String {
    let data = json!({
        "pool_name": "zones", "history_hostname": "cn", "history_dsname": dataset,
        "history_internal_name": "set", "history_internal_str": "quota=1", "history_txg": 1,
    });
    let event = json!({
        "date": "2026-01-05T10:00:00.000Z", "type": "event", "vendor": "SUNW", "publisher": "zfs",
        "class": "EC_zfs", "subclass": "ESC_ZFS_history_event", "pid": 0, "data": data,
    });
    format!("{event}\n")
}

async fn printed(node: &Node, tool: &str, args: &[&str]) -> anyhow::Result<String> {
    let done = process::run(&node.tool(tool), args, LONG).await?;
    if done.code != Some(0) {
        bail!("{tool}: {}", done.stderr);
    }
    Ok(done.stdout)
}

/// A named pipe, held open at both ends so that its readers see no end.
fn pipe(path: &Path) -> anyhow::Result<File> {
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0)?;
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    Ok(File::options().read(true).write(true).custom_flags(flags).open(path)?)
}
