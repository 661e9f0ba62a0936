// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! zfs list: datasets, volumes and snapshots, read line by line.
//!
//! Numbers stay text here; what they mean is for [`crate::vm`] to say.

mod builder;
mod row;
mod tables;

use std::borrow::Cow;
use std::time::Duration;

use super::{Ctx, Fault, LoadError, Origin};
use crate::commands::{LineSink, Output, Tool};
use crate::json;
use crate::vm::convert::to_number;

pub use builder::Builder;
pub use row::Row;
pub use tables::{Datasets, Snapshot};

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
const NAME: usize = Column::Name as usize;

/// Where volumes are found, with their name after it.
pub const DEVICES: &str = "/dev/zvol/rdsk/";

/// A column as a number; `None` for a lone `-`.
fn number(text: &str) -> Option<f64> {
    (text != "-").then(|| to_number(text))
}

/// Reads lines as rows until one is bad.
#[derive(Default)]
struct Lines {
    number: u32,
    fault: Option<LoadError>,
}

impl Lines {
    /// A line that another one like it has proved good.
    fn known(&mut self) {
        self.number = self.number.saturating_add(1);
    }

    fn row(&mut self, line: &[u8]) -> Option<Row> {
        self.number = self.number.saturating_add(1);
        let text = json::text(line);
        let row = Row::parse(&text).filter(|_| self.fault.is_none())?;
        let what = self.fault(&row, matches!(text, Cow::Owned(_)));
        if let Some(what) = what {
            self.fault = Some(LoadError::line(Origin::Datasets, self.number, what));
            return None;
        }
        Some(row)
    }

    /// What zfs cannot have printed. Only a mountpoint may be of bytes that are no UTF-8: zfs
    /// takes any, and one odd directory must not cost the node its listing.
    fn fault(&self, row: &Row, replaced: bool) -> Option<String> {
        if row.is_snapshot() && row.name().matches('@').count() != 1 {
            return Some(format!("expected DATASET@SNAPSHOT, found {:?}", row.name()));
        }
        let mut columns = row.columns().enumerate();
        let damaged = |(at, (_, text)): (usize, (&str, &str))| {
            at != Column::Mountpoint as usize && text.contains(char::REPLACEMENT_CHARACTER)
        };
        (replaced && columns.any(damaged))
            .then(|| format!("expected UTF-8, found {:?}", row.line()))
    }
}

fn arguments(rest: &[&str]) -> Vec<String> {
    let fixed = ["list", "-H", "-p", "-t", "filesystem,snapshot,volume", "-o", COLUMNS, "-d"];
    fixed.iter().chain(rest).map(|a| (*a).to_owned()).collect()
}

/// All datasets of the node, as deep as the deployed daemon lists them.
pub async fn node(ctx: &Ctx) -> Result<Datasets, LoadError> {
    node_after(ctx, Datasets::default()).await
}

/// The same where most is known: the very tables that are given where the listing says nothing
/// else (of datasets so deep that it does not show their snapshots these stay as they are), and of
/// any others each row that says what it said.
pub async fn node_after(ctx: &Ctx, older: Datasets) -> Result<Datasets, LoadError> {
    let mut builder = Builder::after(older);
    let mut each = |line: &[u8]| builder.line(line);
    let output = list(ctx, &["2"], ctx.deadlines.zfs_node, &mut each).await?;
    if output.status != 0 {
        return Err(failed(&output));
    }
    ended(&output)?;
    builder.finish()
}

/// One dataset with its children and snapshots; nothing if it does not exist.
pub async fn one(ctx: &Ctx, name: &str) -> Result<Vec<Row>, LoadError> {
    let (mut reader, mut rows) = (Lines::default(), Vec::new());
    let mut each = |line: &[u8]| rows.extend(reader.row(line));
    let output = list(ctx, &["1", name], ctx.deadlines.zfs_one, &mut each).await?;
    match (output.status, reader.fault) {
        (0, None) => {
            ended(&output)?;
            if reader.number == 0 {
                let what = format!("expected {name} at least, found nothing");
                return Err(LoadError::content(Origin::Datasets, what));
            }
            Ok(rows)
        }
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

/// A listing that stops inside a line lacks others too.
fn ended(output: &Output) -> Result<(), LoadError> {
    if output.stdout.is_empty() {
        return Ok(());
    }
    let rest: String = String::from_utf8_lossy(&output.stdout).chars().take(80).collect();
    let what = format!("expected the end of a line, found the end of the listing after {rest:?}");
    Err(LoadError::content(Origin::Datasets, what))
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
