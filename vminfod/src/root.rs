// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Every node path under one root: the only file that names files of a compute node.
//!
//! Reads are capped in size. Nothing here writes, and no path given by a
//! zone can lead above the root.

use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::lanes::Lanes;

/// How long a file system may take to answer, if nothing else is said.
pub const READ_DEADLINE: Duration = Duration::from_secs(10);

/// Where the node's `/` is; a directory of its own in tests and on simulated nodes.
#[derive(Debug, Clone)]
pub struct Root {
    dir: Arc<Path>,
    lanes: Lanes,
    deadline: Duration,
}

/// Why a file could not be read.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReadError {
    /// The system refused.
    #[error("cannot read: {0}")]
    Io(#[source] Arc<std::io::Error>),
    /// More bytes than this kind of file may have.
    #[error("larger than {cap} bytes")]
    TooLarge {
        /// The most that is accepted.
        cap: u64,
    },
    /// It is not the file itself that stands there.
    #[error("a symbolic link is not followed")]
    Link,
    /// The file system did not answer.
    #[error("no answer within {} s", .0.as_secs_f64())]
    Deadline(Duration),
    /// It has not answered for longer than that, and is left alone until it does.
    #[error("its file system still does not answer")]
    Hangs,
}

impl ReadError {
    /// Whether the file is simply not there.
    pub fn is_absent(&self) -> bool {
        use std::io::ErrorKind::{NotADirectory, NotFound};
        matches!(self, ReadError::Io(e) if matches!(e.kind(), NotFound | NotADirectory))
    }

    pub(crate) fn io(e: std::io::Error) -> Self {
        ReadError::Io(Arc::new(e))
    }
}

impl Root {
    /// A root at this directory; `/` on a real node.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Root { dir: dir.into().into(), lanes: Lanes::default(), deadline: READ_DEADLINE }
    }

    /// The same with another deadline for file systems.
    pub fn with_deadline(self, deadline: Duration) -> Self {
        Root { deadline, ..self }
    }

    /// How long a file system may take to answer.
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    pub(crate) fn lanes(&self) -> &Lanes {
        &self.lanes
    }

    /// The directory itself.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// An absolute path of the node, as seen from outside. `.` and `..` are dropped.
    pub fn path(&self, abs: &str) -> PathBuf {
        let mut path = self.dir.to_path_buf();
        path.extend(Path::new(abs).components().filter(|c| matches!(c, Component::Normal(_))));
        path
    }

    /// The configuration of one zone.
    pub fn zone_xml(&self, zonename: &str) -> PathBuf {
        self.path("/etc/zones").join(format!("{}.xml", file_name(zonename)))
    }

    /// zoneadm's list of all zones.
    pub fn zone_index(&self) -> PathBuf {
        self.path("/etc/zones/index")
    }

    /// What sysinfo(8) left.
    pub fn sysinfo(&self) -> PathBuf {
        self.path("/tmp/.sysinfo.json")
    }

    /// `metadata`, `tags` or `routes` of the zone at this zonepath.
    pub fn config_file(&self, zonepath: &str, name: &str) -> PathBuf {
        self.config_dir(zonepath).join(format!("{}.json", file_name(name)))
    }

    /// Where the zone at this zonepath has its metadata, tags and routes.
    pub fn config_dir(&self, zonepath: &str) -> PathBuf {
        self.path(zonepath).join("config")
    }

    /// When and how the zone's init last ended.
    pub fn lastexited(&self, zonepath: &str) -> PathBuf {
        self.path(zonepath).join("lastexited")
    }

    /// The create payload of a VM being received.
    pub fn receiving(&self, uuid: &str) -> PathBuf {
        self.path("/etc/zones").join(format!("{}-receiving.json", file_name(uuid)))
    }
}

/// A name from outside made harmless as part of a path: a slash would leave the directory.
fn file_name(name: &str) -> String {
    name.replace(['/', '\0'], "_")
}

/// Reads a regular file of at most `cap` bytes, here and now: for work inside [`Root::on_files`].
pub fn read_file(path: &Path, cap: u64) -> Result<Vec<u8>, ReadError> {
    read_opened(path, cap, OFlags::empty())
}

/// The same for a file below a zonepath. A link there could lead to any file of the node and make
/// it part of an object that everybody may read.
pub fn read_unlinked(path: &Path, cap: u64) -> Result<Vec<u8>, ReadError> {
    read_opened(path, cap, OFlags::NOFOLLOW).map_err(|e| match &e {
        ReadError::Io(io) if io.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
            ReadError::Link
        }
        _ => e,
    })
}

/// That a directory below a zonepath is not a link, if it is there at all.
pub fn check_unlinked(dir: &Path) -> Result<(), ReadError> {
    match std::fs::symlink_metadata(dir) {
        Ok(stat) if stat.is_symlink() => Err(ReadError::Link),
        // Reading what is in it tells the rest.
        Ok(_) | Err(_) => Ok(()),
    }
}

fn read_opened(path: &Path, cap: u64, flags: OFlags) -> Result<Vec<u8>, ReadError> {
    // Without the flag, opening a pipe that somebody left there would wait for a writer.
    let flags = flags | OFlags::NONBLOCK;
    let file = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits() as i32)
        .open(path)
        .map_err(ReadError::io)?;
    let stat = file.metadata().map_err(ReadError::io)?;
    if stat.is_dir() {
        return Err(ReadError::io(std::io::ErrorKind::IsADirectory.into()));
    }
    if !stat.is_file() {
        return Err(ReadError::io(std::io::Error::other("not a regular file")));
    }
    let mut bytes = Vec::with_capacity(stat.len().min(cap) as usize);
    file.take(cap.saturating_add(1)).read_to_end(&mut bytes).map_err(ReadError::io)?;
    if bytes.len() as u64 > cap {
        return Err(ReadError::TooLarge { cap });
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_below_the_root() {
        let root = Root::new("/node");
        assert_eq!(root.path("/../../etc/../zones/a"), Path::new("/node/etc/zones/a"));
        assert_eq!(root.zone_xml("../x"), Path::new("/node/etc/zones/.._x.xml"));
        assert_eq!(
            root.config_file("/zones/z", "tags"),
            Path::new("/node/zones/z/config/tags.json")
        );
        assert_eq!(root.sysinfo(), Path::new("/node/tmp/.sysinfo.json"));
    }

    #[test]
    fn links_are_followed_only_where_nobody_else_can_make_them() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link, inside) =
            (dir.path().join("f"), dir.path().join("l"), dir.path().join("d"));
        std::fs::write(&file, b"secret").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        std::os::unix::fs::symlink(dir.path(), &inside).unwrap();
        assert_eq!(read_file(&link, 9).unwrap(), b"secret");
        assert_eq!(read_unlinked(&file, 9).unwrap(), b"secret");
        assert!(matches!(read_unlinked(&link, 9), Err(ReadError::Link)));
        assert!(matches!(check_unlinked(&inside), Err(ReadError::Link)));
        assert!(check_unlinked(dir.path()).is_ok() && check_unlinked(&link.join("x")).is_ok());
    }
}
