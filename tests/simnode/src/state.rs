// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The zones as the kernel and zoneadm have them, in the node's `state` directory, and the lock for
//! changes.
//!
//! Readers take no lock, since each file is replaced in one step. A change loads, edits, saves and
//! posts under one [`Guard`].

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use indexmap::IndexMap;
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::datasets::Datasets;
use crate::error::NodeError;
use crate::files;
use crate::node::Node;
use crate::sysevent::{self, Sysevent};

/// The state of a zone in zoneadm's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ZoneState {
    /// Has a configuration only.
    Configured,
    /// Being installed or uninstalled.
    Incomplete,
    /// Has a file system, does not run.
    Installed,
    /// The kernel has the zone, init was not started.
    Ready,
    Running,
    /// Is being halted.
    ShuttingDown,
    /// Its processes are gone, the kernel still has it.
    Down,
}

impl ZoneState {
    /// As zoneadm prints it.
    pub fn as_str(self) -> &'static str {
        match self {
            ZoneState::Configured => "configured",
            ZoneState::Incomplete => "incomplete",
            ZoneState::Installed => "installed",
            ZoneState::Ready => "ready",
            ZoneState::Running => "running",
            ZoneState::ShuttingDown => "shutting_down",
            ZoneState::Down => "down",
        }
    }

    /// The word of the zone index, which knows three states.
    pub fn in_index(self) -> &'static str {
        match self {
            ZoneState::Configured => "configured",
            ZoneState::Incomplete => "incomplete",
            _ => "installed",
        }
    }

    /// Returns true if the kernel has the zone.
    pub fn is_active(self) -> bool {
        !matches!(self, ZoneState::Configured | ZoneState::Incomplete | ZoneState::Installed)
    }
}

/// The counters of an active zone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ZoneKstat {
    /// The number of the kstat.
    pub instance: i64,
    /// The process of init, 0 before it starts.
    pub init_pid: i64,
    /// How often init was restarted.
    pub init_restarts: u32,
    /// Seconds since 1970, 0 before init starts.
    pub boot_time: i64,
}

/// One zone as zoneadm and the kernel know it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Zone {
    /// The name; vmadm uses the UUID.
    pub zonename: String,
    pub uuid: String,
    pub brand: String,
    /// The directory of the zone.
    pub zonepath: String,
    pub state: ZoneState,
    /// The kernel's number while active.
    pub zoneid: Option<i64>,
    /// The debug id, which stays over reboots.
    pub zonedid: i64,
    /// The counters while active.
    pub kstat: Option<ZoneKstat>,
    /// Who made it, where that is known; no command shows it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub made_by: String,
}

impl Zone {
    /// The line of `zoneadm list -p`.
    pub fn line(&self) -> String {
        let id = self.zoneid.map_or_else(|| "-".to_string(), |id| id.to_string());
        let Zone { zonename, zonepath, uuid, brand, zonedid, .. } = self;
        format!("{id}:{zonename}:{}:{zonepath}:{uuid}:{brand}:excl:{zonedid}", self.state.as_str())
    }
}

/// All zones but the global one, in the order of the zone index.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Zones {
    next_zoneid: i64,
    next_zonedid: i64,
    next_pid: i64,
    zones: IndexMap<String, Zone>,
}

impl Default for Zones {
    fn default() -> Self {
        Zones { next_zoneid: 1, next_zonedid: 1, next_pid: 4211, zones: IndexMap::new() }
    }
}

impl Zones {
    /// A zone by name or UUID.
    pub fn find(&self, name: &str) -> Option<&Zone> {
        self.zones.get(name).or_else(|| self.zones.values().find(|z| z.uuid == name))
    }

    /// A zone by its exact name.
    pub fn zone_mut(&mut self, zonename: &str) -> Result<&mut Zone, NodeError> {
        self.zones.get_mut(zonename).ok_or_else(|| NodeError::NoSuchZone(zonename.to_string()))
    }

    /// Every zone, in the order of the index.
    pub fn iter(&self) -> impl Iterator<Item = &Zone> {
        self.zones.values()
    }

    /// Adds a zone.
    pub fn insert(&mut self, zone: Zone) {
        self.zones.insert(zone.zonename.clone(), zone);
    }

    /// Forgets a zone.
    pub fn remove(&mut self, zonename: &str) -> Option<Zone> {
        self.zones.shift_remove(zonename)
    }

    /// The next number of an active zone.
    pub fn take_zoneid(&mut self) -> i64 {
        self.next_zoneid += 1;
        self.next_zoneid - 1
    }

