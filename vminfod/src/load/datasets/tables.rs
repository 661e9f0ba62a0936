// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The datasets of a node, found by name and mountpoint, as small as they can be kept: a node has
//! three datasets for each VM and may have fifty thousand snapshots.
//!
//! * A dataset is its line, once; its name is found inside of it.
//! * A mountpoint that follows from the name, as nearly all do, is not kept at all.
//! * A snapshot is four texts in one buffer of its dataset, with nothing around them.

use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::ops::Range;
use std::sync::Arc;

use super::{Column, DEVICES, Row, number};

/// The datasets of a node. Cheap to clone; equal when they answer alike.
#[derive(Debug, Clone, Default)]
pub struct Datasets(pub(super) Arc<Tables>);

impl PartialEq for Datasets {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || *self.0 == *other.0
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct Tables {
    /// File systems and volumes.
    pub(super) rows: HashSet<ByName>,
    /// Mountpoints that do not follow from a name, and the datasets that claim them; the last one
    /// has it.
    elsewhere: HashMap<Box<str>, Vec<Box<str>>>,
    /// By dataset, in the order of the listing.
    pub(super) snapshots: HashMap<Box<str>, Snapshots>,
    /// Counts insertions.
    turn: u64,
}

impl PartialEq for Tables {
    fn eq(&self, other: &Self) -> bool {
        let same = |kept: &ByName| {
            let theirs = other.rows.get(kept);
            theirs.is_some_and(|it| Arc::ptr_eq(&it.row, &kept.row) || it.row == kept.row)
        };
        self.rows.len() == other.rows.len()
            && self.rows.iter().all(same)
            && self.elsewhere == other.elsewhere
            && self.snapshots == other.snapshots
    }
}

/// A row that is found by its name.
#[derive(Debug, Clone)]
pub(super) struct ByName {
    /// Shared from one listing to the next as long as the line stays the same.
    pub(super) row: Arc<Row>,
    /// Of several at one mountpoint the one that came last is there.
    pub(super) turn: u64,
}

impl Borrow<str> for ByName {
    fn borrow(&self) -> &str {
        self.row.name()
    }
}

impl Hash for ByName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.row.name().hash(state);
    }
}

// A set must not hold two of one name, so that the name is what counts as equal.
impl PartialEq for ByName {
    fn eq(&self, other: &Self) -> bool {
        self.row.name() == other.row.name()
    }
}

impl Eq for ByName {}

/// One snapshot as it is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Snapshot<'a> {
    /// What stands after the `@`.
    pub name: &'a str,
    /// Seconds since 1970, as printed.
    pub creation: &'a str,
    pub(super) userrefs: &'a str,
    pub(super) written: &'a str,
}

impl<'a> Snapshot<'a> {
    pub(super) fn of(line: &'a str) -> Option<Self> {
        let mut texts = line.split('\t');
        let [name, creation, userrefs, written] = std::array::from_fn(|_| texts.next());
        Some(Snapshot { name: name?, creation: creation?, userrefs: userrefs?, written: written? })
    }

    /// When it was made; `None` for a lone `-`.
    pub fn created(&self) -> Option<f64> {
        number(self.creation)
    }

    /// How many holds it has; `None` for a lone `-`.
    pub fn userrefs(&self) -> Option<f64> {
        number(self.userrefs)
    }

    /// Its size in bytes; `None` for a lone `-`.
    pub fn written(&self) -> Option<f64> {
        number(self.written)
    }
}

/// The snapshots of one dataset, a line for each.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Snapshots(pub(super) String);

impl Snapshots {
    /// Those in the first so many bytes.
    pub(super) fn first(&self, bytes: usize) -> Snapshots {
        Snapshots(self.0.get(..bytes).unwrap_or_default().to_owned())
    }

