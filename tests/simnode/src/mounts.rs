// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Datasets and their contents. A mounted file system's are in its directory; those of other
//! datasets, snapshots and bookmarks in the node's `state` directory. A snapshot copies them, a
//! rollback restores them. Each change posts its history under the lock.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::PathBuf;

use rustix::fs::FlockOperation;

use crate::dataset_ops::is_mounted;
use crate::datasets::{Datasets, History, is_below, owner};
use crate::error::NodeError;
use crate::files;
use crate::node::Node;
use crate::sysevent::Sysevent;
use crate::trees::Tree;

/// The lock of a dataset that is being received, until dropped or the process ends.
#[derive(Debug)]
pub(crate) struct Receiving {
    _lock: File,
}

impl Node {
    /// Changes datasets, keeps the directories they are mounted on, and posts their history.
    pub fn zfs(
        &self,
        change: impl FnOnce(&mut Datasets) -> Result<Vec<History>, NodeError>,
    ) -> Result<(), NodeError> {
        self.change(change, |_| Ok(()))
    }

    /// The same, with what is left to do to the contents before it is posted.
    pub(crate) fn change(
        &self,
        change: impl FnOnce(&mut Datasets) -> Result<Vec<History>, NodeError>,
        then: impl FnOnce(&Datasets) -> Result<(), NodeError>,
    ) -> Result<(), NodeError> {
        self.step(|guard| {
            let old = self.datasets()?;
            let mut all = Datasets::clone(&old);
            all.maker = self.maker();
            let history = change(&mut all)?;
            for record in history.iter().filter(|record| record.action == "destroy") {
                self.not_receiving("destroy", &record.dsname)?;
            }
            self.remount(&old, &all, &history)?;
            then(&all)?;
            guard.save_datasets(&all)?;
            history.iter().try_for_each(|record| guard.post(&Sysevent::history(self, record)))
        })
    }

    /// Where the contents of a dataset, snapshot or bookmark are.
    fn place(&self, all: &Datasets, name: &str) -> PathBuf {
        let mounted = all.get(name).filter(|row| is_mounted(row));
        let kept = || self.state_dir().join("snapshots").join(name.replace('/', "+"));
        mounted.map_or_else(kept, |row| self.path(row.get("mountpoint")))
    }

    /// The directory of a dataset's contents, where a program in a zone would find them.
    pub fn directory(&self, dataset: &str) -> Result<PathBuf, NodeError> {
        Ok(self.place(&*self.datasets()?, dataset))
    }

    /// The directories of the mounted datasets below one.
    fn mounted_below(&self, all: &Datasets, name: &str) -> BTreeSet<PathBuf> {
        let below = all.rows.values().filter(|row| is_below(&row.name, name) && is_mounted(row));
        below.map(|row| self.path(row.get("mountpoint"))).collect()
    }

    /// The contents of a dataset, snapshot or bookmark.
    pub fn contents(&self, all: &Datasets, name: &str) -> Result<Tree, NodeError> {
        let skip = match name.contains(['@', '#']) {
            true => BTreeSet::new(),
            false => self.mounted_below(all, name),
        };
        Tree::read(&self.place(all, name), &skip)
    }

    /// One file of a dataset or snapshot; nothing if there is none.
    pub fn file(&self, all: &Datasets, name: &str, path: &str) -> Option<Vec<u8>> {
        all.get(name)?;
        std::fs::read(self.place(all, name).join(path)).ok()
    }

    /// Replaces the contents.
    pub(crate) fn set_contents(
        &self,
        all: &Datasets,
        name: &str,
        tree: &Tree,
    ) -> Result<(), NodeError> {
        let place = self.place(all, name);
        let mounted = all.get(name).is_some_and(is_mounted);
        if *tree == Tree::default() && !place.exists() && !mounted {
            return Ok(());
        }
        tree.write(&place, &self.mounted_below(all, name))
    }

    /// Makes the directories of file systems and the contents of snapshots follow the table.
    fn remount(
        &self,
        old: &Datasets,
        new: &Datasets,
        history: &[History],
    ) -> Result<(), NodeError> {
        for record in history {
            let name = record.dsname.as_str();
            match record.action {
                "create" | "clone" => {
                    let origin = new.get(name).and_then(|row| row.props.get("origin"));
                    let origin = origin.map(|origin| self.contents(new, origin)).transpose()?;
                    self.set_contents(new, name, &origin.unwrap_or_default())?;
                }
                "destroy" => files::remove_tree(&self.place(old, name))?,
                "snapshot" => {
                    let contents = self.contents(new, owner(name))?;
                    self.set_contents(new, name, &contents)?;
                }
                _ => self.move_contents(old, new, name)?,
            }
        }
        Ok(())
    }

