// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Unix sockets: bound with their mode from the start, and over the file that a dead server left
//! behind, but not over one that a live server answers on.

use std::fs;
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener as StdListener, UnixStream as StdStream};
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;

/// A bound socket. Dropping it removes its file, unless another file took its place.
#[derive(Debug)]
pub struct UnixSocket {
    pub(super) listener: UnixListener,
    _file: File,
}

#[derive(Debug)]
struct File {
    path: PathBuf,
    inode: u64,
}

impl Drop for File {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|stat| stat.ino() == self.inode) {
            let _gone_already = fs::remove_file(&self.path);
        }
    }
}

/// Makes the directory of a socket, for this user alone, unless it is there.
/// Fails with `PermissionDenied` if another user could put another socket into it, and the system's own.
pub fn private_dir(dir: &Path) -> Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let stat = fs::metadata(dir)?;
    let is_ours = stat.uid() == rustix::process::geteuid().as_raw();
    if !is_ours || stat.permissions().mode() & 0o022 != 0 {
        return Err(Error::new(ErrorKind::PermissionDenied, "others may write to its directory"));
    }
    Ok(())
}

/// Binds a socket at `path` that never had another mode than `mode` there.
/// Fails with `AddrInUse` if a server answers there, `AlreadyExists` if the file is no socket, and the system's own.
pub fn bind_unix(path: &Path, mode: u32) -> Result<UnixSocket> {
    match fs::symlink_metadata(path) {
        Ok(stat) if !stat.file_type().is_socket() => {
            return Err(Error::new(ErrorKind::AlreadyExists, "it exists and is no socket"));
        }
        Ok(_) => refuse_if_answered(path)?,
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    // Bound under another name first: no client can connect before the mode is set.
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    let temporary = PathBuf::from(name);
    let _left_by_a_crash = fs::remove_file(&temporary);
    let listener = StdListener::bind(&temporary)?;
    let finish = || {
        fs::set_permissions(&temporary, fs::Permissions::from_mode(mode))?;
        let inode = fs::symlink_metadata(&temporary)?.ino();
        fs::rename(&temporary, path)?;
        listener.set_nonblocking(true)?;
        Ok(File { path: path.to_owned(), inode })
    };
    let file = finish().inspect_err(|_: &Error| {
        let _best_effort = fs::remove_file(&temporary);
    })?;
    Ok(UnixSocket { listener: UnixListener::from_std(listener)?, _file: file })
}

fn refuse_if_answered(path: &Path) -> Result<()> {
    match StdStream::connect(path) {
        Ok(_) => Err(Error::new(ErrorKind::AddrInUse, "another process answers on this socket")),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_of_a_socket_is_its_owners_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        private_dir(&path).unwrap();
        private_dir(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(private_dir(&path).unwrap_err().kind(), ErrorKind::PermissionDenied);
    }

    #[tokio::test]
    async fn binds_with_mode_and_replaces_only_dead_sockets() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let socket = bind_unix(&path, 0o600).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(bind_unix(&path, 0o600).unwrap_err().kind(), ErrorKind::AddrInUse);
        drop(socket);
        assert!(!path.exists());
        // A killed server leaves its file behind.
        drop(StdListener::bind(&path).unwrap());
        let socket = bind_unix(&path, 0o660).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
        // The file of another server is not removed.
        fs::remove_file(&path).unwrap();
        let _other = StdListener::bind(&path).unwrap();
        drop(socket);
        assert!(path.exists());
        fs::write(dir.path().join("f"), "").unwrap();
        assert_eq!(
            bind_unix(&dir.path().join("f"), 0o600).unwrap_err().kind(),
            ErrorKind::AlreadyExists
        );
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}
