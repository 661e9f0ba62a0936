// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Datasets and their files: a file system creates and removes its directory, a snapshot keeps a
//! copy of the content, a rollback restores it. Each change posts its history under the lock.

use crate::datasets::{Datasets, History};
use crate::error::NodeError;
use crate::files;
use crate::node::Node;
use crate::sysevent::Sysevent;

impl Node {
    /// Changes datasets, keeps the directories they are mounted on, and posts their history.
    pub fn zfs(
        &self,
        change: impl FnOnce(&mut Datasets) -> Result<Vec<History>, NodeError>,
    ) -> Result<(), NodeError> {
        self.change(change, |_| Ok(()))
    }

    /// The same, with what is left to do to the files before it is posted.
    fn change(
        &self,
        change: impl FnOnce(&mut Datasets) -> Result<Vec<History>, NodeError>,
        then: impl FnOnce(&Datasets) -> Result<(), NodeError>,
    ) -> Result<(), NodeError> {
        self.step(|guard| {
            let mut all = self.datasets()?;
            let old = all.clone();
            let history = change(&mut all)?;
            self.remount(&old, &all, &history)?;
            then(&all)?;
            guard.save_datasets(&all)?;
            history.iter().try_for_each(|record| guard.post(&Sysevent::history(self, record)))
        })
    }

    fn content(&self, snapshot: &str) -> std::path::PathBuf {
        self.state_dir().join("snapshots").join(snapshot.replace('/', "+"))
    }

    /// Creates and removes the directories of file systems and the content of snapshots.
    fn remount(
        &self,
        old: &Datasets,
        new: &Datasets,
        history: &[History],
    ) -> Result<(), NodeError> {
        for record in history {
            let name = record.dsname.as_str();
            let mounted = |all: &Datasets, name: &str| {
                let row =
                    all.get(name).filter(|d| d.kind() == "filesystem" && d.get("zoned") != "on");
                row.map(|d| d.get("mountpoint").to_string())
                    .filter(|m| m.starts_with("/zones/") && !m.contains("/../"))
            };
            match record.action {
                "create" | "clone" => {
                    if let Some(at) = mounted(new, name) {
                        files::make_dir(&self.path(&at))?;
                    }
                }
                "destroy" if name.contains('@') => files::remove_tree(&self.content(name))?,
                "destroy" => {
                    if let Some(at) = mounted(old, name) {
                        files::remove_tree(&self.path(&at))?;
                    }
                }
                "snapshot" => {
                    if let Some(at) = name.split_once('@').and_then(|(top, _)| mounted(new, top))
                        && self.path(&at).is_dir()
                    {
                        files::copy_tree(&self.path(&at), &self.content(name))?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// zfs rename, with the directories. A file system that a running zone uses cannot be unmounted.
    pub fn zfs_rename(&self, old: &str, new: &str) -> Result<(), NodeError> {
        let zones = self.zones()?;
        let is_below = |path: &str| {
            path == old || path.strip_prefix(old).is_some_and(|rest| rest.starts_with('/'))
        };
        let mut active =
            zones.listed(false).into_iter().map(|zone| zone.zonepath.trim_start_matches('/'));
        if let Some(busy) = active.find(|zonepath| is_below(zonepath)) {
            return Err(NodeError::refused(format!("cannot unmount '/{busy}': Device busy")));
        }
        self.change(
            |all| all.rename(old, new),
            |_| match (self.path(&format!("/{old}")), self.path(&format!("/{new}"))) {
                (from, to) if from.is_dir() => {
                    std::fs::rename(&from, &to).map_err(|e| NodeError::io("rename", &from, e))
                }
                _ => Ok(()),
            },
        )
    }

    /// zfs rollback, with the files that the snapshot kept.
    pub fn zfs_rollback(&self, snapshot: &str, recursive: bool) -> Result<(), NodeError> {
        self.change(
            |all| all.rollback(snapshot, recursive),
            |all| {
                let top = snapshot.split('@').next().unwrap_or(snapshot);
                let at = all.get(top).map_or("", |dataset| dataset.get("mountpoint"));
                let content = self.content(snapshot);
                if at.starts_with("/zones/") && content.is_dir() {
                    files::remove_tree(&self.path(at))?;
                    files::copy_tree(&content, &self.path(at))?;
                }
                Ok(())
            },
        )
    }
}
