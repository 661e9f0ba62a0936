// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The contents of a dataset: directories, files and links, and the changes from one state to another. A
//! volume has one file. Other kinds of files are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::error::NodeError;
use crate::files;

/// Files are compared and sent in blocks of so many bytes. A block of zeros takes no room.
pub const BLOCK: usize = 16 * 1024;

/// A directory or file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A directory with its permissions.
    Dir(u32),
    /// A file with its permissions and bytes.
    File(u32, Vec<u8>),
    /// A symbolic link, with where it points.
    Link(String),
}

/// Contents by path, without a leading `/`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree(BTreeMap<String, Item>);

/// One step from one state to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The path is gone, and everything below it.
    Remove(String),
    /// There is a directory.
    Dir(String, u32),
    /// There is a file of so many bytes; what it had stays, new bytes are zeros.
    File(String, u32, u64),
    /// There is a symbolic link.
    Link(String, String),
    /// The block at an offset of a file.
    Data(String, u64, Vec<u8>),
}

fn blocks(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    bytes.chunks(BLOCK).enumerate().map(|(at, block)| (at * BLOCK, block))
}

impl Tree {
    /// The bytes of a file.
    pub fn file(&self, path: &str) -> Option<&[u8]> {
        match self.0.get(path) {
            Some(Item::File(_, bytes)) => Some(bytes),
            _ => None,
        }
    }

    /// The same, with a file, and the directories that it is in.
    pub fn with_file(&self, path: &str, bytes: &[u8]) -> Tree {
        let mut tree = self.clone();
        for (at, _) in path.match_indices('/') {
            let dir = path.get(..at).unwrap_or_default();
            tree.0.entry(dir.to_string()).or_insert(Item::Dir(0o755));
        }
        tree.0.insert(path.to_string(), Item::File(0o644, bytes.to_vec()));
        tree
    }

    /// The same without a file.
    pub fn without(&self, path: &str) -> Tree {
        let mut tree = self.clone();
        tree.0.remove(path);
        tree
    }

    /// The steps that make this state of `base`: always the same ones, in the same order.
    pub fn changes_from(&self, base: &Tree) -> Vec<Change> {
        let same_kind =
            |one: &Item, other: &Item| std::mem::discriminant(one) == std::mem::discriminant(other);
        let stays =
            |path: &String, item: &Item| self.0.get(path).is_some_and(|i| same_kind(i, item));
        let gone = base.0.iter().rev().filter(|(path, item)| !stays(path, item));
        let mut changes: Vec<Change> = gone.map(|(path, _)| Change::Remove(path.clone())).collect();
        for (path, item) in &self.0 {
            let old = base.0.get(path).filter(|old| same_kind(old, item));
            if old == Some(item) {
                continue;
            }
            match item {
                Item::Dir(mode) => changes.push(Change::Dir(path.clone(), *mode)),
                Item::Link(to) => changes.push(Change::Link(path.clone(), to.clone())),
                Item::File(mode, bytes) => {
                    changes.push(Change::File(path.clone(), *mode, bytes.len() as u64));
                    let had = match old {
                        Some(Item::File(_, had)) => had.as_slice(),
                        _ => &[],
                    };
                    for (at, block) in blocks(bytes) {
                        let end = had.len().min(at + block.len());
                        let before = had.get(at.min(end)..end).unwrap_or_default();
                        let (kept, new) = block.split_at(before.len().min(block.len()));
                        if kept != before || new.iter().any(|byte| *byte != 0) {
                            changes.push(Change::Data(path.clone(), at as u64, block.to_vec()));
                        }
                    }
                }
            }
        }
        changes
    }

