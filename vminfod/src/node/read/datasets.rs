// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Runs `zfs list`, in three readings because it is slow: the filesystems and volumes of the node take
//! seconds, its snapshots may take minutes, and an event has one dataset listed.

use std::time::Duration;

use daemon::command::{Call, LineSink, Output, Program};
use vm_model::datasets::SnapshotTable;
use vm_model::origin::Origin;
use vm_model::parse::zfs_list::{COLUMNS, Listing, Row, SNAPSHOT_COLUMNS, SnapshotListing};

use crate::node::ctx::Ctx;
use crate::node::error::{Fault, LoadError};

/// Lists the filesystems and volumes of the node, as deep as the deployed daemon does.
/// Errors: zfs fails or prints a partial listing.
pub async fn node(ctx: &Ctx) -> Result<Vec<Row>, LoadError> {
    let mut listing = Listing::default();
    let args = arguments("filesystem,volume", COLUMNS, &["2"]);
    let output = list(ctx, args, ctx.deadlines.zfs_node, &mut |line| listing.line(line)).await?;
    check_whole(&output)?;
    Ok(listing.finish()?)
}

/// Lists the snapshots of the node, with the columns that are shown.
/// Errors: zfs fails or prints a partial listing.
pub async fn snapshots(ctx: &Ctx) -> Result<SnapshotTable, LoadError> {
    let (mut listing, mut table) = (SnapshotListing::default(), SnapshotTable::default());
    let args = arguments("snapshot", SNAPSHOT_COLUMNS, &["2"]);
    let mut each = |line: &[u8]| listing.line(line, |row| table.push(row));
    let output = list(ctx, args, ctx.deadlines.zfs_snapshots, &mut each).await?;
    check_whole(&output)?;
    listing.finish()?;
    Ok(table)
}

/// Lists one dataset with its children and snapshots; nothing if it does not exist.
/// Errors: zfs fails or prints a partial listing.
pub async fn one(ctx: &Ctx, name: &str) -> Result<Vec<Row>, LoadError> {
    let mut listing = Listing::default();
    let args = arguments("filesystem,snapshot,volume", COLUMNS, &["1", name]);
    let output = list(ctx, args, ctx.deadlines.zfs_one, &mut |line| listing.line(line)).await?;
    // The text of zfs(8) for a dataset that does not exist; recorded.
    if output.status == 1 && output.complaint().contains("dataset does not exist") {
        return Ok(Vec::new());
    }
    check_whole(&output)?;
    if listing.is_empty() {
        let what = format!("expected {name} at least, found nothing");
        return Err(LoadError::content(Origin::Datasets, what));
    }
    Ok(listing.finish()?)
}

fn arguments(types: &str, columns: &str, rest: &[&str]) -> Vec<String> {
    let fixed = ["list", "-H", "-p", "-t", types, "-o", columns, "-d"];
    fixed.iter().chain(rest).map(|arg| (*arg).to_owned()).collect()
}

async fn list(
    ctx: &Ctx,
    args: Vec<String>,
    deadline: Duration,
    each: LineSink<'_>,
) -> Result<Output, LoadError> {
    let listed = ctx.commands.lines(Call::new(Program::Zfs, args, deadline), each).await;
    listed.map_err(|e| LoadError::new(Origin::Datasets, Fault::Command(e)))
}

/// Fails if the command failed or its output ends inside a line.
fn check_whole(output: &Output) -> Result<(), LoadError> {
    if output.status != 0 {
        return Err(LoadError::exit(Origin::Datasets, output));
    }
    if output.stdout.is_empty() {
        return Ok(());
    }
    let rest: String = String::from_utf8_lossy(&output.stdout).chars().take(80).collect();
    let what = format!("expected the end of a line, found the end of the listing after {rest:?}");
    Err(LoadError::content(Origin::Datasets, what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::scripted;

    const LINE: &str =
        "lz4\t1500000000\t0\t/zones/a\tzones/a\t1\t2\t3\t4\t5\tfilesystem\t-\t7\t8\t9\t10\toff";

    #[test]
    fn commands_are_the_deployed_ones() {
        let args = arguments("filesystem,snapshot,volume", COLUMNS, &["1", "zones/a"]);
        assert_eq!(args[..5], ["list", "-H", "-p", "-t", "filesystem,snapshot,volume"]);
        assert_eq!(args[5..], ["-o", COLUMNS, "-d", "1", "zones/a"]);
    }

    #[tokio::test]
    async fn partial_listing_of_a_failed_command_is_an_error() {
        let script = format!("echo '{LINE}'; echo 'pool I/O is suspended' >&2; exit 1");
        let (_dir, ctx) = scripted::node(Program::Zfs, &script);
        let error = node(&ctx).await.unwrap_err().to_string();
        assert!(error.contains("pool I/O is suspended"), "{error}");
        assert!(one(&ctx, "zones/a").await.is_err() && snapshots(&ctx).await.is_err());
        let (_dir, ctx) = scripted::node(Program::Zfs, &format!("echo '{LINE}'"));
        assert_eq!(node(&ctx).await.unwrap().len(), 1);
        assert_eq!(one(&ctx, "zones/a").await.unwrap().len(), 1);
    }

    #[tokio::test]
    async fn truncated_or_empty_listing_is_an_error() {
        let script = format!("echo '{LINE}'; printf 'lz4\\t15000'");
        let (_dir, ctx) = scripted::node(Program::Zfs, &script);
        for error in [node(&ctx).await.unwrap_err(), one(&ctx, "zones/a").await.unwrap_err()] {
            assert!(error.to_string().starts_with("zfs: expected the end of a line"), "{error}");
        }
        let (_dir, ctx) = scripted::node(Program::Zfs, ":");
        let error = one(&ctx, "zones/a").await.unwrap_err().to_string();
        assert_eq!(error, "zfs: expected zones/a at least, found nothing");
    }
}
