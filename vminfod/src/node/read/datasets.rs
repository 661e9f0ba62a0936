// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Runs `zfs list`, in three readings because it is slow: the filesystems and volumes of the node take
//! seconds, its snapshots may take minutes, and an event has one dataset listed.
//!
//! The first two list no text that a tenant writes. Where the datasets are mounted that are not
//! delegated is looked up afterwards, many with one command.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use daemon::command::{Call, LineSink, Output, Program};
use sdc_clients::quoted;
use tokio::time::Instant;
use vm_model::datasets::SnapshotTable;
use vm_model::origin::Origin;
use vm_model::parse::mountpoints;
use vm_model::parse::zfs_list::{COLUMNS, Listing, Row, SNAPSHOT_COLUMNS, SnapshotListing};

use crate::node::ctx::Ctx;
use crate::node::error::{Fault, LoadError};

/// Bytes of names in one look-up: a system takes so many arguments, and a node of 1,000 VMs needs one.
const LOOKUP: usize = 128 * 1024;

/// Lists the filesystems and volumes of the node, as deep as the deployed daemon does.
/// Errors: zfs fails or prints a partial listing.
pub async fn node(ctx: &Ctx) -> Result<Vec<Row>, LoadError> {
    let until = Instant::now() + ctx.deadlines.zfs_node;
    let mut listing = Listing::default();
    let args = arguments("filesystem,volume", COLUMNS, &["2"]);
    let output = list(ctx, args, ctx.deadlines.zfs_node, &mut |line| listing.line(line)).await?;
    check_whole(&output)?;
    mounted(ctx, listing.finish()?, HashMap::new(), until).await
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
    let until = Instant::now() + ctx.deadlines.zfs_one;
    let mut listing = Listing::default();
    let args = arguments("filesystem,snapshot,volume", COLUMNS, &["1", name]);
    let mut each = |line: &[u8]| listing.line(line);
    let listed = list(ctx, args, ctx.deadlines.zfs_one, &mut each);
    // Beside the listing: an event is not to wait for two commands. It fails where this is no filesystem.
    let own = [name].into_iter().filter(|name| !name.contains('@')).collect::<Vec<_>>();
    let (output, known) = tokio::join!(listed, look_up(ctx, &own, until));
    let output = output?;
    if output.status == 1 && output.complaint().contains(GONE[0]) {
        return Ok(Vec::new());
    }
    check_whole(&output)?;
    if listing.is_empty() {
        let what = format!("expected {name} at least, found nothing");
        return Err(LoadError::content(Origin::Datasets, what));
    }
    let mut rows = listing.finish()?;
    rows.retain(|row| row.name().strip_prefix(name).is_some_and(is_own_or_below));
    mounted(ctx, rows, known.unwrap_or_default(), until).await
}

/// The texts of zfs(8) for a dataset that does not exist, recorded, and for one that is of another type
/// now.
const GONE: [&str; 2] =
    ["dataset does not exist", "operation not applicable to datasets of this type"];

/// Whether this is what the name of a dataset has more than that of the one that was asked for.
fn is_own_or_below(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with(['/', '@'])
}

/// Adds to the rows where the datasets are mounted that are not delegated; looks up what is not known.
/// Errors: zfs fails, or does not answer until then.
async fn mounted(
    ctx: &Ctx,
    rows: Vec<Row>,
    mut known: HashMap<String, String>,
    until: Instant,
) -> Result<Vec<Row>, LoadError> {
    let outside = rows.iter().filter(|row| row.is_mounted_outside()).map(Row::name);
    let names: BTreeSet<&str> = outside.filter(|name| !known.contains_key(*name)).collect();
    known.extend(look_up(ctx, &Vec::from_iter(names), until).await?);
    let with = |row: &Row| match known.get(row.name()) {
        Some(at) if row.is_mounted_outside() => row.mounted_at(at),
        _ => row.clone(),
    };
    Ok(rows.iter().map(with).collect())
}