    /// Moves the contents of a file system that was mounted or unmounted.
    fn move_contents(&self, old: &Datasets, new: &Datasets, name: &str) -> Result<(), NodeError> {
        let (Some(before), Some(_)) = (old.get(name), new.get(name)) else { return Ok(()) };
        if before.kind() != "filesystem" || self.place(old, name) == self.place(new, name) {
            return Ok(());
        }
        let contents = self.contents(old, name)?;
        Tree::default().write(&self.place(old, name), &self.mounted_below(old, name))?;
        self.set_contents(new, name, &contents)
    }

    /// `zfs mount` and `zfs unmount`.
    pub fn zfs_mount(&self, name: &str, mounted: bool) -> Result<(), NodeError> {
        self.zfs(|all| {
            let before = all.clone();
            // It has no history.
            let history = all.mount(name, mounted)?;
            self.move_contents(&before, all, name)?;
            Ok(history)
        })
    }

    /// zfs rename, with the directories. A file system that a running zone uses cannot be unmounted.
    pub fn zfs_rename(&self, old: &str, new: &str) -> Result<(), NodeError> {
        let zones = self.zones()?;
        let is_inside = |path: &str| path == old || is_below(path, old);
        let mut active =
            zones.listed(false).into_iter().map(|zone| zone.zonepath.trim_start_matches('/'));
        if let Some(busy) = active.find(|zonepath| is_inside(zonepath)) {
            return Err(NodeError::refused(format!("cannot unmount '/{busy}': Device busy")));
        }
        self.change(
            |all| all.rename(old, new),
            |_| {
                let (from, to) = (self.path(&format!("/{old}")), self.path(&format!("/{new}")));
                if from.is_dir() {
                    std::fs::rename(&from, &to).map_err(|e| NodeError::io("rename", &from, e))?;
                }
                self.rename_kept(old, new)
            },
        )
    }

    /// `zfs promote`, with the contents of the snapshots that move.
    pub fn zfs_promote(&self, clone: &str) -> Result<(), NodeError> {
        let moved = self.datasets()?.promoted(clone)?;
        self.change(
            |all| all.promote(clone),
            |_| moved.iter().try_for_each(|(old, new)| self.rename_kept(old, new)),
        )
    }

    /// Gives the contents that are kept in the node's `state` directory the names of their datasets.
    fn rename_kept(&self, old: &str, new: &str) -> Result<(), NodeError> {
        let dir = self.state_dir().join("snapshots");
        let entries = std::fs::read_dir(&dir).map_err(|e| NodeError::io("read", &dir, e))?;
        for entry in entries {
            let entry = entry.map_err(|e| NodeError::io("read", &dir, e))?;
            let name = entry.file_name().to_string_lossy().replace('+', "/");
            if name == old || is_below(&name, old) {
                let renamed = dir.join(name.replacen(old, new, 1).replace('/', "+"));
                std::fs::rename(entry.path(), renamed)
                    .map_err(|e| NodeError::io("rename", &entry.path(), e))?;
            }
        }
        Ok(())
    }

    /// `zfs rollback`, with the contents that the snapshot kept.
    pub fn zfs_rollback(&self, snapshot: &str, recursive: bool) -> Result<(), NodeError> {
        self.not_receiving("rollback", owner(snapshot))?;
        self.change(
            |all| all.rollback(snapshot, recursive),
            |all| self.set_contents(all, owner(snapshot), &self.contents(all, snapshot)?),
        )
    }

    /// `zfs bookmark`. The contents are kept to know what changed.
    pub fn zfs_bookmark(&self, snapshot: &str, bookmark: &str) -> Result<(), NodeError> {
        self.change(
            |all| all.bookmark(snapshot, bookmark),
            |all| self.set_contents(all, bookmark, &self.contents(all, snapshot)?),
        )
    }

    fn receiving_file(&self, dataset: &str) -> PathBuf {
        self.state_dir().join(format!("receiving.{}", dataset.replace('/', "+")))
    }

    /// Locks a dataset that a stream is received into.
    pub(crate) fn receiving(&self, dataset: &str) -> Result<Receiving, NodeError> {
        let path = self.receiving_file(dataset);
        let lock = File::create(&path).map_err(|e| NodeError::io("create", &path, e))?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Receiving { _lock: lock }),
            Err(_) => Err(NodeError::refused("dataset is busy")),
        }
    }

    /// Refuses to touch a dataset that a stream is received into.
    fn not_receiving(&self, verb: &str, dataset: &str) -> Result<(), NodeError> {
        let Ok(lock) = File::open(self.receiving_file(dataset)) else { return Ok(()) };
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| NodeError::refused(format!("cannot {verb} '{dataset}': dataset is busy")))
    }
}
