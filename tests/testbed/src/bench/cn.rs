// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A node to measure on: generated files, the simulated node's `fswatcher`, and other commands that
//! print what the node's own commands printed once. These cost a shell and a `cat`, so that their
//! time can be told from the daemon's.

use std::collections::{BTreeMap, HashMap};
use std::fs::{File, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use daemon::command::{Paths, Program};
use serde_json::{Value, json};
use simnode::datasets::History;
use simnode::node::zone_kstats;
use simnode::sysevent::Sysevent;
use simnode::{CreateOptions, Node, recorded};
use tempfile::TempDir;
use vm_model::parse::zfs_list::{COLUMNS, SNAPSHOT_COLUMNS};
use vm_model::parse::zoneadm::{self, ZoneRow};
use vminfod::config::PROGRAMS;
use vminfod::node::root::Root;
use vminfod::sources::watched::{ZonePlace, Zones};

use super::limits;
use crate::process;

const LONG: Duration = Duration::from_secs(60);
/// The arguments with which vminfod lists the node's datasets, and its snapshots.
pub(super) const LIST_DATASETS: [&str; 9] =
    ["list", "-H", "-p", "-t", "filesystem,volume", "-o", COLUMNS, "-d", "2"];
pub(super) const LIST_SNAPSHOTS: [&str; 9] =
    ["list", "-H", "-p", "-t", "snapshot", "-o", SNAPSHOT_COLUMNS, "-d", "2"];

pub(super) struct Cn {
    _dir: TempDir,
    node: Node,
    canned: PathBuf,
    /// The zones in the order of zoneadm's list.
    pub zones: Vec<Zone>,
    /// What `zfs list -d 1` prints for each dataset directly below the pool.
    listed: HashMap<String, String>,
    pipes: [File; 2],
    /// The vminfod that is measured; the one in this program if none is named.
    pub vminfod: Option<PathBuf>,
}

/// A line of zoneadm.
#[derive(Clone, Debug)]
pub(super) struct Zone {
    pub name: String,
    pub line: String,
}

impl Zone {
    /// The id of a zone that is up.
    pub(super) fn id(&self) -> Option<u32> {
        self.line.split(':').next()?.parse().ok()
    }
}

/// A change of the node that makes one line of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// `config/tags.json` is replaced.
    Tags,
    /// The zone's XML is replaced.
    Xml,
    /// The zone goes down or comes up: a zone event.
    Zone,
    /// The quota of its root dataset: a zfs event.
    Dataset,
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

    /// Creates a node with this many VMs.
    pub(super) async fn make(vms: u32) -> anyhow::Result<Cn> {
        let dir = tempfile::tempdir().context("no temporary directory")?;
        let options = CreateOptions { vms, ..CreateOptions::new(dir.path().join("cn")) };
        let node = Node::create(&options)?;
        let canned = dir.path().join("canned");
        for sub in ["zone", "one", "kstats", "platform"] {
            std::fs::create_dir_all(canned.join(sub))?;
        }
        let list = printed(&node, "zoneadm", &["list", "-p", "-c"]).await?;
        let zfs = printed(&node, "zfs", &recorded::LIST_ALL).await?;
        let kstat = printed(&node, "kstat", &[]).await?;
        let chosen = |args: [&str; 9]| recorded::zfs_list(zfs.as_bytes(), &args.map(str::to_owned));
        std::fs::write(canned.join("zoneadm.txt"), &list)?;
        std::fs::write(canned.join("datasets.txt"), chosen(LIST_DATASETS))?;
        std::fs::write(canned.join("snapshots.txt"), chosen(LIST_SNAPSHOTS))?;
        std::fs::write(canned.join("kstats/all"), &kstat)?;
        for one in serde_json::from_str::<Vec<Value>>(&kstat)? {
            let path = canned.join("kstats").join(one["instance"].to_string());
            std::fs::write(path, format!("[\n{one}\n]\n"))?;
        }
        write_scripts(&canned, &node.tool("fswatcher"))?;
        let zone = |line: &str| {
            let name = line.split(':').nth(1).filter(|name| *name != "global")?;
            Some(Zone { name: name.to_owned(), line: line.to_owned() })
        };
        let zones: Vec<Zone> = list.lines().filter_map(zone).collect();
        for zone in &zones {
            std::fs::write(canned.join("zone").join(&zone.name), format!("{}\n", zone.line))?;
        }
        let pipes = [pipe(&canned.join("pipe0"))?, pipe(&canned.join("pipe1"))?];
        let cn =
            Cn { _dir: dir, node, canned, zones, listed: by_dataset(&zfs), pipes, vminfod: None };
        // Read once and written to disk now: the system would write new files, and the time of their
        // first reading, half a minute later, beside whatever is measured then.
        limits::read_and_parse(&Root::new(cn.root()), &cn.rows())?;
        rustix::fs::sync();
        Ok(cn)
    }

    /// The directory that stands for `/`.
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

    /// The paths of its commands.
    pub(super) fn commands(&self) -> Paths {
        let with = |paths: Paths, program: Program| paths.with(program, self.tool(program.name()));
        PROGRAMS.into_iter().fold(Paths::default(), with)
    }

    /// Writes a configuration with which vminfod serves the node, with `more` settings.
    pub(super) fn config(&self, more: Value) -> anyhow::Result<PathBuf> {
        let mut config = self.node.vminfod_config_json("127.0.0.1:0");
        for (_, path) in config["commands"].as_object_mut().into_iter().flatten() {
            let name = path.as_str().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
            *path = json!(self.tool(name));
        }
        if let (Value::Object(config), Value::Object(more)) = (&mut config, more) {
            config.extend(more);
        }
        let path = self.canned.join("vminfod.json");
        std::fs::write(&path, config.to_string())?;
        Ok(path)
    }

    /// The zones whose files vminfod watches.
    pub(super) fn watched(&self) -> Zones {
        let place = |zone: &Zone| {
            let zonepath = zone.line.split(':').nth(3).unwrap_or_default().into();
            (zone.name.as_str().into(), ZonePlace { zonepath, exists: 0 })
        };
        Arc::new(self.zones.iter().map(place).collect::<BTreeMap<_, _>>())
    }

    /// Empties both streams of events for the next daemon.
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

    /// The commands that were run since the last call: name and arguments of each.
    pub(super) fn ran(&self) -> anyhow::Result<Vec<String>> {
        let path = self.canned.join("log");
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        File::create(&path)?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// Has zfs print for each of a zone's datasets alone what it prints in the list of all.
    pub(super) fn show(&self, zone: &str) -> anyhow::Result<()> {
        // Disks are beside the root dataset.
        let of_zone = format!("zones/{zone}");
        for (dataset, rows) in self.listed.iter().filter(|(name, _)| name.starts_with(&of_zone)) {
            for line in rows.lines() {
                let name = line.split('\t').nth(4).unwrap_or_default();
                self.show_rows(name, &format!("{line}\n"))?;
            }
            self.show_rows(dataset, rows)?;
        }
        Ok(())
    }

    fn show_rows(&self, dataset: &str, rows: &str) -> anyhow::Result<()> {
        let path = self.canned.join("one").join(format!("{dataset}.rows"));
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        // Where it is mounted is looked up apart.
        let listed = ["list", "-t", "filesystem,snapshot,volume", "-o", COLUMNS];
        let rows = recorded::zfs_list(rows.as_bytes(), &listed.map(str::to_owned));
        replace(&path, &String::from_utf8(rows)?)?;
        Ok(())
    }

    /// Sets the quota that zfs prints for a zone's root dataset from now on.
    pub(super) fn set_quota(&self, zone: &str, gib: u64) -> anyhow::Result<()> {
        let dataset = format!("zones/{zone}");
        let own = self.listed.get(&dataset).with_context(|| format!("{dataset} is not listed"))?;
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
        self.show_rows(&dataset, &rows)
    }

    /// Sets the state that `zoneadm -z` prints for this zone from now on.
    pub(super) fn set_state(&self, zone: &Zone, state: &str) -> anyhow::Result<()> {
        let mut fields: Vec<&str> = zone.line.split(':').collect();
        if let Some(field) = fields.get_mut(2) {
            *field = state;
        }
        replace(&self.canned.join("zone").join(&zone.name), &(fields.join(":") + "\n"))?;
        Ok(())
    }

    /// The first running zones whose root dataset is listed.
    pub(super) fn busy(&self, count: usize) -> Vec<Zone> {
        let is_busy = |zone: &&Zone| {
            zone.line.contains(":running:")
                && self.listed.contains_key(&format!("zones/{}", zone.name))
        };
        self.zones.iter().filter(is_busy).take(count).cloned().collect()
    }

    /// Replaces a zone's tags in one step, as vmadm does. Returns when.
    pub(super) fn set_tags(&self, zone: &str, n: u64) -> anyhow::Result<SystemTime> {
        let path = self.node.path(&format!("/zones/{zone}/config/tags.json"));
        replace(&path, &json!({ "n": n }).to_string())
    }

    /// Replaces a zone's XML in one step: it has another alias. Returns when.
    fn set_alias(&self, zone: &str, n: u64) -> anyhow::Result<SystemTime> {
        const ALIAS: &str = "name=\"alias\" type=\"string\" value=\"";
        let path = self.node.zone_xml(zone);
        let old = std::fs::read_to_string(&path)?;
        let (before, rest) = old.split_once(ALIAS).context("a zone without an alias")?;
        let (_, after) = rest.split_once('"').context("an attribute without an end")?;
        let alias = BASE64_STANDARD.encode(n.to_string());
        replace(&path, &format!("{before}{ALIAS}{alias}\"{after}"))
    }

    /// The line that announces a change of a zone's root dataset.
    pub(super) fn zfs_event(&self, zone: &Zone) -> String {
        let (dsname, detail) = (format!("zones/{}", zone.name), "quota=1".to_owned());
        let set = History { dsname, action: "set", detail, dsid: 1, txg: 1 };
        Sysevent::history(&self.node, &set).line() + "\n"
    }

    /// Makes the change number `n` of this zone; a running zone goes down with an even number and
    /// comes up with an odd one. Returns when it was made.
    pub(super) async fn change(
        &mut self,
        change: Change,
        zone: &Zone,
        n: u64,
    ) -> anyhow::Result<SystemTime> {
        match change {
            Change::Tags => self.set_tags(&zone.name, n),
            Change::Xml => self.set_alias(&zone.name, n),
            Change::Zone => {
                let state = if n.is_multiple_of(2) { "shutting_down" } else { "running" };
                self.set_state(zone, state)?;
                let event = zone_event(zone, state);
                let at = SystemTime::now();
                self.post(Stream::Zones, event.as_bytes()).await?;
                Ok(at)
            }
            Change::Dataset => {
                self.set_quota(&zone.name, 2000 + n)?;
                let event = self.zfs_event(zone);
                let at = SystemTime::now();
                self.post(Stream::Datasets, event.as_bytes()).await?;
                Ok(at)
            }
        }
    }
}

/// Replaces a file in one step. Returns when.
fn replace(path: &Path, text: &str) -> anyhow::Result<SystemTime> {
    let temp = path.with_extension("new");
    std::fs::write(&temp, text)?;
    let at = SystemTime::now();
    std::fs::rename(&temp, path)?;
    Ok(at)
}

/// Writes the node's commands. Each notes its name and arguments in `log` when it is run.
fn write_scripts(canned: &Path, fswatcher: &Path) -> anyhow::Result<()> {
    let (at, fswatcher) = (canned.display(), fswatcher.display());
    let scripts = [
        (
            "zoneadm",
            format!("case $1 in -z) exec cat {at}/zone/$2 ;; esac\nexec cat {at}/zoneadm.txt"),
        ),
        (
            "zfs",
            format!(
                "case $5 in\nsnapshot) exec cat {at}/snapshots.txt ;;\n\
                 filesystem,volume) exec cat {at}/datasets.txt ;;\n\
                 filesystem) shift 9\nfor name; do printf '%s\\t/%s\\n' \"$name\" \"$name\"; done\nexit ;;\n\
                 esac\nfor last; do :; done\nexec cat {at}/one/$last.rows"
            ),
        ),
        // Of the options of the shipped script, which runs it: -j -m zones -c zone_misc [-i ID].
        (
            "platform/kstat",
            format!(
                "[ -f {at}/kstats/${{7:-all}} ] || {{ echo '[]'; exit 1; }}\nexec cat {at}/kstats/${{7:-all}}"
            ),
        ),
        (
            "sysevent",
            format!(
                "case \"$*\" in *com.sun:zones*) exec cat {at}/pipe0 ;; esac\nexec cat {at}/pipe1"
            ),
        ),
        ("fswatcher", format!("exec {fswatcher} \"$@\"")),
    ];
    for (name, script) in scripts {
        let path = canned.join(name);
        let log = format!("printf '%s\\n' \"${{0##*/}} $*\" >> {at}/log");
        std::fs::write(&path, format!("#!/bin/sh\n{log}\n{script}\n"))?;
        std::fs::set_permissions(&path, Permissions::from_mode(0o755))?;
    }
    let shipped = canned.join("kstat");
    std::fs::write(&shipped, zone_kstats(&canned.join("platform/kstat")))?;
    std::fs::set_permissions(&shipped, Permissions::from_mode(0o755))?;
    Ok(())
}

/// The rows of each dataset directly below the pool and of what is directly below that. Made once: a
/// search through all rows before each event would empty the daemon's caches.
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

/// The line that announces this state of a zone.
fn zone_event(zone: &Zone, state: &str) -> String {
    let before = if state == "running" { "ready" } else { "running" };
    Sysevent::zone("kernel", &zone.name, before, state, zone.id().map(i64::from)).line() + "\n"
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
