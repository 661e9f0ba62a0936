// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The datasets and snapshots of a node, by name and mountpoint.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use crate::parse::zfs_list::{Column, Row, SnapshotRow};

/// The directory of the volumes' devices. The rest of a device's path is the volume's name.
pub const DEVICES: &str = "/dev/zvol/rdsk/";

/// Filesystems and volumes of a node, with their snapshots.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Datasets {
    rows: HashMap<Arc<str>, Row>,
    /// The datasets with each mountpoint, by name as in a listing. The last one is mounted.
    mounted: HashMap<Box<str>, Vec<Arc<str>>>,
    snapshots: HashMap<Arc<str>, Arc<Snapshots>>,
}

/// The datasets of one VM.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct VmDatasets(Box<[Own]>);

/// A dataset of a VM.
#[derive(Debug, Clone, PartialEq)]
struct Own {
    name: Arc<str>,
    row: Option<Row>,
    /// It is what is at its mountpoint.
    is_mounted: bool,
    snapshots: Option<Arc<Snapshots>>,
}

/// The snapshots of one dataset in the order of the listing, one line each: text takes little memory,
/// and a node may have 50,000 snapshots.
#[derive(Debug, Clone, Default, PartialEq)]
struct Snapshots(String);

impl Snapshots {
    /// Returns them as those of this dataset.
    fn iter<'a>(&'a self, dataset: &'a str) -> impl Iterator<Item = SnapshotRow<'a>> {
        self.0.lines().filter_map(move |line| SnapshotRow::of(dataset, line))
    }

    fn len(&self) -> usize {
        self.0.lines().count()
    }

    fn find(&self, name: &str) -> Option<Range<usize>> {
        let mut from = 0;
        self.0.split_inclusive('\n').find_map(|line| {
            let range = from..from + line.len();
            from = range.end;
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with('\t')).then_some(range)
        })
    }
}

/// The snapshots of one listing, for [`Datasets::replace_snapshots`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SnapshotTable(HashMap<Arc<str>, Arc<Snapshots>>);

impl SnapshotTable {
    /// Appends a snapshot that is not in the table yet.
    pub fn push(&mut self, row: &SnapshotRow<'_>) {
        let list = match self.0.get_mut(row.dataset) {
            Some(list) => list,
            None => self.0.entry(row.dataset.into()).or_default(),
        };
        Arc::make_mut(list).0.push_str(&row.kept());
    }

    /// Takes the snapshots of one dataset from `older`, also if there are none.
    pub fn keep(&mut self, older: &Datasets, dataset: &str) {
        self.0.remove(dataset);
        if let Some((name, list)) = older.snapshots.get_key_value(dataset) {
            self.0.insert(Arc::clone(name), Arc::clone(list));
        }
    }

    /// Returns the number of snapshots.
    pub fn len(&self) -> usize {
        self.0.values().map(|list| list.len()).sum()
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Datasets {
    /// Returns the filesystem or volume of this name.
    pub fn get(&self, name: &str) -> Option<&Row> {
        self.rows.get(name)
    }

    /// Returns all filesystems and volumes, in no order.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.values()
    }

    /// Returns the filesystem that is mounted here, or the volume of this device.
    pub fn at(&self, mountpoint: &str) -> Option<&Row> {
        self.get(self.mounted.get(mountpoint)?.last()?)
    }

    /// Returns the snapshots of a dataset in the order of the listing.
    pub fn snapshots(&self, dataset: &str) -> impl Iterator<Item = SnapshotRow<'_>> {
        let list = self.snapshots.get_key_value(dataset);
        list.into_iter().flat_map(|(dataset, list)| list.iter(dataset))
    }

    /// Returns the number of filesystems, volumes and snapshots.
    pub fn len(&self) -> usize {
        self.rows.len() + self.snapshots.values().map(|list| list.len()).sum::<usize>()
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.snapshots.is_empty()
    }

    /// Returns those of these datasets that exist. They share their memory with the node's.
    pub fn only<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> VmDatasets {
        let own = names.into_iter().filter_map(|name| {
            let row = self.rows.get_key_value(name);
            let list = self.snapshots.get_key_value(name);
            let mountpoint = row.and_then(|(_, row)| row.mountpoint());
            Some(Own {
                name: Arc::clone(row.map(|(name, _)| name).or(list.map(|(name, _)| name))?),
                row: row.map(|(_, row)| row.clone()),
                is_mounted: mountpoint
                    .and_then(|it| self.at(&it))
                    .is_some_and(|it| it.name() == name),
                snapshots: list.map(|(_, list)| Arc::clone(list)),
            })
        });
        VmDatasets(own.collect())
    }

    /// Removes one snapshot, or a dataset with its snapshots and without its children.
    pub fn remove(&mut self, name: &str) {
        let Some((dataset, snapshot)) = name.split_once('@') else {
            self.remove_row(name);
            self.snapshots.remove(name);
            return;
        };
        if let Some(list) = self.snapshots.get_mut(dataset) {
            if let Some(range) = list.find(snapshot) {
                Arc::make_mut(list).0.replace_range(range, "");
            }
            if list.0.is_empty() {
                self.snapshots.remove(dataset);
            }
        }
    }

    /// Inserts the rows of a listing, each in place of the old row of its name.
    pub fn insert(&mut self, rows: impl IntoIterator<Item = Row>) {
        for row in rows {
            match row.as_snapshot() {
                Some(snapshot) => self.insert_snapshot(&snapshot),
                None => self.insert_row(row),
            }
        }
    }

    /// Replaces what is known of this name by the rows of its listing. A snapshot keeps its place.
    pub fn replace(&mut self, name: &str, rows: Vec<Row>) {
        let is_in_place = name.contains('@') && rows.iter().any(|row| row.name() == name);
        if !is_in_place {
            self.remove(name);
        }
        self.insert(rows);
    }

