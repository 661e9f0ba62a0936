// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A folder, copied with owners and modes, and compared byte by byte. Sockets are left out: a service makes its own.

use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::{
    FileTypeExt as _, MetadataExt as _, PermissionsExt as _, chown, lchown, symlink,
};
use std::path::Path;

/// So much is read of both files at once.
const PIECE: usize = 64 * 1024;

/// Copies what is in `from` into `to`, which is made; what is there already is overwritten.
pub fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let found = from.symlink_metadata()?;
    let kind = found.file_type();
    if kind.is_socket() {
        return Ok(());
    }
    if kind.is_symlink() {
        if to.symlink_metadata().is_ok() {
            fs::remove_file(to)?;
        }
        symlink(fs::read_link(from)?, to)?;
        return lchown(to, Some(found.uid()), Some(found.gid()));
    }
    if kind.is_dir() {
        fs::create_dir_all(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            copy(&entry.path(), &to.join(entry.file_name()))?;
        }
    } else if kind.is_file() {
        fs::copy(from, to)?;
        File::open(to)?.sync_all()?;
    } else {
        return Err(io::Error::other(format!("{} is no file, folder or link", from.display())));
    }
    chown(to, Some(found.uid()), Some(found.gid()))?;
    fs::set_permissions(to, fs::Permissions::from_mode(found.mode() & 0o7777))
}

/// Returns the first difference between what is in `from` and its copy; none if there is none.
pub fn difference(from: &Path, to: &Path) -> io::Result<Option<String>> {
    let said = |what: &str| Ok(Some(format!("{} {what}", from.display())));
    let found = from.symlink_metadata()?;
    if found.file_type().is_socket() {
        return Ok(None);
    }
    let Ok(copied) = to.symlink_metadata() else { return said("is not in the copy") };
    if found.file_type() != copied.file_type() {
        return said("is of another kind in the copy");
    }
    if owner(&found) != owner(&copied) {
        return said("has another owner or mode in the copy");
    }
    if found.is_symlink() && fs::read_link(from)? != fs::read_link(to)? {
        return said("leads elsewhere in the copy");
    }
    if found.is_file() && (found.len() != copied.len() || !are_same(from, to)?) {
        return said("has other bytes in the copy");
    }
    if found.is_dir() {
        for entry in fs::read_dir(from)? {
            let name = entry?.file_name();
            if let Some(what) = difference(&from.join(&name), &to.join(&name))? {
                return Ok(Some(what));
            }
        }
    }
    Ok(None)
}

fn owner(of: &Metadata) -> (u32, u32, u32) {
    let mode = if of.is_symlink() { 0 } else { of.mode() & 0o7777 };
    (of.uid(), of.gid(), mode)
}

fn are_same(one: &Path, two: &Path) -> io::Result<bool> {
    let (mut one, mut two) = (File::open(one)?, File::open(two)?);
    let (mut left, mut right) = (vec![0; PIECE], vec![0; PIECE]);
    loop {
        let read = one.read(&mut left)?;
        let Some(right) = right.get_mut(..read) else { return Ok(false) };
        if read == 0 {
            return Ok(two.read(&mut [0])? == 0);
        }
        if two.read_exact(right).is_err() || left.get(..read) != Some(&*right) {
            return Ok(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // Z6
    fn a_copy_is_the_same_and_each_difference_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(from.join("trust")).unwrap();
        fs::write(from.join("trust/identity.json"), "key").unwrap();
        fs::set_permissions(from.join("trust/identity.json"), fs::Permissions::from_mode(0o600))
            .unwrap();
        fs::write(from.join("store.redb"), vec![7; 3 * PIECE + 1]).unwrap();
        symlink("store.redb", from.join("link")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(from.join("control.sock")).unwrap();
        copy(&from, &to).unwrap();
        copy(&from, &to).unwrap();
        assert_eq!(difference(&from, &to).unwrap(), None);
        assert!(!to.join("control.sock").exists());
        let differs = |what: &str| {
            let found = difference(&from, &to).unwrap().unwrap();
            assert!(found.contains(what), "{found}");
            fs::remove_dir_all(&to).unwrap();
            copy(&from, &to).unwrap();
        };
        let mut bytes = vec![7; 3 * PIECE + 1];
        *bytes.last_mut().unwrap() = 8;
        fs::write(to.join("store.redb"), bytes).unwrap();
        differs("store.redb has other bytes");
        fs::set_permissions(to.join("trust/identity.json"), fs::Permissions::from_mode(0o644))
            .unwrap();
        differs("owner or mode");
        fs::remove_file(to.join("link")).unwrap();
        differs("link is not in the copy");
    }
}
