// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Real ZFS for a node of the world: the datasets of its VM are in a pool of the rig, and streams go over TCP. The
//! zones, their configuration and vminfod stay simulated.

use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use daemon::command::{Paths, Program, Spawned};
use rig::Cn;
use serde_json::{Map, Value};

use crate::moving::subject::VM;

/// What happens to a connection for data, at a byte of what the sender says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// It is cut before that byte.
    Cut(usize),
    /// A bit of that byte is flipped.
    Flip(usize),
}

/// Says before each connection what happens to it.
pub type Network = Box<dyn FnMut() -> Option<Damage> + Send>;

/// Between two writes of the guest.
const PAUSE: Duration = Duration::from_millis(20);

/// The pool of a node, and what writes to it.
pub struct Disk {
    cn: Cn,
    /// `zfs` and `zpool` of the pool.
    pub commands: Spawned,
    network: Mutex<Option<Network>>,
    guest: Mutex<Option<Guest>>,
}

struct Guest {
    /// Its drop ends the writes.
    runs: SyncSender<()>,
    writes: JoinHandle<()>,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Disk {
    /// Uses a node of the rig.
    pub fn new(cn: Cn) -> std::io::Result<Disk> {
        let paths = Paths::default().with(Program::Zfs, cn.tool("zfs")?);
        let commands = Spawned::new(paths.with(Program::Zpool, cn.tool("zpool")?));
        Ok(Disk { cn, commands, network: Mutex::default(), guest: Mutex::default() })
    }

    /// Runs `zfs` with these words.
    pub fn zfs(&self, line: &str) -> anyhow::Result<String> {
        let output = self.cn.zfs(&line.split(' ').collect::<Vec<_>>())?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "zfs {line}: {}", said.trim());
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// A `zfs` that can be started, for streams.
    pub fn zfs_command(&self, line: &str) -> std::process::Command {
        self.cn.zfs_command(&line.split(' ').collect::<Vec<_>>())
    }

    /// Destroys a dataset with everything in it.
    pub fn destroy(&self, dataset: &str) -> std::io::Result<()> {
        self.cn.destroy(dataset)
    }

    /// Where a path of the VM is.
    pub fn path(&self, path: &str) -> PathBuf {
        self.cn.path(&format!("zones/{VM}"), path)
    }

    /// Installs an image.
    pub fn install(&self, image: &str) -> anyhow::Result<()> {
        let dataset = format!("zones/{image}");
        self.zfs(&format!("create {dataset}"))?;
        std::fs::write(self.cn.path(&dataset, "release"), "the image")?;
        self.zfs(&format!("snapshot {dataset}@final")).map(drop)
    }

    /// Makes the datasets that `vmadm create` makes of a payload.
    pub fn make(&self, vm: &Map<String, Value>) -> anyhow::Result<()> {
        let image = vm.get("image_uuid").and_then(Value::as_str).context("no image")?;
        let quota = vm.get("quota").and_then(Value::as_u64).context("no quota")?;
        self.zfs(&format!("clone zones/{image}@final zones/{VM}"))?;
        self.zfs(&format!("set quota={quota}G zones/{VM}"))?;
        self.zfs(&format!("create zones/{VM}/data")).map(drop)
    }

    /// From now on each connection from here meets what this says.
    pub fn set_network(&self, network: Network) {
        *lock(&self.network) = Some(network);
    }

    /// What happens to the next connection.
    pub fn damage(&self) -> Option<Damage> {
        lock(&self.network).as_mut().and_then(|network| network())
    }

    /// The VM runs, and writes this again and again.
    pub fn runs(&self, mut write: impl FnMut() + Send + 'static) {
        let (runs, rests) = sync_channel::<()>(0);
        let writes = std::thread::spawn(move || {
            while rests.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
                write();
            }
        });
        *lock(&self.guest) = Some(Guest { runs, writes });
    }

    /// Returns true while the VM writes.
    pub fn is_written(&self) -> bool {
        lock(&self.guest).is_some()
    }

    /// The VM has stopped: when this returns, it writes nothing any more.
    pub fn rests(&self) {
        if let Some(Guest { runs, writes }) = lock(&self.guest).take() {
            drop(runs);
            // What it could not write is seen where it is missed.
            drop(writes.join());
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.rests();
    }
}