    /// Makes one step. Returns false if it does not fit to this state.
    #[must_use]
    pub fn apply(&mut self, change: Change) -> bool {
        match change {
            Change::Remove(path) => {
                let below = format!("{path}/");
                self.0.retain(|name, _| *name != path && !name.starts_with(&below));
            }
            Change::Dir(path, mode) => {
                self.0.insert(path, Item::Dir(mode));
            }
            Change::Link(path, to) => {
                self.0.insert(path, Item::Link(to));
            }
            Change::File(path, mode, len) => {
                let Ok(len) = usize::try_from(len) else { return false };
                let mut bytes = match self.0.remove(&path) {
                    Some(Item::File(_, bytes)) => bytes,
                    _ => Vec::new(),
                };
                bytes.resize(len, 0);
                self.0.insert(path, Item::File(mode, bytes));
            }
            Change::Data(path, at, block) => {
                let Some(Item::File(_, bytes)) = self.0.get_mut(&path) else { return false };
                let Ok(at) = usize::try_from(at) else { return false };
                let Some(place) = bytes.get_mut(at..at.saturating_add(block.len())) else {
                    return false;
                };
                place.copy_from_slice(&block);
            }
        }
        true
    }

    /// The bytes that it takes.
    pub fn size(&self) -> u64 {
        self.new_since(&Tree::default())
    }

    /// The bytes of the blocks that `base` does not have in these places.
    pub fn new_since(&self, base: &Tree) -> u64 {
        let size = |change: &Change| match change {
            Change::Data(_, _, block) => block.len() as u64,
            _ => 0,
        };
        self.changes_from(base).iter().map(size).sum()
    }

    /// Reads a directory, without the directories in `skip`. A missing one is empty.
    pub fn read(dir: &Path, skip: &BTreeSet<PathBuf>) -> Result<Tree, NodeError> {
        let mut tree = Tree::default();
        if dir.is_dir() {
            tree.read_into(dir, "", skip)?;
        }
        Ok(tree)
    }

    fn read_into(
        &mut self,
        dir: &Path,
        below: &str,
        skip: &BTreeSet<PathBuf>,
    ) -> Result<(), NodeError> {
        let entries = std::fs::read_dir(dir).map_err(|e| NodeError::io("read", dir, e))?;
        for entry in entries {
            let entry = entry.map_err(|e| NodeError::io("read", dir, e))?;
            let (path, name) = (entry.path(), entry.file_name());
            let name = format!("{below}{}", name.to_string_lossy());
            let about = entry.metadata().map_err(|e| NodeError::io("stat", &path, e))?;
            let mode = about.permissions().mode() & 0o7777;
            if about.is_dir() && !skip.contains(&path) {
                self.0.insert(name.clone(), Item::Dir(mode));
                self.read_into(&path, &format!("{name}/"), skip)?;
            } else if about.is_file() {
                let bytes = std::fs::read(&path).map_err(|e| NodeError::io("read", &path, e))?;
                self.0.insert(name, Item::File(mode, bytes));
            } else if about.is_symlink() {
                let to = std::fs::read_link(&path).map_err(|e| NodeError::io("read", &path, e))?;
                self.0.insert(name, Item::Link(to.to_string_lossy().into_owned()));
            }
        }
        Ok(())
    }

    /// Makes a directory have these contents; the directories in `skip` stay as they are.
    pub fn write(&self, dir: &Path, skip: &BTreeSet<PathBuf>) -> Result<(), NodeError> {
        files::make_dir(dir)?;
        let old = Tree::read(dir, skip)?;
        for change in self.changes_from(&old) {
            if let Change::Remove(path) = change {
                let path = dir.join(path);
                let is_dir = path.symlink_metadata().is_ok_and(|about| about.is_dir());
                if is_dir { files::remove_tree(&path)? } else { files::remove_file(&path)? }
            }
        }
        for (name, item) in self.0.iter().filter(|(name, item)| old.0.get(*name) != Some(*item)) {
            let path = dir.join(name);
            let mode = match item {
                Item::Link(to) => {
                    if path.is_symlink() {
                        files::remove_file(&path)?;
                    }
                    std::os::unix::fs::symlink(to, &path)
                        .map_err(|e| NodeError::io("link", &path, e))?;
                    continue;
                }
                Item::Dir(mode) => {
                    files::make_dir(&path)?;
                    mode
                }
                Item::File(mode, bytes) => {
                    std::fs::write(&path, bytes).map_err(|e| NodeError::io("write", &path, e))?;
                    mode
                }
            };
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(*mode))
                .map_err(|e| NodeError::io("set the mode of", &path, e))?;
        }
        Ok(())
    }
}