    /// Replaces all filesystems and volumes by those of a listing of the node. Equal rows stay where they
    /// are, so that a refresh does not scatter memory; datasets that stay keep their snapshots.
    pub fn replace_rows(&mut self, rows: Vec<Row>) {
        let listed: HashSet<&str> = rows.iter().map(Row::name).collect();
        self.snapshots.retain(|name, _| listed.contains(&**name));
        let gone = self.rows.keys().filter(|name| !listed.contains(&***name));
        let gone: Vec<Arc<str>> = gone.cloned().collect();
        gone.iter().for_each(|name| self.remove_row(name));
        for row in rows {
            if self.get(row.name()) != Some(&row) {
                self.insert_row(row);
            }
        }
    }

    /// Replaces all snapshots by those of a listing of the node. Equal ones stay where they are. Datasets
    /// that are too deep for the listing keep theirs as long as they exist.
    pub fn replace_snapshots(&mut self, listed: SnapshotTable) {
        let mut snapshots = listed.0;
        for (dataset, list) in std::mem::take(&mut self.snapshots) {
            let stays = match snapshots.get(&dataset) {
                Some(listed) => *listed == list,
                None => is_deep(&dataset) && self.rows.contains_key(&dataset),
            };
            if stays {
                snapshots.remove(&dataset);
                snapshots.insert(dataset, list);
            }
        }
        self.snapshots = snapshots;
    }

    /// Returns the datasets with snapshots that are too deep for a listing of the node.
    pub fn deep_snapshots(&self) -> impl Iterator<Item = &str> {
        self.snapshots.keys().map(|dataset| &**dataset).filter(|dataset| is_deep(dataset))
    }

    fn insert_row(&mut self, row: Row) {
        self.remove_row(row.name());
        let name: Arc<str> = row.name().into();
        if let Some(mountpoint) = row.mountpoint() {
            let names = self.mounted.entry((*mountpoint).into());
            let names = names.or_insert_with(|| Vec::with_capacity(1));
            names.insert(names.partition_point(|other| *other < name), Arc::clone(&name));
        }
        self.rows.insert(name, row);
    }

    fn remove_row(&mut self, name: &str) {
        let Some(row) = self.rows.remove(name) else { return };
        let Some(mountpoint) = row.mountpoint() else { return };
        let Some(names) = self.mounted.get_mut(&*mountpoint) else { return };
        names.retain(|other| **other != *name);
        if names.is_empty() {
            self.mounted.remove(&*mountpoint);
        }
    }

    fn insert_snapshot(&mut self, row: &SnapshotRow<'_>) {
        let list = match self.snapshots.get_mut(row.dataset) {
            Some(list) => list,
            None => self.snapshots.entry(row.dataset.into()).or_default(),
        };
        let list = Arc::make_mut(list);
        match list.find(row.name) {
            Some(range) => list.0.replace_range(range, &row.kept()),
            None => list.0.push_str(&row.kept()),
        }
    }
}

impl VmDatasets {
    fn own(&self, name: &str) -> Option<&Own> {
        self.0.iter().find(|own| *own.name == *name)
    }

    /// Returns the filesystem or volume of this name.
    pub fn get(&self, name: &str) -> Option<&Row> {
        self.own(name)?.row.as_ref()
    }

    /// Returns the filesystem that is mounted here, or the volume of this device.
    pub fn at(&self, mountpoint: &str) -> Option<&Row> {
        let mut mounted = self.0.iter().filter(|own| own.is_mounted);
        let is_here = |row: &&Row| row.mountpoint().as_deref() == Some(mountpoint);
        mounted.find_map(|own| own.row.as_ref().filter(is_here))
    }

    /// Returns the snapshots of a dataset in the order of the listing.
    pub fn snapshots(&self, dataset: &str) -> impl Iterator<Item = SnapshotRow<'_>> {
        let list = self.own(dataset).and_then(|own| Some((&*own.name, own.snapshots.as_ref()?)));
        list.into_iter().flat_map(|(dataset, list)| list.iter(dataset))
    }
}

impl FromIterator<Row> for Datasets {
    fn from_iter<T: IntoIterator<Item = Row>>(rows: T) -> Self {
        let mut datasets = Datasets::default();
        datasets.insert(rows);
        datasets
    }
}

impl Row {
    /// Returns where it is mounted, or its device; `None` if it is mounted inside a zone, or that was not
    /// looked up.
    pub fn mountpoint(&self) -> Option<Cow<'_, str>> {
        let name = self.name();
        let mountpoint: Cow<'_, str> = match self.text(Column::Type) {
            "volume" => format!("{DEVICES}{name}").into(),
            _ => match self.mounted()? {
                "-" | "legacy" => format!("/{name}").into(),
                text => text.into(),
            },
        };
        (mountpoint.starts_with('/') && !self.is_delegated()).then_some(mountpoint)
    }

    /// Returns true for a filesystem that is not delegated: where it is mounted is not for a tenant to
    /// say, and [`Row::mountpoint`] needs it.
    pub fn is_mounted_outside(&self) -> bool {
        self.text(Column::Type) == "filesystem" && !self.is_delegated()
    }

    fn is_delegated(&self) -> bool {
        self.text(Column::Zoned) == "on" || self.name().split('/').nth(2) == Some("data")
    }
}

/// Returns true if a listing of the node does not have the snapshots of this dataset.
fn is_deep(dataset: &str) -> bool {
    dataset.bytes().filter(|byte| *byte == b'/').nth(1).is_some()
}

#[cfg(test)]
mod tests;
