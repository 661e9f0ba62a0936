// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A node: its directory, its description, and the paths in it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::datasets::Datasets;
use crate::error::NodeError;
use crate::files;
use crate::places::NodeKind;
use crate::tap::Tap;

/// The commands in the `bin` directory of every node; `kstat` beside them is the script that is shipped for it.
pub const TOOLS: [&str; 5] = ["zoneadm", "zonecfg", "zfs", "sysevent", "fswatcher"];

/// Commands of the platform that only scripts of `deploy/` and command lines run: in the directory `platform`.
pub const PLATFORM: [&str; 13] = [
    "kstat",
    "svcs",
    "svcadm",
    "svcprop",
    "svccfg",
    "mount",
    "umount",
    "uname",
    "apm",
    "uuid",
    "json",
    "bootparams",
    "logadm",
];

/// The script that vminfod runs as its `kstat` command, as it is shipped.
const ZONE_KSTATS: &str = include_str!("../../../deploy/bin/zone-kstats");

/// Returns the shipped script of vminfod's `kstat` command; it runs this program in place of the platform's.
pub fn zone_kstats(kstat: &Path) -> String {
    ZONE_KSTATS.replace("/usr/bin/kstat", &format!("'{}'", kstat.display()))
}

/// What the node's `zfs` can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Zfs {
    /// What that of illumos can: estimates, resumed streams, bookmarks.
    #[default]
    Illumos,
    /// What zfs-fuse 0.7.0 can.
    Fuse,
}

impl Zfs {
    fn is_default(&self) -> bool {
        *self == Zfs::default()
    }
}

/// The content of `node.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeInfo {
    /// The UUID of the compute node, as sysinfo has it.
    pub cn_uuid: String,
    /// The host name in the history of zfs.
    #[serde(default = "default_hostname")]
    pub hostname: String,
    /// The base URL of this node's vminfod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vminfod_url: Option<String>,
    /// The base URL of NAPI, for agents of this node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub napi_url: Option<String>,
    /// The base URL of VMAPI, for agents of this node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vmapi_url: Option<String>,
    /// How long a zone stays in each state on its way, in milliseconds.
    #[serde(default)]
    pub pace_ms: u64,
    /// What it is.
    #[serde(default)]
    pub kind: NodeKind,
    /// The platform image of its next boot.
    #[serde(default = "default_platform")]
    pub platform: String,
    /// What its `zfs` can do.
    #[serde(default, skip_serializing_if = "Zfs::is_default")]
    pub zfs: Zfs,
}

fn default_hostname() -> String {
    "cn-sim".to_string()
}

/// The platform image of a new node.
pub(crate) fn default_platform() -> String {
    "20260601T000000Z".to_owned()
}

/// A text of the datasets, and what it says.
type Read = (Vec<u8>, Arc<Datasets>);

/// A simulated compute node.
#[derive(Clone, Debug)]
pub struct Node {
    dir: PathBuf,
    info: NodeInfo,
    silent: bool,
    tap: Option<Tap>,
    maker: &'static str,
    /// What was read of the datasets last.
    pub(crate) read: Arc<Mutex<Option<Read>>>,
}

impl Node {
    /// Opens the node that lives in `dir`.
    pub fn open(dir: impl Into<PathBuf>) -> Result<Node, NodeError> {
        let given = dir.into();
        let dir = std::path::absolute(&given).map_err(|e| NodeError::io("resolve", &given, e))?;
        for part in ["node.json", "root", "state"] {
            if !dir.join(part).exists() {
                return Err(NodeError::NotANode { dir, missing: part });
            }
        }
        let info = files::read_json(&dir.join("node.json"))?;
        Ok(Node::new(dir, info))
    }

    /// A node in `dir`, whose files the caller makes.
    pub(crate) fn new(dir: PathBuf, info: NodeInfo) -> Node {
        Node { dir, info, silent: false, tap: None, maker: "", read: Arc::default() }
    }

