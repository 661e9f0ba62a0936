// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Real servers for tests on Linux: [`postgres`], [`port`]s that are held for them, and ZFS. Each [`Cn`] is a zfs-fuse
//! daemon in a mount namespace of its own, with a pool `zones` on a file. What is odd about zfs-fuse is dealt with
//! here:
//!
//! * an unmount ends later than its command, so a command that is told "busy" is repeated;
//! * a forced receive unmounts what it destroys, meets the same and leaves `recv-PID-N`: what it is
//!   to destroy must not be mounted;
//! * a recursive destroy may stop half way, so it is repeated until nothing is left;
//! * the kernel keeps old bytes of a mounted file system that is received into: receive with `-u`;
//! * all daemons have one address: one namespace each, made before there is any pool;
//! * the daemon is killed when its [`Cn`] is dropped or the test dies, and its mounts go with the
//!   namespace.

#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods)] // Processes and waiting for them are its purpose.

pub mod nats; // real nats-servers

pub mod relay; // a network between two programs that fails

pub mod nfs; // a real NFS server

mod tools; // programs of the system

pub mod postgres;

pub mod port; // a TCP port that is held

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

use self::tools::{PAUSE, STARTS, is_installed};

/// So often a command that is told "busy" is tried, for about 2 seconds and the time that it takes itself.
const TRIES: usize = 100;
/// Enough for most tests.
pub const SMALL: u64 = 512 << 20;

/// A file system with a daemon: a compute node's `zones`.
pub struct Cn {
    dir: TempDir,
    daemon: Child,
}

/// Why there is no real ZFS here, in a word for the output of a skipped test.
pub fn why_not() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("not root");
    }
    if !Path::new("/dev/fuse").exists() {
        return Some("no /dev/fuse");
    }
    if !is_installed("zfs-fuse") {
        return Some("no zfs-fuse (apt-get install zfs-fuse)");
    }
    if !["unshare", "nsenter", "setpriv"].iter().all(|tool| is_installed(tool)) {
        return Some("no util-linux");
    }
    let tried = Command::new("unshare").args(["-m", "true"]).stderr(Stdio::null()).status();
    (!tried.is_ok_and(|status| status.success())).then_some("no mount namespaces")
}

/// Mounts of its own over the places that all daemons share, and then the daemon. Its own mounts
/// are seen by nobody else.
const START: &str = "mount --make-rprivate / && mkdir -p /var/run/zfs /var/lib/zfs && \
                     for dir in /var/run/zfs /var/lib/zfs /var/lock; do \
                     mount -t tmpfs tmpfs $dir || exit 1; done && mkdir -p /var/lock/zfs && \
                     exec zfs-fuse --no-daemon --no-kstat-mount";

/// Starts so many nodes. The file of each pool may become so many bytes long; it is in memory where the system has
/// such a place.
pub fn start(nodes: usize, pool: u64) -> io::Result<Vec<Cn>> {
    // A daemon reads the mounts of the namespace: they are all made before there is a pool.
    let nodes: Vec<Cn> = (0..nodes).map(|_| Cn::daemon()).collect::<io::Result<_>>()?;
    for node in &nodes {
        node.pool(pool)?;
    }
    Ok(nodes)
}

impl Cn {
    fn daemon() -> io::Result<Cn> {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| TempDir::new())?;
        let log = File::create(dir.path().join("log"))?;
        let daemon = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "unshare", "-m", "sh", "-c", START])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let mut node = Cn { dir, daemon };
        for _ in 0..STARTS {
            if node.daemon.try_wait()?.is_some() {
                break;
            }
            if node.run("zpool", &["list"])?.status.success() {
                return Ok(node);
            }
            std::thread::sleep(PAUSE);
        }
        let log = std::fs::read_to_string(node.dir.path().join("log"))?;
        Err(io::Error::other(format!("zfs-fuse does not start: {log}")))
    }

    fn pool(&self, bytes: u64) -> io::Result<()> {
        let file = self.dir.path().join("pool");
        File::create(&file)?.set_len(bytes)?;
        let (name, root) = (file.to_string_lossy(), self.dir.path().join("zones"));
        let made = self.run("zpool", &["create", "-m", &root.to_string_lossy(), "zones", &name])?;
        // The daemon has it open: its gigabytes go with the daemon, also where this process is killed.
        std::fs::remove_file(&file)?;
        match made.status.success() {
            true => Ok(()),
            false => Err(io::Error::other(String::from_utf8_lossy(&made.stderr).into_owned())),
        }
    }

    fn command(&self, tool: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-m", "-t", &self.daemon.id().to_string(), "--", tool]);
        command
    }

    fn run(&self, tool: &str, args: &[&str]) -> io::Result<Output> {
        self.command(tool).args(args).stdin(Stdio::null()).output()
    }

    /// Runs `zfs` on the node until it is not told "busy".
    pub fn zfs(&self, args: &[&str]) -> io::Result<Output> {
        let mut output = self.run("zfs", args)?;
        for _ in 0..TRIES {
            let is_busy = String::from_utf8_lossy(&output.stderr).contains("is busy");
            if output.status.success() || !is_busy {
                break;
            }
            std::thread::sleep(PAUSE);
            output = self.run("zfs", args)?;
        }
        Ok(output)
    }

    /// Destroys a dataset with everything in it.
    pub fn destroy(&self, dataset: &str) -> io::Result<()> {
        for _ in 0..TRIES {
            let output = self.zfs(&["destroy", "-R", dataset])?;
            if !self.run("zfs", &["list", dataset])?.status.success() {
                return Ok(());
            }
            if !String::from_utf8_lossy(&output.stderr).contains("busy") {
                std::thread::sleep(PAUSE);
            }
        }
        Err(io::Error::other(format!("{dataset} is not destroyed")))
    }

    /// Runs `zfs` with these bytes on its stdin, once: half a stream may have been taken.
    pub fn zfs_with(&self, args: &[&str], stdin: &[u8]) -> io::Result<Output> {
        let mut child = self
            .command("zfs")
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut pipe = child.stdin.take();
        // A command that has seen enough does not read the rest; its few words fit into its pipe.
        if let Some(pipe) = &mut pipe
            && let Err(error) = pipe.write_all(stdin)
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            return Err(error);
        }
        drop(pipe);
        child.wait_with_output()
    }

    /// A running `zfs` of the node, for streams between processes.
    pub fn zfs_command(&self, args: &[&str]) -> Command {
        let mut command = self.command("zfs");
        command.args(args);
        command
    }

    /// Makes an executable that runs `zfs` or `zpool` of the node, and returns its path.
    pub fn tool(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.dir.path().join(name);
        let text = format!("#!/bin/sh\nexec nsenter -m -t {} -- {name} \"$@\"\n", self.daemon.id());
        std::fs::write(&path, text)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
        Ok(path)
    }

    /// Where a path below a mounted dataset is for this process.
    pub fn path(&self, dataset: &str, path: &str) -> PathBuf {
        let inside = self.dir.path().join(dataset).join(path);
        let inside = inside.to_string_lossy();
        PathBuf::from(format!("/proc/{}/root{inside}", self.daemon.id()))
    }
}

impl Drop for Cn {
    fn drop(&mut self) {
        // The namespace goes with its last process, and its mounts with the namespace.
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}
