// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Every node path under one root: the only file that names files of a compute node.
//!
//! Reads are capped in size and bound by a deadline. Nothing here writes, and no path given by a
//! zone can lead above the root.

use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::io::Errno;

/// How long one read of a file may take.
pub const READ_DEADLINE: Duration = Duration::from_secs(10);

/// How nice work in the background is.
#[cfg(target_os = "linux")]
const BACKGROUND_NICE: i32 = 10;

/// Where the node's `/` is; a directory of its own in tests and on simulated nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root(Arc<Path>);

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
    #[error("no answer within {} s", READ_DEADLINE.as_secs())]
    Deadline,
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
        Root(dir.into().into())
    }

    /// The directory itself.
    pub fn dir(&self) -> &Path {
        &self.0
    }

    /// An absolute path of the node, as seen from outside. `.` and `..` are dropped.
    pub fn path(&self, abs: &str) -> PathBuf {
        let mut path = self.0.to_path_buf();
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

    /// Reads a regular file of at most `cap` bytes.
    pub async fn read_capped(&self, path: &Path, cap: u64) -> Result<Vec<u8>, ReadError> {
        let path = path.to_path_buf();
        self.on_files(move |_| read_file(&path, cap)).await?
    }

    /// Does work on files where it may block, and waits for it no longer than [`READ_DEADLINE`].
    pub async fn on_files<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Root) -> T + Send + 'static,
    ) -> Result<T, ReadError> {
        let root = self.clone();
        blocking(move || work(&root)).await
    }

    /// The same for work that nobody waits for: in a thread of its own, at low priority.
    pub async fn on_files_in_background<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Root) -> T + Send + 'static,
    ) -> Result<T, ReadError> {
        let root = self.clone();
        // A priority once lowered cannot be raised again, so no thread of the pool may do it.
        let thread = move || {
            let work = move || {
                step_back();
                work(&root)
            };
            let done =
                std::thread::Builder::new().name("background".to_owned()).spawn(work)?.join();
            done.map_err(|_| std::io::Error::other("the reading panicked"))
        };
        blocking(thread).await?.map_err(ReadError::io)
    }
}

/// A name from outside made harmless as part of a path: a slash would leave the directory.
fn file_name(name: &str) -> String {
    name.replace(['/', '\0'], "_")
}

/// Lowers the priority of this thread, where the system gives threads one of their own: on illumos
/// it is the whole process that has a nice value, and the daemon must not be slow.
fn step_back() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::nice(BACKGROUND_NICE) {
        tracing::debug!(%error, "work in the background keeps its priority");
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ReadError> {
    match tokio::time::timeout(READ_DEADLINE, tokio::task::spawn_blocking(work)).await {
        Err(_) => Err(ReadError::Deadline),
        Ok(Err(e)) => Err(ReadError::io(std::io::Error::other(e))),
        Ok(Ok(value)) => Ok(value),
    }
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

    #[tokio::test]
    async fn reads_are_capped_and_only_of_regular_files() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        let file = dir.path().join("f");
        std::fs::write(&file, b"12345").unwrap();
        assert_eq!(root.read_capped(&file, 5).await.unwrap(), b"12345");
        assert!(matches!(root.read_capped(&file, 4).await, Err(ReadError::TooLarge { cap: 4 })));
        assert!(root.read_capped(dir.path(), 9).await.is_err_and(|e| !e.is_absent()));
        assert!(root.read_capped(&dir.path().join("g"), 9).await.is_err_and(|e| e.is_absent()));
        assert!(root.read_capped(&file.join("g"), 9).await.is_err_and(|e| e.is_absent()));
    }

    #[tokio::test]
    #[cfg(target_os = "linux")]
    async fn work_in_the_background_steps_back_and_lowers_nobody_else() {
        let priority = || rustix::process::getpriority_process(None).unwrap();
        let root = Root::new("/");
        let before = root.on_files(move |_| priority()).await.unwrap();
        let lowered = root.on_files_in_background(move |_| priority()).await.unwrap();
        assert_eq!(lowered, (before + BACKGROUND_NICE).min(19));
        assert_eq!(root.on_files(move |_| priority()).await.unwrap(), before);
        assert_eq!(priority(), before);
        let died: Result<(), _> = root.on_files_in_background(|_| panic!("on purpose")).await;
        assert!(died.is_err());
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
