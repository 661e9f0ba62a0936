// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! zfs, zpool.

use daemon::command::Program;
use daemon::text::counted;

use super::finding::Finding;
use super::programs::Programs;

/// Properties that are read of filesystems and volumes.
const PROPERTIES: &str = "name,type,used,available,quota,recordsize,compression,refreservation,volsize,volblocksize,\
    zoned,origin,creation,snapshot_limit,filesystem_limit";

pub(super) async fn check(programs: &Programs) -> Vec<Finding> {
    vec![listing(programs).await, snapshots(programs).await, pools(programs).await]
}

/// Names, and numbers where a number is asked for: fields that no tenant writes.
async fn listing(programs: &Programs) -> Finding {
    let args = ["list", "-H", "-p", "-t", "filesystem,volume", "-o", PROPERTIES];
    let printed = match programs.printed(Program::Zfs, &args).await {
        Ok(printed) => printed,
        Err(why) => return Finding::fails("B9", why),
    };
    let text = String::from_utf8_lossy(&printed).into_owned();
    let columns = PROPERTIES.split(',').count();
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split('\t').collect()).collect();
    let bad = rows.iter().filter(|row| row.len() != columns).count();
    let is_number = |text: &str| text == "-" || text.parse::<u64>().is_ok();
    let no_number = rows.iter().filter(|row| row.len() == columns && !is_number(row[2])).count();
    let names: std::collections::BTreeSet<&str> = rows.iter().map(|row| row[0]).collect();
    let mut against = Vec::new();
    for (count, what) in [
        (bad, "rows have another number of columns"),
        (no_number, "sizes are no numbers"),
        (rows.len() - names.len(), "names come twice"),
    ] {
        if count > 0 {
            against.push(format!("{count} {what}"));
        }
    }
    if rows.is_empty() {
        against.push("there is no dataset".to_owned());
    }
    Finding::unless("B9", &against, counted(rows.len(), "dataset", "datasets"))
}

/// Snapshots can be listed with the columns that are shown.
async fn snapshots(programs: &Programs) -> Finding {
    let args = ["list", "-H", "-p", "-t", "snapshot", "-o", "name,creation,written,used"];
    match programs.printed(Program::Zfs, &args).await {
        Err(why) => Finding::fails("B10", why),
        Ok(printed) => {
            let text = String::from_utf8_lossy(&printed).into_owned();
            let bad = text
                .lines()
                .filter(|line| line.split('\t').count() != 4 || !line.contains('@'))
                .count();
            let against = match bad {
                0 => vec![],
                bad => vec![format!("{} not a snapshot", counted(bad, "row is", "rows are"))],
            };
            Finding::unless("B10", &against, counted(text.lines().count(), "snapshot", "snapshots"))
        }
    }
}

/// Pools print their sizes and their health.
async fn pools(programs: &Programs) -> Finding {
    let args = ["list", "-H", "-p", "-o", "name,size,free,health"];
    match programs.printed(Program::Zpool, &args).await {
        Err(why) => Finding::unknown("B11", why),
        Ok(printed) => {
            let text = String::from_utf8_lossy(&printed).into_owned();
            let is_row = |line: &str| {
                let cells: Vec<&str> = line.split('\t').collect();
                cells.len() == 4
                    && cells[1].parse::<u64>().is_ok()
                    && cells[2].parse::<u64>().is_ok()
            };
            let bad = text.lines().filter(|line| !is_row(line)).count();
            let mut against = Vec::new();
            if bad > 0 {
                against.push(format!("{bad} rows cannot be read"));
            }
            if text.lines().next().is_none() {
                against.push("there is no pool".to_owned());
            }
            Finding::unless("B11", &against, format!("{} pools", text.lines().count()))
        }
    }
}