    /// Returns the same node without sysevents: changes made through it are not announced.
    pub fn losing_events(&self) -> Node {
        Node { silent: true, ..self.clone() }
    }

    /// Returns the same node; events posted through it also go to the tap.
    pub fn tapped(&self, tap: &Tap) -> Node {
        Node { tap: Some(tap.clone()), ..self.clone() }
    }

    /// Returns the same node in the hands of somebody: the datasets, snapshots and zones that he makes carry
    /// his name, `made_by`.
    pub fn by(&self, maker: &'static str) -> Node {
        Node { maker, ..self.clone() }
    }

    /// In whose hands it is.
    pub(crate) fn maker(&self) -> &'static str {
        self.maker
    }

    /// Whether sysevents are lost.
    pub(crate) fn is_silent(&self) -> bool {
        self.silent
    }

    /// Who listens in this process.
    pub(crate) fn tap(&self) -> Option<&Tap> {
        self.tap.as_ref()
    }

    /// The node's directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The directory that stands for `/` of the node.
    pub fn root(&self) -> PathBuf {
        self.dir.join("root")
    }

    /// A path of the node, such as `/etc/zones/index`, in the testbed's file system.
    pub fn path(&self, absolute: &str) -> PathBuf {
        self.root().join(absolute.trim_start_matches('/'))
    }

    /// The configuration file of a zone.
    pub fn zone_xml(&self, zonename: &str) -> PathBuf {
        self.path(&format!("/etc/zones/{zonename}.xml"))
    }

    /// One of the node's executables.
    pub fn tool(&self, name: &str) -> PathBuf {
        self.dir.join("bin").join(name)
    }

    /// One of the platform's commands that scripts run.
    pub fn platform(&self, name: &str) -> PathBuf {
        self.dir.join("platform").join(name)
    }

    /// The directory with one socket per running `sysevent`.
    pub fn run_dir(&self) -> PathBuf {
        self.dir.join("run")
    }

    /// The directory with what the kernel and zfs know.
    pub fn state_dir(&self) -> PathBuf {
        self.dir.join("state")
    }

    /// The files of the platform image, of which the ramdisk and `/usr` are made at a boot.
    pub(crate) fn image_dir(&self) -> PathBuf {
        self.dir.join("image")
    }

    /// The platform image that runs.
    pub fn running_platform(&self) -> Result<String, NodeError> {
        let sysinfo: Value = files::read_json(&self.path("/tmp/.sysinfo.json"))?;
        Ok(sysinfo["Live Image"].as_str().unwrap_or_default().to_owned())
    }

    /// The content of `node.json`.
    pub fn info(&self) -> &NodeInfo {
        &self.info
    }

    /// The UUID of this compute node.
    pub fn cn_uuid(&self) -> &str {
        &self.info.cn_uuid
    }

    /// The base URL of this node's vminfod.
    pub fn vminfod_url(&self) -> Option<&str> {
        self.info.vminfod_url.as_deref()
    }

    /// How long a zone stays in each state on its way.
    pub fn pace(&self) -> Duration {
        Duration::from_millis(self.info.pace_ms)
    }

    /// Changes `node.json`.
    pub fn set_info(&mut self, change: impl FnOnce(&mut NodeInfo)) -> Result<(), NodeError> {
        change(&mut self.info);
        files::write_json(&self.dir.join("node.json"), &json!(self.info))
    }

    /// Returns a configuration with which vminfod serves this node at `listen`.
    pub fn vminfod_config_json(&self, listen: &str) -> Value {
        let tool = |name: &str| self.tool(name).to_string_lossy().into_owned();
        json!({
            "root": self.root().to_string_lossy(),
            "listen": listen,
            "commands": {
                "zoneadm": tool("zoneadm"),
                "zfs": tool("zfs"),
                "kstat": tool("kstat"),
                "sysevent": tool("sysevent"),
                "fswatcher": tool("fswatcher"),
            },
        })
    }
}
