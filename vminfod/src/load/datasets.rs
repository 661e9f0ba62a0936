// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! zfs list: datasets, volumes and snapshots, kept as printed and found by name and mountpoint.
//!
//! Numbers stay text here, so that two listings are equal exactly when they print the same.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::{Ctx, Fault, LoadError, Origin};
use crate::commands::{LineSink, Output, Tool};
use crate::vm::convert::to_number;

const COLUMNS: &str = "compression,creation,filesystem_limit,mountpoint,name,quota,recsize,refquota,refreservation,\
                       snapshot_limit,type,usedbysnapshots,userrefs,volblocksize,volsize,written,zoned";

/// The columns of a listing, in its order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // named as zfs names them
pub enum Column {
    Compression,
    Creation,
    FilesystemLimit,
    Mountpoint,
    Name,
    Quota,
    Recsize,
    Refquota,
    Refreservation,
    SnapshotLimit,
    Type,
    Usedbysnapshots,
    Userrefs,
    Volblocksize,
    Volsize,
    Written,
    Zoned,
}

const COUNT: usize = Column::Zoned as usize + 1;

/// One line of a listing.
#[derive(Clone, PartialEq, Eq)]
pub struct Row {
    line: Box<str>,
    ends: [u32; COUNT],
}

impl std::fmt::Debug for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Row({:?})", self.line)
    }
}

impl Row {
    /// A row of a line with exactly 17 columns.
    pub fn parse(line: &str) -> Option<Row> {
        let line = line.trim();
        let mut ends = [0; COUNT];
        let mut found = 0;
        let tabs = line.match_indices('\t').map(|(at, _)| at).chain([line.len()]);
        for at in tabs {
            *ends.get_mut(found)? = u32::try_from(at).ok()?;
            found += 1;
        }
        (found == COUNT).then(|| Row { line: line.into(), ends })
    }

    /// A column as printed.
    pub fn text(&self, column: Column) -> &str {
        let i = column as usize;
        let from = if i == 0 { 0 } else { self.ends.get(i - 1).map_or(0, |end| *end as usize + 1) };
        let to = self.ends.get(i).map_or(0, |end| *end as usize);
        self.line.get(from..to).unwrap_or_default()
    }

    /// A column as a number; `None` for a lone `-`.
    pub fn number(&self, column: Column) -> Option<f64> {
        let text = self.text(column);
        (text != "-").then(|| to_number(text))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.text(Column::Name)
    }

    fn is_snapshot(&self) -> bool {
        self.text(Column::Type) == "snapshot"
    }

    /// Where it is found: volumes by their device.
    fn mountpoint(&self) -> Option<String> {
        let name = self.name();
        let mountpoint = match (self.text(Column::Type), self.text(Column::Mountpoint)) {
            ("volume", _) => format!("/dev/zvol/rdsk/{name}"),
            (_, "-" | "legacy") => format!("/{name}"),
            (_, text) => text.to_owned(),
        };
        let delegated = self.text(Column::Zoned) == "on" || name.split('/').nth(2) == Some("data");
        (mountpoint.starts_with('/') && !delegated).then_some(mountpoint)
    }
}

/// The datasets of a node. Cheap to clone; equal when every row is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Datasets(Arc<Tables>);

#[derive(Debug, Clone, Default, PartialEq)]
struct Tables {
    /// File systems and volumes.
    datasets: HashMap<String, Arc<Row>>,
    /// Names of the datasets that claim a mountpoint; the last one has it.
    mountpoints: HashMap<String, Vec<String>>,
    /// By dataset, in the order of the listing.
    snapshots: HashMap<String, Vec<Arc<Row>>>,
}

impl Datasets {
    /// The dataset or volume of this name.
    pub fn get(&self, name: &str) -> Option<&Row> {
        self.0.datasets.get(name).map(|row| &**row)
    }

    /// The dataset that is mounted here, or the volume of this device.
    pub fn at(&self, mountpoint: &str) -> Option<&Row> {
        self.get(self.0.mountpoints.get(mountpoint)?.last()?)
    }

    /// The snapshots of a dataset and their names after the `@`, in listing order.
    pub fn snapshots(&self, dataset: &str) -> impl Iterator<Item = (&str, &Row)> {
        let rows = self.0.snapshots.get(dataset).map(Vec::as_slice).unwrap_or_default();
        rows.iter().filter_map(|row| Some((row.name().split_once('@')?.1, &**row)))
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.0.datasets.len() + self.0.snapshots.values().map(Vec::len).sum::<usize>()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets a dataset with its snapshots (not its children), or one snapshot.
    pub fn expire(&mut self, name: &str) {
        let tables = Arc::make_mut(&mut self.0);
        if let Some((dataset, _)) = name.split_once('@') {
            if let Some(rows) = tables.snapshots.get_mut(dataset) {
                rows.retain(|row| row.name() != name);
                if rows.is_empty() {
                    tables.snapshots.remove(dataset);
                }
            }
            return;
        }
        tables.forget(name);
        tables.snapshots.remove(name);
    }

    /// Takes the rows of a listing in, each in place of an older one of its name.
    pub fn insert(&mut self, rows: impl IntoIterator<Item = Row>) {
        let tables = Arc::make_mut(&mut self.0);
        for row in rows {
            tables.insert(Arc::new(row));
        }
    }
}

impl FromIterator<Row> for Datasets {
    fn from_iter<T: IntoIterator<Item = Row>>(rows: T) -> Self {
        let mut builder = Builder::default();
        for row in rows {
            builder.row(row);
        }
        Datasets(Arc::new(builder.tables))
    }
}

/// Makes the tables of a listing while it is read; nothing of them is seen before its end.
#[derive(Default)]
pub struct Builder {
    reader: Lines,
    tables: Tables,
    /// Where each snapshot stands in its dataset's list.
    snapshots: HashMap<String, usize>,
}

impl Builder {
    /// Takes the next line in.
    pub fn line(&mut self, line: &[u8]) {
        if let Some(row) = self.reader.row(line) {
            self.row(row);
        }
    }

