// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The paths of a compute node below one root, and how its files are read.
//!
//! Reads are capped in size. Nothing here writes, and no path given by a zone leads above the root.

use std::borrow::Cow;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::hung::Hung;

/// How long a file system may take to answer.
pub const DEADLINE: Duration = Duration::from_secs(10);

/// The node's `/`; another directory in tests and on simulated nodes.
#[derive(Debug, Clone)]
pub struct Root {
    dir: Arc<Path>,
    hung: Hung,
    deadline: Duration,
}

/// A file's content, and which version of it that is.
#[derive(Debug)]
pub struct Content {
    /// All of it.
    pub bytes: Vec<u8>,
    /// The status of the open file before it was read.
    pub stat: Stat,
}

/// Attempts to read a file that is being written.
const TRIES: u32 = 3;
/// Bytes that the buffer grows by when the file has grown.
const READ: usize = 64 * 1024;

/// Why a file could not be read.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReadError {
    /// A system call failed.
    #[error("cannot read: {0}")]
    Io(#[source] Arc<std::io::Error>),
    /// More bytes than this kind of file may have.
    #[error("larger than {cap} bytes")]
    TooLarge {
        /// The most that is accepted.
        cap: u64,
    },
    /// The path is a symbolic link.
    #[error("a symbolic link is not followed")]
    Link,
    /// The file system did not answer.
    #[error("no answer within {} s", .0.as_secs_f64())]
    Deadline(Duration),
    /// Its file system missed a deadline before and still does not answer.
    #[error("its file system still does not answer")]
    Hangs,
}

impl ReadError {
    /// Returns true if the file does not exist.
    pub fn is_absent(&self) -> bool {
        use std::io::ErrorKind::{NotADirectory, NotFound};
        matches!(self, ReadError::Io(e) if matches!(e.kind(), NotFound | NotADirectory))
    }

    pub(crate) fn io(e: std::io::Error) -> Self {
        ReadError::Io(Arc::new(e))
    }
}

/// A real node's.
impl Default for Root {
    fn default() -> Self {
        Self::new("/")
    }
}

impl Root {
    /// A root at this directory; `/` on a real node.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Root { dir: dir.into().into(), hung: Hung::default(), deadline: DEADLINE }
    }

    /// Returns the status of a file; links are not followed.
    pub(crate) fn lstat(&self, path: &Path) -> Result<Stat, ReadError> {
        rustix::fs::lstat(path).map_err(failed)
    }

    /// Reads a regular file of at most `cap` bytes. It blocks: for work inside [`Root::on_files`].
    pub(crate) fn read_file(&self, path: &Path, cap: u64) -> Result<Content, ReadError> {
        self.read_opened(path, cap, OFlags::empty())
    }

    /// The same for a file below a zonepath. A link there could lead to any file of the node and
    /// expose it in the VM object.
    pub(crate) fn read_unlinked(&self, path: &Path, cap: u64) -> Result<Content, ReadError> {
        self.read_opened(path, cap, OFlags::NOFOLLOW).map_err(|e| match &e {
            ReadError::Io(io) if io.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
                ReadError::Link
            }
            _ => e,
        })
    }

    /// Fails if a directory below a zonepath is a link.
    pub(crate) fn check_unlinked(&self, dir: &Path) -> Result<(), ReadError> {
        match self.lstat(dir) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode).is_symlink() => Err(ReadError::Link),
            // Other faults show when its files are read.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    fn read_opened(&self, path: &Path, cap: u64, flags: OFlags) -> Result<Content, ReadError> {
        // Without NONBLOCK, opening a pipe would wait for a writer.
        let flags = flags | OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::empty()).map_err(failed)?;
        let mut tries = 0;
        loop {
            let (content, is_steady) = read_all(&file, cap)?;
            tries += 1;
            if is_steady || tries == TRIES {
                return Ok(content);
            }
            rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0)).map_err(failed)?;
        }
    }

    /// Sets the deadline for file systems.
    pub fn with_deadline(self, deadline: Duration) -> Self {
        Root { deadline, ..self }
    }

    /// How long a file system may take to answer.
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    pub(super) fn hung(&self) -> &Hung {
        &self.hung
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

    /// The output of sysinfo(8).
    pub fn sysinfo(&self) -> PathBuf {
        self.path("/tmp/.sysinfo.json")
    }

    /// `metadata`, `tags` or `routes` of the zone at this zonepath.
    pub fn config_file(&self, zonepath: &str, name: &str) -> PathBuf {
        self.config_dir(zonepath).join(format!("{}.json", file_name(name)))
    }

    /// The directory of metadata, tags and routes of the zone at this zonepath.
    pub fn config_dir(&self, zonepath: &str) -> PathBuf {
        self.path(zonepath).join("config")
    }

    /// The file that says when and how the zone's init last ended.
    pub fn lastexited(&self, zonepath: &str) -> PathBuf {
        self.path(zonepath).join("lastexited")
    }

    /// The create payload of a VM being received.
    pub fn receiving(&self, uuid: &str) -> PathBuf {
        self.path("/etc/zones").join(format!("{}-receiving.json", file_name(uuid)))
    }
}

