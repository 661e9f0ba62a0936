// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `zfs list -Hp`: filesystems and volumes with all columns but one, snapshots with four.
//!
//! zfs prints each text as it is, with the tabs and line ends in it. So these listings have no column
//! that a tenant writes: names have no such characters, the others are numbers or words of zfs. Where a
//! dataset is mounted is such a text, and is looked up apart ([`super::mountpoints`]).

use std::borrow::Cow;
use std::sync::Arc;

use crate::js::{lossy, to_number};
use crate::origin::{Origin, ParseError};

/// The columns of a listing of datasets, for `-o`.
pub const COLUMNS: &str = "compression,creation,filesystem_limit,name,quota,recsize,refquota,refreservation,\
                           snapshot_limit,type,usedbysnapshots,userrefs,volblocksize,volsize,written,zoned";

/// The columns of a listing of snapshots, for `-o`.
pub const SNAPSHOT_COLUMNS: &str = "name,creation,userrefs,written";

/// The columns of a listing of datasets, in its order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    Compression,
    Creation,
    FilesystemLimit,
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

/// Returns a column as a number; `None` for `-`.
pub fn number(text: &str) -> Option<f64> {
    (text != "-").then(|| to_number(text))
}

/// One line of a listing of datasets; after one more tab where the dataset is mounted, if that was
/// looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row(Arc<str>);

impl Row {
    /// Returns the row of a line with exactly 16 columns.
    pub fn parse(line: &str) -> Option<Row> {
        let line = line.trim();
        (line.split('\t').count() == COUNT).then(|| Row(line.into()))
    }

    /// Returns the same row with where it is mounted, which may be any text.
    #[must_use]
    pub fn mounted_at(&self, mountpoint: &str) -> Row {
        let columns = self.0.splitn(COUNT + 1, '\t').take(COUNT);
        Row(columns.chain([mountpoint]).collect::<Vec<_>>().join("\t").into())
    }

    /// Returns where it is mounted as zfs says it; `None` if that was not looked up.
    pub fn mounted(&self) -> Option<&str> {
        self.0.splitn(COUNT + 1, '\t').nth(COUNT)
    }

    /// Returns a column as printed.
    pub fn text(&self, column: Column) -> &str {
        self.0.split('\t').nth(column as usize).unwrap_or_default()
    }

    /// Returns a column as a number; `None` for `-`.
    pub fn number(&self, column: Column) -> Option<f64> {
        number(self.text(column))
    }

    /// Returns the name of the dataset.
    pub fn name(&self) -> &str {
        self.text(Column::Name)
    }

    /// Returns all columns as printed, with zfs's names; that of the mountpoint last, if it is known.
    pub fn columns(&self) -> impl Iterator<Item = (&'static str, &str)> {
        COLUMNS.split(',').chain(["mountpoint"]).zip(self.0.splitn(COUNT + 1, '\t'))
    }

    /// Returns its text.
    pub fn line(&self) -> &str {
        &self.0
    }

    /// Returns the snapshot that this row is about; `None` for a filesystem or volume.
    pub fn as_snapshot(&self) -> Option<SnapshotRow<'_>> {
        if self.text(Column::Type) != "snapshot" {
            return None;
        }
        let (dataset, name) = self.name().split_once('@').unwrap_or((self.name(), ""));
        let [creation, userrefs, written] =
            [Column::Creation, Column::Userrefs, Column::Written].map(|column| self.text(column));
        Some(SnapshotRow { dataset, name, creation, userrefs, written })
    }
}

/// A snapshot, with its columns as printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotRow<'a> {
    /// The part before the `@`.
    pub dataset: &'a str,
    /// The part after it.
    pub name: &'a str,
    /// Seconds since 1970.
    pub creation: &'a str,
    userrefs: &'a str,
    written: &'a str,
}