    /// The datasets, if every line was good.
    pub fn finish(self) -> Result<Datasets, LoadError> {
        match self.reader.fault {
            Some(fault) => Err(fault),
            None => Ok(Datasets(Arc::new(self.tables))),
        }
    }

    fn row(&mut self, row: Row) {
        if !row.is_snapshot() {
            self.tables.insert(Arc::new(row));
            return;
        }
        // A listing names a snapshot once, except when it was made by hand: the later line counts.
        let known = self.snapshots.get(row.name()).copied();
        let list = self.tables.snapshots.entry(parent(row.name())).or_default();
        match known.and_then(|at| list.get_mut(at)) {
            Some(slot) => *slot = Arc::new(row),
            None => {
                self.snapshots.insert(row.name().to_owned(), list.len());
                list.push(Arc::new(row));
            }
        }
    }
}

/// Reads lines as rows until one is bad.
#[derive(Default)]
struct Lines {
    number: u32,
    fault: Option<LoadError>,
}

impl Lines {
    fn row(&mut self, line: &[u8]) -> Option<Row> {
        self.number = self.number.saturating_add(1);
        let row = Row::parse(&String::from_utf8_lossy(line)).filter(|_| self.fault.is_none())?;
        if row.is_snapshot() && row.name().matches('@').count() != 1 {
            let what = format!("expected DATASET@SNAPSHOT, found {:?}", row.name());
            self.fault = Some(LoadError::line(Origin::Datasets, self.number, what));
            return None;
        }
        Some(row)
    }
}

impl Tables {
    fn insert(&mut self, row: Arc<Row>) {
        if row.is_snapshot() {
            let rows = self.snapshots.entry(parent(row.name())).or_default();
            match rows.iter_mut().find(|r| r.name() == row.name()) {
                Some(slot) => *slot = row,
                None => rows.push(row),
            }
            return;
        }
        let name = row.name().to_owned();
        let mountpoint = row.mountpoint();
        self.forget(&name);
        if let Some(mountpoint) = mountpoint {
            self.mountpoints.entry(mountpoint).or_default().push(name.clone());
        }
        self.datasets.insert(name, row);
    }

    fn forget(&mut self, name: &str) {
        let Some(mountpoint) = self.datasets.remove(name).and_then(|row| row.mountpoint()) else {
            return;
        };
        if let Some(names) = self.mountpoints.get_mut(&mountpoint) {
            names.retain(|n| n != name);
            if names.is_empty() {
                self.mountpoints.remove(&mountpoint);
            }
        }
    }
}

fn parent(snapshot: &str) -> String {
    snapshot.split_once('@').map_or(snapshot, |(dataset, _)| dataset).to_owned()
}

fn arguments(rest: &[&str]) -> Vec<String> {
    let fixed = ["list", "-H", "-p", "-t", "filesystem,snapshot,volume", "-o", COLUMNS, "-d"];
    fixed.iter().chain(rest).map(|a| (*a).to_owned()).collect()
}

/// All datasets of the node, as deep as the deployed daemon lists them.
pub async fn node(ctx: &Ctx) -> Result<Datasets, LoadError> {
    let mut builder = Builder::default();
    let mut each = |line: &[u8]| builder.line(line);
    let output = list(ctx, &["2"], ctx.deadlines.zfs_node, &mut each).await?;
    if output.status != 0 {
        return Err(failed(&output));
    }
    builder.finish()
}

/// One dataset with its children and snapshots; nothing if it does not exist.
pub async fn one(ctx: &Ctx, name: &str) -> Result<Vec<Row>, LoadError> {
    let (mut reader, mut rows) = (Lines::default(), Vec::new());
    let mut each = |line: &[u8]| rows.extend(reader.row(line));
    let output = list(ctx, &["1", name], ctx.deadlines.zfs_one, &mut each).await?;
    match (output.status, reader.fault) {
        (0, None) => Ok(rows),
        (0, Some(fault)) => Err(fault),
        (1, _) if output.complaint().contains("dataset does not exist") => Ok(Vec::new()),
        _ => Err(failed(&output)),
    }
}

async fn list(
    ctx: &Ctx,
    rest: &[&str],
    deadline: Duration,
    each: LineSink<'_>,
) -> Result<Output, LoadError> {
    let listed = ctx.commands.lines(Tool::Zfs, arguments(rest), deadline, each).await;
    listed.map_err(|e| LoadError::new(Origin::Datasets, Fault::Command(e)))
}

fn failed(output: &Output) -> LoadError {
    let fault = Fault::Exit { status: output.status, complaint: output.complaint() };
    LoadError::new(Origin::Datasets, fault)
}

/// The rows of a listing; lines that are none are left out. A snapshot name that cannot be one
/// condemns the listing.
pub fn parse(bytes: &[u8]) -> Result<Vec<Row>, LoadError> {
    let mut reader = Lines::default();
    let rows = bytes.split(|byte| *byte == b'\n').filter_map(|line| reader.row(line)).collect();
    match reader.fault {
        Some(fault) => Err(fault),
        None => Ok(rows),
    }
}

#[cfg(test)]
mod tests;