    /// The next debug id.
    pub fn take_zonedid(&mut self) -> i64 {
        self.next_zonedid += 1;
        self.next_zonedid - 1
    }

    /// The next process id of an init.
    pub fn take_pid(&mut self) -> i64 {
        self.next_pid += 37;
        self.next_pid
    }

    /// The zones as `zoneadm list` orders them: active ones by number, then the index.
    pub fn listed(&self, all: bool) -> Vec<&Zone> {
        let mut active: Vec<&Zone> = self.iter().filter(|z| z.state.is_active()).collect();
        active.sort_by_key(|z| z.zoneid);
        if all {
            active.extend(self.iter().filter(|z| !z.state.is_active()));
        }
        active
    }

    fn index(&self) -> String {
        let mut text = String::from(
            "# The zones of this node. Read and written by zonecfg and zoneadm only.\nglobal:installed:/\n",
        );
        for z in self.iter() {
            let state = z.state.in_index();
            text.push_str(&format!(
                "{}:{state}:{}:{}:{}:excl:{}\n",
                z.zonename, z.zonepath, z.uuid, z.brand, z.zonedid
            ));
        }
        text
    }
}

/// The node's lock, held during a change.
pub struct Guard<'a> {
    /// The node it belongs to.
    pub node: &'a Node,
    _lock: File,
}

fn flock(path: &Path) -> Result<File, NodeError> {
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .map_err(|e| NodeError::io("open", path, e))?;
    loop {
        match rustix::fs::flock(&file, FlockOperation::LockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(NodeError::io("lock", path, e.into())),
        }
    }
}

/// A zone's lock, held during a boot, halt or deletion, as zoneadmd does.
pub struct ZoneLock {
    _lock: File,
}

impl Node {
    /// Waits for the node's lock.
    pub fn lock(&self) -> Result<Guard<'_>, NodeError> {
        Ok(Guard { node: self, _lock: flock(&self.state_dir().join("lock"))? })
    }

    /// Waits for the lock of this zone.
    pub fn lock_zone(&self, zonename: &str) -> Result<ZoneLock, NodeError> {
        check_zonename(zonename)?;
        Ok(ZoneLock { _lock: flock(&self.state_dir().join(format!("zone.{zonename}.lock")))? })
    }

    fn zones_file(&self) -> PathBuf {
        self.state_dir().join("zones.json")
    }

    fn datasets_file(&self) -> PathBuf {
        self.state_dir().join("zfs.json")
    }

    /// The zones as they are now.
    pub fn zones(&self) -> Result<Zones, NodeError> {
        files::read_json(&self.zones_file())
    }

    /// The datasets as they are now. A text of equal bytes is not read again: there are many more looks than changes.
    pub fn datasets(&self) -> Result<Arc<Datasets>, NodeError> {
        let text = files::read(&self.datasets_file())?;
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = read.as_ref().filter(|(before, _)| *before == text) {
            return Ok(Arc::clone(known));
        }
        let all: Arc<Datasets> = Arc::new(files::parse_json(&self.datasets_file(), &text)?);
        *read = Some((text, Arc::clone(&all)));
        Ok(all)
    }
}

impl Guard<'_> {
    /// Stores the zones, and the index if its text changed.
    pub fn save_zones(&self, zones: &Zones) -> Result<(), NodeError> {
        files::replace(&self.node.zones_file(), json!(zones).to_string().as_bytes())?;
        let index = self.node.path("/etc/zones/index");
        let wanted = zones.index();
        if std::fs::read(&index).ok().as_deref() != Some(wanted.as_bytes()) {
            files::replace(&index, wanted.as_bytes())?;
        }
        Ok(())
    }

    /// Stores the datasets.
    pub fn save_datasets(&self, datasets: &Datasets) -> Result<(), NodeError> {
        files::replace(&self.node.datasets_file(), json!(datasets).to_string().as_bytes())
    }

    /// Sends an event to every running `sysevent` of this node.
    pub fn post(&self, event: &Sysevent) -> Result<(), NodeError> {
        if self.node.is_silent() {
            return Ok(());
        }
        sysevent::post(self.node, event)
    }
}

/// Refuses invalid zone names, since they become file names.
pub fn check_zonename(name: &str) -> Result<(), NodeError> {
    let fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if name.len() <= 63 && starts_well && name.chars().all(fine) && name != "global" {
        return Ok(());
    }
    let shown: String = name.chars().take(70).flat_map(char::escape_default).collect();
    Err(NodeError::invalid("zone name", format!("'{shown}' cannot be one")))
}