    fn iter(&self) -> impl Iterator<Item = Snapshot<'_>> {
        self.0.lines().filter_map(Snapshot::of)
    }

    fn find(&self, name: &str) -> Option<Range<usize>> {
        let mut from = 0;
        self.0.split_inclusive('\n').find_map(|line| {
            let range = from..from + line.len();
            from = range.end;
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with('\t')).then_some(range)
        })
    }

    fn push(&mut self, name: &str, row: &Row) {
        self.0.push_str(name);
        for column in [Column::Creation, Column::Userrefs, Column::Written] {
            self.0.push('\t');
            self.0.push_str(row.text(column));
        }
        self.0.push('\n');
    }

    fn replace(&mut self, range: Range<usize>, name: &str, row: &Row) {
        let mut line = Snapshots::default();
        line.push(name, row);
        self.0.replace_range(range, &line.0);
    }
}

/// Which snapshots are there already, so that a listing of many costs no search for each.
#[derive(Default)]
pub(super) struct Seen {
    hasher: RandomState,
    hashes: HashSet<u64>,
    /// The datasets whose snapshots are in it.
    datasets: HashSet<Box<str>>,
}

impl Seen {
    /// Whether this snapshot may be there already; from now on it is.
    fn enter(&mut self, dataset: &str, name: &str, there: Option<&Snapshots>) -> bool {
        if !self.datasets.contains(dataset) {
            self.datasets.insert(dataset.into());
            for one in there.into_iter().flat_map(Snapshots::iter) {
                self.hashes.insert(self.hasher.hash_one((dataset, one.name)));
            }
        }
        !self.hashes.insert(self.hasher.hash_one((dataset, name)))
    }
}

impl Datasets {
    /// The dataset or volume of this name.
    pub fn get(&self, name: &str) -> Option<&Row> {
        self.0.rows.get(name).map(|kept| &*kept.row)
    }

    /// All datasets and volumes, in no order.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.0.rows.iter().map(|kept| &*kept.row)
    }

    /// The dataset that is mounted here, or the volume of this device.
    pub fn at(&self, mountpoint: &str) -> Option<&Row> {
        let tables = &*self.0;
        let named = |name: &str| tables.rows.get(name);
        let follows = [DEVICES, "/"].map(|prefix| {
            let name = mountpoint.strip_prefix(prefix)?;
            named(name).filter(|kept| kept.row.mountpoint().as_deref() == Some(mountpoint))
        });
        let claimed = tables.elsewhere.get(mountpoint).and_then(|names| named(names.last()?));
        let there = follows.into_iter().chain([claimed]).flatten();
        there.max_by_key(|kept| kept.turn).map(|kept| &*kept.row)
    }

    /// The snapshots of a dataset, in listing order.
    pub fn snapshots(&self, dataset: &str) -> impl Iterator<Item = Snapshot<'_>> {
        self.0.snapshots.get(dataset).into_iter().flat_map(Snapshots::iter)
    }

    /// How many datasets, volumes and snapshots there are.
    pub fn len(&self) -> usize {
        self.0.rows.len() + self.0.snapshots.values().map(|all| all.iter().count()).sum::<usize>()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.rows.is_empty() && self.0.snapshots.is_empty()
    }

    /// About how many bytes of memory the rows take, without what the allocator adds.
    pub fn bytes(&self) -> usize {
        let (name, list) = (size_of::<Box<str>>(), size_of::<Snapshots>());
        let rows = self.0.rows.iter();
        let rows = rows.map(|kept| kept.row.bytes() + size_of::<Row>() + size_of::<ByName>());
        let snapshots = self.0.snapshots.iter();
        let snapshots = snapshots.map(|(key, all)| key.len() + name + list + all.0.capacity());
        let elsewhere = self.0.elsewhere.iter();
        let elsewhere = elsewhere.map(|(key, names)| key.len() + name + names.len() * 2 * name);
        rows.chain(snapshots).chain(elsewhere).sum()
    }

    /// Forgets a dataset with its snapshots (not its children), or one snapshot.
    pub fn expire(&mut self, name: &str) {
        let tables = Arc::make_mut(&mut self.0);
        let Some((dataset, snapshot)) = name.split_once('@') else {
            tables.forget(name);
            tables.snapshots.remove(name);
            return;
        };
        if let Some(list) = tables.snapshots.get_mut(dataset) {
            if let Some(range) = list.find(snapshot) {
                list.0.replace_range(range, "");
            }
            if list.0.is_empty() {
                tables.snapshots.remove(dataset);
            }
        }
    }

    /// Takes the rows of a listing in, each in place of an older one of its name.
    pub fn insert(&mut self, rows: impl IntoIterator<Item = Row>) {
        let (tables, mut seen) = (Arc::make_mut(&mut self.0), Seen::default());
        rows.into_iter().for_each(|row| tables.insert(Arc::new(row), &mut seen));
    }

    /// The datasets that have snapshots, although a listing of the node is too shallow to show any.
    pub fn deep_snapshots(&self) -> impl Iterator<Item = &str> {
        self.0.snapshots.keys().map(|dataset| &**dataset).filter(|dataset| is_deep(dataset))
    }

    /// Takes the snapshots of one dataset over from older tables.
    pub fn keep_snapshots(&mut self, older: &Datasets, dataset: &str) {
        let (mine, theirs) = (self.0.snapshots.get(dataset), older.0.snapshots.get(dataset));
        if let Some(list) = theirs.filter(|theirs| Some(*theirs) != mine) {
            Arc::make_mut(&mut self.0).snapshots.insert(dataset.into(), list.clone());
        }
    }

    /// Forgets the snapshots of one dataset.
    pub fn drop_snapshots(&mut self, dataset: &str) {
        Arc::make_mut(&mut self.0).snapshots.remove(dataset);
    }
}