/// Replaces the slashes of a name from outside: they would lead out of the directory.
fn file_name(name: &str) -> Cow<'_, str> {
    if name.contains(['/', '\0']) {
        return Cow::Owned(name.replace(['/', '\0'], "_"));
    }
    Cow::Borrowed(name)
}

fn failed(errno: Errno) -> ReadError {
    ReadError::io(errno.into())
}

/// Reads an open file; returns true with it if the file did not change meanwhile.
fn read_all(file: &OwnedFd, cap: u64) -> Result<(Content, bool), ReadError> {
    let stat = rustix::fs::fstat(file).map_err(failed)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {}
        FileType::Directory => {
            return Err(ReadError::io(std::io::ErrorKind::IsADirectory.into()));
        }
        _ => return Err(ReadError::io(std::io::Error::other("not a regular file"))),
    }
    let size = |stat: &Stat| u64::try_from(stat.st_size).unwrap_or_default();
    // One byte more shows the end without another read.
    let mut bytes = Vec::with_capacity(size(&stat).min(cap) as usize + 1);
    loop {
        let asked = bytes.capacity() - bytes.len();
        let count = match rustix::io::read(file, spare_capacity(&mut bytes)) {
            Ok(count) => count,
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(failed(errno)),
        };
        if bytes.len() as u64 > cap {
            return Err(ReadError::TooLarge { cap });
        }
        if count < asked {
            let after = rustix::fs::fstat(file).map_err(failed)?;
            if count == 0 || size(&after) == bytes.len() as u64 {
                let is_steady = version(&stat) == version(&after);
                return Ok((Content { bytes, stat }, is_steady));
            }
        }
        bytes.reserve(READ);
    }
}

/// What differs between two versions of a file, within the resolution of the clock.
pub(crate) fn version(stat: &Stat) -> impl PartialEq + std::hash::Hash {
    (
        (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mode),
        (stat.st_mtime, stat.st_mtime_nsec, stat.st_ctime, stat.st_ctime_nsec),
    )
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
    fn follows_links_only_outside_zonepaths() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link, inside) =
            (dir.path().join("f"), dir.path().join("l"), dir.path().join("d"));
        std::fs::write(&file, b"secret").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        std::os::unix::fs::symlink(dir.path(), &inside).unwrap();
        for root in [Root::new(dir.path()), Root::new("/")] {
            assert_eq!(root.read_file(&link, 9).unwrap().bytes, b"secret");
            assert_eq!(root.read_unlinked(&file, 9).unwrap().bytes, b"secret");
            assert!(matches!(root.read_unlinked(&link, 9), Err(ReadError::Link)));
            assert!(matches!(root.check_unlinked(&inside), Err(ReadError::Link)));
            assert!(root.check_unlinked(dir.path()).is_ok());
            assert!(root.check_unlinked(&link.join("x")).is_ok());
        }
    }

    #[test]
    fn reads_a_file_to_its_end_whatever_its_size() {
        let dir = tempfile::tempdir().unwrap();
        let (root, path) = (Root::new(dir.path()), dir.path().join("f"));
        for size in [0, 1, 31, 32, 4096, READ, READ + 1, 3 * READ] {
            let text = vec![b'x'; size];
            std::fs::write(&path, &text).unwrap();
            let content = root.read_file(&path, size as u64).unwrap();
            assert_eq!((content.bytes, content.stat.st_size as usize), (text, size));
            if let Some(less) = (size as u64).checked_sub(1) {
                let error = root.read_file(&path, less).unwrap_err();
                assert!(matches!(error, ReadError::TooLarge { cap } if cap == less), "{error}");
            }
        }
    }
}