impl<'a> SnapshotRow<'a> {
    /// Returns the snapshot of a dataset whose line [`crate::datasets`] keeps.
    pub(crate) fn of(dataset: &'a str, kept: &'a str) -> Option<Self> {
        let mut texts = kept.split('\t');
        let mut next = || texts.next();
        let (name, creation, userrefs, written) = (next()?, next()?, next()?, next()?);
        Some(SnapshotRow { dataset, name, creation, userrefs, written })
    }

    /// Returns that line.
    pub(crate) fn kept(&self) -> String {
        format!("{}\t{}\t{}\t{}\n", self.name, self.creation, self.userrefs, self.written)
    }

    /// Returns the creation time in seconds since 1970; `None` for `-`.
    pub fn created(&self) -> Option<f64> {
        number(self.creation)
    }

    /// Returns the number of holds; `None` for `-`.
    pub fn userrefs(&self) -> Option<f64> {
        number(self.userrefs)
    }

    /// Returns the size in bytes; `None` for `-`.
    pub fn written(&self) -> Option<f64> {
        number(self.written)
    }
}

/// The reader of a listing of datasets.
#[derive(Default)]
pub struct Listing {
    lines: u32,
    rows: Vec<Row>,
    fault: Option<ParseError>,
}

impl Listing {
    /// Reads the next line. Leaves out a line with another number of columns.
    pub fn line(&mut self, line: &[u8]) {
        self.lines = self.lines.saturating_add(1);
        let text = lossy(line);
        let Some(row) = Row::parse(&text).filter(|_| self.fault.is_none()) else { return };
        match row_fault(&row, matches!(text, Cow::Owned(_))) {
            Some(what) => self.fault = Some(ParseError::line(Origin::Datasets, self.lines, what)),
            None => self.rows.push(row),
        }
    }

    /// Returns true if no line was read.
    pub fn is_empty(&self) -> bool {
        self.lines == 0
    }

    /// Returns the rows.
    pub fn finish(self) -> Result<Vec<Row>, ParseError> {
        self.fault.map_or(Ok(self.rows), Err)
    }
}

/// Returns what is wrong with a row that zfs cannot have printed.
fn row_fault(row: &Row, is_replaced: bool) -> Option<String> {
    if row.as_snapshot().is_some() && row.name().matches('@').count() != 1 {
        return Some(format!("expected DATASET@SNAPSHOT, found {:?}", row.name()));
    }
    is_replaced.then(|| format!("expected UTF-8, found {:?}", row.line()))
}

/// The reader of a listing of snapshots.
#[derive(Default)]
pub struct SnapshotListing {
    lines: u32,
    fault: Option<ParseError>,
}

impl SnapshotListing {
    /// Reads the next line and passes its snapshot to `each`. Leaves out a line with another number of
    /// columns.
    pub fn line(&mut self, line: &[u8], each: impl FnOnce(&SnapshotRow<'_>)) {
        self.lines = self.lines.saturating_add(1);
        let text = lossy(line);
        let columns: Vec<&str> = text.trim().split('\t').collect();
        let [full, creation, userrefs, written] = columns[..] else { return };
        let fault = match full.split_once('@') {
            _ if matches!(text, Cow::Owned(_)) => Some(format!("expected UTF-8, found {text:?}")),
            Some((dataset, name)) if !name.contains('@') => {
                each(&SnapshotRow { dataset, name, creation, userrefs, written });
                None
            }
            _ => Some(format!("expected DATASET@SNAPSHOT, found {full:?}")),
        };
        if let (Some(what), None) = (fault, &self.fault) {
            self.fault = Some(ParseError::line(Origin::Datasets, self.lines, what));
        }
    }

    /// Ends the listing.
    pub fn finish(self) -> Result<(), ParseError> {
        self.fault.map_or(Ok(()), Err)
    }
}

/// Parses a listing of datasets.
pub fn parse(bytes: &[u8]) -> Result<Vec<Row>, ParseError> {
    let mut listing = Listing::default();
    bytes.split(|byte| *byte == b'\n').for_each(|line| listing.line(line));
    listing.finish()
}

#[cfg(test)]
pub(crate) mod tests;