impl FromIterator<Row> for Datasets {
    fn from_iter<T: IntoIterator<Item = Row>>(rows: T) -> Self {
        let mut datasets = Datasets::default();
        datasets.insert(rows);
        datasets
    }
}

impl Tables {
    pub(super) fn insert(&mut self, row: Arc<Row>, seen: &mut Seen) {
        if row.is_snapshot() {
            self.insert_snapshot(&row, seen);
            return;
        }
        self.forget(row.name());
        if let Some(mountpoint) = elsewhere(&row) {
            self.elsewhere.entry(mountpoint.into()).or_default().push(row.name().into());
        }
        self.turn += 1;
        self.rows.insert(ByName { row, turn: self.turn });
    }

    /// A listing names a snapshot once, except when it was made by hand: the later line counts.
    fn insert_snapshot(&mut self, row: &Row, seen: &mut Seen) {
        let (dataset, name) = row.name().split_once('@').unwrap_or((row.name(), ""));
        let again = seen.enter(dataset, name, self.snapshots.get(dataset));
        let list = match self.snapshots.get_mut(dataset) {
            Some(list) => list,
            None => self.snapshots.entry(dataset.into()).or_default(),
        };
        match again.then(|| list.find(name)).flatten() {
            Some(range) => list.replace(range, name, row),
            None => list.push(name, row),
        }
    }

    fn forget(&mut self, name: &str) {
        let Some(kept) = self.rows.take(name) else { return };
        let Some(mountpoint) = elsewhere(&kept.row) else { return };
        if let Some(names) = self.elsewhere.get_mut(mountpoint) {
            names.retain(|n| **n != *name);
            if names.is_empty() {
                self.elsewhere.remove(mountpoint);
            }
        }
    }

    pub(super) fn shrink(&mut self) {
        self.snapshots.values_mut().for_each(|list| list.0.shrink_to_fit());
        self.snapshots.shrink_to_fit();
        self.rows.shrink_to_fit();
    }
}

/// The mountpoint of a row, if it does not follow from the name.
fn elsewhere(row: &Row) -> Option<&str> {
    let mountpoint = row.mountpoint()?;
    let follows = match row.text(Column::Type) {
        "volume" => true,
        _ => mountpoint.strip_prefix('/') == Some(row.name()),
    };
    // Only a printed mountpoint can be another one.
    (!follows).then(|| row.text(Column::Mountpoint))
}

/// Whether a dataset is so deep that a listing of the node shows it without its snapshots.
pub(super) fn is_deep(dataset: &str) -> bool {
    dataset.bytes().filter(|byte| *byte == b'/').nth(1).is_some()
}