/// Looks up where these datasets are mounted. An answer that can mean more than one thing is asked for
/// again in halves: a text with line ends costs the look-ups that it is in, and no other dataset its own.
async fn look_up(
    ctx: &Ctx,
    names: &[&str],
    until: Instant,
) -> Result<HashMap<String, String>, LoadError> {
    let (mut open, mut known) = (batches(names), HashMap::new());
    open.reverse();
    while let Some(batch) = open.pop() {
        let args = arguments("filesystem", mountpoints::COLUMNS, &[&["0"], batch].concat());
        let left = until.saturating_duration_since(Instant::now());
        let output = ctx.run(Origin::Datasets, Call::new(Program::Zfs, args, left)).await?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        let is_gone = |line: &&str| GONE.iter().any(|text| line.ends_with(text));
        let complaints: Vec<&str> = complaint.lines().filter(|_| output.status != 0).collect();
        let gone = complaints.iter().filter(|line| is_gone(line)).count();
        if output.status != 0 && gone == 0 {
            return Err(LoadError::exit(Origin::Datasets, &output));
        }
        match mountpoints::parse(batch, gone, &output.stdout) {
            Some(found) if complaints.len() == gone => known.extend(found),
            _ if batch.len() > 1 => {
                let (first, second) = batch.split_at(batch.len() / 2);
                open.extend([second, first]);
            }
            _ => {
                let name = batch.join(" ");
                let what = format!("expected the mountpoint of {name}, found no such line");
                return Err(LoadError::content(Origin::Datasets, what));
            }
        }
    }
    Ok(known)
}

/// Cuts the names into shares of one look-up each.
fn batches<'a>(names: &'a [&'a str]) -> Vec<&'a [&'a str]> {
    let (mut all, mut rest) = (Vec::new(), names);
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = |name: &&&str| {
            bytes += name.len() + 1;
            bytes <= LOOKUP
        };
        let (batch, others) = rest.split_at(rest.iter().take_while(fits).count().max(1));
        all.push(batch);
        rest = others;
    }
    all
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
    let what =
        format!("expected the end of a line, found the end of the listing after {}", quoted(&rest));
    Err(LoadError::content(Origin::Datasets, what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::scripted;

    const LINE: &str =
        "lz4\t1500000000\t0\tzones/a\t1\t2\t3\t4\t5\tfilesystem\t-\t7\t8\t9\t10\toff";

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
        let (_dir, ctx) = scripted::node(Program::Zfs, &mounts("printf 'zones/a\\t/m\\n'"));
        for rows in [node(&ctx).await.unwrap(), one(&ctx, "zones/a").await.unwrap()] {
            assert_eq!(rows.iter().map(Row::mounted).collect::<Vec<_>>(), [Some("/m")]);
        }
    }

    /// Prints the line, and this for a look-up.
    fn mounts(answer: &str) -> String {
        format!("case \"$*\" in *name,mountpoint*) {answer}; exit;; esac; echo '{LINE}'")
    }

    #[tokio::test]
    async fn an_answer_to_a_look_up_is_whole_or_an_error() {
        for (answer, says) in [
            ("printf 'zones/a\\t/m'", "expected the mountpoint of zones/a"),
            ("printf 'zones/b\\t/m\\n'", "expected the mountpoint of zones/a"),
            (":", "expected the mountpoint of zones/a"),
            ("echo 'pool I/O is suspended' >&2; exit 1", "pool I/O is suspended"),
        ] {
            let (_dir, ctx) = scripted::node(Program::Zfs, &mounts(answer));
            for error in [node(&ctx).await.unwrap_err(), one(&ctx, "zones/a").await.unwrap_err()] {
                assert!(error.to_string().contains(says), "{answer}: {error}");
            }
        }
        let gone = "echo \"cannot open 'zones/a': dataset does not exist\" >&2; exit 1";
        let (_dir, ctx) = scripted::node(Program::Zfs, &mounts(gone));
        assert_eq!(node(&ctx).await.unwrap()[0].mounted(), None, "it went meanwhile");
    }

    #[tokio::test] // S133
    async fn row_of_another_dataset_is_left_out_alone() {
        let other = LINE.replace("zones/a", "zones/ab");
        let script = format!("{}; echo '{other}'", mounts("printf 'zones/a\\t/m\\n'"));
        let (_dir, ctx) = scripted::node(Program::Zfs, &script);
        let rows = one(&ctx, "zones/a").await.unwrap();
        assert_eq!(rows.iter().map(Row::name).collect::<Vec<_>>(), ["zones/a"]);
    }

    #[test]
    fn look_ups_share_what_fits_into_the_arguments_of_a_command() {
        let names: Vec<String> = (0..10_000).map(|n| format!("zones/{n:0>40}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let all = batches(&names);
        assert_eq!(all.concat(), names);
        assert_eq!(all.len(), 4);
        assert!(batches(&[]).is_empty());
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
